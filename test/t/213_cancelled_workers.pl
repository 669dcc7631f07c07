# SPDX-License-Identifier: PostgreSQL
#
# pg_cancel_backend() ends what a worker does, not the worker: one that is idle
# has nothing to cancel, keeps the calls that it holds, and goes on; one whose
# turns are cancelled again and again is not taken for broken.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $pids = q{SELECT string_agg(backend_type || ' ' || pid, ', ' ORDER BY backend_type, pid) FROM pg_stat_activity WHERE backend_type LIKE 'sas %'};

make_agent($node, 'remote', $service, request_timeout => '10 min');
$sql->(q{CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
define($node, 'held', { steps => { it => { agent => 'remote', call => { method => 'POST', path => '/held' }, complete_in => '15 min' } } });
define($node, 'quick', { steps => { it => { function => 'public.echo' }, timer => { wait => { for => '10 ms' } }, call => { agent => 'remote', call => { path => '/quick' } } } });

$service->script(held => [ { gate => 1 }, {} ]);
my $held = submit($node, 'held');
$service->wait_for_requests('held', 1);
is(run_of($node, submit($node, 'quick'))->{result}, 'success', 'all workers have work behind them');
my $before = $sql->($pids);
is(scalar(() = $before =~ /sas/g), 5, 'a launcher and four workers');
my @wrong;
foreach my $round (1 .. 15)
{
	$sql->(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'sas %'});
	my $result = run_of($node, submit($node, 'quick'))->{result};
	push @wrong, "round $round: $result" unless $result eq 'success';
}
is("@wrong", '', 'work goes on');
is($sql->($pids), $before, 'no worker has ended that was cancelled while it was idle');
$service->release;
is(run_of($node, $held)->{result}, 'success', 'a call that was on its way meanwhile is answered');
is(scalar($service->requests('held')), 1, 'and was not made again');

# -- within turns -----------------------------------------------------------------------------

my $locker = SasSession->new($node);
$locker->query('BEGIN; LOCK TABLE _sas.lease IN ACCESS EXCLUSIVE MODE');
my @runs = map { submit($node, 'quick') } 1, 2;
my $waiting = q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type IN ('sas agent', 'sas function') AND wait_event_type = 'Lock'};
ok(wait_until(sub { (() = $sql->($waiting) =~ /\d+/g) >= 1 }), 'workers wait for a lock within their turns');
my $cancelled = 0;
my $log = -s $node->logfile;
wait_until(
	sub {
		$sql->("SELECT pg_cancel_backend(pid::int) FROM regexp_split_to_table(($waiting), ' ') pid");
		$cancelled = () = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /canceling statement due to user request/g;
		return $cancelled >= 40;
	});
cmp_ok($cancelled, '>=', 40, 'and are cancelled many times');
$locker->query('COMMIT');
is(join(' ', map { run_of($node, $_)->{result} } @runs), 'success success', 'when the lock is gone their work is done');
is($sql->($pids), $before, 'by the same workers');
done_testing();
