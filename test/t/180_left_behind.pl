# SPDX-License-Identifier: PostgreSQL
#
# What the functions of one owner leave in the session of the worker keeps no other owner waiting: it is
# removed, however much it is.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

# one worker, and a lock table that is far smaller than what is left behind
my $node = new_node('main', 'sas.function_workers_max' => 1, 'max_locks_per_transaction' => 10);
$node->safe_psql('postgres', q{
	CREATE ROLE one;
	CREATE ROLE other;
	SELECT sas.grant_usage('one', 'user'), sas.grant_usage('other', 'user');
	CREATE TABLE seen (what text);
	GRANT ALL ON seen TO one, other;
	CREATE FUNCTION leave_tables(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. (input->>'n')::int LOOP
			EXECUTE format('CREATE TEMP TABLE t_%s_%s (a int GENERATED ALWAYS AS IDENTITY, b text DEFAULT 1)', input->>'turn', i);
		END LOOP;
		RETURN '{}';
	END $$;
	CREATE FUNCTION leave_others(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		CREATE TEMP TABLE parent (a int) PARTITION BY LIST (a);
		FOR i IN 1 .. 150 LOOP
			EXECUTE format('CREATE TEMP TABLE part_%s PARTITION OF parent FOR VALUES IN (%s)', i, i);
			EXECUTE format('CREATE FUNCTION pg_temp.f_%s(a int) RETURNS int LANGUAGE sql AS $f$ SELECT 1 $f$', i);
		END LOOP;
		CREATE TYPE pg_temp.pair AS (a int, b int);
		CREATE TEMP TABLE typed OF pg_temp.pair;
		-- its definition is toasted in the catalog
		EXECUTE 'CREATE TEMP VIEW long AS SELECT ' || (SELECT string_agg(format('%L AS c%s', md5(n::text), n), ',') FROM generate_series(1, 1000) n);
		RETURN '{}';
	END $$;
	CREATE FUNCTION look(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.seen VALUES (current_user);
		RETURN to_jsonb((SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()));
	END $$;
	SELECT sas.create_workflow('leave', '{"steps": {"a": {"function": "public.leave_tables"}}}');
	SELECT sas.create_workflow('leave_others', '{"steps": {"a": {"function": "public.leave_others"}}}');
	SELECT sas.create_workflow('look', '{"steps": {"a": {"function": "public.look"}}, "output": "{{steps.a.output}}"}');
});

# Runs it as this role, and returns result and output once it has ended.
sub run_as
{
	my ($role, $workflow, $input) = @_;
	my $id = $node->safe_psql('postgres', "SET ROLE $role; SELECT run_id FROM sas.submit('$workflow', '$input')");

	ok(wait_for($node, "SELECT state = 'stopped' FROM sas.runs WHERE run_id = $id"), "$workflow of $role ends");
	return $node->safe_psql('postgres', "SELECT concat_ws(' ', result, output) FROM sas.runs WHERE run_id = $id");
}

is(run_as('one', 'leave', qq({"n": 50, "turn": $_})), 'success', 'one leaves 50 tables') for 1 .. 5;
is(run_as('one', 'look', '{}'), 'success 0', 'the next function of the same owner finds none of them');
is(run_as('other', 'look', '{}'), 'success 0', 'another owner runs, and finds nothing of it');
is(run_as('one', 'leave_others', '{}'), 'success', 'one leaves partitions, functions, types and a long view');
is(run_as('other', 'look', '{}'), 'success 0', 'another owner runs then, too');
is( $node->safe_psql('postgres', "SELECT count(*) FROM pg_class WHERE relnamespace::regnamespace::text LIKE 'pg_temp%'"),
	0, 'no temporary object is left');
is($node->safe_psql('postgres', 'SELECT max(attempt) FROM sas.steps'), 1, 'no step was tried twice');

done_testing();
