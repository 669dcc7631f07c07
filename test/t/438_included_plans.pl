# SPDX-License-Identifier: PostgreSQL
#
# Plan functions of included workflows, called by function workers for a child run and for a schedule, while one of them
# is killed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
$node->safe_psql('postgres', q{
	CREATE TABLE planned (what text, at timestamptz DEFAULT clock_timestamp());
	CREATE TABLE gate ();
	CREATE FUNCTION public.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE FUNCTION public.plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO planned (what) VALUES (input ->> 'n');
		IF input ->> 'n' = '2' THEN
			PERFORM pg_advisory_xact_lock_shared(7);
		END IF;
		RETURN jsonb_build_object('steps', (SELECT jsonb_object_agg('s' || g, '{"function": "public.echo"}'::jsonb) FROM generate_series(1, (input ->> 'n')::int) g));
	END $$});
define($node, 'planned', { plan => 'public.plan' });
define($node, 'both', { steps => { p => { include => 'planned', input => { n => 1 } }, q => { include => 'planned', input => { n => 2 } } } });
define($node, 'parent', { steps => { c => { workflow => 'both' } } });

# the second plan function waits, and its worker dies
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(7)');
my $id = submit($node, 'parent', {});
ok(wait_for($node, q{SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted}), 'the plans of a child run are made one after the other');
is($node->safe_psql('postgres', q{SELECT string_agg(what, ' ') FROM planned}), '1', 'what the first one wrote is kept');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.runs'), '1', 'and there is no child run yet');
$gate->quit;
kill_worker($node, 'function');
my $run;
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $id", 'stopped'), 'a worker that dies in a plan costs nothing');
$run = run_of($node, $id);
is($run->{result}, 'success', 'the child run is planned all the same');
is($node->safe_psql('postgres', q{SELECT string_agg(what, ' ' ORDER BY at) FROM planned}), '1 2', 'by one call of each function that counts');
is($node->safe_psql('postgres', qq{SELECT string_agg(step, ' ' ORDER BY step) FROM sas.steps JOIN sas.runs USING (run_id) WHERE parent_run_id = $id AND kind = 'function'}), 'p.s1 q.s1 q.s2',
	'with the steps of both plans');

# a schedule submits it, too
$node->safe_psql('postgres', q{SELECT sas.schedule('often', 'every 1 s', 'both', max_runs => 1)});
ok(wait_for($node, q{SELECT result FROM sas.runs WHERE schedule = 'often'}, 'success'), 'a schedule submits a workflow that includes what is planned');
done_testing();
