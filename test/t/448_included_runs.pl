# SPDX-License-Identifier: PostgreSQL
#
# An undo and a fallback that include a workflow with two calls: over real HTTP each call is made once, in order, under
# a key of its own, as the workflow was when it was included. What fails is told with its place, and whole.
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

sub post { my ($path, $body) = @_; return { method => 'POST', path => $path, body => $body } }

define($node, 'give_back', { steps => {
	refund => { agent => 'shop', call => post('/refund', { charge => '{{input.charge}}' }) },
	tell => { agent => 'shop', call => post('/tell', { refund => '{{steps.refund.output.body.id}}' }) } } });
define($node, 'transfer', { steps => {
	order => { agent => 'shop', call => post('/order', { amount => '{{input.amount}}' }), undo => { call => { method => 'DELETE', path => '/recall/{{steps.order.output.body.id}}' } } },
	confirm => { agent => 'shop', call => post('/confirm', { order => '{{steps.order.output.body.id}}' }) } },
	output => { id => '{{steps.order.output.body.id}}' } });
define($node, 'buy', { steps => {
	take => { agent => 'shop', call => { method => 'POST', path => '/take' }, undo => { call => { method => 'DELETE', path => '/put' } } },
	charge => { agent => 'shop', call => post('/charge', { amount => '{{input.amount}}' }), after => ['take'],
		undo => { include => 'give_back', input => { charge => '{{steps.charge.output.body.id}}' } }, fallback => { include => 'transfer' } },
	ship => { agent => 'shop', call => post('/ship', { paid => '{{steps.charge.output}}' }) } },
	output => '{{steps.charge.output}}' });
# what is stored under its name later changes nothing
define($node, 'give_back', { steps => { other => { agent => 'shop', call => { method => 'POST', path => '/other' } } } });

# what has come since the last question
my $seen = 0;
my @asked;
sub paths
{
	my @all = $service->requests;
	@asked = @all[ $seen .. $#all ];
	$seen = @all;
	return join ' ', map { $_->{target} =~ s{^/}{}r } @asked;
}
sub asked { my ($script) = @_; return grep { $_->{script} eq $script } @asked }

# -- the undo ---------------------------------------------------------------------------------------

$service->script(take => [ { json => 1 } ], charge => [ { json => { id => 'c1' } } ], refund => [ { status => 503 }, { json => { id => 'r1' } } ],
	tell => [ { json => 1 } ], ship => [ { status => 400 } ], put => [ { json => 1 } ]);
my $run = run_of($node, submit($node, 'buy', { amount => 5 }));
is("$run->{state} $run->{result}", 'stopped compensated', 'a run is undone by an undo that includes a workflow');
is(paths(), 'take charge ship refund refund tell put', 'both of its calls are made, the first until it succeeds, then the step before is undone');
my %of = map { $_ => [ asked($_) ] } qw(charge refund tell);
is($of{refund}[0]{body}, '{"charge": "c1"}', 'the first gets what the step returned');
is($of{tell}[0]{body}, '{"refund": "r1"}', 'the second what the first returned');
my @keys = map { header_of($_, 'idempotency-key') } @{ $of{charge} }, @{ $of{refund} }, @{ $of{tell} };
is($keys[1], $keys[2], 'an attempt repeats the key');
is(scalar(keys %{ { map { $_ => 1 } @keys } }), 3, 'each call has a key of its own');
is($node->safe_psql('postgres', "SELECT workflow, version, result FROM sas.runs WHERE parent_run_id = $run->{run_id}"), 'give_back|1|success',
	'it is a run of the version that was current when it was included');

# -- the fallback ------------------------------------------------------------------------------------

my %fallback = (charge => [ { status => 402 } ], order => [ { json => { id => 't1' } } ], confirm => [ { json => 1 } ], recall => [ { json => 1 } ]);
$service->script(%fallback, ship => [ { json => 1 } ]);
$run = run_of($node, submit($node, 'buy', { amount => 6 }));
is("$run->{state} $run->{result} $run->{output}{id}", 'stopped success t1', 'a fallback that includes a workflow takes the place of the step, with its output');
is(paths(), 'take charge order confirm ship', 'both of its calls are made');
is((asked('order'))[0]{body}, '{"amount": 6}', 'without an input it gets that of the run');

$service->script(%fallback, ship => [ { status => 400 } ]);
$run = run_of($node, submit($node, 'buy', { amount => 7 }));
is("$run->{state} $run->{result}", 'stopped compensated', 'such a run is undone, too');
is(paths(), 'take charge order confirm ship recall/t1 put', 'by the undos of what was included');

# -- what failed, and where ----------------------------------------------------------------------------

define($node, 'back', { steps => { refund => { agent => 'shop', call => post('/refund', {}) } } });
define($node, 'boxes', { steps => {
	pay => { agent => 'shop', call => post('/charge', {}), undo => { include => 'back' } },
	pack => { agent => 'shop', each => '{{input.n}}', call => { method => 'POST', path => '/pack/{{item}}' }, after => ['pay'] } } });
$service->script(charge => [ { json => 1 } ], pack => [ { status => 410 } ], refund => [ { status => 403 }, { json => 1 } ]);
$run = run_of($node, submit($node, 'boxes', { n => [ 1 ] }));
my $place = "/runs/$run->{run_id}/steps/pack/elements/1";
is("$run->{state} $run->{error}{status} $run->{error}{instance}", "paused 410 $place", 'the error of the run is the first cause, and names the element');
is($run->{error}{undo_error}{title}, "child run " . $node->safe_psql('postgres', "SELECT max(run_id) FROM sas.runs WHERE parent_run_id = $run->{run_id}") . ' ended with result error',
	'beside it stands what keeps it from being undone');
is($run->{error}{undo_error}{detail}, 'the service answered 403', 'with its cause');
is_deeply([ map { $_->{error}{instance} } grep { $_->{step} eq 'pack' } @{ $run->{attempts} } ], [$place], 'the attempt names the element, too');
like($node->safe_psql('postgres', "SELECT text FROM sas.explain($run->{run_id}) LIMIT 1"), qr/the undo of step "pay" failed.*because of: the service answered 410/, 'explain tells both');
$node->safe_psql('postgres', "SELECT sas.resume($run->{run_id})");
$run = run_of($node, $run->{run_id});
is("$run->{state} $run->{result} $run->{error}{status} " . ($run->{error}{undo_error} // 'nothing'), 'stopped compensated 410 nothing', 'resumed it is undone, and tells the first cause alone');
done_testing();
