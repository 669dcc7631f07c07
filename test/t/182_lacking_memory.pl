# SPDX-License-Identifier: PostgreSQL
#
# Memory, or room in the lock table, that the server lacks for a while fails no step for good, whatever is being
# made when it is lacking.
# Takes about 35 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;

# what makes the requests and inputs lacks memory while table lacking has a row
$node->safe_psql('postgres', q{
	CREATE TABLE lacking (what text);
	CREATE SEQUENCE lacked;
	CREATE FUNCTION lack() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.lacking WHERE what IN ('memory', 'room')) THEN
			PERFORM nextval('public.lacked');
			RAISE out_of_memory USING MESSAGE = 'out of shared memory';
		END IF;
	END $$;
	-- the function does something before, whatever parameters it has
	CREATE PROCEDURE wrap(wrapped regproc, before text) LANGUAGE plpgsql AS $$
	DECLARE
		f pg_proc := p FROM pg_proc p WHERE p.oid = wrapped;
		names text := string_agg(quote_ident(f.proargnames[i]), ', ' ORDER BY i) FROM generate_series(1, f.pronargs) i;
		head text := format('_sas.%I(%s) RETURNS %s', f.proname, pg_get_function_arguments(f.oid), pg_get_function_result(f.oid));
	BEGIN
		EXECUTE format('ALTER FUNCTION _sas.%I RENAME TO %I', f.proname, f.proname || '_then');
		EXECUTE format('CREATE FUNCTION %s LANGUAGE plpgsql AS %L', head,
			format('BEGIN %s RETURN %s_sas.%I(%s); END', before, CASE WHEN f.proretset THEN 'QUERY SELECT * FROM ' END, f.proname || '_then', names));
	END $$;
	CALL wrap('_sas.calls_wanted', 'PERFORM public.lack();');
	CALL wrap('_sas.functions_wanted', 'PERFORM public.lack();');
	CALL wrap('_sas.write_replies', $$
		IF EXISTS (SELECT FROM public.lacking WHERE what = 'room') THEN
			PERFORM public.lack();
		END IF;
		IF EXISTS (SELECT FROM public.lacking WHERE what = 'output') AND EXISTS (SELECT FROM unnest(replies) r WHERE r.verdict = 'done') THEN
			RAISE out_of_memory USING MESSAGE = 'out of shared memory';
		END IF; $$);
	CREATE FUNCTION work(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
});
make_agent($node, 'remote', $service);
my %recovery = (recovery => { initial => '100 ms', max => '100 ms', max_failures => 1000 });
define($node, 'call', { steps => { it => { agent => 'remote', call => { path => '/x' } } }, %recovery });
define($node, 'function', { steps => { it => { function => 'public.work', retry => { max_attempts => 1 } } }, %recovery });

$node->safe_psql('postgres', "INSERT INTO lacking VALUES ('memory')");
my %run = map { $_ => submit($node, $_, {}) } qw(call function);
foreach my $what (sort keys %run)
{
	ok(wait_for($node, "SELECT max(failure_count) > 1 FROM sas.steps WHERE run_id = $run{$what}"), "$what: each window fails for a while");
	like($node->safe_psql('postgres', "SELECT error ->> 'detail' FROM sas.attempts WHERE run_id = $run{$what} LIMIT 1"),
		qr/out of shared memory/, "$what: the attempt says what was lacking");
	is($node->safe_psql('postgres', "SELECT state FROM sas.runs WHERE run_id = $run{$what}"), 'running', "$what: the run is not over");
}
$node->safe_psql('postgres', 'DELETE FROM lacking');
is(run_of($node, $run{$_})->{result}, 'success', "$_: the run goes on when there is memory again") foreach sort keys %run;

# -- the answer is there, and cannot be stored -----------------------------------------

$service->script(slow => [ { gate => 1 }, {} ]);
define($node, 'answered', { steps => { it => { agent => 'remote', call => { path => '/slow' }, complete_in => '20 s' } }, %recovery });
my $answered = submit($node, 'answered', {});
$service->wait_for_requests('slow', 1);
my $before = $node->safe_psql('postgres', 'SELECT last_value FROM lacked');
$node->safe_psql('postgres', "INSERT INTO lacking VALUES ('room')");
$service->release;
ok(wait_for($node, "SELECT last_value >= $before + 5 FROM lacked"), 'a reply could not be stored five times');
$node->safe_psql('postgres', 'DELETE FROM lacking');
is(run_of($node, $answered)->{result}, 'success', 'the run goes on when it can');
is(scalar $service->requests('slow'), 1, 'the service is not called again');

# -- the function has returned, and its output cannot be stored -----------------------

my $step = { function => 'public.work', retry => { max_attempts => 3 } };
define($node, 'long', { steps => { it => { %$step, complete_in => '1 hour' } }, %recovery });
define($node, 'short', { steps => { it => { %$step, complete_in => '1 s' } }, %recovery });
define($node, 'once', { steps => { it => { %$step, complete_in => '1 hour' } }, recovery => { max_failures => 1 } });
$node->safe_psql('postgres', "INSERT INTO lacking VALUES ('output')");
foreach my $what (qw(long short))
{
	my $run = submit($node, $what, {});
	ok(wait_for($node, "SELECT max(failure_count) > 1 FROM sas.steps WHERE run_id = $run"), "$what: a window fails long before it is over");
	like($node->safe_psql('postgres', "SELECT error ->> 'title' FROM sas.attempts WHERE run_id = $run LIMIT 1"),
		qr/out of shared memory/, "$what: the attempt says why");
	is($node->safe_psql('postgres', "SELECT state FROM sas.runs WHERE run_id = $run"), 'running', "$what: the run is not over");
	$run{$what} = $run;
}
is(run_of($node, submit($node, 'once', {}))->{state}, 'paused', 'a step that may fail no more pauses its run, an hour early');
$node->safe_psql('postgres', 'DELETE FROM lacking');
is(run_of($node, $run{$_})->{result}, 'success', "$_: the run goes on when it can be stored") foreach qw(long short);

# -- items were delivered, and that cannot be stored -----------------------------------

$node->safe_psql('postgres', q{
	CALL wrap('_sas.write_items', $$
		IF true = ANY (worked) AND EXISTS (SELECT FROM public.lacking WHERE what = 'items') THEN
			RAISE out_of_memory USING MESSAGE = 'out of shared memory';
		END IF; $$);
	CREATE TABLE delivered (id bigint GENERATED ALWAYS AS IDENTITY, item jsonb NOT NULL);
	INSERT INTO lacking VALUES ('items');
	SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.create_watcher('feed', '{"agent": "host", "external": {}, "items": {"table": "public.delivered"}}');
	SELECT sas.watch('feed', 'a');
	SELECT sas.claim_watchers(sas.register_node('host', 10, '{host}', lease => '1 day', by_connection => false), 1);
	SELECT sas.append_items(1, 1, '[1]')});
ok(wait_for($node, 'SELECT failures > 0 FROM _sas.watch_done'), 'items: the failure counts long before the claim is over');
$node->safe_psql('postgres', 'DELETE FROM lacking');
ok(wait_for($node, 'SELECT count(*) = 1 FROM delivered'), 'items: they are delivered once when it can be stored');

done_testing();
