# SPDX-License-Identifier: PostgreSQL
#
# Runs that end one after the other, and whose retention time is over one after the other, are purged together: the
# supervisor does not purge for each of them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main', 'sas.retain_success' => '2 s', 'sas.supervisor_interval' => '30 s');
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
# each turn of a purge looks there once
my $turns = sub { return sql(q{SELECT seq_scan FROM pg_stat_user_tables WHERE relid = '_sas.idle_version'::regclass}) };
define($node, 'nothing', { steps => {} });
my $submitted = 0;
sub purged { return $submitted - sql('SELECT count(*) FROM sas.runs') }
sub go_on
{
	sql(q{SELECT FROM sas.submit('nothing')});
	$submitted++;
	sleep(0.1);
	return;
}
# the first are purged at the next check of the supervisor; from then on it knows when the next one is due
ok(wait_until(sub { go_on(); purged() > 0 }), 'runs are purged');
my ($before, $began, $purged_before) = ($turns->(), time(), purged());
ok(wait_until(sub { go_on(); purged() > $purged_before + 20 && time() - $began > 20 }), 'and more of them');
# once in five seconds, and a check that finds nothing in five
my $most = 3 + 0.4 * (time() - $began);
my $took = $turns->() - $before;
cmp_ok($took, '<', $most, "runs that end one after the other are purged in few turns ($took in place of at most $most)");
ok(wait_for($node, 'SELECT count(*) FROM sas.runs', '0'), 'all of them');
done_testing();
