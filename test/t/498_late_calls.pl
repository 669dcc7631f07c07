# SPDX-License-Identifier: PostgreSQL
#
# A worker sends nothing of a claim that is over: by then the step may have been undone. Its commit
# can take long (a lock, a synchronous standby that is away), and a process can be stopped at any instruction.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
chmod(0755, $dir);
my ($includes) = split /\n/, `pg_config --includedir-server`;
system('cc', '-shared', '-fPIC', "-I$includes", '-o', "$dir/crash_points.so", "$FindBin::RealBin/../modules/crash_points.c") == 0 or die 'no module';
my $node = new_node('main', shared_preload_libraries => "sas, $dir/crash_points", 'sas.agents' => 1);
$node->safe_psql('postgres', qq{
	CREATE FUNCTION crash_arm_stop(text, int) RETURNS void LANGUAGE c AS '$dir/crash_points';
	CREATE FUNCTION crash_armed() RETURNS boolean LANGUAGE c AS '$dir/crash_points';});
my $service = SasService->new;
make_agent($node, 'remote', $service);
define($node, 'late', { steps => { it => { agent => 'remote', complete_in => '1 s', call => { path => '/late' } } } });

my $runs = 0;
foreach my $point ('end claim_calls', 'committed')
{
	$runs++;
	my $pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas agent'});
	$node->safe_psql('postgres', "SELECT crash_arm_stop('agent $point', 1)");
	$node->safe_psql('postgres', q{SELECT FROM sas.submit('late')});
	ok(wait_for($node, 'SELECT crash_armed()', 'f'), "the worker is stopped at: $point");
	my $since = time();
	wait_until(sub { time() > $since + 2 });
	is(scalar $service->requests('late'), $runs - 1, 'nothing is sent before the worker goes on');
	kill('CONT', $pid);
	ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, $runs), 'the step is asked for again');
	is(scalar $service->requests('late'), $runs, 'nothing was sent of the claim that was over');
}
is($node->safe_psql('postgres', 'SELECT coalesce(sum(stale_replies), 0) FROM sas.agents'), '0', 'and nothing was reported about it');
$node->stop;
done_testing();
