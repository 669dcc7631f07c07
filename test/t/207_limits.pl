# SPDX-License-Identifier: PostgreSQL
#
# Limits hold over all workers and through kill -9: the places of a queue, those
# of a queue under a key, and the places under a key. A run that follows another begins at once. No worker
# keeps to itself what others could do meanwhile.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main',
	'sas.schedulers' => 2,
	'sas.function_workers' => 4,
	max_worker_processes => 20);
$node->safe_psql('postgres', q{
	CREATE TABLE spell (run int NOT NULL, step text NOT NULL, began timestamptz NOT NULL, ended timestamptz NOT NULL, claimed int);
	CREATE FUNCTION dwell(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		began timestamptz := clock_timestamp();
	BEGIN
		PERFORM pg_sleep(0.02);
		INSERT INTO public.spell VALUES ((input->>'n')::int, input->>'step', began, clock_timestamp(),
			(SELECT max(cardinality(l.run_ids)) FROM _sas.lease l));
		RETURN '{}';
	END $$;
	CREATE FUNCTION quick(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
	SELECT sas.create_queue('narrow', 2);
	SELECT sas.create_workflow('queued', '{"steps": {
		"a": {"function": "public.dwell", "queue": "narrow", "input": {"n": "{{input.n}}", "step": "queued"}}}, "recovery": {"initial": "100 ms"}}');
	SELECT sas.create_queue('shared', 3, key => '{{input.tenant}}', per_key => 1);
	SELECT sas.create_workflow('shared', '{"steps": {
		"a": {"function": "public.dwell", "queue": "shared", "input": {"n": "{{input.n}}", "step": "shared"}}}, "recovery": {"initial": "100 ms"}}');
	SELECT sas.create_workflow('keyed', '{"steps": {
		"a": {"function": "public.dwell", "input": {"n": "{{input.n}}", "step": "keyed"}},
		"b": {"function": "public.dwell", "input": {"n": "{{input.n}}", "step": "keyed"}, "after": ["a"]}},
		"concurrency": {"key": "{{input.account}}"}, "recovery": {"initial": "100 ms"}}');
	SELECT sas.create_workflow('one', '{"steps": {"a": {"function": "public.quick"}}}');});
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '4');

$node->safe_psql('postgres', q{
	SELECT count(*) FROM sas.submit_batch('queued', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, 120) i));
	SELECT count(*) FROM sas.submit_batch('shared', ARRAY(SELECT jsonb_build_object('n', i, 'tenant', i % 5) FROM generate_series(1, 100) i));
	SELECT count(*) FROM sas.submit_batch('keyed', ARRAY(SELECT jsonb_build_object('n', i, 'account', i % 3) FROM generate_series(1, 60) i))});
foreach my $actor (qw(function scheduler function))
{
	my $done = $node->safe_psql('postgres', 'SELECT count(*) FROM spell');
	wait_for($node, "SELECT count(*) > $done + 15 FROM spell");
	my $boot = $node->safe_psql('postgres', 'SELECT _sas.current_boot()');
	kill_worker($node, $actor, 'KILL');
	ok(wait_for($node, "SELECT _sas.current_boot() <> $boot"), "the server restarts after kill -9 of a $actor worker");
}
all_ended($node, 'four function workers, queues of two places and of one per tenant, and a place per key: every run ends, whoever is killed');
is($node->safe_psql('postgres', q{SELECT string_agg(result || ' ' || n, ', ') FROM (SELECT result, count(*) AS n FROM sas.runs GROUP BY 1) r}),
	'success 280', 'with success');
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || count(DISTINCT (run, step)) FROM spell WHERE step = 'queued'}), '120 120', 'each queued step was done once');
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || count(DISTINCT run) FROM spell WHERE step = 'shared'}), '100 100', 'each step of the queue with a key was done once');

# at the beginning of each: how many are there
my $most = $node->safe_psql('postgres', q{
	SELECT max(n) FROM (SELECT (SELECT count(*) FROM spell o WHERE o.step = 'queued' AND o.began <= s.began AND o.ended > s.began) AS n FROM spell s WHERE s.step = 'queued') x});
is($most, 2, 'two steps of the queue ran at once, and never more');
is($node->safe_psql('postgres', q{
	SELECT max(all_now) || ' ' || max(same_now) FROM (
		SELECT count(*) AS all_now, count(*) FILTER (WHERE o.run % 5 = s.run % 5) AS same_now
		FROM spell s JOIN spell o ON o.step = 'shared' AND o.began <= s.began AND o.ended > s.began
		WHERE s.step = 'shared' GROUP BY s.run) x}), '3 1', 'three steps of the queue with a key ran at once, of one tenant never more than one');
is($node->safe_psql('postgres', q{
		SELECT count(*) FROM sas.runs r JOIN sas.runs o ON o.workflow = 'keyed' AND o.input->'account' = r.input->'account' AND o.run_id > r.run_id AND o.started_at < r.finished_at
		WHERE r.workflow = 'keyed'}), '0', 'no two runs of one key were open at once, and they came in the order of their submits');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM _sas.concurrency_slot) + (SELECT count(*) FROM _sas.queue_slot) + (SELECT count(*) FROM _sas.parked_step)'), '0', 'all places were given back');

# -- how soon a run begins that follows another ------------------------------------

my $last = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('one', start_at => now() + interval '1 s')});
foreach (1 .. 100)
{
	$last = $node->safe_psql('postgres', "SELECT run_id FROM sas.submit('one', after_run => $last)");
}
all_ended($node, 'a chain of 100 runs ends');
note('a run began after the end of the one before: '
	  . $node->safe_psql('postgres', q{
		SELECT format('median %s ms, p99 %s ms, longest %s ms', percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_disc(0.99) WITHIN GROUP (ORDER BY ms), max(ms))
		FROM (SELECT round(extract(epoch FROM r.started_at - e.finished_at)::numeric * 1000, 1)::float8 AS ms FROM sas.runs r JOIN sas.runs e ON e.run_id = r.after_run) x}));
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs r JOIN sas.runs e ON e.run_id = r.after_run WHERE r.started_at < e.finished_at}), '0',
	'none began before the one before had ended');

# what was late by a moment is told, not judged
$node->safe_psql('postgres', q{SELECT sas.submit('one', start_at => now() + i * interval '20 ms') FROM generate_series(1, 50) i});
all_ended($node, 'delayed runs end');
note('a delayed run began after its time: '
	  . $node->safe_psql('postgres', q{
		SELECT format('median %s ms, p99 %s ms', percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_disc(0.99) WITHIN GROUP (ORDER BY ms))
		FROM (SELECT round(extract(epoch FROM started_at - start_at)::numeric * 1000, 1)::float8 AS ms FROM (SELECT * FROM sas.runs WHERE start_at IS NOT NULL ORDER BY run_id DESC LIMIT 50) r) x}));

# -- long functions and many workers -------------------------------------------------

# workers that know nothing yet: where the machine is busy, the short functions above have filled batches, which grow then
$node->restart;
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '4');
$node->safe_psql('postgres', q{
	SELECT sas.create_workflow('free', '{"steps": {"a": {"function": "public.dwell", "input": {"n": "{{input.n}}", "step": "free"}}}}');
	SELECT count(*) FROM sas.submit_batch('free', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, 300) i));});
all_ended($node, 'runs of a longer function end');
# the first batch of a worker knows nothing of that yet
is($node->safe_psql('postgres', q{SELECT max(claimed) <= 20 FROM spell WHERE step = 'free'}), 't',
	'what takes long is left to whoever is free, not kept by one worker');
done_testing();
