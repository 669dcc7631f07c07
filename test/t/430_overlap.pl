# SPDX-License-Identifier: PostgreSQL
#
# Concurrency keys while sessions submit at once, workers are killed and the server dies: never two runs under
# one key, newest inputs win, and nobody waits for ever. Takes about 30 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasService;
use SasSession;
use SasTest;
use Test::More;
use Time::HiRes qw(sleep);

my $node = new_node('main', 'sas.function_workers' => 3, 'sas.agents' => 1);
my $keys = 12;
$node->safe_psql('postgres', q{
	CREATE TABLE public.work (run_id bigint, n int, begun timestamptz, ended timestamptz);
	CREATE FUNCTION public.work(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		begun timestamptz := clock_timestamp();
	BEGIN
		PERFORM pg_sleep(0.01 * random());
		INSERT INTO public.work VALUES ((input ->> 'run')::bigint, (input ->> 'n')::int, begun, clock_timestamp());
		RETURN input;
	END $$;
	CREATE TABLE public.submit (at int GENERATED ALWAYS AS IDENTITY, workflow text, key int, other int, n int, run_id bigint, created boolean);
	-- one submit, and what it got
	CREATE FUNCTION public.submit(workflow text, key int, other int, n int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.submit (workflow, key, other, n, run_id, created)
		SELECT $1, $2, $3, $4, s.run_id, s.created
		FROM sas.submit($1, jsonb_build_object('key', 'k' || $2, 'other', 'k' || $3, 'n', $4)) s;
	EXCEPTION WHEN object_in_use THEN
		INSERT INTO public.submit (workflow, key, other, n) VALUES ($1, $2, $3, $4);
	END $$;
	CREATE PROCEDURE public.submits(first int, quantity int, keys int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR n IN first .. first + quantity - 1 LOOP
			PERFORM public.submit((ARRAY['waits', 'returns', 'refuses', 'replaces', 'follows', 'several'])[1 + floor(random() * 6)::int],
				1 + floor(random() * keys)::int, 1 + floor(random() * keys)::int, n);
			COMMIT;
			PERFORM pg_sleep(0.02 * random());
		END LOOP;
	END $$});
my $steps = { a => { function => 'public.work', input => { run => '{{run.id}}', n => '{{input.n}}' } },
	b => { function => 'public.work', input => { run => '{{run.id}}', n => '{{input.n}}' }, after => ['a'], undo => { function => 'public.work', input => { run => '{{run.id}}', n => '{{input.n}}' } } } };
my $key = { key => '{{input.key}}', scope => 'owner' };
define($node, 'waits', { steps => $steps, concurrency => $key });
define($node, 'returns', { steps => $steps, concurrency => { %$key, overlap => 'return' } });
define($node, 'refuses', { steps => $steps, concurrency => { %$key, overlap => 'refuse' } });
define($node, 'replaces', { steps => $steps, concurrency => { %$key, overlap => 'replace' } });
define($node, 'follows', { steps => $steps, concurrency => { %$key, overlap => 'once_more' } });
define($node, 'several', { steps => $steps, concurrency => [ $key, { %$key, key => '{{input.other}}' } ] });

my $first = 1;
my $quantity = 60;

# a round of sessions that submit; what is done meanwhile
sub round_of
{
	my ($meanwhile) = @_;
	my @sessions = map { SasSession->new($node) } 1 .. 4;
	foreach my $session (@sessions)
	{
		$session->start_query("CALL public.submits($first, $quantity, $keys)");
		$first += $quantity;
	}
	$meanwhile->();
	$_->answered || eval { $_->answer } foreach @sessions;
	return;
}

round_of(sub { sleep 0.3; kill_worker($node, 'function', 'TERM'); sleep 0.3; kill_worker($node, 'scheduler', 'TERM'); sleep 0.3; kill_worker($node, 'function', 'TERM') });
round_of(sub { sleep 0.5; $node->stop('immediate'); $node->start });
all_ended($node, 'every run comes to its end');

my $n = $node->safe_psql('postgres', 'SELECT count(*) FROM public.submit');
cmp_ok($n, '>=', 4 * $quantity, 'sessions submitted');
is($node->safe_psql('postgres', q{
	WITH place AS (
		SELECT DISTINCT s.run_id, k FROM public.submit s CROSS JOIN LATERAL unnest(ARRAY[s.key, CASE s.workflow WHEN 'several' THEN s.other END]) k
		WHERE s.created AND k IS NOT NULL)
	SELECT count(*) FROM place p JOIN sas.runs r USING (run_id) JOIN place o ON o.k = p.k AND o.run_id < p.run_id JOIN sas.runs s ON s.run_id = o.run_id
	WHERE r.started_at < s.finished_at AND s.started_at < r.finished_at}), '0', 'no two runs were open under one key at once');
is($node->safe_psql('postgres', q{
	WITH place AS (
		SELECT DISTINCT s.run_id, k FROM public.submit s CROSS JOIN LATERAL unnest(ARRAY[s.key, CASE s.workflow WHEN 'several' THEN s.other END]) k
		WHERE s.created AND k IS NOT NULL)
	SELECT count(*) FROM place p JOIN public.work w USING (run_id) JOIN place o ON o.k = p.k AND o.run_id < p.run_id JOIN public.work v ON v.run_id = o.run_id
	WHERE w.begun < v.ended AND v.begun < w.ended}), '0', 'nor did their functions run beside each other');
is($node->safe_psql('postgres', q{
	SELECT string_agg(DISTINCT workflow || ' ' || result, ', ' ORDER BY workflow || ' ' || result) FROM sas.runs
	WHERE result <> 'success' AND (error ->> 'title' IS DISTINCT FROM 'a newer run replaced it under its concurrency key')}), '', 'a run succeeds, or was replaced');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM public.submit s JOIN sas.runs r USING (run_id)
	WHERE s.workflow = 'follows' AND r.result = 'success'
	  AND NOT EXISTS (SELECT FROM public.submit l WHERE l.run_id = s.run_id AND l.n = (r.input ->> 'n')::int AND l.at >= s.at)}), '0',
	'a run that several submits got has the input of the last');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM (SELECT run_id FROM public.work w JOIN public.submit s USING (run_id) WHERE s.created GROUP BY 1 HAVING count(DISTINCT w.n) > 1) x}), '0',
	'and carried out one of them');
ok(wait_for($node, 'SELECT (SELECT count(*) FROM _sas.concurrency_slot) + (SELECT count(*) FROM _sas.concurrency_key)', '0'), 'no place and no key is left')
	or diag($node->safe_psql('postgres', 'TABLE _sas.concurrency_slot; TABLE _sas.concurrency_key'));
foreach my $workflow (qw(waits returns replaces follows several))
{
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM public.submit s JOIN sas.runs r USING (run_id) WHERE s.workflow = '$workflow' AND r.result = 'success'"), '>', 0, "runs of $workflow succeeded");
}
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM public.submit WHERE run_id IS NULL AND workflow = 'refuses'"), '>', 0, 'some submits were refused');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM sas.runs WHERE result = 'cancelled'"), '>', 0, 'and some were replaced');
done_testing();
