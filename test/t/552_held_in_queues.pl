# SPDX-License-Identifier: PostgreSQL
#
# One transaction holds many steps of a role that wait in a queue or for an outside program, or is inserting
# them. A scheduler that gives out slots, and a program that claims, pass only some of them before they take the
# steps of others. They go on behind them, so that the role's own steps there have their turn, too.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $n = 40000;
my $definitions = q{
	CREATE ROLE holder;
	CREATE ROLE other;
	CREATE SCHEMA t;
	GRANT USAGE ON SCHEMA t TO holder, other;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_queue('narrow', 1000);
	SELECT sas.create_agent('out', kind => 'external', max_in_flight => 1000);
	SELECT sas.create_workflow('queued', '{"steps": {"a": {"function": "t.echo", "queue": "narrow"}}}');
	SELECT sas.create_workflow('outside', '{"steps": {"a": {"agent": "out", "task": {}}}}');
	SELECT sas.grant_usage(r, 'user') FROM unnest('{holder,other}'::regrole[]) r;
	SELECT sas.grant_agent('out', r) FROM unnest('{holder,other}'::regrole[]) r;
	SELECT sas.grant_workflow(w, r) FROM unnest('{holder,other}'::regrole[]) r, unnest('{queued,outside}'::text[]) w};
my $node = new_node('main', 'sas.function_workers' => 0, 'sas.schedulers' => 0, 'sas.supervisors' => 0, 'sas.agents' => 0);
$node->safe_psql('postgres', $definitions);
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.entries() RETURNS bigint LANGUAGE sql AS $$ SELECT pg_stat_get_xact_tuples_returned('_sas.ready_claim'::regclass) $$;
	-- t.look(what, woken): index entries that it has read; the owners of what it has let out, or claimed
	CREATE FUNCTION t.look(what text, woken boolean, OUT entries bigint, OUT holders bigint, OUT others bigint) LANGUAGE plpgsql AS $$
	DECLARE
		before bigint := t.entries();
		ids bigint[];
	BEGIN
		IF what = 'queued' THEN
			PERFORM _sas.begin_taking(woken);
			PERFORM _sas.give_queue_slots(100);
			ids := ARRAY(SELECT run_id FROM _sas.queue_slot);
			DELETE FROM _sas.queue_slot;
			DELETE FROM _sas.ready WHERE lane = 0;
		ELSE
			ids := ARRAY(SELECT run_id FROM sas.claim('out', 'me', 100));
		END IF;
		entries := t.entries() - before;
		SELECT count(*) FILTER (WHERE owner = 'holder'::regrole), count(*) FILTER (WHERE owner = 'other'::regrole)
		INTO holders, others FROM _sas.run WHERE run_id = ANY (ids);
	END $$});

sub submit
{
	my ($role, $workflow, $how_many, $more) = @_;
	$more //= '';
	return $node->safe_psql('postgres', "SET ROLE $role; SELECT min(run_id) FROM sas.submit_batch('$workflow', array_fill('{}'::jsonb, ARRAY[$how_many])$more)");
}

my $worker = SasSession->new($node);
my $holder = SasSession->new($node);
$worker->query('SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off');

sub look
{
	my ($what, $woken) = @_;
	return split /\|/, $worker->query("SELECT * FROM t.look('$what', $woken)");
}

foreach my $what ('queued', 'outside')
{
	my $noun = $what eq 'queued' ? 'a queue' : 'an outside agent';
	foreach my $how ('deletes', 'inserts')
	{
		my ($entries, $holders, $others, $looks);

		# plans are made
		submit('holder', $what, 1);
		look($what, 'true');
		if ($how eq 'deletes')
		{
			submit('holder', $what, $n);
			# as a cancel does
			$holder->query(q{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.run WHERE state = 'pending' FOR NO KEY UPDATE) x;
				DELETE FROM _sas.ready WHERE owner = 'holder'::regrole});
		}
		else
		{
			$holder->query(qq{BEGIN; SET LOCAL ROLE holder; SELECT count(*) FROM sas.submit_batch('$what', array_fill('{}'::jsonb, ARRAY[$n]))});
		}
		submit('other', $what, 1);
		($entries, $holders, $others) = look($what, 'true');
		is($others, 1, "$noun: another transaction $how $n steps of one role: that of another role is taken");
		cmp_ok($entries, '<', $n * 3 / 4, 'and not all of the others are passed by');

		submit('holder', $what, 1);
		$looks = 0;
		my $most = 0;
		do { ($entries, $holders) = look($what, 'false'); $most = $entries if $entries > $most } until $holders > 0 || ++$looks == 40;
		is($holders, 1, 'the step behind them is taken, too');
		cmp_ok($looks, '>', 0, 'in a later look') if $what eq 'queued';
		cmp_ok($most, '<', $n / 2, 'none of which passes all') if $what eq 'queued';

		if ($what eq 'queued' && $how eq 'deletes')
		{
			look($what, 'false') foreach 1 .. 40;
			($entries) = look($what, 'false');
			cmp_ok($entries, '<', 10000, 'then no look goes beyond the first of them before a wake-up');
		}
		$holder->query('ROLLBACK');
		next if $how eq 'inserts';
		($entries, $holders) = look($what, 'true');
		is($holders, 100, 'when the transaction has ended, its steps are taken from the first on');
		$node->safe_psql('postgres', 'DELETE FROM _sas.ready; DELETE FROM _sas.external_slot WHERE request_id IS NOT NULL; SELECT sas.alter_agent(\'out\', max_in_flight => 1000)');
	}
}
$_->quit foreach $holder, $worker;
$node->stop;

# -- a scheduler by itself: nothing wakes it a second time ------------------------------------------------

$node = new_node('live', 'sas.function_workers' => 1, 'sas.schedulers' => 1, 'sas.agents' => 0);
$node->safe_psql('postgres', $definitions);
$holder = SasSession->new($node);
# no queue is served before they are held
my $door = SasSession->new($node);
my $resume = hold_supervisor($node);
$door->query('BEGIN; LOCK TABLE _sas.queue_slot IN EXCLUSIVE MODE');
submit('holder', 'queued', $n);
$holder->query(q{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.ready FOR UPDATE SKIP LOCKED) x});
$door->query('COMMIT');
my $run = submit('holder', 'queued', 1);
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped'), 'a scheduler gives a slot to the step behind those that are held');
# as a verb does that has locked them
$holder->query(q{SELECT _sas.wake('{0}', true, false, '{}'); COMMIT});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, 0), 'and to all of them afterwards');
$resume->();
$_->quit foreach $holder, $door;
$node->stop;
done_testing();
