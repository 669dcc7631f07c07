# SPDX-License-Identifier: PostgreSQL
#
# Nobody waits for an infinite task.  While a target's function takes its time
# no row of sas is locked: verbs, the task's host, other items and the purge
# act at once.  While a session holds rows of tasks, workers pass by them.
# What the session lets go goes on, in order, each item once.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use SasStreams;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 2, 'sas.function_workers_max' => 2, 'sas.supervisor_interval' => '2 s', 'sas.complete_in' => '60 s');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams);
make_table($node);
$sql->(q{
	CREATE TABLE tally (key text, n int);
	CREATE FUNCTION count(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.tally VALUES (turn ->> 'key', coalesce((turn ->> 'cursor')::int, 0) + 1) RETURNING to_jsonb(n) $$;
	CREATE TABLE got (key text, n int);
	CREATE FUNCTION slow(items jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.got SELECT i ->> 'key', (i ->> 'n')::int FROM jsonb_array_elements(items) i;
		IF items -> 0 ->> 'key' LIKE 'slow%' THEN
			PERFORM pg_advisory_xact_lock_shared(4711);
		END IF;
		RETURN NULL;
	END $$;
	SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.create_watcher('count', '{"function": "public.count", "every": "20 ms"}');
	SELECT sas.create_watcher('camera', '{"agent": "host", "external": {}, "items": {"function": "public.slow"}}');
	SELECT count(*) FROM unnest('{held,free}'::text[]) n, sas.watch('count', n);
	SELECT count(*) FROM unnest('{slow,slow_2,quick,gone}'::text[]) n, sas.watch('camera', n)});
make_watcher($node, 'lines', { agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item.n}}' } });
watch($node, 'lines', $_) foreach qw(held free);

# -- a target whose function takes long ------------------------------------------------------------

my $gate = SasSession->new($node);
$gate->query('SELECT pg_advisory_lock(4711)');
my $host = SasSession->new($node);
my $id = $host->query(q{SELECT sas.register_node('one', 10, '{host}', lease => '1 h')});
$host->query("SELECT count(*) FROM sas.claim_watchers($id, 10)");
my %of = map { split /\|/ } split /\n/, $sql->(q{SELECT key, watch_id FROM sas.watches WHERE watcher = 'camera'});
my $append = sub { my ($key, $n) = @_; return $host->query(qq{SELECT sas.append_items($of{$key}, 1, '[{"key": "$key", "n": $n}]')}) };
my $runs = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND wait_event = 'advisory'};
is($append->('slow', 1), 'go', 'items come in');
ok(wait_for($node, $runs, '1'), 'and a function takes its time with them');
is($sql->("SELECT count(*) FROM (SELECT FROM _sas.watch_done WHERE watch_id = $of{slow} FOR UPDATE SKIP LOCKED) x"), '1', 'meanwhile no row of the task is locked');
is( $sql->(q{SELECT coalesce(string_agg(DISTINCT l.relation::regclass::text || ' ' || l.mode, ', '), '') FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE a.backend_type = 'sas function' AND a.wait_event = 'advisory' AND l.relation::regclass::text LIKE '\_sas.%' AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')}),
	'', 'and none was written');
# what waits is cancelled: a hang would be the fault
my $at_once = sub { return $sql->("SET statement_timeout = '30 s'; SET lock_timeout = '10 s'; $_[0]") };
is($append->('slow', 2), 'go', 'the host of the task appends');
is($append->('quick', 1), 'go', 'and for another one');
ok(wait_for($node, q{SELECT count(*) FROM got WHERE key = 'quick'}, '1'), 'whose items are delivered');
is($at_once->(q{SELECT state FROM sas.pause_watch('camera', '{slow}')}), 'paused', 'the task is paused');
is($at_once->(q{SELECT state FROM sas.resume_watch('camera', '{slow}')}), 'created', 'and resumed');
is($at_once->(q{SELECT count(*) FROM sas.watches}), '8', 'it is shown');
is($at_once->(q{SELECT state FROM sas.unwatch('camera', '{slow}')}), 'on_deleting', 'and stopped');
is($at_once->(q{SELECT state FROM sas.unwatch('camera', '{gone}')}), 'on_deleting', 'another one is stopped');
is($host->query("SELECT sas.release_watches($id, '{$of{gone}}')"), '1', 'and given back');
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE key = 'gone'}, 'deleted'), 'which ends it');
is($at_once->(q{SELECT count(*) FROM sas.purge('1 s')}), '1', 'runs are purged');
is($at_once->(q{SELECT worked FROM _sas.purge_watches(100)}), '0', 'so are infinite tasks');
is($sql->($runs), '1', 'while the function still runs');
is($sql->(q{SELECT count(*) FROM got WHERE key = 'slow'}), '0', 'and nothing of it is seen');
$gate->query('SELECT pg_advisory_unlock(4711)');
ok(wait_for($node, q{SELECT string_agg(n::text, ' ' ORDER BY n) FROM got WHERE key = 'slow'}, '1 2'), 'then it is done, and what came meanwhile follows');
$host->query("SELECT sas.release_watches($id, '{$of{slow}}')");
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE key = 'slow'}, 'deleted'), 'and the task has ended');

