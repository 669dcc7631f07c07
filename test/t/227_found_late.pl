# SPDX-License-Identifier: PostgreSQL
#
# What is written behind the back of the workers, so that nobody is woken, is
# found by the looks that the supervisor takes by itself, and counted: ready
# steps of agents and functions, messages, items and tasks that wait. A
# transaction that was open for long is announced at its commit, and is not
# counted; nor is what a worker finds when it starts.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(sleep);

allow_late('rows are written behind the back of the workers');
my $node = new_node('main', 'sas.supervisor_interval' => '6 s');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

sub found_late
{
	return $sql->(q{SELECT string_agg(format('%s %s %s', labels ->> 'actor', labels ->> 'kind', value), ', ' ORDER BY labels ->> 'actor', labels ->> 'kind')
		FROM sas.metrics('{sas_found_late}') WHERE value > 0});
}

make_agent($node, 'remote', $service);
$sql->(q{CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
define($node, 'calls', { steps => { it => { agent => 'remote', call => { path => '/it' } } } });
define($node, 'local', { steps => { it => { function => 'public.echo' } } });
define($node, 'waits', { steps => { it => { wait => { signal => 'go' } } } });
$sql->(q{SELECT sas.create_agent('host', kind => 'external');
	CREATE TABLE got (item jsonb);
	SELECT sas.create_watcher('feed', '{"agent": "host", "external": {}, "items": {"table": "public.got"}}');
	SELECT sas.create_watcher('again', '{"function": "public.echo", "every": "1 h"}');
	SELECT sas.watch('feed', 'a')});
my $host = SasSession->new($node);
my ($id) = $host->query(q{SELECT sas.register_node('host', 10, '{host}', lease => '1 day')}) =~ /(\d+)/;
my $task;
ok(wait_until(sub { ($task) = $host->query("SELECT watch_id || ' ' || epoch FROM sas.claim_watchers($id, 10)") =~ /(\d+ \d+)/ }), 'a host has a task');
$task =~ s/ /, /;

# -- announced: not counted ---------------------------------------------------------------------

my $long = SasSession->new($node);
$long->query(qq{BEGIN;
	SELECT sas.submit('calls'); SELECT sas.submit('local'); SELECT sas.submit('waits', key => 'w'); SELECT sas.append_items($task, '[1]'); SELECT sas.watch('again', 'a')});
sleep 1.5;
$long->query('COMMIT');
$sql->(q{SELECT sas.signal_key('waits', 'w', 'go')});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, '0'), 'runs of a long transaction end');
ok(wait_for($node, q{SELECT count(*) FROM got}, '1'), 'and its item is delivered');
is(found_late(), '', 'nothing is counted of what was announced');

# -- not announced: counted ---------------------------------------------------------------------

# Submits a run whose ready step is taken away in the same transaction, and put back later. The commit wakes, and
# there is nothing to be found. Returns the run.
sub hidden
{
	my ($workflow) = @_;
	my ($run) = $sql->(qq{BEGIN;
		CREATE TEMP TABLE hidden (LIKE _sas.ready);
		CREATE TEMP TABLE submitted AS SELECT * FROM sas.submit('$workflow');
		WITH gone AS (DELETE FROM _sas.ready q USING submitted s WHERE q.run_id = s.run_id RETURNING q.*) INSERT INTO hidden SELECT * FROM gone;
		COMMIT;
		DO 'BEGIN PERFORM pg_sleep(1.2); END';
		INSERT INTO _sas.ready SELECT * FROM hidden;
		SELECT 'run ' || run_id FROM submitted}) =~ /run (\d+)/;
	return $run;
}

# what an earlier look has left behind since a session held it was announced
my $holder = SasSession->new($node);
$sql->(q{BEGIN;
	INSERT INTO _sas.message (actor, due_at, run_id, kind) VALUES ('a', now() + interval '2 s', 0, 'answer');
	SELECT _sas.wake('{}', true, false, '{}') \g /dev/null
	COMMIT});
