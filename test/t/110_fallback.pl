# SPDX-License-Identifier: PostgreSQL
#
# Fallbacks over real HTTP: while the breaker of an agent is open, and when a call has failed for good.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
make_agent($node, 'main', $service, retry => '{"max_attempts": 1}', breaker => '{"failures": 3, "window": "1 min", "open_for": "10 min"}');
make_agent($node, 'spare', $service);

sub define_with
{
	my ($name, @on) = @_;
	return define($node, $name, { steps => { it => { agent => 'main', call => { method => 'POST', path => "/$name" },
		fallback => { agent => 'spare', call => { method => 'POST', path => "/${name}_spare" }, undo => { call => { method => 'DELETE', path => "/${name}_undo/{{steps.it.output.body.n}}" } },
			(@on ? (on => [@on]) : ()) } } },
		output => '{{steps.it.output.body}}', recovery => { max_failures => 2, initial => '20 ms', max => '20 ms' } });
}

# -- failed ----------------------------------------------------------------------------

define_with('failed');
$service->script(failed => [ { status => 400 } ], failed_spare => [ { status => 503 }, { json => { n => 7 } } ]);
my $run = run_of($node, submit($node, 'failed', {}));
is("$run->{result} $run->{output}{n}", 'success 7', 'a call that failed for good is made another way');
my ($first) = $service->requests('failed');
my @spare = $service->requests('failed_spare');
is(scalar @spare, 2, 'with retries of its own');
isnt(header_of($spare[0], 'idempotency-key'), header_of($first, 'idempotency-key'), 'under a key of its own');
is(header_of($spare[0], 'idempotency-key'), header_of($spare[1], 'idempotency-key'), 'the same in both attempts');
is($run->{steps}{it}{state} . ' ' . $run->{steps}{'it.fallback'}{agent}, 'succeeded spare', 'sas.steps shows who did it');

# -- breaker_open ----------------------------------------------------------------------

define_with('guarded', 'breaker_open', 'failed');
$service->script(guarded => [ ({ gate => 1, status => 500 }) x 3, { status => 500 } ], guarded_spare => [ { json => { n => 8 } } ]);
$node->safe_psql('postgres', q{SELECT sas.alter_agent('main', max_in_flight => 3)});
my $ids = $node->safe_psql('postgres', q{SELECT string_agg(run_id::text, ',') FROM sas.submit_batch('guarded', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 20)))});
$service->wait_for_requests('guarded', 3);
$service->release;
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow = 'guarded' AND result = 'success'", '20'),
	'when the breaker opens, all that wait before it go the other way');
is($node->safe_psql('postgres', q{SELECT breaker FROM sas.agents WHERE name = 'main'}), 'open', 'and it is open still');
my $called = $service->requests('guarded');
ok($called <= 5, 'nothing was called any more then') or diag($called);
is(scalar $service->requests('guarded_spare'), 20, 'each fallback once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.steps s JOIN sas.runs USING (run_id) WHERE workflow = 'guarded' AND step = 'it' AND attempt = 0 AND failure_count = 0}),
	20 - $called, 'without an attempt of those that only waited');
my $let_go = hold_supervisor($node);
my $before = time;
$run = run_of($node, submit($node, 'guarded', {}));
is("$run->{result} $run->{output}{n}", 'success 8', 'one that comes while it is open does not wait for it');
cmp_ok(time - $before, '<', 30, 'at all');
$let_go->();
is(scalar $service->requests('guarded'), $called, 'and calls nothing');

# -- a worker dies in the fallback ---------------------------------------------------------

$service->script(guarded_spare => [ { gate => 1, json => { n => 9 } }, { json => { n => 9 } } ]);
my $id = submit($node, 'guarded', {});
$service->wait_for_requests('guarded_spare', 22);
$node->stop('immediate');
$node->start;
$service->release;
$run = run_of($node, $id);
is("$run->{result} $run->{output}{n}", 'success 9', 'a crash in the midst of a fallback costs nothing');
@spare = ($service->requests('guarded_spare'))[ -2, -1 ];
is(header_of($spare[0], 'idempotency-key'), header_of($spare[1], 'idempotency-key'), 'it is called again under its key');
done_testing();
