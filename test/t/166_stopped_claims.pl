# SPDX-License-Identifier: PostgreSQL
#
# Halt and cancel write the run, and a tick revokes what workers hold: calls, polls, tasks of outside agents and what
# children hold, as functions. They act at once whoever holds what, and what is answered before their commit is done.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '6 min', 'sas.function_workers' => 2);
my $service = SasService->new;
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
sub brief { my ($run) = @_; return "SELECT r.state || '/' || coalesce(r.result, '') || ': ' || (SELECT string_agg(s.step || ' ' || s.state || CASE WHEN s.in_doubt THEN ' in doubt' ELSE '' END, ', ' ORDER BY s.step) FROM sas.steps s WHERE s.run_id = r.run_id) FROM sas.runs r WHERE r.run_id = $run" }
sub hung_up { my ($script, $n) = @_; return wait_until(sub { scalar(grep { $_->{hung_up} } $service->requests($script)) >= $n }) }

make_agent($node, 'remote', $service, request_timeout => '100 s');
sql(q{
	SELECT sas.create_agent('people', kind => 'external');
	CREATE FUNCTION sleepy(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb('t'::text) FROM pg_sleep(300) $$});
define($node, 'child', { steps => { c => { agent => 'remote', complete_in => '5 min', call => { method => 'POST', path => '/child' } } } });
define($node, 'all', { steps => {
			call => { agent => 'remote', complete_in => '5 min', call => { method => 'POST', path => '/call' } },
			child => { workflow => 'child' },
			function => { function => 'public.sleepy', complete_in => '5 min' },
			poll => { agent => 'remote', complete_in => '5 min', call => { method => 'POST', path => '/poll' },
				poll => { call => { path => '/ask' }, every => '10 ms', until => '$.output.body.done == true', timeout => '1 h' } },
			task => { agent => 'people', task => {}, complete_in => '5 min' } } });
$service->script(call => [ { how => 'watch' } ], child => [ { how => 'watch' } ], poll => [ {} ], ask => [ { how => 'watch' } ]);

my $n = 0;
foreach my $verb (qw(halt cancel))
{
	$n++;
	my $run = submit($node, 'all', {});
	$service->wait_for_requests($_, $n) foreach qw(call child ask);
	my $request;
	wait_until(sub { $request = sql(q{SELECT request_id FROM sas.claim('people', 'ann')}) });
	ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND backend_type = 'sas function'}, '1'), "$verb: a function, a call, a poll, a task and a call of a child run are under way");
	# nothing of it is in the way of the verb
	my $session = SasSession->new($node);
	$session->query("BEGIN; SET LOCAL statement_timeout = 0; SELECT FROM _sas.lease FOR UPDATE; SELECT FROM _sas.step WHERE run_id = $run AND request_id IS NOT NULL FOR UPDATE");
	is(sql("SELECT changed FROM sas.$verb($run, 'enough')"), 't', "$verb: acts while a session holds all claims");
	$session->query('ROLLBACK');
	ok(hung_up($_, $n), "$verb: the request of the $_ is stopped") foreach qw(call child ask);
	ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND backend_type = 'sas function'}, '0'), "$verb: so is the function");
	is(sql("SELECT sas.heartbeat('$request')"), $verb eq 'halt' ? 'lost' : 'cancel', "$verb: who has the task hears of it");
	is(sql("SELECT sas.complete('$request', '{}')"), $verb eq 'halt' ? 'f' : 't', "$verb: and what comes of it counts after a cancel only");
	my $task = $verb eq 'halt' ? 'task failed in doubt' : 'task succeeded';
	ok(wait_for($node, brief($run), ($verb eq 'halt' ? 'stopped/error' : 'stopped/cancelled') . ": call failed in doubt, child cancelled, function cancelled, poll failed, $task"),
		"$verb: the run ends");
	is(sql("SELECT string_agg(step || ' ' || status, ', ' ORDER BY step, attempt) FROM sas.attempts WHERE run_id = $run AND step IN ('call', 'function')"), 'call cancelled', "$verb: the attempt says so");
}
like(sql(q{SELECT message FROM sas.alerts WHERE kind = 'halted'}), qr/in doubt: call.*task/, 'the alert of the halt names what it left in doubt');

# -- answered before the commit of the verb ---------------------------------------------------------------

define($node, 'one', { steps => { it => { agent => 'remote', complete_in => '5 min', call => { method => 'POST', path => '/one' }, undo => { call => { method => 'POST', path => '/undo' } } } } });
$service->script(one => [ { gate => 1 } ], undo => [ {} ]);
my $run = submit($node, 'one', {});
$service->wait_for_requests('one', 1);
my $session = SasSession->new($node);
$session->query("BEGIN; SET LOCAL statement_timeout = 0; SELECT changed FROM sas.cancel($run)");
$service->release;
ok(wait_for($node, "SELECT count(*) FROM _sas.answer WHERE run_id = $run", '1'), 'a call is answered while a session cancels its run');
$session->query('COMMIT');
ok(wait_for($node, brief($run), 'stopped/cancelled: it compensated'), 'it is done, and undone');
is(scalar($service->requests('undo')), 1, 'once');
done_testing();
