# SPDX-License-Identifier: PostgreSQL
#
# A test of a workflow beside workers that are at work: they never meet its
# runs, its clock is its own, and nobody waits for it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;
make_agent($node, 'remote', $service, max_in_flight => 1);
$node->safe_psql('postgres', q{
	CREATE TABLE log (who int, said text);
	CREATE FUNCTION note(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO log VALUES (pg_backend_pid(), input ->> 'said') RETURNING to_jsonb(said) $$;
	CREATE FUNCTION cheat(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(sas.set_clock('2020-01-01')) $$;
	SELECT sas.create_queue('narrow', 1)});
my $definition = {
	steps => {
		call => { agent => 'remote', call => { method => 'POST', path => '/real' }, queue => 'narrow' },
		note => { function => 'public.note', after => ['call'] },
		rest => { wait => { for => '{{input.rest}}' }, after => ['note'] } },
	concurrency => { key => 'all' } };
define($node, 'both', $definition);
define($node, 'cheats', { steps => { it => { function => 'public.cheat' } }, on_failure => 'fail' });
define($node, 'hooked', { steps => { it => { wait => { signal => 'never' }, } }, deadline => '1 s', on_failure => 'fail',
	hooks => [ { on => 'error', agent => 'remote', call => { method => 'POST', path => '/hook' }, recovery => { max_failures => 1 }, retry => { max_attempts => 1 } } ] });

my $open = submit($node, 'both', { said => 'rests', rest => '1 h' });
ok(wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $open AND step = 'rest'", 'suspended'), 'a real run holds the only place, for an hour');

# -- a test in an open transaction ---------------------------------------------------------

my $test = SasSession->new($node);
$test->query('BEGIN');
$test->query(q{SELECT sas.set_clock('2050-01-01 00:00+00')});
$test->query(q{SELECT sas.stub('remote', '[{"error": "no connection"}, 200]')});
is($test->query(q{SELECT state, result FROM sas.run_inline('both', '{"said": "in a test", "rest": "3 days"}')}), 'stopped|success',
	'a test carries its run to the end, past the place and the queue of the real one');
is($test->query(q{SELECT finished_at::date FROM sas.runs ORDER BY run_id DESC LIMIT 1}), '2050-01-04', 'its three days pass on its own clock');
is($test->query(q{SELECT who = pg_backend_pid() FROM log WHERE said = 'in a test'}), 't', 'its function was called in this session');
is($test->query(q{SELECT state FROM sas.run_inline('hooked', deadline => '1 day')}), 'running', 'a run that waits is left open');
is($test->query(q{SELECT sas.move_clock('1 day') IS NULL}), 'f', 'its time passes');
is($test->query(q{SELECT sas.stub('remote', '500', path => '/hook')}), '', 'the service that its hook calls is broken');
like($test->query(q{SELECT state || ' ' || result FROM sas.continue_inline((SELECT max(run_id) FROM sas.runs))}), qr/stopped error/, 'and it ends by its deadline');
is($test->query(q{SELECT kind FROM sas.alerts}), 'hook-failed', 'an alert is raised, in the test');
is(scalar $service->requests('real'), 1, 'the service was called for the real run only');

# -- meanwhile -----------------------------------------------------------------------------

is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.runs'), '1', 'other sessions see none of it');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.alerts'), '0', 'nor its alerts');
is($node->safe_psql('postgres', 'SELECT abs(extract(epoch FROM sas.now() - clock_timestamp())) < 1'), 't', 'and their clock is that of the machine');
is($node->safe_psql('postgres', "SELECT state FROM sas.steps WHERE run_id = $open AND step = 'rest'"), 'suspended', 'the hour of the real run is not over');
my $next = submit($node, 'both', { said => 'next', rest => '1 ms' });
$node->safe_psql('postgres', "SELECT sas.cancel($open, 'enough')");
is(run_of($node, $next)->{result}, 'success', 'real runs go on through the same queue and place');
is(scalar $service->requests('real'), 2, 'with real calls');
$service->script(hook => [ { status => 500 } ]);
my $failing = run_of($node, submit($node, 'hooked', {}));
is($failing->{result}, 'error', 'a real run whose hook fails as in the test');
ok(wait_for($node, q{SELECT string_agg(kind || ' ' || occurrences, ',') FROM sas.alerts}, 'hook-failed 1'), 'has its alert at once: the supervisor does not wait for the test');

# -- its end -------------------------------------------------------------------------------

like($test->query('COMMIT'), qr/cannot be committed/, 'the test cannot be committed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.runs'), '3', 'nothing of it stays');
is($node->safe_psql('postgres', q{SELECT count(*) FROM log WHERE said = 'in a test'}), '0', 'nor of what its function wrote');
is($test->query(q{SELECT abs(extract(epoch FROM sas.now() - clock_timestamp())) < 1}), 't', 'the clock of the session goes again');
my $clock = q{SELECT sas.set_clock('2050-01-01')};
foreach my $end ('RELEASE a; COMMIT', q{RELEASE a; PREPARE TRANSACTION 'test'}, 'RELEASE a; COMMIT AND CHAIN')
{
	$test->query('BEGIN');
	$test->query("SAVEPOINT a; $clock");
	like($test->query($end), qr/cannot be committed/, "also one in a savepoint that was released: $end");
	$test->query('ROLLBACK');
}
$test->query("BEGIN; SAVEPOINT a; $clock; ROLLBACK TO a");
unlike($test->query('COMMIT'), qr/cannot be committed/, 'what a savepoint has taken back stands in no way');
$test->query(q{CREATE FUNCTION nested(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM sas.set_clock('2060-01-01'); RETURN '1'; END $$;
	SELECT sas.create_workflow('nested', '{"steps": {"s": {"function": "public.nested"}}, "on_failure": "fail"}')});
$test->query('BEGIN');
like($test->query(q{SELECT error ->> 'title' FROM sas.run_inline('nested')}), qr/^testing aids cannot be used/, 'a function of a tested run cannot move the clock');
$test->query('ROLLBACK');
my $cheat = run_of($node, submit($node, 'cheats', {}));
is($cheat->{error}{title}, 'testing aids cannot be used by the function of a step', 'a function in a worker cannot move the clock');
is(run_of($node, submit($node, 'both', { said => 'after', rest => '1 ms' }))->{result}, 'success', 'and its worker goes on');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM _sas.stub) + (SELECT count(*) FROM _sas.stub_flight) + (SELECT count(*) FROM _sas.stubbed_call)'), '0', 'no row of a test is left');
done_testing();
