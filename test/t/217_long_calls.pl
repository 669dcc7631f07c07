# SPDX-License-Identifier: PostgreSQL
#
# A call of one role that takes long holds up nothing of another role: what its
# worker has claimed or hosts beside it goes to other workers within seconds.
# That is so for steps, for items and for functions that are repeated for ever,
# also where the function was short until now and shares a batch with others.
# And the limit function_workers of a role counts all kinds of its functions.
# Takes about 40 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

# no unprompted look helps
my $node = new_node('main', 'sas.function_workers' => 1, 'sas.function_workers_max' => 4, 'sas.supervisor_interval' => '6 min',
	'sas.complete_in' => '10 min', max_worker_processes => 20);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE ann;
	CREATE ROLE bob;
	SELECT sas.grant_usage(r::regrole, 'user') FROM unnest('{ann,bob}'::text[]) r;
	CREATE SCHEMA s;
	GRANT USAGE ON SCHEMA s TO ann, bob;
	CREATE TABLE s.gate (name text);
	CREATE TABLE s.seen (what text, at timestamptz DEFAULT clock_timestamp());
	GRANT SELECT ON s.gate TO ann, bob;
	GRANT SELECT, INSERT ON s.seen TO ann, bob;
	CREATE FUNCTION s.patient(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE input ? 'gate' AND NOT EXISTS (SELECT FROM s.gate WHERE name = input->>'gate') LOOP PERFORM pg_sleep(0.1); END LOOP;
		RETURN '{}';
	END $$;
	CREATE FUNCTION s.short(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
	CREATE FUNCTION s.beat(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO s.seen VALUES ('beat'); SELECT '1'::jsonb $$;
	CREATE FUNCTION s.slow_beat(turn jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO s.seen VALUES (turn->>'key');
		WHILE NOT EXISTS (SELECT FROM s.gate WHERE name = turn->>'key') LOOP PERFORM pg_sleep(0.1); END LOOP;
		RETURN '{}';
	END $$;
	CREATE FUNCTION s.take(items jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO s.seen VALUES ('items'); SELECT '{}'::jsonb $$;
	SELECT sas.create_workflow('patient', '{"steps": {"a": {"function": "s.patient"}}}');
	SELECT sas.create_workflow('short', '{"steps": {"a": {"function": "s.short"}}}');
	SELECT sas.grant_workflow(w, r) FROM unnest('{patient,short}'::text[]) w, unnest('{ann,bob}'::regrole[]) r;
	SET ROLE ann;
	SELECT sas.create_watcher('beat', '{"function": "s.beat", "every": "50 ms"}');
	SET ROLE bob;
	SELECT sas.create_watcher('slow_beat', '{"function": "s.slow_beat", "every": "50 ms"}')});

sub beats
{
	my ($name) = @_;
	my $count = $sql->(q{SELECT count(*) FROM s.seen WHERE what = 'beat'});
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_for($node, "SELECT count(*) > $count + 10 FROM s.seen WHERE what = 'beat'", 't', limit => 60), $name);
	return;
}
sub submit { my ($role, $workflow, $input) = @_; return $sql->("SET ROLE $role; SELECT run_id FROM sas.submit('$workflow', '$input')") }
sub ends { my ($run) = @_; return wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success', limit => 60) }

# -- functions that are repeated for ever ------------------------------------------------------------

$sql->(q{SET ROLE ann; SELECT FROM sas.watch('beat', 'x')});
beats('a function is repeated for ever');
my $long = submit('bob', 'patient', '{"gate": "step"}');
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE calls LIKE '/runs/%'}, '1'), 'a step of another role takes long');
beats('the task goes on, on another worker');
$sql->(q{INSERT INTO s.gate VALUES ('step')});
ok(ends($long), 'the long one ends');
beats('and it goes on');
$sql->(q{SET ROLE bob; SELECT FROM sas.watch('slow_beat', 'slow')});
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE calls LIKE '/watches/%' AND turn_for > '1 s'}, '1'), 'a task of another role takes long');
beats('the others go on');
$sql->(q{INSERT INTO s.gate VALUES ('slow'); SET ROLE bob; SELECT sas.unwatch('slow_beat', '{slow}'); RESET ROLE; SET ROLE ann; SELECT sas.unwatch('beat', '{x}')});
is($sql->(q{SELECT sum(failures) FROM sas.watches}), '0', 'no task has failed');

# -- steps that share a batch with one that was short until now --------------------------------------

my $passed = 0;
for my $n (1 .. 4)
{
	# every worker learns that both are short
	for (1 .. 3) { ends(submit('bob', 'patient', '{}')); ends(submit('ann', 'short', '{}')) }
	my @runs = split /\n/, $sql->(qq{
		BEGIN;
		SET LOCAL ROLE bob; SELECT run_id FROM sas.submit('patient', '{"gate": "batch $n"}') \\gset long_
		SET LOCAL ROLE ann; SELECT run_id FROM sas.submit('short', '{}');
		COMMIT;
		SELECT :long_run_id});
	$passed += ends($runs[0]);
	is($sql->("SELECT state FROM sas.runs WHERE run_id = $runs[1]"), 'running', "round $n: one function takes long");
	$sql->("INSERT INTO s.gate VALUES ('batch $n')");
	ok(ends($runs[1]), 'and ends');
}
is($passed, 4, 'what was claimed beside it has ended before');
is($sql->(q{SELECT count(*) FROM sas.attempts WHERE status <> 'succeeded'}), '0', 'no attempt failed');
is($sql->(q{SELECT count(*) FROM sas.runs WHERE result IS DISTINCT FROM 'success'}), '0', 'and no run');

# -- the limit of a role counts all kinds ------------------------------------------------------------

$sql->(q{SELECT sas.set_limit('bob', 'function_workers', 1); DELETE FROM s.seen; DELETE FROM s.gate});
$sql->(q{SET ROLE bob; SELECT FROM unnest('{one,two,three}'::text[]) k, sas.watch('slow_beat', k)});
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE calls LIKE '/watches/%' AND turn_for > '1 s'}, '1'), 'a role with one function worker has tasks that take long');
my $held = submit('bob', 'patient', '{}');
my $other = submit('ann', 'short', '{}');
ok(ends($other), 'a step of another role is not held up');
sleep 3;
is($sql->(q{SELECT count(DISTINCT what) FROM s.seen WHERE what IN ('one', 'two', 'three')}) . $sql->("SELECT state FROM sas.runs WHERE run_id = $held"),
	'0pending', 'one of its functions runs, and no other') or diag $sql->('SELECT pid, calls, turn_for FROM sas.workers');
is($sql->(q{SELECT count(*) FROM sas.workers WHERE calls LIKE '/watches/%' OR calls LIKE '/runs/%'}), '1', 'on one worker');
$sql->(q{INSERT INTO s.gate SELECT unnest('{one,two,three}'::text[]); SELECT sas.set_limit('bob', 'function_workers', 4)});
ok(ends($held), 'what waited is done when there is room');

$node->stop;
done_testing();
