# SPDX-License-Identifier: PostgreSQL
#
# Operators reach calls that are on their way: the transfer is aborted, what it
# may have done is undone or left standing, and its place is free at once.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
my $patient = { how => 'watch' };

sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
sub hung_up { my ($script) = @_; return scalar grep { $_->{hung_up} } $service->requests($script) }
sub stands
{
	my ($id) = @_;
	return sql("SELECT r.state || coalesce('/' || r.result, '') || ': ' || string_agg(s.step || ' ' || s.state || CASE WHEN s.in_doubt THEN ' in doubt' ELSE '' END, ', ' ORDER BY s.step)
		FROM sas.runs r JOIN sas.steps s USING (run_id) WHERE run_id = $id GROUP BY r.state, r.result");
}

make_agent($node, 'slow', $service, max_in_flight => 1, request_timeout => '5 min');
make_agent($node, 'quick', $service);
define($node, 'order', { steps => {
		reserve => { agent => 'quick', call => { method => 'POST', path => '/reserve' }, undo => { call => { method => 'DELETE', path => '/unreserve' } } },
		charge => { agent => 'slow', after => ['reserve'], complete_in => '10 min', call => { method => 'POST', path => '/charge', body => { n => 1 } },
			undo => { agent => 'quick', call => { method => 'DELETE', path => '/uncharge/{{steps.charge.key}}' } } } } });
$service->script(charge => [ $patient, $patient, $patient, $patient, {} ]);

# -- cancel ------------------------------------------------------------------------

my $id = submit($node, 'order', {});
ok($service->wait_for_requests('charge', 1), 'a call is on its way, and would be for minutes');
my $session = SasSession->new($node);
$session->query('BEGIN');
like($session->query("SELECT changed, state FROM sas.cancel($id)"), qr/t.*compensating/, 'an operator cancels the run');
is(hung_up('charge'), 0, 'as long as that is not committed the call goes on');
$session->query('ROLLBACK');
is(sql("SELECT state FROM sas.steps WHERE run_id = $id AND step = 'charge'"), 'running', 'rolled back, nothing has happened to it');
is(hung_up('charge'), 0, 'nor to its call');
sql("SELECT sas.cancel($id, 'enough')");
ok(wait_until(sub { hung_up('charge') == 1 }), 'committed, the service sees the connection closed');
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $id", 'stopped cancelled'), 'the run ends');
is(stands($id), 'stopped/cancelled: charge compensated, reserve compensated', 'what was done is undone, and so is what may have been');
my @undos = grep { $_->{method} eq 'DELETE' } $service->requests;
is(join(' ', map { $_->{script} } @undos), 'uncharge unreserve', 'the call that was aborted first');
is(sql("SELECT string_agg(status, ' ' ORDER BY attempt) FROM sas.attempts WHERE run_id = $id AND step = 'charge' AND NOT undo"), 'cancelled', 'its attempt is told');
ok(wait_for($node, q{SELECT in_flight FROM sas.agents WHERE name = 'slow'}, '0'), 'its place is free');
ok(wait_for($node, q{SELECT count(*) FROM _sas.lease}, '0'), 'and its lease is gone, long before complete-by');
is(sql(q{SELECT breaker || ' ' || stale_replies FROM sas.agents WHERE name = 'slow'}), 'closed 0', 'the breaker has heard of nothing');

# -- children ------------------------------------------------------------------------

define($node, 'parent', { steps => { child => { workflow => 'order', input => {} } } });
$id = submit($node, 'parent', {});
ok($service->wait_for_requests('charge', 2), 'a call of a child run is on its way, in the place that was freed');
sql("SELECT sas.cancel($id)");
ok(wait_until(sub { hung_up('charge') == 2 }), 'cancel of the parent reaches it');
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $id", 'stopped cancelled'), 'and both end');
is(sql("SELECT result FROM sas.runs WHERE parent_run_id = $id"), 'cancelled', 'cancelled');

# -- halt and force_complete ---------------------------------------------------------------

my $calls = $service->requests('charge');
$id = submit($node, 'order', {});
ok($service->wait_for_requests('charge', $calls + 1), 'another call');
sql("SELECT sas.halt($id, 'stop')");
is(stands($id), 'stopped/error: charge failed in doubt, reserve succeeded', 'halt stops the run at once, and everything stands');
ok(wait_until(sub { hung_up('charge') == 3 }), 'its call is stopped');
is(sql("SELECT kind || ' ' || regexp_replace(message, '^.*; done', 'done') FROM sas.alerts WHERE run_id = $id"), 'halted done: reserve; in doubt: charge', 'an alert says what was left');

$id = submit($node, 'order', {});
ok($service->wait_for_requests('charge', $calls + 2), 'and another');
sql(qq{SELECT sas.force_complete($id, 'charge', '{"by": "hand"}')});
ok(wait_until(sub { hung_up('charge') == 4 }), 'force_complete stops the call as well');
is(stands($id), 'stopped/success: charge succeeded, reserve succeeded', 'and the run goes on');

# -- between two attempts ----------------------------------------------------------------------

make_agent($node, 'failing', $service, retry => '{"max_attempts": 1000, "initial": "200 ms", "max": "200 ms", "backoff": "constant", "jitter": false}', breaker => '{"off": true}');
define($node, 'again', { steps => { it => { agent => 'failing', complete_in => '10 min', call => { path => '/again' } } } });
$service->script(again => [ { status => 503 } ]);
$id = submit($node, 'again', {});
$service->wait_for_requests('again', 3);
sql("SELECT sas.cancel($id)");
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $id", 'stopped'), 'a run whose call rests between two attempts is cancelled');
ok(wait_for($node, q{SELECT count(*) FROM _sas.lease}, '0'), 'its worker has let it go');
$calls = $service->requests('again');
run_call($node, 'quick', { path => '/beside' }) foreach 1 .. 10;
is(scalar $service->requests('again'), $calls, 'and makes no other attempt');

# -- many ------------------------------------------------------------------------------------------

make_agent($node, 'wide', $service, max_in_flight => 500, request_timeout => '5 min');
define($node, 'many', { steps => { it => { agent => 'wide', complete_in => '10 min', call => { path => '/many' } } } });
$service->script(many => [ ($patient) x 200, {} ]);
sql(q{SELECT count(*) FROM sas.submit_batch('many', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 200)))});
ok($service->wait_for_requests('many', 200), '200 calls are on their way, held by two workers');
is(sql(q{SELECT count(*) FILTER (WHERE v.changed) || ' ' || count(v.refused) FROM sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs WHERE workflow = 'many' AND run_id % 2 = 0) || 1000000::bigint) v}),
	'100 1', 'one statement cancels a hundred, and says of another that it is not there');
