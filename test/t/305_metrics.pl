# SPDX-License-Identifier: PostgreSQL
#
# Metrics: what was counted is what happened, and the text is what scrapers
# read.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '500 ms');
my $shop = start_shop();
define_orders($node, $shop);
submit_orders($node, 100);
all_ended($node, 'a hundred orders end');

# name{label="value",...} => number, of one scrape
sub scrape
{
	my ($sql) = @_;
	my %value = map { /^(\S+?(?:\{.*\})?) (\S+)$/ ? ($1 => $2) : () } split /\n/, $node->safe_psql('postgres', $sql // 'SELECT sas.metrics_text()');
	return \%value;
}

my $first = scrape();
diag(join "\n", map { "$_ $first->{$_}" } grep { !/_bucket/ } sort keys %$first);
ok(1);
done_testing();
