# SPDX-License-Identifier: PostgreSQL
#
# A night: payments is down for 40 minutes, and 3,000 runs wait for it. Nothing
# is undone, one alert is told once, one query names the cause, one verb sets
# it going, and it is not trampled down. docs/how-to/outage.md tells it.
#
# Of the clock 1 s stands for 2 min: the 40 minutes are 20 s. What is a span of
# the night is scaled with it: the 30 s for which a breaker is open to 250 ms,
# the first pause of the supervisor, 10 s, to 83 ms. Rates, places and the
# number of runs are as they are.
# Takes about 40 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use List::Util qw(max min);
use Test::More;
use Time::HiRes qw(sleep time);

my $runs = 3000;
my ($rate, $burst, $places) = (300, 30, 20);
my ($night, $open_for) = (20, 0.25);

my $node = new_node('main', max_connections => 20);
my $services = SasService->new;		# inventory and shipping
my $payments = SasService->new;
$payments->script(charges => [ { delay => 0.02, json => { id => 'c' } } ]);
$services->script(reservations => [ { json => { id => 'r' } } ], shipments => [ { json => { id => 's' } } ]);
make_agent($node, 'inventory', $services);
make_agent($node, 'shipping', $services);
make_agent($node, 'payments', $payments, rate_limit => "$rate/s", max_in_flight => $places, request_timeout => '20 s',
	retry => '{}', breaker => qq({"open_for": "${open_for} s"}));
define($node, 'order', {
	steps => {
		reserve => { agent => 'inventory', call => { method => 'POST', path => '/reservations', body => '{{input}}' }, undo => { call => { method => 'DELETE', path => '/reservations' } } },
		charge => { agent => 'payments', after => ['reserve'], call => { method => 'POST', path => '/charges', body => '{{input}}' }, undo => { call => { method => 'POST', path => '/refunds' } } },
		ship => { agent => 'shipping', after => ['charge'], call => { method => 'POST', path => '/shipments', body => '{{input}}' } } },
	recovery => { initial => '83 ms', max => '7500 ms' } });

sub submit_many
{
	my ($from, $to) = @_;
	return $node->safe_psql('postgres', qq{SELECT count(*) FROM sas.submit_batch('order', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series($from, $to) n))});
}

my $pager = SasSession->new($node);
$pager->query('LISTEN sas_alert');
my $pages = 0;
sub listen_to_pager { $pages += () = $pager->query('SELECT') =~ /"sas_alert"/g; return $pages }

# -- midnight -------------------------------------------------------------------------------

submit_many(1, 100);
all_ended($node, 'the first hundred orders go through before midnight');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE result = 'success'}), '100', 'and are done');

my $port = $payments->{port};
$payments->stop;
my $began = time();
submit_many(101, 1000);
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'payments'}, 'open'), 'payments is gone, and its breaker is open');
submit_many(1001, $runs + 100);
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE step = 'charge' AND state = 'ready'}, $runs), 'three thousand orders have their goods and wait for payments');

# -- in the night ----------------------------------------------------------------------------

is($node->safe_psql('postgres', q{SELECT string_agg(waiting_on || ' ' || n, ', ' ORDER BY waiting_on) FROM (SELECT waiting_on, count(*) AS n FROM sas.steps WHERE waiting_kind IS NOT NULL GROUP BY 1) x}),
	"charge $runs, payments $runs", 'one query names the cause: all wait for payments, or for the step that does');
note('in which ways: ' . $node->safe_psql('postgres', q{
	SELECT string_agg(concat_ws(' ', waiting_kind, waiting_on, n), ', ' ORDER BY n DESC)
	FROM (SELECT waiting_kind, waiting_on, count(*) AS n FROM sas.steps WHERE waiting_kind IS NOT NULL GROUP BY 1, 2) x}));
# but for one call that is let through to see
like($node->safe_psql('postgres', q{SELECT name || ' ' || breaker || ' ' || waiting + in_flight || ' ' || (last_error ->> 'title') FROM sas.agents WHERE breaker <> 'closed'}),
	qr/^payments (open|half-open) \d+ the service could not be reached$/, 'sas.agents says why');

sleep max(0, $night / 2 - (time() - $began));
is($node->safe_psql('postgres', q{SELECT string_agg(changed::text, ',') FROM sas.acknowledge_alerts(ARRAY(SELECT alert_id FROM sas.alerts))}), 'true', 'there is one alert, and the person on duty takes it');
is(listen_to_pager(), 1, 'who was called once');

# it comes back in the second half, but sick
$payments = SasService->new(port => $port, scripts => { charges => [ { status => 503 } ] });
$payments->wait_for_requests('charges', 3);
sleep max(0, $night - (time() - $began));
my $sick = scalar $payments->requests('charges');
my $minutes = (time() - $began) * 2;
note(sprintf 'after %.0f minutes, %d calls were let through to the sick service', $minutes, $sick);
cmp_ok($sick, '<=', $night / $open_for + 10, 'few calls are let through, one at a time');
is($payments->figures->{most}{charges}, 1, 'never two at once');

