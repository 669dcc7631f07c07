# SPDX-License-Identifier: PostgreSQL
#
# The main road: an order, submitted with its row, goes through three services.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use SasService;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main');
my $shop = start_shop();
define_orders($node, $shop);

# -- one order --------------------------------------------------------------------

$node->safe_psql('postgres', q{
	BEGIN;
	INSERT INTO shop.orders VALUES (1000, 'a', 'sku-1', 5, 'card-1');
	SELECT FROM sas.submit('order', '{"order_id": 1000}');
	ROLLBACK;});
is($node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM sas.runs) + (SELECT count(*) FROM shop.orders)}),
	'0', 'a business row and its run that are rolled back together are both not there');

wait_for($node, q{SELECT count(DISTINCT actor) FROM sas.workers}, '4');
# its looks wake others every ten seconds; those of the others come after a minute
my $let_go = hold_supervisor($node);
my $before = time();
submit_orders($node, 1);
my $run = run_of($node, $node->safe_psql("postgres", "SELECT min(run_id) FROM sas.runs"));
cmp_ok(time() - $before, '<', 30, 'a commit wakes workers that sleep: the order is done long before anybody would look by himself');
$let_go->();
is("$run->{state} $run->{result}", 'stopped success', 'the order ends done');
books_equal($node, $shop, 'and the three services have it in their books, once');
is($node->safe_psql('postgres', 'SELECT done FROM shop.orders'), 't', 'and the finalize function has marked its row');
like($run->{output}{charge}, qr/^charge-/, 'the output of the run is made from those of its steps');

my %step = %{ $run->{steps} };
my @chain = qw(reserve charge book ship finalize);
is(join(' ', map { $step{$_}{state} } @chain, 'slot'), join(' ', ('succeeded') x 6), 'each step has succeeded');
ok(!(grep { $step{ $chain[ $_ - 1 ] }{finished_at} gt $step{ $chain[$_] }{started_at} } 1 .. $#chain),
	'steps run in the order of the workflow: none begins before what it waits for has ended');
ok($step{slot}{started_at} lt $step{charge}{started_at}, 'and a step that depends on nothing does not wait for the others');
is(scalar(grep { defined $_->{locked_by} || defined $_->{complete_by} } values %step), 0, 'a step that has ended is held by nobody');
is(scalar(grep { $_->{status} eq 'succeeded' } @{ $run->{attempts} }), 6, 'sas.attempts has one success per step');
my @keys = map { $_->{key} } map { $_->requests } values %$shop;
my %keys = map { $_ => 1 } @keys;
is(scalar keys %keys, 4, 'each of the four calls bears an Idempotency-Key of its own');

# -- what a step looks like meanwhile ---------------------------------------------

# the look may take longer than the demo's two seconds
$node->safe_psql('postgres', q{SELECT sas.alter_agent('payments', request_timeout => '1 min')});
$shop->{payments}->hold;
submit_orders($node, 1, first => 2);
ok($shop->{payments}->wait_for_requests(2), 'an order waits in the middle, its charge unanswered');
my $look = $node->safe_psql('postgres', q{
	SELECT string_agg(format('%s %s %s', step, s.state, waiting_kind), ', ' ORDER BY step)
	FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.state = 'running' AND step IN ('reserve', 'charge', 'book', 'ship')});
is($look, 'book waiting steps, charge running reply, reserve succeeded , ship waiting steps',
	'each state change is recorded as it happens: done, running, waiting');
is($node->safe_psql('postgres', q{
		SELECT s.locked_by ~ ('^agent ' || w.pid || '$') AND s.complete_by > now() AND s.complete_by <= now() + interval '10 s' AND failure_count = 0
		FROM sas.steps s, sas.workers w WHERE s.step = 'charge' AND s.state = 'running' AND w.actor = 'agent'}),
	't', 'a claimed step names the worker that has it and the time by which it must answer');
is($node->safe_psql('postgres', q{SELECT in_flight FROM sas.agents WHERE name = 'payments'}), '1', 'sas.agents shows the call on its way');
is($node->safe_psql('postgres', q{
		SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas agent' AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL)}),
	'0', 'no transaction is open while a call is on its way');
$shop->{payments}->release;
all_ended($node, 'with the answer it goes on to its end');

# -- an agent worker that is away ----------------------------------------------------

$node->append_conf('postgresql.conf', 'sas.agents = 0');
$node->reload;
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, '0');
submit_orders($node, 3, first => 3);
is($node->safe_psql('postgres', q{
		SELECT string_agg(DISTINCT format('%s %s %s', step, s.state, waiting_on), ', ')
		FROM sas.steps s JOIN sas.runs r USING (run_id)
		WHERE r.state = 'pending' AND s.state = 'ready' AND locked_by IS NULL}),
	'reserve ready inventory, slot ready shipping', 'while no agent worker runs, requests wait, and say for whom');
is($node->safe_psql('postgres', q{SELECT string_agg(name || ' ' || waiting, ', ' ORDER BY name) FROM sas.agents}),
	'inventory 3, payments 0, shipping 3', 'and sas.agents counts them');
$node->append_conf('postgresql.conf', 'sas.agents = 1');
$node->reload;
all_ended($node, 'a worker that comes up serves what waited');

# -- an order that cannot be done ---------------------------------------------------

submit_orders($node, 1, first => 10);
all_ended($node, 'an order whose card is declined ends');
$run = run_of($node, $node->safe_psql('postgres', 'SELECT max(run_id) FROM sas.runs'));
is("$run->{result} $run->{error}{status}", 'compensated 402', 'undone, and says why');
is("$run->{steps}{reserve}{state} $run->{steps}{charge}{state} $run->{steps}{ship}{state}",
	'compensated failed cancelled', 'what was done is undone, and what was not begun is cancelled');
books_equal($node, $shop, 'and the books know nothing of it any more');
is($node->safe_psql('postgres', 'SELECT count(*) FROM _sas.lease') + $node->safe_psql('postgres', 'SELECT count(*) FROM _sas.ready')
	  + $node->safe_psql('postgres', 'SELECT count(*) FROM _sas.message'),
	0, 'when all runs have ended no lease, no timer and nothing in the queue is left');
done_testing();
