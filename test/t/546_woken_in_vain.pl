# SPDX-License-Identifier: PostgreSQL
#
# A scheduler that is woken although nothing is due asks no table: sessions
# hold them all, and its ticks neither wait nor fail. It knows from the
# low-water marks that there is nothing. What comes after that is carried out
# all the same, though no supervisor sends anybody to look.
# Takes about 10 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.schedulers' => 1, max_prepared_transactions => 2);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $result = sub { my $run = $sql->("SELECT run_id FROM $_[0]"); return $sql->("SELECT result FROM sas.wait($run)") };
my $given_up = q{SELECT coalesce(sum(value), 0)::int FROM sas.metrics() WHERE name = 'sas_lock_timeouts_total'};
$sql->(q{
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	SELECT sas.create_queue('narrow', 1);
	SELECT sas.create_workflow('one', '{"steps": {"a": {"function": "public.echo"}}}');
	SELECT sas.create_workflow('queued', '{"steps": {"a": {"function": "public.echo", "queue": "narrow"}}}');
	SELECT sas.create_workflow('children', '{"steps": {"all": {"workflow": "one", "input": {"n": "{{item}}"}, "each": "{{input.items}}"}}}');
	SELECT sas.schedule('far', '0 0 1 1 *', 'one', timezone => 'GMT');
	SELECT run_id FROM sas.submit('one', '{}', start_at => now() + interval '1 day')});

# marks of messages, schedules, queues and plans are above now when nothing is due
my $marks = q{SELECT count(*) FROM _sas.low_water_marks() WHERE kind = 'd' AND owner = 0 AND chr(n) IN ('s', 'a', 'c', 'q', 'p') AND mark > now() + interval '1 h'};
ok(wait_for($node, $marks, '5'), 'nothing is due');
my $let_go = hold_supervisor($node);

my $wake_in_vain = sub {
	my $session = SasSession->new($node);
	$session->query('BEGIN; LOCK TABLE _sas.message, _sas.answer, _sas.schedule, _sas.schedule_plan, _sas.ready, _sas.queue_slot IN ACCESS EXCLUSIVE MODE');
	my $answered = 0;
	for (1 .. 5)
	{
		my $before = $sql->(q{SELECT clock_timestamp() FROM _sas.wake('{}', true, false, '{}')});
		$answered += wait_for($node, "SELECT last_activity_at > '$before' FROM sas.workers WHERE actor = 'scheduler'", 't');
	}
	$session->query('ROLLBACK');
	$session->quit;
	return $answered;
};
is($wake_in_vain->(), 5, 'five ticks are made while a session holds the tables');
is($sql->($given_up), '0', 'and none of them has waited for one');

# -- what comes then ------------------------------------------------------------------
is($result->(q{sas.submit('one', '{}', start_at => now() + interval '200 ms')}), 'success', 'a timer is due in time');
is($sql->(q{SELECT count(*) FROM sas.submit_batch('queued', ARRAY(SELECT jsonb_build_object('n', g) FROM generate_series(1, 5) g))}), '5', 'steps wait in a queue');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'queued' AND result = 'success'}, '5'), 'and are let out, one after the other');
is($result->(q{sas.submit('children', '{"items": [1, 2, 3]}')}), 'success', 'child runs begin and end');
$sql->(q{SELECT sas.schedule('soon', 'every 1 s', 'one', timezone => 'GMT', max_runs => 1)});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE schedule = 'soon' AND result = 'success'}, '1'), 'a schedule is due');

# an answer: the run is held when the function ends
$sql->(q{
	CREATE TABLE gate (open boolean);
	CREATE FUNCTION slow(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM gate) LOOP
			PERFORM pg_sleep(0.02);
		END LOOP;
		RETURN input;
	END $$;
	SELECT sas.create_workflow('slow', '{"steps": {"a": {"function": "public.slow"}}}')});
my $run = $sql->(q{SELECT run_id FROM sas.submit('slow', '{}')});
ok(wait_for($node, qq{SELECT state FROM sas.steps WHERE run_id = $run}, 'running'), 'a function runs');
my $holder = SasSession->new($node);
$holder->query("BEGIN; SELECT FROM _sas.run WHERE run_id = $run FOR UPDATE");
$sql->('INSERT INTO gate VALUES (true)');
ok(wait_for($node, qq{SELECT count(*) FROM _sas.answer WHERE run_id = $run}, '1'), 'its answer is left while a session holds the run');
$holder->query('COMMIT');
$holder->quit;
is($sql->("SELECT result FROM sas.wait($run)"), 'success', 'and applied when that ends');

# a prepared transaction ends without the notes of the session that wrote it
ok(wait_until(sub { $sql->(q{SELECT _sas.wake('{}', true, false, '{}')}); return $sql->($marks) eq '5' }), 'nothing is due again');
$sql->(q{BEGIN; SELECT run_id FROM sas.submit('one', '{"prepared": true}', start_at => now() + interval '1 ms'); PREPARE TRANSACTION 'later'});
$sql->(q{COMMIT PREPARED 'later'});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE input ? 'prepared' AND result = 'success'}, '1'), 'a prepared transaction is found');
$let_go->();
done_testing();
