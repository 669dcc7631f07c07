# SPDX-License-Identifier: PostgreSQL
#
# Functions that are called for ever, and items that are brought to their
# targets: once each, as the owner, whatever becomes of workers and server.
# Takes about 40 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main', _init => [ allows_streaming => 1 ], 'sas.function_workers' => 2, 'sas.watch_window' => 50);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
ok(wait_for($node, q{SELECT count(*) FROM sas.nodes WHERE kind = 'function' AND NOT is_deleted}, 2), 'each function worker is a node');
$sql->(q{
	CREATE ROLE ann;
	SELECT sas.grant_usage('ann', 'user');
	CREATE SCHEMA a AUTHORIZATION ann;
	SET ROLE ann;
	CREATE TABLE a.tally (key text, n int, who name DEFAULT current_user);
	CREATE TABLE a.price (id bigint GENERATED ALWAYS AS IDENTITY, watcher text, key text, item jsonb NOT NULL, who name, symbol text GENERATED ALWAYS AS (item ->> 's') STORED);
	CREATE FUNCTION a.sign() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.who := current_user; RETURN NEW; END';
	CREATE TRIGGER sign BEFORE INSERT ON a.price FOR EACH ROW EXECUTE FUNCTION a.sign();
	CREATE FUNCTION a.count(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO a.tally VALUES (turn ->> 'key', coalesce((turn ->> 'cursor')::int, 0) + 1) RETURNING to_jsonb(n) $$;
	CREATE FUNCTION a.rest(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
	CREATE FUNCTION a.take(items jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO a.tally SELECT i ->> 'key', (i ->> 'n')::int FROM jsonb_array_elements(items) WITH ORDINALITY AS x (i, o) ORDER BY o; SELECT NULL::jsonb $$;
	SELECT sas.create_watcher('count', '{"function": "a.count", "every": "10 ms", "retry": {"initial": "100 ms", "max": "1 s"}}');
	SELECT sas.create_watcher('rest', '{"function": "a.rest", "every": "100 ms"}');
	SELECT count(*) FROM generate_series(1, 20) n, sas.watch('count', n::text);});

# for each key all numbers up to the cursor, each once
sub counted
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $sql->(q{SELECT count(*), bool_and(n = max AND n = counted) FROM (
			SELECT w.key, count(*) AS n, max(t.n), (w.cursor #>> '{}')::int AS counted FROM sas.watches w LEFT JOIN a.tally t USING (key) WHERE w.watcher = 'count' GROUP BY w.key, w.cursor) x}),
		'20|t', "$name: the cursor and what each turn wrote are one");
	return;
}
sub go_on
{
	my ($name) = @_;
	wait_for($node, q{SELECT 'up'}, 'up');
	my $most = $sql->(q{SELECT coalesce(max(n), 0) FROM a.tally WHERE key ~ '^[0-9]+$'});
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_for($node, "SELECT count(*) FROM (SELECT key FROM a.tally WHERE key ~ '^[0-9]+\$' GROUP BY 1 HAVING max(n) > $most) x", '20'), "$name: all are called");
	return;
}

go_on('at first');
counted('at first');
is($sql->('SELECT count(DISTINCT node), min(restarts) FROM sas.watches'), '2|0', 'two workers share them');
is($sql->('SELECT DISTINCT who FROM a.tally'), 'ann', 'the function is called as the owner of the task');

# -- workers that die ---------------------------------------------------------------------------------

my $begun = time();
$sql->(q{SELECT pg_terminate_backend(pid) FROM sas.nodes WHERE kind = 'function' AND NOT is_deleted ORDER BY node_id LIMIT 1});
go_on('one worker was terminated');
note(sprintf 'after %.2f s', time() - $begun);
counted('one worker was terminated');
kill_worker($node, 'function');
go_on('one worker was killed, and the server with it');
counted('one worker was killed');
$node->stop('immediate');
$node->start;
go_on('the server went down');
counted('the server went down');

# -- one that takes long ------------------------------------------------------------------------------

$sql->(q{SET ROLE ann;
	CREATE FUNCTION a.sleep(turn jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb FROM pg_sleep(3)';
	SELECT sas.create_watcher('sleep', '{"function": "a.sleep", "every": "0 s"}');
	SELECT sas.watch('sleep', 'long')});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches s WHERE watcher = 'count' AND state = 'processing' AND node_id <> (SELECT node_id FROM sas.watches WHERE watcher = 'sleep')}, '20', limit => 200),
	'a function that takes long is alone with its worker: the others go to another one');
go_on('beside a long one');
$sql->(q{SELECT * FROM sas.unwatch('sleep', '{long}')});
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'sleep'}, 'deleted'), 'it ends after its turn');
counted('beside a long one');

# -- nothing is written where nothing happens -----------------------------------------------------------

$sql->(q{SELECT * FROM sas.pause_watch('count', ARRAY(SELECT key FROM sas.watches WHERE watcher = 'count'))});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'paused' AND node IS NULL}, '20'), 'they are paused');
counted('paused');
my $n = $sql->('SELECT count(*) FROM a.tally');
$sql->(q{SET ROLE ann; SELECT sas.watch('rest', 'x')});
wait_for($node, q{SELECT count(*) FROM sas.watches WHERE watcher = 'rest' AND state = 'processing'}, '1');
$sql->('ALTER SYSTEM SET autovacuum = off; SELECT pg_reload_conf(); CHECKPOINT');
my $quiet = wait_until(
	sub {
		my $lsn = $sql->('SELECT pg_current_wal_insert_lsn()');
		sleep 2;
		return $lsn eq $sql->('SELECT pg_current_wal_insert_lsn()');
	});
