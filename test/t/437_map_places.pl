# SPDX-License-Identifier: PostgreSQL
#
# Maps with places per key over real HTTP, also while the server dies, and maps that run through before they pause.
# Takes about 20 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
make_agent($node, 'shop', $service);

# -- one call of a customer at a time -----------------------------------------------------------

my @customers = map { "c$_" } 1 .. 5;
define($node, 'keyed', { steps => { m => { agent => 'shop', each => '{{input.items}}', concurrency => { limit => 4, key => '{{item.who}}' },
	call => { method => 'POST', path => '/{{item.who}}', body => { n => '{{index}}' } } } } });
$service->script(map { ($_ => [ { delay => 0.02, json => 1 } ]) } @customers);
my @items = map { { who => $customers[ $_ < 40 ? 0 : $_ % 5 ] } } 0 .. 119;
my $id = submit($node, 'keyed', { items => \@items });
$service->wait_for_requests('c1', 10);
$node->stop('immediate');
$node->start;
my $run = run_of($node, $id);
is("$run->{state} $run->{result}", 'stopped success', 'a map with places per key comes to its end, also over a crash');
my $most = $service->figures->{most};
is(join(' ', map { $most->{$_} } @customers), '1 1 1 1 1', 'no customer was called for twice at a time');
foreach my $who (@customers)
{
	my %keys;
	my @bodies = map { $keys{ header_of($_, 'idempotency-key') }++ ? () : $_->{body} } $service->requests($who);
	my @order = map { /(\d+)/ } @bodies;
	is("@order", join(' ', sort { $a <=> $b } @order), "the elements of $who were called for in their order");
}
is($node->safe_psql('postgres', "SELECT count(*) FROM sas.steps WHERE run_id = $id AND element IS NOT NULL AND state = 'succeeded'"), '120', 'and each element was');

# -- the map runs through, then the run pauses, then one verb ---------------------------------------

define($node, 'through', { steps => { m => { agent => 'shop', each => '{{input.items}}', concurrency => 3, on_failure => 'pause_at_end',
	call => { method => 'POST', path => '/{{item}}' } } }, output => '{{steps.m.output[*].body}}' });
$service->script(good => [ { json => 'good' } ], bad => [ ({ status => 400 }) x 3, { json => 'mended' } ]);
$id = submit($node, 'through', { items => [ 'good', 'bad', 'good', 'bad', 'bad', 'good' ] });
$run = run_of($node, $id);
is("$run->{state} $run->{error}{title}", 'paused 3 of 6 elements failed', 'a map that pauses at its end runs through');
is(scalar $service->requests('good'), 3, 'everything else was done');
is($node->safe_psql('postgres', "SELECT occurrences || ' ' || step FROM sas.alerts WHERE run_id = $id AND closed_at IS NULL"), '1 m', 'with one alert');
$node->stop('immediate');
$node->start;
ok(wait_for($node, "SELECT bool_or(changed) FROM sas.retry($id, 'm')"), 'one verb retries what failed');
$run = run_of($node, $id);
is("$run->{state} $run->{result} @{$run->{output}}", 'stopped success good mended good mended mended good', 'and nothing else');
is(scalar $service->requests('good'), 3, 'what had succeeded is not called again');
done_testing();
