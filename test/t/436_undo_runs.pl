# SPDX-License-Identifier: PostgreSQL
#
# Steps that are undone by runs of their own, while workers and the server are killed: each is undone by one run, one
# after the other, and nothing is left standing.
# Takes about 30 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
make_agent($node, 'shop', $service);

define($node, 'give_back', { steps => {
	refund => { agent => 'shop', call => { method => 'POST', path => '/refund', body => { of => '{{input.of}}' } } },
	tell => { agent => 'shop', call => { method => 'POST', path => '/tell', body => { of => '{{input.of}}' } }, after => ['refund'] } } });
define($node, 'buy', { steps => {
	take => { agent => 'shop', call => { method => 'POST', path => '/take' }, undo => { call => { method => 'DELETE', path => '/put/{{input.n}}' } } },
	charge => { agent => 'shop', call => { method => 'POST', path => '/charge' }, after => ['take'], undo => { workflow => 'give_back', input => { of => '{{input.n}}' } } },
	ship => { agent => 'shop', call => { method => 'POST', path => '/ship' }, after => ['charge'] } } });
$service->script(ship => [ { status => 400 } ]);

# -- the server dies while such a run is on its way ---------------------------------------------

$service->script(refund => [ { gate => 1, json => 1 }, { json => 1 } ]);
my $id = submit($node, 'buy', { n => 0 });
$service->wait_for_requests('refund', 1);
is($node->safe_psql('postgres', "SELECT waiting_kind || ' ' || waiting_on FROM sas.steps WHERE run_id = $id AND step = 'charge'"), 'child give_back',
	'the step waits for the run that undoes it');
$node->stop('immediate');
$node->start;
$service->release;
my $run = run_of($node, $id);
is("$run->{state} $run->{result}", 'stopped compensated', 'a crash in the midst of the run that undoes costs nothing');
my @refunds = $service->requests('refund');
is(header_of($refunds[0], 'idempotency-key'), header_of($refunds[-1], 'idempotency-key'), 'its call is repeated under its key');
is($node->safe_psql('postgres', "SELECT count(*), min(result) FROM sas.runs WHERE parent_run_id = $id"), '1|success', 'one run has undone the step');
is(scalar $service->requests('put'), 1, 'what was done before is undone once that run has ended');

# -- many of them, while all that does the work is killed again and again --------------------------

$service->script(refund => [ { delay => 0.02, json => 1 } ]);
my $runs = 40;
$node->safe_psql('postgres', "SELECT count(*) FROM sas.submit_batch('buy', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, $runs) n))");
foreach my $round (1 .. 6)
{
	if ($round % 3 == 0) { $node->stop('immediate'); $node->start }
	else { kill_server($node, $round % 3 == 1 ? 'scheduler' : 'agent') }
}
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'buy' AND state = 'stopped'}, $runs + 1), 'all runs reach their end');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT result, ',') FROM sas.runs WHERE workflow = 'buy'}), 'compensated', 'undone');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT parent_run_id FROM sas.runs WHERE workflow = 'give_back' GROUP BY 1 HAVING count(*) <> 1) x}), '0',
	'each by one run');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.steps c JOIN sas.steps t USING (run_id) JOIN sas.runs g ON g.parent_run_id = c.run_id
	WHERE c.step = 'charge' AND t.step = 'take' AND (t.finished_at < g.finished_at OR c.finished_at < g.finished_at)}), '0', 'one after the other, in reverse order');
done_testing();
