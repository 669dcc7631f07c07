# SPDX-License-Identifier: PostgreSQL
#
# The tutorial is true: its commands are run in their order, and give what it
# shows. A block ```sql is run by psql, a block ```text after it is its output,
# and of a block ```sh the fault that is set in a service is set.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', _extension => 0);
my %port_of = (8101 => start_service('inventory'), 8102 => start_service('payments'));
my $page = PostgreSQL::Test::Utils::slurp_file("$SasTest::tree/docs/tutorial.md");

# trailing blanks are lost on a page
sub plain
{
	my ($text) = @_;
	$text =~ s/[ \t]+$//mg;
	$text =~ s/\n+\z//;
	return $text;
}

my $given;
my %quantity;
while ($page =~ /^```(\w+)\n(.*?)^```$/msg)
{
	my ($kind, $block) = ($1, $2);
	my $line = 1 + substr($page, 0, $-[0]) =~ tr/\n//;
	$quantity{$kind}++;
	if ($kind eq 'sql')
	{
		$block =~ s/127\.0\.0\.1:(\d+)/127.0.0.1:$port_of{$1}->{port}/g;
		my @psql = ('psql', '-X', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', '-');
		my $done = IPC::Run::run(\@psql, '<', \$block, '>', \$given, '2>', \my $complaint);
		ok($done, "the commands of line $line work") or diag($complaint);
	}
	elsif ($kind eq 'text')
	{
		is(plain($given), plain($block), "and give what line $line shows");
	}
	elsif ($block =~ /^curl -d '(.*)' http:\/\/127\.0\.0\.1:(\d+)\/faults$/)
	{
		$port_of{$2}->faults(JSON::PP::decode_json($1));
	}
	else
	{
		fail("line $line: $kind is not run");
	}
}
cmp_ok($quantity{sql}, '>', 10, 'the page has commands');
cmp_ok($quantity{text}, '>', 8, 'and results');
done_testing();