$holder->query(q{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.message WHERE kind = 'answer' FOR UPDATE) x});
ok(wait_for($node, q{SELECT due_at < clock_timestamp() - interval '2 s' FROM _sas.message WHERE kind = 'answer'}, 't'), 'an answer is overdue since a session holds its message');
$holder->query('ROLLBACK');
ok(wait_for($node, q{SELECT count(*) FROM _sas.message WHERE kind = 'answer'}, '0'), 'it is taken when that is free');
is(found_late(), '', 'and was not found late');

# Puts a row of what waits for a host back, by itself, after a transaction in which it was taken away: the look that
# the commit asks for does not see it.
sub hide_task
{
	my ($key, $then) = @_;
	return $sql->(qq{BEGIN;
		SELECT sas.watch('again', '$key');
		CREATE TEMP TABLE hidden (LIKE _sas.watch_wait);
		WITH gone AS (DELETE FROM _sas.watch_wait RETURNING *) INSERT INTO hidden SELECT * FROM gone;
		COMMIT;
		$then});
}
my $hosted = q{SELECT count(*) FROM _sas.watch_held WHERE lane = 0};
hide_task('held', 'CREATE TABLE held AS TABLE hidden');
$holder->query(q{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.watch WHERE key = 'held' FOR UPDATE) x});
$sql->(q{BEGIN; INSERT INTO _sas.watch_wait SELECT watch_id, lane, clock_timestamp(), owner FROM held; SELECT _sas.wake_watches() \g /dev/null
	COMMIT});
ok(wait_for($node, q{SELECT due_at < clock_timestamp() - interval '5 s' FROM _sas.watch_wait}, 't'), 'a task finds no host since a session holds its row');
$holder->query('ROLLBACK');
ok(wait_for($node, $hosted, '2'), 'it has one when that is free');
is(found_late(), '', 'and was not found late');
$holder->quit;

my $run = hidden('calls');
is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', 'a call that nobody announced is made');
is(found_late(), 'agent step 1', 'and counted');
$run = hidden('local');
is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', 'a function that nobody announced is called');
is(found_late(), 'agent step 1, function step 1', 'and counted');


$run = submit($node, 'waits');
ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $run", 'signal'), 'a step waits for a signal');
$sql->(qq{BEGIN;
	SELECT sas.signal($run, 'go');
	CREATE TEMP TABLE hidden (LIKE _sas.message);
	WITH gone AS (DELETE FROM _sas.message WHERE run_id = $run AND kind = 'signal' RETURNING *) INSERT INTO hidden SELECT * FROM gone;
	COMMIT;
	DO 'BEGIN PERFORM pg_sleep(1.2); END';
	INSERT INTO _sas.message SELECT * FROM hidden});
is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', 'a signal that nobody announced is delivered');
is(found_late(), 'agent step 1, function step 1, scheduler signal 1', 'and counted');

$sql->(qq{BEGIN;
	SELECT sas.append_items($task, '[2]');
	CREATE TEMP TABLE hidden (LIKE _sas.watch_work);
	WITH gone AS (DELETE FROM _sas.watch_work RETURNING *) INSERT INTO hidden SELECT * FROM gone;
	COMMIT;
	DO 'BEGIN PERFORM pg_sleep(1.2); END';
	INSERT INTO _sas.watch_work SELECT * FROM hidden});
ok(wait_for($node, q{SELECT count(*) FROM got}, '2'), 'an item that nobody announced is delivered');
is(found_late(), 'agent step 1, function items 1, function step 1, scheduler signal 1', 'and counted');

# what is not the share of a node is announced after two seconds
hide_task('b', q{DO 'BEGIN PERFORM pg_sleep(4); END'; UPDATE hidden SET due_at = due_at - interval '1 min'; INSERT INTO _sas.watch_wait SELECT * FROM hidden});
ok(wait_for($node, $hosted, '3'), 'a task that nobody announced is hosted');
is(found_late(), 'agent step 1, function items 1, function step 1, function watch 1, scheduler signal 1', 'and counted');
is(scalar(SasTest::late_work()), 5, 'the log names each');
done_testing();
