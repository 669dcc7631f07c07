# SPDX-License-Identifier: PostgreSQL
#
# No tick waits for a session. A session holds each table of the extension, one
# after the other: all rows that are there, and the table in every mode up to
# SHARE UPDATE EXCLUSIVE. Meanwhile runs that were submitted before it began go
# through every tick of every actor, and end. The tables are read from the
# catalogue, so a new one is held, too.
#
#   SAS_TABLES="run step"    only these
#
# Takes about 120 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use SasTest;
use SasKinds;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

my $hang = 60;					# seconds: what takes longer hangs
my $node = new_node('main', 'sas.schedulers' => 2, 'sas.function_workers' => 2, 'sas.supervisor_interval' => '2 s', max_connections => 40);
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

$sql->(q{
	CREATE FUNCTION said(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
	CREATE FUNCTION unchanged(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$});
define_kinds($node, $service, all => { finalize => 'public.said', hooks => [ { on => 'stopped', function => 'public.said' } ] });
$sql->(q{
	SELECT sas.create_agent('away', base_url => 'http://127.0.0.1:1');
	SELECT sas.alter_agent('away', enabled => false);
	SELECT sas.create_queue('wide', 2);
	SELECT sas.create_watcher('turn', '{"function": "public.turn", "every": "50 ms"}');
	SELECT sas.create_watcher('items', '{"agent": "outside", "external": {}, "items": {"table": "public.item"}}');
	SELECT count(*) FROM (VALUES ('turn'), ('items')) v (n), sas.watch(n, 'old')});
my %recovery = (recovery => { initial => '20 ms', max_failures => 2 });
define($node, 'waits', { steps => { x => { wait => { signal => 'go' } }, y => { wait => { signal => 'later' }, after => ['x'] } } });

# -- a row of each kind that stays ------------------------------------------------------------

define($node, 'parked', { %recovery, on_failure => 'pause', steps => { x => { agent => 'remote', call => { path => '/fail' } } } });
define($node, 'staged', { steps => { x => { agent => 'away', call => { path => '/quick' } } } });
define($node, 'single', { concurrency => { key => 'one', overlap => 'return' }, steps => { x => { wait => { signal => 'go' } } } });
define($node, 'placed', { steps => { x => { agent => 'outside', task => {}, queue => 'wide' } } });
define($node, 'held', { steps => { x => { agent => 'outside', task => {}, complete_in => '1 day' } } });
define($node, 'base', { steps => { x => { wait => { signal => 'go' } } } });
define($node, 'told', { steps => { x => { wait => { signal => 'go' } }, y => { agent => 'remote', call => { path => '/quick', body => '{{steps.x.token}}' } } } });
define($node, 'more', { steps => { x => { wait => { signal => 'go' } } } });
define($node, 'many_undone', { %recovery, steps => {
		done => { agent => 'remote', call => { path => '/quick' }, each => '{{input.ids}}', undo => { agent => 'outside', task => {} } },
		bad => { agent => 'remote', call => { path => '/fail' }, after => ['done'] } } });

$sql->(q{
	SELECT run_id FROM sas.submit('waits');
	SELECT run_id FROM sas.submit('task');
	SELECT run_id FROM sas.submit('keyed', '{"key": "old"}', start_at => now() + interval '1 h');
	SELECT run_id FROM sas.submit('all', '{"ids": [1, 2]}', key => 'old', reply_to => 'replies');
	SELECT run_id FROM sas.submit('undone');
	SELECT run_id FROM sas.submit('poor');
	SELECT sas.set_limit('postgres', 'open_runs', 1000000);
	SELECT sas.schedule('each', 'every 1 s', 'child');
	INSERT INTO _sas.answer (run_id, step_no, element, request_id, verdict, attempt, in_doubt, arrived_at) VALUES (0, 1, 0, gen_random_uuid(), 'done', 1, false, now());
	SELECT count(*) FROM sas.signal(1, 'later')});
$sql->(q{
	CREATE ROLE somebody;
	SELECT sas.grant_usage('somebody', 'user');
	SELECT sas.grant_usage('somebody', 'worker', 'outside');
	SELECT sas.grant_workflow('child', 'somebody');
	SELECT sas.set_limit('somebody', 'children', 10);
	SELECT sas.set_secret('word', 'said');
	SELECT sas.set_alert_hook('public.said(jsonb)');
	SELECT sas.create_middleware('around', 'call', before => 'public.unchanged(jsonb)', workflow => 'staged');
	SELECT sas.subscribe('more', 'base');
	SELECT run_id FROM sas.submit('parked');
	SELECT run_id FROM sas.submit('single');
	SELECT run_id FROM sas.submit('placed');
	SELECT run_id FROM sas.submit('staged');
	SELECT run_id FROM sas.submit('told');
	SELECT run_id FROM sas.submit('base');
	SELECT run_id FROM sas.submit('many_undone', jsonb_build_object('ids', ARRAY(SELECT generate_series(1, 60))));
	SELECT run_id FROM sas.submit('child', after_run => (SELECT max(run_id) FROM sas.runs WHERE workflow = 'base'));
	SELECT sas.pause_workflow('more');
	SELECT run_id FROM sas.submit('more');
	SELECT sas.watch('turn', 'ended');
	SELECT sas.unwatch('turn', '{ended}')});
ok(wait_for($node, q{SELECT state FROM sas.runs WHERE workflow = 'parked'}, 'paused'), 'a run is paused');
$sql->(q{SELECT sas.retry(run_id, 'x', new_key => true) FROM sas.runs WHERE workflow = 'parked'});
ok(wait_for($node, q{SELECT count(*) > 50 FROM _sas.undo_order}), 'a run with many steps is undone');
ok(wait_for($node, q{SELECT count(*) FROM _sas.queue_slot}, 1), 'a step has its place');
my ($claimed) = $sql->(q{SELECT request_id FROM sas.claim('outside', 'me', lease => '1 day')});
$sql->("SELECT sas.heartbeat('$claimed', 0.5, '[1]')");
ok(wait_for($node, q{SELECT string_agg(workflow, ' ' ORDER BY workflow) FROM sas.runs
	WHERE state = 'stopped' AND schedule IS NULL AND parent_run_id IS NULL AND workflow IN ('all', 'poor', 'undone')}, 'all poor undone'), 'there is a first row of each kind');
my ($paused) = $sql->(q{SELECT run_id FROM sas.submit('all', '{"ids": [1]}')});
$sql->("SELECT FROM sas.pause($paused)");

# -- the work -----------------------------------------------------------------------------

my $n = 0;
my $submit = sub {
	my ($session) = @_;
	$n++;
	return $session->query(qq{BEGIN;
		SELECT string_agg(run_id::text, ',') FROM (
			SELECT run_id FROM sas.submit_batch('all', array_fill('{"ids": [1, 2]}'::jsonb, '{2}'))
			UNION ALL SELECT run_id FROM sas.submit_batch('keyed', array_fill('{"key": "new $n"}'::jsonb, '{2}'))
			UNION ALL SELECT run_id FROM sas.submit('undone') UNION ALL SELECT run_id FROM sas.submit('poor')) x});
};

# goes through: the rows are held, the runs come, and end.  Returns how long that took.
sub holds
{
	my ($table, $held, $runs) = @_;
	my $begun = time();
	my $left = '';
	my $ended = wait_until(
		sub {
			$left = $sql->("SELECT coalesce(string_agg(workflow || ' ' || run_id || ' ' || state, ', ' ORDER BY run_id), '') FROM sas.runs WHERE run_id IN ($runs) AND state <> 'stopped'");
			return $left eq '';
		}, $hang);
	return ($ended, time() - $begun, $left);
}

my @tables = split /\n/, $sql->(q{
	SELECT c.relname FROM pg_class c WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1});
cmp_ok(scalar @tables, '>=', 40, 'tables are found');
if (my @only = split ' ', $ENV{SAS_TABLES} // '') { @tables = grep { my $table = $_; grep { $_ eq $table } @only } @tables }
my ($slowest, $slow_table, @empty) = (0, '');
my $pids = q{SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM sas.workers};
my $before = $sql->($pids);
foreach my $table (@tables)
{
	my $submitter = SasSession->new($node);
	my $runs = $submit->($submitter);
	like($runs, qr/^[0-9,]+$/, "$table: runs are submitted") or next;
	my $holder = SasSession->new($node);
	my $holds = $holder->query('SELECT pg_backend_pid()');
	# who gives out places takes turns by a row, which nobody else may hold: see _sas.lock_row
	my $rows = $table eq 'lock_row' ? '0' : $holder->query(qq{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.$table FOR UPDATE) x});
	$holder->query('BEGIN') if $table eq 'lock_row';
	my $locked = join '', map { $holder->query("LOCK TABLE _sas.$table IN $_ MODE") } 'ACCESS SHARE', 'ROW SHARE', 'ROW EXCLUSIVE', 'SHARE UPDATE EXCLUSIVE';
	is($locked, '', "$table: a session holds it");
	push @empty, $table if $rows eq '0';
	$submitter->query('COMMIT');
	my ($ended, $seconds, $left) = holds($table, $holder, $runs);
	ok($ended, "$table: while a session holds its $rows rows, all runs end")
	  or diag("still open: $left\n", $sql->(q{
		SELECT a.backend_type || ': ' || coalesce(l.relation::regclass::text, l.locktype) || ' ' || l.mode FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted}));
	# two workers that make a table longer wait for each other, a moment
	is($sql->("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND wait_event_type = 'Lock' AND $holds = ANY (pg_blocking_pids(pid))"),
		'0', "$table: no worker waits for it");
	($slowest, $slow_table) = ($seconds, $table) if $seconds > $slowest;
	$holder->query('ROLLBACK');
	$_->quit foreach $holder, $submitter;
}
diag(sprintf 'slowest: %s, %.2f s; without a row: %s', $slow_table, $slowest, join ' ', @empty);
is($sql->($pids), $before, 'no worker has ended');
my $timeouts = q{SELECT coalesce(sum(value), 0) FROM sas.metrics() WHERE name = 'sas_lock_timeouts_total'};
is($sql->($timeouts), '0', 'no tick has given up a lock');
is($sql->(q{SELECT coalesce(string_agg(message, E'\n'), '') FROM sas.alerts WHERE kind = 'stuck'}), '', 'nothing was stuck');

# -- verbs that are not committed: children are planned beside them ------------------------------

my %verb = (
	'a submit of the same plan' => q{SELECT FROM sas.submit('planned', '{"new": %d}')},
	'a new version' => q{SELECT sas.create_workflow('planned', '{"plan": "public.planned", "priority": %d}')},
	'a grant' => q{SELECT sas.grant_workflow('planned', 'postgres')},
	'a changed agent' => q{SELECT sas.alter_agent('remote', max_in_flight => 100 + %d)},
	'a changed queue' => q{SELECT sas.alter_queue('narrow', 2 + %d)},
	'replies that are being read' => q{SELECT count(*) FROM sas.read_replies('replies', 10)});
$sql->(q{SELECT run_id FROM sas.submit('all', '{"ids": []}', reply_to => 'replies')});
foreach my $what (sort keys %verb)
{
	my $submitter = SasSession->new($node);
	my $runs = $submit->($submitter);
	my $holder = SasSession->new($node);
	unlike($holder->query('BEGIN; ' . sprintf($verb{$what}, $n)), qr/ERROR/, "$what is not committed");
	$submitter->query('COMMIT');
	my ($ended, $seconds, $left) = holds($what, $holder, $runs);
	ok($ended, "$what: all runs end") or diag("still open: $left");
	$holder->query('ROLLBACK');
	$_->quit foreach $holder, $submitter;
}
is($sql->($timeouts), '0', 'no tick has given up a lock to them');

# -- above that ---------------------------------------------------------------------------------

my $gave_up = q{SELECT coalesce(sum(n), 0) >= %d FROM _sas.series() WHERE metric = 'lock_timeout'};
foreach my $table (qw(run ready message agent node lease))
{
	my $submitter = SasSession->new($node);
	my $runs = $submit->($submitter);
	my $holder = SasSession->new($node);
	my $pid = $holder->query('SELECT pg_backend_pid()');
	my $was = $sql->($timeouts);
	$submitter->start_query('COMMIT');
	is($holder->query("BEGIN; LOCK TABLE _sas.$table IN ACCESS EXCLUSIVE MODE"), '', "$table: a session locks it");
	like($sql->('SELECT held_by FROM sas.health()'), qr/table $table is locked by process $pid/, "$table: sas.health says who");
	ok(wait_for($node, sprintf $gave_up, $was + 6), "$table: workers give up the lock a few times");
	$holder->query('ROLLBACK');
	my ($ended, $seconds, $left) = holds($table, $holder, $runs);
	ok($ended, sprintf '%s: all runs end after that (%.2f s)', $table, $seconds) or diag("still open: $left");
	$_->quit foreach $holder, $submitter;
}
is($sql->($pids), $before, 'no worker has ended');
is($sql->('SELECT held_by IS NULL FROM sas.health()'), 't', 'sas.health says that nobody holds anything');
cmp_ok($sql->($timeouts), '>', 0, 'and it was counted');
done_testing();