ok($quiet, 'a function that is called ten times a second, and writes nothing, writes no WAL');
my $active = $sql->(q{SELECT max(last_activity_at) FROM sas.workers WHERE actor = 'function'});
ok(wait_for($node, "SELECT max(last_activity_at) > '$active' FROM sas.workers WHERE actor = 'function'"), 'though it is called');
is($sql->('SELECT count(*) FROM a.tally'), $n, 'and what is paused is not');

# -- items: once, in order, as the owner, whatever becomes of the worker ---------------------------------

$sql->(q{
	SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.grant_agent('host', 'ann');
	CREATE ROLE hosting LOGIN;
	SELECT sas.grant_usage('hosting', 'worker', agent => 'host');
	SET ROLE ann;
	SELECT sas.create_watcher('to_table', '{"agent": "host", "external": {}, "items": {"table": "a.price"}}');
	SELECT sas.create_watcher('to_function', '{"agent": "host", "external": {}, "items": {"function": "a.take", "item": {"key": "item {{key}}", "n": "{{item.n}}"}}, "retry": {"initial": "100 ms"}}');
	SELECT sas.create_workflow('one', '{"steps": {}}');
	SELECT sas.create_watcher('to_runs', '{"agent": "host", "external": {}, "items": {"workflow": "one", "key": "{{item.n}}"}}');
	SELECT count(*) FROM unnest('{to_table,to_function,to_runs}'::text[]) w, sas.watch(w, 'k');});
my $host = SasSession->new($node, 'postgres', user => 'hosting');
my $id = $host->query(q{SELECT sas.register_node('hosting', 10, '{host}', lease => '1 h')});
my %watch = map { split /\|/ } split /\n/, $host->query("SELECT watcher, watch_id FROM sas.claim_watchers($id, 10)");
is(scalar(keys %watch), 3, 'a role with level worker for one agent hosts its tasks');
is($host->query("SELECT sas.append_items($watch{to_table}, 1, '[{\"s\": \"A\"}, {\"s\": \"B\"}]')"), 'go', 'items are taken in');
ok(wait_for($node, q{SELECT string_agg(concat_ws(' ', id, watcher, key, symbol, who), ', ' ORDER BY id) FROM a.price}, '1 to_table k A ann, 2 to_table k B ann'),
	'and inserted as the owner of the task, in order, with watcher and key, and defaults');
is($host->query("SELECT sas.append_items($watch{to_runs}, 1, '[{\"n\": 1}, {\"n\": 2}, {\"n\": 2}]')"), 'go', 'items are taken in');
ok(wait_for($node, q{SELECT string_agg(key || ' ' || submitted_by || ' ' || input, ', ' ORDER BY run_id) FROM sas.runs}, '1 ann {"n": 1}, 2 ann {"n": 2}'), 'and submitted as runs of the owner, with keys of the items');

my $sent = 0;
my $full = 0;
my $killed = 0;
while ($sent < 2000)
{
	my @items = map { qq({"n": $_}) } $sent + 1 .. $sent + 10;
	my $answer = eval { $host->query("SELECT sas.append_items($watch{to_function}, 1, '[" . join(',', @items) . "]', '" . ($sent + 10) . "')", 120) } // '';
	if ($answer eq 'go') { $sent += 10 }
	elsif ($answer eq 'full') { $full++; sleep 0.02 }
	else { last }
	if ($sent >= 300 * ($killed + 1) && $killed < 4)
	{
		$killed++;
		$sql->(q{SELECT pg_terminate_backend(pid) FROM sas.workers WHERE actor = 'function'});
	}
}
is($sent, 2000, 'items go on while workers are terminated');
note("the window was full $full times");
ok(wait_for($node, q{SELECT items || ' ' || waiting FROM sas.watches WHERE watcher = 'to_function'}, '2000 0'), 'all are brought to their target');
is($sql->(q{SELECT count(*), count(DISTINCT n), max(n), min(who), max(who) FROM a.tally WHERE key = 'item k'}), '2000|2000|2000|ann|ann', 'each once, as the owner');
$host->quit;

# -- a function that takes the server down ------------------------------------------------------------

$sql->(q{
	CREATE FUNCTION public.kill(turn jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -9 ' || pg_backend_pid());
		PERFORM pg_sleep(60);
		RETURN '1';
	END $$;
	SELECT sas.create_watcher('kill', '{"function": "public.kill", "every": "10 ms", "retry": {"initial": "10 s", "jitter": false}}')});
# the server may be down before this session is told of its commit
eval { $node->psql('postgres', q{SELECT * FROM sas.watch('kill', 'all')}) };
ok(wait_for($node, q{SELECT failures >= 2 AND state = 'created' FROM sas.watches WHERE watcher = 'kill'}), 'a function that takes the server down waits after the second time');
is($sql->(q{SELECT last_error ->> 'title' FROM sas.watches WHERE watcher = 'kill'}), 'the worker that called the function is gone', 'which is told');
$sql->(q{SELECT * FROM sas.unwatch('kill', '{all}')});
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'kill'}, 'deleted'), 'it can be stopped meanwhile');

# -- a standby is promoted ---------------------------------------------------------------------------

$sql->(q{SELECT * FROM sas.resume_watch('count', ARRAY(SELECT key FROM sas.watches WHERE watcher = 'count'))});
go_on('resumed');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$node->reload;
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'}, '1'), 'a standby');
is($standby->safe_psql('postgres', q{SELECT count(*) > 0 FROM sas.watches}), 't', 'where the tasks can be looked at');
$node->stop('immediate');
$standby->promote;
$node = $standby;
go_on('promoted');
counted('promoted');
is($sql->(q{SELECT count(*) FROM sas.nodes WHERE NOT is_deleted AND pid NOT IN (SELECT pid FROM sas.workers)}), '0', 'the nodes of the old primary have ended');
done_testing();
