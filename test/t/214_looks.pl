# SPDX-License-Identifier: PostgreSQL
#
# A worker that was woken looks, and looks again where it could not take what
# it saw: after a transaction that was cancelled, beside a claim of another
# worker, behind steps that come too late. The supervisor, whose looks wake
# others, is stopped meanwhile.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '6 min', 'sas.function_workers' => 2);
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $let_go;
my $soon = 40;					# seconds; by itself nothing happens any more

# -- agents have changed, and the transaction that reads them is cancelled ----------------------

make_agent($node, 'remote', $service);
make_agent($node, 'feed', $service);
define($node, 'held', { steps => { it => { agent => 'remote', call => { method => 'POST', path => '/held' } } } });
$sql->(q{CREATE TABLE item (item jsonb);
	SELECT sas.create_watcher('state', '{"agent": "feed", "poll": {"call": {"path": "/state"}, "every": "200 ms"}, "items": {"table": "public.item"}}');
	SELECT sas.watch('state', 'a')});
$service->wait_for_requests('state', 2);
$sql->(q{SELECT sas.alter_agent('feed', enabled => false)});
my $polls = -1;
# five intervals without a poll
ok(wait_until(sub { my $was = $polls; $polls = $service->requests('state'); Time::HiRes::sleep(1); return $polls == $was }), 'a disabled agent is polled no more');
$service->script(held => [ { gate => 1 }, {} ]);
my $held = submit($node, 'held');
$service->wait_for_requests('held', 1);
$let_go = hold_supervisor($node);
my $locker = SasSession->new($node);
$locker->query('BEGIN; LOCK TABLE _sas.attempt, _sas.lease IN ACCESS EXCLUSIVE MODE');
$service->release;
my $waiting = q{SELECT pid FROM pg_stat_activity WHERE application_name = 'sas agent' AND wait_event_type = 'Lock'};
ok(wait_until(sub { $sql->($waiting) ne '' }), 'its worker waits for a lock with an answer of another agent');
$sql->(q{SELECT sas.alter_agent('feed', enabled => true)});
my $cancelled = 0;
foreach (1 .. 6)
{
	my $log = -s $node->logfile;
	$cancelled += wait_until(
		sub {
			$sql->("SELECT pg_cancel_backend(pid) FROM ($waiting) x");
			return PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /canceling statement due to user request/;
		});
}
is($cancelled, 6, 'and is cancelled six times');
$locker->query('COMMIT');
is($sql->("SELECT result FROM sas.wait($held, '$soon s')"), 'success', 'the answer is not given up for that');
is(scalar($service->requests('held')), 1, 'and not asked for again');
ok(wait_until(sub { $service->requests('state') > $polls }, $soon), 'and the agent that was enabled meanwhile is polled again');
$let_go->();

# -- items of two owners in one claim --------------------------------------------------------------

