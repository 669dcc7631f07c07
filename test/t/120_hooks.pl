# SPDX-License-Identifier: PostgreSQL
#
# Hooks over real HTTP and NOTIFY: told after the commit, tried again while the
# run has long stopped, through the death of the worker that was telling.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;
make_agent($node, 'work', $service);
make_agent($node, 'listener', $service);
$node->safe_psql('postgres', q{
	CREATE TABLE told (event jsonb);
	CREATE FUNCTION tell(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.told VALUES (event);
		IF event #>> '{input,refuse}' IS NOT NULL THEN
			RAISE EXCEPTION 'the hook will not';
		END IF;
		RETURN '{}';
	END $$});

# -- a call ------------------------------------------------------------------------

define($node, 'called', {
	steps => { it => { agent => 'work', call => { path => '/work' } } },
	output => { id => '{{steps.it.output.body.id}}' },
	hooks => [ { on => 'success', agent => 'listener', retry => { max_attempts => 1 }, recovery => { initial => '100 ms', max => '200 ms' },
			call => { path => '/hook', body => { run => '{{input.run_id}}', was => '{{input.result}}', id => '{{input.output.id}}', n => '{{input.input.n}}' } } } ] });
$service->script(work => [ { json => { id => 'w1' } } ], hook => [ { status => 503 }, { how => 'reset' }, { gate => 1 }, { json => { ok => 1 } } ]);
my $id = submit($node, 'called', { n => 7 });
my $run = run_of($node, $id);
is("$run->{state} $run->{result}", 'stopped success', 'a run ends, whatever its hook meets');
$service->wait_for_requests('hook', 3);
is($node->safe_psql('postgres', "SELECT state FROM sas.hook_runs WHERE run_id = $id"), 'running',
	'the hook failed twice and is tried a third time, while the run has long stopped');
my $boot = $node->safe_psql('postgres', 'SELECT _sas.current_boot()');
kill_worker($node, 'agent', 'KILL');
wait_for($node, "SELECT _sas.current_boot() <> $boot");
$service->release;
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.hook_runs WHERE run_id = $id", 'stopped success'),
	'its worker is killed in the middle, and the hook is told all the same');
my @asked = $service->requests('hook');
cmp_ok(scalar @asked, '>=', 4, 'failed twice, lost once, then heard');
is_deeply(JSON::PP::decode_json($asked[-1]{body}), { run => $id + 0, was => 'success', id => 'w1', n => 7 }, 'the call is made of the event');
is(scalar(keys %{ { map { header_of($_, 'Idempotency-Key') => 1 } @asked } }), 1, 'with one Idempotency-Key over all tries');
is($node->safe_psql('postgres', "SELECT count(*) FROM sas.runs"), '1', 'and nothing of it stands among the runs');
is($node->safe_psql('postgres', "SELECT state || ' ' || result || ' ' || (error IS NULL) FROM sas.runs WHERE run_id = $id"), 'stopped success true', 'nor did it change the run');
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT a.status, ' ' ORDER BY a.status) FROM sas.attempts a JOIN sas.hook_runs h ON h.hook_run_id = a.run_id WHERE h.run_id = $id"),
	'failed lost succeeded', 'sas.attempts tells of each try, under the id of the hook\'s run');

# -- a notification -----------------------------------------------------------------

define($node, 'notified', { steps => { it => { agent => 'work', call => { path => '/work' } } }, hooks => [ { on => [ 'pending', 'success' ], notify => 'orders_done' } ] });
my ($out, $err) = ('', '');
$node->psql('postgres', q{
	LISTEN orders_done;
	SELECT run_id FROM sas.submit('notified', key => 'k1');
	SELECT state FROM sas.wait((SELECT max(run_id) FROM sas.runs));
	SELECT 'end'}, stdout => \$out, stderr => \$err);
my @heard = map { JSON::PP::decode_json($_) } $out =~ /notification "orders_done" with payload "(.*)" received/g;
is(join(', ', map { "$_->{workflow} $_->{state} " . ($_->{result} // '-') } @heard), 'notified pending -, notified stopped success',
	'one NOTIFY per change that was asked for, with run, workflow, state and result');
is(join(' ', sort map { keys %$_ } $heard[-1]), 'result run_id state workflow', 'and nothing else, since any role can listen');
is($node->psql('postgres', q{BEGIN; LISTEN orders_done; COMMIT; BEGIN; SELECT run_id FROM sas.submit('notified', key => 'k2'); ROLLBACK; SELECT 1}, stdout => \$out), 0,
	'a submit that is rolled back');
unlike($out, qr/notification/, 'is not told');
# -- a function ------------------------------------------------------------------------

define($node, 'function', { steps => {}, hooks => [ { on => 'success', function => 'public.tell' } ] });
my $good = submit($node, 'function', {});
my $bad = submit($node, 'function', { refuse => 1 });
ok(wait_for($node, q{SELECT count(*) FROM sas.hook_runs WHERE target = 'public.tell' AND state = 'stopped'}, '2'), 'functions are called');
is($node->safe_psql('postgres', q{SELECT string_agg(event ->> 'run_id', ',') FROM told}), $good, 'what a hook wrote that failed is rolled back');
is($node->safe_psql('postgres', "SELECT result FROM sas.runs WHERE run_id = $bad"), 'success', 'its run has succeeded all the same');
is($node->safe_psql('postgres', q{SELECT kind || ' ' || run_id || ' ' || message FROM sas.alerts WHERE kind = 'hook-failed'}),
	"hook-failed $bad hook 1 of workflow \"function\" for run $bad (success) failed: the hook will not (PL/pgSQL function tell(jsonb) line 5 at RAISE)", 'and an alert tells of the hook');
done_testing();