is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT state, ' ') FROM sas.runs WHERE run_id > 100}), 'running', 'no run is paused or undone');
is($node->safe_psql('postgres', q{SELECT sum(failure_count) || ' ' || count(*) FILTER (WHERE state = 'suspended') FROM sas.steps WHERE step = 'charge'}), '0 0',
	'no window was burnt and none cools off: there is as much patience left as at midnight');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.attempts WHERE undo'), '0', 'nothing was undone');
is(listen_to_pager(), 1, 'nobody was called twice');

# -- mended -----------------------------------------------------------------------------------

# it would find out by itself at its next probe; so that what comes now is the verb's doing, that is far away
$node->safe_psql('postgres', q{SELECT sas.alter_agent('payments', breaker => '{"open_for": "1 h"}')});
ok(wait_for($node, q{SELECT breaker || ' ' || (open_until > now() + interval '50 min') FROM sas.agents WHERE name = 'payments'}, 'open true'), 'it is open for an hour');
my $before = scalar $payments->requests('charges');
$payments->script(charges => [ { delay => 0.02, json => { id => 'c' } } ]);
$node->safe_psql('postgres', q{SELECT sas.reset_agent('payments')});
all_ended($node, 'one verb sets it going: all orders end');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT result, ' ') || ' ' || count(*) FROM sas.runs}), 'success ' . ($runs + 100), 'all of them well');

my @charges = (grep { $_->{script} eq 'charges' } $payments->requests)[ $before .. $before + $runs - 1 ];
is(scalar(grep { $_->{script} eq 'charges' } $payments->requests), $before + $runs, 'each was charged by one call');
my %keys = map { header_of($_, 'idempotency-key') => 1 } @charges;
is(scalar keys %keys, $runs, 'under a key of its own');

# -- no stampede ------------------------------------------------------------------------------------

my @at = sort { $a <=> $b } map { $_->{at} } @charges;
my ($most, $first) = (0, 0);
foreach my $last (0 .. $#at)
{
	$first++ while $at[$last] - $at[$first] > 0.1;
	$most = max($most, $last - $first + 1);
}
my $took = $at[-1] - $at[0];
note(sprintf '%d calls in %.1f s, at most %d within 100 ms and %d at once', scalar @at, $took, $most, $payments->figures->{most}{charges});
cmp_ok($payments->figures->{most}{charges}, '<=', $places, 'never more calls at once than its places');
# granted in 100 ms, at once after a rest, and on their way already: no stall of anybody makes it more
cmp_ok($most, '<=', $rate / 10 + $burst + $places, 'within no 100 ms more than its rate and places allow');
cmp_ok($took, '>=', ($runs - $burst - $places) / $rate, 'and altogether no faster than its rate');
is(scalar(grep { $_->{method} eq 'DELETE' } $services->requests), 0, 'no reservation was given back');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.attempts WHERE undo'), '0', 'nothing was undone to the end');
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || string_agg(DISTINCT kind || ' ' || agent, ',') FROM sas.alerts}), '1 breaker-open payments', 'and there was one alert in all');
is(listen_to_pager(), 1, 'told once');
is($node->safe_psql('postgres', q{SELECT breaker FROM sas.agents WHERE name = 'payments'}), 'closed', 'the breaker is closed');

# -- without a breaker ---------------------------------------------------------------------------------

# then windows are used up, and steps cool off; the verb ends that, and the release is the same
my $cooling = 300;
$payments->script(bills => [ { status => 503 } ]);
make_agent($node, 'billing', $payments, rate_limit => '200/s', max_in_flight => 10, retry => '{"max_attempts": 1}');
define($node, 'bill', { steps => { it => { agent => 'billing', call => { method => 'POST', path => '/bills' } } }, recovery => { initial => '1 h', max => '1 h' } });
$node->safe_psql('postgres', qq{SELECT count(*) FROM sas.submit_batch('bill', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, $cooling)))});
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE step = 'it' AND waiting_kind = 'cool_off' AND waiting_until > now() + interval '20 min'}, $cooling),
	'three hundred bills failed, and cool off for half an hour at least');
$payments->script(bills => [ { delay => 0.02, json => {} } ]);
$node->safe_psql('postgres', q{SELECT sas.reset_agent('billing')});
all_ended($node, 'the verb makes them due at once: they end');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT result, ' ') || ' ' || count(*) FROM sas.runs WHERE workflow = 'bill'}), "success $cooling", 'well');
cmp_ok($payments->figures->{most}{bills}, '<=', 10, 'never more at once than the places');
@at = sort { $a <=> $b } map { $_->{at} } (grep { $_->{script} eq 'bills' } $payments->requests)[ $cooling .. 2 * $cooling - 1 ];
cmp_ok($at[-1] - $at[0], '>=', ($cooling - 20 - 10) / 200, 'and no faster than the rate');
done_testing();