$sql->(q{
	CREATE ROLE one; CREATE ROLE two;
	CREATE TABLE got (who text, item jsonb);
	GRANT ALL ON got TO PUBLIC;
	CREATE FUNCTION take_one(items jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT pg_advisory_xact_lock(61); INSERT INTO public.got VALUES ('one', items); SELECT NULL::jsonb $$;
	CREATE FUNCTION take_two(items jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT pg_advisory_xact_lock(62); INSERT INTO public.got VALUES ('two', items); SELECT NULL::jsonb $$;
	SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.grant_usage('one', 'user'), sas.grant_usage('two', 'user'), sas.grant_agent('host', 'one'), sas.grant_agent('host', 'two');
	SELECT sas.create_watcher('w_one', '{"agent": "host", "external": {}, "items": {"function": "public.take_one"}}');
	SELECT sas.create_watcher('w_two', '{"agent": "host", "external": {}, "items": {"function": "public.take_two"}}');
	SET ROLE one; SELECT sas.watch('w_one', 'a'); RESET ROLE;
	SET ROLE two; SELECT sas.watch('w_two', 'b'); RESET ROLE});
my $host = SasSession->new($node);
my ($host_id) = $host->query(q{SELECT sas.register_node('host', 10, '{host}', lease => '1 h')}) =~ /(\d+)/;
my %task;
ok( wait_until(
		sub {
			my $claimed = $host->query("SELECT watcher || ' ' || watch_id || ' ' || epoch FROM sas.claim_watchers($host_id, 10)");
			$task{$1} = "$2, $3" while $claimed =~ /(\w+) (\d+) (\d+)/g;
			return keys %task == 2;
		}),
	'a host has two tasks');
my $gate = SasSession->new($node);
$gate->query('SELECT pg_advisory_lock(61), pg_advisory_lock(62)');
my @function_workers = worker_pids($node, 'function');
$let_go = hold_supervisor($node);
# one worker claims both, whichever it is, and the other one gets those that wait behind a function of another role
$host->query("BEGIN; SELECT sas.append_items($task{w_one}, '[1]'); SELECT sas.append_items($task{w_two}, '[2]'); COMMIT");
ok(wait_for($node, q{SELECT count(*) || ' ' || count(DISTINCT worker_id) FROM _sas.watch_work WHERE worker_id IS NOT NULL}, '2 2'), 'items of two owners are at two workers');
$gate->query('SELECT pg_advisory_unlock(62)');
ok(wait_for($node, q{SELECT string_agg(item::text, ' ' ORDER BY item) FROM got}, '[2]', limit => $soon), 'those of the second do not wait for those of the first');
$host->query("SELECT sas.append_items($task{w_one}, '[11]')");
# (others may have been started beside a function that takes long)
ok(wait_for($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'sas function' AND wait_event = 'Extension'}), 'another worker looks, and finds the claim in its way');
$gate->query('SELECT pg_advisory_unlock(61)');
ok(wait_for($node, q{SELECT string_agg(item::text, ' ' ORDER BY item) FROM got}, '[1] [2] [11]', limit => $soon), 'and what came meanwhile is brought on');

# a session holds the second task when its turn comes, for longer than any look does
# none is started beside a function that takes long
$sql->(q{ALTER SYSTEM SET sas.function_workers = 1});
$sql->(q{ALTER SYSTEM SET sas.function_workers_max = 1});
$sql->(q{SELECT pg_reload_conf()});
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '1'), 'one function worker is left');
my $both;
my $last;
foreach my $n (3 .. 60)
{
	# a worker whose last delivery was slow takes one at a time for a while
	$last = $n;
	$gate->query('SELECT pg_advisory_lock(61), pg_advisory_lock(62)');
	$host->query("BEGIN; SELECT sas.append_items($task{w_one}, '[$n]'); SELECT sas.append_items($task{w_two}, '[$n]'); COMMIT");
	wait_for($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 61 AND NOT granted}, '1', limit => 5);
	$both = $sql->(q{SELECT count(*) FROM _sas.watch_work WHERE worker_id IS NOT NULL}) eq '2'
	  && $sql->(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 61 AND NOT granted}) eq '1';
	last if $both;
	$gate->query('SELECT pg_advisory_unlock(61), pg_advisory_unlock(62)');
	wait_for($node, "SELECT count(*) FROM got WHERE item = '[$n]'", '2', limit => $soon);
}
ok($both, 'again, one worker has claimed items of two owners, and brings those of the first');
my ($second) = split /,/, $task{w_two};
$locker->query("BEGIN; SELECT FROM _sas.watch_done WHERE watch_id = $second FOR UPDATE");
$gate->query('SELECT pg_advisory_unlock(61), pg_advisory_unlock(62)');
ok(wait_for($node, "SELECT count(*) FROM got WHERE who = 'one' AND item = '[$last]'", '1'), 'those of the first are brought on');
Time::HiRes::sleep(3);
$locker->query('COMMIT');
ok(wait_for($node, "SELECT count(*) FROM got WHERE who = 'two' AND item = '[$last]'", '1', limit => $soon), 'those of the second when the session is over, not when the claim is');
$let_go->();

# -- behind steps that come too late ------------------------------------------------------------------

make_agent($node, 'narrow', $service, max_in_flight => 1);
define($node, 'n', { steps => { it => { agent => 'narrow', call => { path => '/{{input.p}}' } } } });
$service->script(first => [ { gate => 1 } ], go => [ {} ]);
my $first = submit($node, 'n', { p => 'first' });
$service->wait_for_requests('first', 1);
$sql->(q{SELECT sas.submit('n', '{"p": "late"}', start_before => clock_timestamp() + interval '1 s')}) foreach 1, 2;
my @go = map { submit($node, 'n', { p => 'go' }) } 1, 2;
# the scheduler is kept from seeing that they are late before the worker does
my ($scheduler) = worker_pids($node, 'scheduler');
$let_go = hold_supervisor($node);
kill('STOP', $scheduler);
ok(wait_for($node, q{SELECT bool_and(start_before < clock_timestamp()) FROM _sas.run WHERE start_before IS NOT NULL}), 'two runs are late');
$service->release;
ok(wait_until(sub { $service->requests('go') == 2 }, $soon), 'the steps behind them are called');
kill('CONT', $scheduler);
$let_go->();
is(join(' ', map { run_of($node, $_)->{result} } @go), 'success success', 'and end');
is(scalar($service->requests('late')), 0, 'what was too late is not called');
done_testing();