ok(wait_until(sub { hung_up('many') == 100 }), 'a hundred connections are closed');
is(sql(q{SELECT string_agg(DISTINCT s.state, ' ') FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'many' AND run_id % 2 = 1}), 'running', 'the others go on');
ok(wait_for($node, q{SELECT in_flight FROM sas.agents WHERE name = 'wide'}, '100'), 'in their places');
sql(q{SELECT count(*) FROM sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs WHERE state <> 'stopped'))});
ok(wait_until(sub { hung_up('many') == 200 }), 'until they are cancelled, too');
all_ended($node, 'nothing is left open');

# -- auto_rescue ---------------------------------------------------------------------------------------

define($node, 'refused', { steps => { it => { agent => 'quick', call => { path => '/refused' }, on_failure => 'skip' } } });
$service->script(refused => [ { status => 400 } ]);
$node->safe_psql('postgres', 'ALTER SYSTEM SET sas.auto_rescue = off');
$node->reload;
wait_for($node, q{SELECT setting FROM sas.settings WHERE name = 'sas.auto_rescue'}, 'off');
$id = submit($node, 'refused', {});
ok(wait_for($node, "SELECT state || ' ' || suggested FROM sas.runs WHERE run_id = $id", 'paused skip'), 'with sas.auto_rescue off what on_failure says is a suggestion');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET sas.auto_rescue');
$node->reload;
wait_for($node, q{SELECT setting FROM sas.settings WHERE name = 'sas.auto_rescue'}, 'on');
$id = submit($node, 'refused', {});
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $id", 'stopped warning'), 'on, it is carried out');
done_testing();
