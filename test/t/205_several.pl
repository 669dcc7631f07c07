# SPDX-License-Identifier: PostgreSQL
#
# Several workers of a kind: each run is handled once, one supervisor leads.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;

my $node = new_node('main',
	'sas.schedulers' => 4,
	'sas.agents' => 2,
	'sas.function_workers' => 2,
	'sas.supervisors' => 3,
	'sas.supervisor_interval' => '1 s',
	max_worker_processes => 20);
my $service = start_service('inventory');
$node->safe_psql('postgres', qq{
	CREATE TABLE ledger (n int NOT NULL, what text NOT NULL);
	CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
		INSERT INTO public.ledger VALUES ((input->>'n')::int, 'book') RETURNING to_jsonb(n) \$\$;
	CREATE FUNCTION unbook(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
		INSERT INTO public.ledger VALUES ((input->>'n')::int, 'unbook') RETURNING to_jsonb(n) \$\$;
	-- every second run cannot go on; every tenth meets a passing fault first
	CREATE SEQUENCE met;
	CREATE FUNCTION check_it(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		IF (input->>'n')::int % 2 = 0 THEN
			RAISE EXCEPTION 'no';
		END IF;
		RETURN '{}';
	END \$\$;
	SELECT sas.create_agent('inventory', base_url => '@{[ $service->url ]}');
	SELECT sas.create_workflow('chain', '{"steps": {
		"book": {"function": "public.book", "undo": {"function": "public.unbook"}},
		"reserve": {"agent": "inventory", "after": ["book"],
			"call": {"method": "POST", "path": "/reservations", "body": {"order": "{{input.n}}", "sku": "sku-1"}},
			"undo": {"call": {"method": "DELETE", "path": "/reservations/{{steps.reserve.output.body.id}}"}}},
		"check_it": {"function": "public.check_it", "after": ["reserve"]}},
		"recovery": {"initial": "100 ms"}}');});

is( $node->safe_psql('postgres', q{
		SELECT string_agg(actor || ' ' || n, ', ' ORDER BY actor) FROM (SELECT actor, count(*) AS n FROM sas.workers GROUP BY 1) w}),
	'agent 2, function 2, scheduler 4, supervisor 3', 'the workers are as many as the settings say')
  if wait_for($node, 'SELECT count(*) FROM sas.workers', '11');

# half of the runs start in a second, all at the same time: work for all schedulers
$node->safe_psql('postgres', q{
	SELECT count(*) FROM sas.submit_batch('chain',
		ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, 500) i));
	SELECT count(*) FROM sas.submit_batch('chain',
		ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(501, 1000) i), start_at => now() + interval '1 s')});
all_ended($node, 'four schedulers and 1,000 runs: every run ends');
is( $node->safe_psql('postgres', q{SELECT string_agg(result || ' ' || n, ', ' ORDER BY result) FROM (SELECT result, count(*) AS n FROM sas.runs GROUP BY 1) r}),
	'compensated 500, success 500', 'as it should');
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || count(DISTINCT n) FROM ledger WHERE what = 'book'}),
	'1000 1000', 'every step was done once');
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || count(DISTINCT n) FROM ledger WHERE what = 'unbook' AND n % 2 = 0}),
	'500 500', 'every undo was done once');
is(scalar($service->requests), 1500, 'every call was made once');
is(scalar(grep { $_->{kind} eq 'reservation' && $_->{state} eq 'active' } @{ $service->books->{entries} }), 500, 'and nothing is left reserved for an undone run');

# -- supervisors ------------------------------------------------------------------

is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.workers WHERE leader}), '1', 'of three supervisors one leads');

# steps that fail for a while, with a leader that goes away again and again
$node->safe_psql('postgres', q{
	CREATE TABLE failed (n int, at timestamptz DEFAULT clock_timestamp());
	CREATE TABLE fault (on_it boolean);
	INSERT INTO fault VALUES (true);
	CREATE FUNCTION fail_for_a_while(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT on_it FROM public.fault) THEN
			RAISE EXCEPTION 'not now' USING ERRCODE = 'object_in_use', HINT = 'object_in_use is class 55, lock_not_available is the passing one';
		END IF;
		INSERT INTO public.ledger VALUES ((input->>'n')::int, 'after faults');
		RETURN '{}';
	EXCEPTION WHEN object_in_use THEN
		RAISE EXCEPTION 'not now' USING ERRCODE = 'lock_not_available';
	END $$;
	SELECT sas.create_workflow('faulty', '{"steps": {"try_it": {"function": "public.fail_for_a_while", "retry": {"max_attempts": 1}}},
		"recovery": {"initial": "200 ms", "max": "400 ms", "max_failures": 1000}}');
	SELECT count(*) FROM sas.submit_batch('faulty', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, 40) i))});
my %led;
foreach my $round (1 .. 5)
{
	my $leader;
	wait_for($node, q{SELECT count(*) FROM sas.workers WHERE leader}, '1');
	$leader = $node->safe_psql('postgres', q{SELECT pid FROM sas.workers WHERE leader});
	$led{$leader} = 1;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($leader)");
	ok(wait_for($node, "SELECT count(*) FROM sas.workers WHERE leader AND pid <> $leader", '1'), "leader $round goes away: another leads");
}
cmp_ok(scalar keys %led, '>=', 5, 'five leaders had their turn');
$node->safe_psql('postgres', 'UPDATE fault SET on_it = false');
all_ended($node, 'every run ends though its leaders went away');
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || count(DISTINCT n) FROM ledger WHERE what = 'after faults'}), '40 40', 'each once');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM sas.steps s WHERE s.step = 'try_it'
		AND s.failure_count <> (SELECT count(*) FROM sas.attempts a WHERE a.run_id = s.run_id AND a.status <> 'succeeded')}),
	'0', 'no failure was counted twice and no step recovered twice: failures equal failed attempts');
is($node->safe_psql('postgres', q{
		SELECT count(*) FROM (SELECT run_id, attempt FROM sas.attempts GROUP BY 1, 2, step, undo HAVING count(*) > 1) q}),
	'0', 'no attempt has two rows');
done_testing();