# -- a claim that is lost meanwhile ------------------------------------------------------------------

$gate->query('SELECT pg_advisory_lock(4711)');
is($append->('slow_2', 1), 'go', 'a function runs again');
ok(wait_for($node, $runs, '1'), 'and takes its time');
my $holder = SasSession->new($node);
$holder->query("BEGIN; SELECT count(*) FROM (SELECT FROM _sas.watch_done WHERE watch_id = $of{slow_2} FOR UPDATE) x");
$gate->query('SELECT pg_advisory_unlock(4711)');
is($append->('quick', 2), 'go', 'a session holds the row of its claim');
ok(wait_for($node, q{SELECT count(*) FROM got WHERE key = 'quick'}, '2'), 'other items are delivered');
is($sql->(q{SELECT count(*) FROM got WHERE key = 'slow_2'}), '0', 'what the function did is undone');
is($sql->(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND wait_event_type = 'Lock'}), '0', 'no worker waits');
$holder->query('ROLLBACK');
ok(wait_for($node, q{SELECT count(*) FROM got WHERE key = 'slow_2'}, '1'), 'and done again, once, when the session has let go');

# -- rows of tasks that a session holds ----------------------------------------------------------------

ok(wait_for($node, q{SELECT count(DISTINCT key) FROM tally}, '2'), 'functions are called');
$holder->query(q{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.watch_flow f JOIN _sas.watch w USING (watch_id) WHERE w.key = 'held' FOR UPDATE OF f) x});
my $pids = $sql->(q{SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM sas.workers});
my $most = $sql->(q{SELECT max(n) FROM tally WHERE key = 'free'});
$streams->feeds(held => { items => 2500 }, free => { items => 2500 });
got_items($node, 'lines', 'free', 2500, 'a stream goes on while a session holds another task');
ok(wait_for($node, "SELECT max(n) > $most + 5 FROM tally WHERE key = 'free'"), 'and so does a function');
is($sql->(q{SELECT count(*) FROM item WHERE key = 'held'}), '0', 'the held stream waits');
my $held = $sql->(q{SELECT max(n) FROM tally WHERE key = 'held'});
is($sql->(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND wait_event_type = 'Lock'}), '0', 'no worker waits for the session');
$holder->query('ROLLBACK');
got_items($node, 'lines', 'held', 2500, 'what the session has let go comes');
is($sql->(q{SELECT bool_and(n = nth) FROM (SELECT (item ->> 'n')::int AS n, row_number() OVER (PARTITION BY key ORDER BY nth) AS nth FROM item) x}), 't', 'each item once and in order');
ok(wait_for($node, "SELECT max(n) > $held FROM tally WHERE key = 'held'"), 'its function is called again');
is( $sql->(q{SELECT bool_and(n = most) FROM (SELECT count(*) AS n, max(n) AS most FROM tally GROUP BY key) x}), 't', 'the cursor and what each turn wrote are one');
is($sql->(q{SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM sas.workers}), $pids, 'no worker has ended');
is($sql->(q{SELECT coalesce(sum(value), 0) FROM sas.metrics() WHERE name = 'sas_lock_timeouts_total'}), '0', 'and none has given up a lock');
is($sql->(q{SELECT count(*) FROM sas.alerts}), '0', 'nobody was alarmed');
$_->quit foreach $gate, $host, $holder;
$node->stop;
done_testing();
