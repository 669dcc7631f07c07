# SPDX-License-Identifier: PostgreSQL
#
# A session holds a run: the heartbeat of an outside program acts at once and extends its lease; what waits for the run
# is woken when the session ends its transaction, by commit or by abort, whatever it has called.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main', 'sas.supervisor_interval' => '6 min', max_prepared_transactions => 5);
my $service = SasService->new;
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
make_agent($node, 'remote', $service, request_timeout => '100 s');
sql(q{SELECT sas.create_agent('people', kind => 'external')});
define($node, 'task', { steps => { it => { agent => 'people', task => {}, complete_in => '5 min' } } });
define($node, 'call', { steps => { it => { agent => 'remote', complete_in => '5 min', call => { method => 'POST', path => '/held' } }, after => { agent => 'remote', after => ['it'], call => { path => '/after' } } } });
my $session = SasSession->new($node);
sub hold { my ($run) = @_; $session->query("BEGIN; SET LOCAL statement_timeout = 0; SELECT FROM _sas.run WHERE run_id = $run FOR UPDATE"); return }

# -- heartbeats ---------------------------------------------------------------------------------------

my $run = submit($node, 'task', {});
my $request;
wait_until(sub { $request = sql(q{SELECT request_id FROM sas.claim('people', 'ann', lease => '4 s')}) });
hold($run);
is(sql("SELECT sas.heartbeat('$request', 0.5)"), 'go', 'a heartbeat acts while a session holds the run');
my $claimed = time();
sleep(0.2), is(sql("SELECT sas.heartbeat('$request')"), 'go', 'and again') while time() - $claimed < 6;
is(sql("SELECT state FROM sas.steps WHERE run_id = $run"), 'running', 'past its first lease the task is held still');
is(sql("SELECT sas.complete('$request', '{}')"), 't', 'and what came of it counts');
$session->query('COMMIT');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'the run ends when it is free');
is(sql("SELECT count(*) FROM sas.attempts WHERE run_id = $run AND status <> 'succeeded'"), '0', 'and nothing was taken back');
is(sql("SELECT count(*) FROM _sas.external_slot WHERE extended_by IS NOT NULL"), '0', 'its place is free again');

# nobody extends it: it is taken back, whoever holds the run, when the run is free
$run = submit($node, 'task', {});
wait_until(sub { $request = sql(q{SELECT request_id FROM sas.claim('people', 'ann', lease => '1 s')}) });
hold($run);
is(sql("SELECT sas.heartbeat('$request')"), 'go', 'one heartbeat');
sleep(2.5);
is(sql("SELECT sas.heartbeat('$request')"), 'lost', 'a lease that is over is over');
$session->query('ROLLBACK');
ok(wait_for($node, "SELECT failure_count FROM sas.steps WHERE run_id = $run", '1'), 'and the task is taken back');
sql("SELECT sas.halt($run)");

# -- answers --------------------------------------------------------------------------------------------

# a message that is taken up at its own time only, since nobody woke its worker, is in the log, and fails this file
my $lock = 'SELECT FROM _sas.run WHERE run_id = %s FOR UPDATE';
my $n = 0;
foreach my $case (
	[ 'commit', "BEGIN; $lock", 'COMMIT' ],
	[ 'abort', "BEGIN; $lock", 'ROLLBACK' ],
	[ 'commit of an update', 'BEGIN; UPDATE _sas.run SET labels = labels WHERE run_id = %s', 'COMMIT' ],
	[ 'abort of a savepoint', "BEGIN; SAVEPOINT s; $lock", 'ROLLBACK TO s' ],
	[ 'abort of what a savepoint has released', "BEGIN; SAVEPOINT s; SAVEPOINT t; $lock; RELEASE t", 'ROLLBACK TO s' ],
	[ 'release of a savepoint and commit', "BEGIN; SAVEPOINT s; $lock; RELEASE s", 'COMMIT' ],
	[ 'commit of a shared lock', 'BEGIN; SELECT FROM _sas.run WHERE run_id = %s FOR KEY SHARE; SELECT FROM _sas.run WHERE run_id = %s FOR SHARE', 'COMMIT' ],
	[ 'COMMIT PREPARED', "BEGIN; $lock; PREPARE TRANSACTION 'p'", "COMMIT PREPARED 'p'" ],
	[ 'ROLLBACK PREPARED', "BEGIN; $lock; PREPARE TRANSACTION 'p'", "ROLLBACK PREPARED 'p'" ],
	[ 'end of a session', "BEGIN; $lock", undef ])
{
	my ($name, $begin, $end) = @$case;
	$n++;
	$service->script(held => [ { gate => 1 } ]);
	$run = submit($node, 'call', {});
	$service->wait_for_requests('held', $n);
	my $holder = SasSession->new($node);
	$holder->query('SET statement_timeout = 0; ' . sprintf($begin, $run, $run));
	$service->release;
	ok(wait_for($node, "SELECT count(*) FROM _sas.answer WHERE run_id = $run", '1'), "$name: an answer waits for a session");
	# the scheduler has set it aside
	ok(wait_for($node, "SELECT count(*) FROM _sas.message WHERE run_id = $run AND actor = 'a' AND due_at > now()", '1'), "$name: it is set aside");
	defined $end ? $holder->query($end) : sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'");
	ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), "$name: and goes on at its end");
	$holder->quit if defined $end;
}

# the end of a prepared transaction is noted at once: a scheduler that comes later has not found by looking what it was told
foreach my $end ('COMMIT PREPARED', 'ROLLBACK PREPARED')
{
	$n++;
	$service->script(held => [ { gate => 1 } ]);
	$run = submit($node, 'call', {});
	$service->wait_for_requests('held', $n);
	my $holder = SasSession->new($node);
	$holder->query("SET statement_timeout = 0; BEGIN; SELECT FROM _sas.run WHERE run_id = $run FOR UPDATE; PREPARE TRANSACTION 'p'");
	$service->release;
	ok(wait_for($node, "SELECT count(*) FROM _sas.message WHERE run_id = $run AND actor = 'a' AND due_at > now()", '1'), "$end, late scheduler: an answer is set aside");
	my @schedulers = worker_pids($node, 'scheduler');
	kill('STOP', @schedulers);
	$holder->query("$end 'p'");
	ok(wait_for($node, "SELECT max(due_at) < clock_timestamp() FROM _sas.message WHERE run_id = $run AND actor = 'a'"), "$end, late scheduler: it is due by itself");
	kill('CONT', @schedulers);
	ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), "$end, late scheduler: and the run goes on");
	$holder->quit;
}
is(scalar($service->requests('held')), $n, 'each call was made once');

# -- a session that holds a run for long, beside others that end -----------------------------------------------

$service->script(held => [ { gate => 1 } ]);
$run = submit($node, 'call', {});
$service->wait_for_requests('held', $n + 1);
hold($run);
$service->release;
ok(wait_for($node, "SELECT count(*) FROM _sas.answer WHERE run_id = $run", '1'), 'an answer waits');
$node->safe_psql('postgres', 'CREATE TABLE t (n int); ' . join('', map { 'INSERT INTO t DEFAULT VALUES;' } 1 .. 100));
sleep(2.5);
is(sql("SELECT count(*) FROM _sas.answer WHERE run_id = $run"), '1', 'and waits as long as it is held, past the time at which it is asked for again');
$session->query('COMMIT');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'the run goes on then');
done_testing();
