# SPDX-License-Identifier: PostgreSQL
#
# Retry inside the window, windows one after the other, and answers that come too late.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use POSIX ();
use SasTest;
use SasService;
use Test::More;
use Time::HiRes qw(time clock_gettime CLOCK_MONOTONIC);

my $node = new_node('main');
my $service = SasService->new;
make_agent($node, 'remote', $service);

sub keys_of { my %keys = map { header_of($_, 'idempotency-key') => 1 } @_; my @all = sort keys %keys; return @all }
sub traces_of { my %ids = map { (split /-/, header_of($_, 'traceparent'))[1] => 1 } @_; my @all = sort keys %ids; return @all }
sub spans_of { my %ids = map { (split /-/, header_of($_, 'traceparent'))[2] => 1 } @_; my @all = sort keys %ids; return @all }
sub statuses_of { my ($run) = @_; return join ' ', map { $_->{attempt} . $_->{status} . ($_->{http_status} // '') } @{ $run->{attempts} } }
my %post = (method => 'POST', body => {});

# -- inside one window ---------------------------------------------------------------

$service->script(twice => [ { status => 503 }, { status => 500 }, { json => 'there' } ]);
my $run = run_call($node, 'remote', { %post, path => '/twice' });
my @came = $service->requests('twice');
is("$run->{result} $run->{output}{body}", 'success there', 'a call that fails twice and then succeeds is a success');
is(scalar @came, 3, 'after three attempts');
is($run->{steps}{it}{failure_count}, 0, 'inside one window, so that the supervisor counts no failure');
is(scalar keys_of(@came), 1, 'all of them bear the same Idempotency-Key');
is((keys_of(@came))[0], $run->{steps}{it}{idempotency_key}, 'which sas.steps shows');
ok(!(grep { header_of($_, 'traceparent') !~ /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/ } @came), 'each bears a W3C traceparent');
is(join(' ', scalar traces_of(@came), scalar spans_of(@came)), '1 3', 'with the trace id of the run and a span of its own');
is((traces_of(@came))[0], $run->{trace_id} =~ s/-//gr, 'sas.runs shows the trace id');
is(statuses_of($run), '1failed503 2failed500 3succeeded200', 'and sas.attempts has one row for each');
is($run->{attempts}[0]{error}{status}, 503, 'a failed one with its error');
ok($run->{attempts}[0]{started_at} lt $run->{attempts}[1]{started_at}, 'and times');

make_agent($node, 'slow', $service, retry => '{"initial": "300 ms", "max": "500 ms", "jitter": false, "max_attempts": 4}');
$service->script(pauses => [ ({ status => 503 }) x 3, { json => 1 } ]);
run_call($node, 'slow', { path => '/pauses' });
@came = $service->requests('pauses');
my @pauses = map { $came[$_]{at} - $came[ $_ - 1 ]{ended} } 1 .. $#came;
ok($pauses[0] >= 0.29 && $pauses[1] >= 0.49 && $pauses[2] >= 0.49, 'the pauses grow exponentially up to their maximum') or diag("@pauses");

# what a busy machine adds to each pause may hide it once
make_agent($node, 'jittery', $service, retry => '{"initial": "600 ms", "max": "600 ms", "max_attempts": 24}');
foreach my $series (1 .. 3)
{
	$service->script("jitter$series" => [ ({ status => 503 }) x 23, { json => 1 } ]);
	run_call($node, 'jittery', { path => "/jitter$series" });
	@came = $service->requests("jitter$series");
	@pauses = sort { $a <=> $b } map { $came[$_]{at} - $came[ $_ - 1 ]{ended} } 1 .. $#came;
	last if $pauses[0] < 0.3;
}
ok($pauses[0] < 0.3, 'with full jitter: some pauses are far below it') or diag("@pauses");

$service->script(used_up => [ { status => 500 } ]);
$run = run_call($node, 'remote', { %post, path => '/used_up' });
is(scalar $service->requests('used_up'), 4, 'max_attempts of the agent ends a window');
is("$run->{state} $run->{result} $run->{error}{status}", 'stopped error 500', 'and the run says with what');
$service->script(one_only => [ { status => 500 } ]);
run_call($node, 'remote', { %post, path => '/one_only' }, { step => { retry => { max_attempts => 1 } } });
is(scalar $service->requests('one_only'), 1, 'the retry of a step stands over that of its agent');
$service->script(on => [ { status => 423 }, { json => 1 } ]);
$run = run_call($node, 'remote', { path => '/on' }, { step => { retry => { on => [423] } } });
is("$run->{result} " . $service->requests('on'), 'success 2', 'a status named under "on" is retried');
foreach my $status (400, 401, 404, 410, 422)
{
	$service->script("p$status" => [ { status => $status } ]);
	$run = run_call($node, 'remote', { path => "/p$status" });
	is("$run->{result} $run->{error}{status} " . $service->requests("p$status"), "error $status 1", "$status is permanent: not retried");
}
foreach my $status (408, 425, 429, 502, 504)
{
	$service->script("t$status" => [ { status => $status }, { json => 1 } ]);
	$run = run_call($node, 'remote', { path => "/t$status" });
	is("$run->{result} " . $service->requests("t$status"), 'success 2', "$status is transient: retried");
}

# -- several windows -----------------------------------------------------------------

make_agent($node, 'pair', $service, retry => '{"initial": "10 ms", "max_attempts": 2}');
$service->script(windows => [ ({ status => 503 }) x 5, { json => 'at last' } ]);
$run = run_call($node, 'pair', { %post, path => '/windows' },
	{ workflow => { recovery => { max_failures => 5, initial => '100 ms' }, on_failure => 'pause' } });
@came = $service->requests('windows');
is("$run->{result} " . scalar @came, 'success 6', 'when a window is used up the supervisor gives another');
is($run->{steps}{it}{failure_count}, 2, 'and counts one failure for each');
is(scalar keys_of(@came), 1, 'the Idempotency-Key is the same over all windows');
is(join(' ', scalar traces_of(@came), scalar spans_of(@came)), '1 6', 'so is the trace id, and no span comes twice');
is(join(' ', map { $_->{attempt} } @{ $run->{attempts} }), '1 2 3 4 5 6', 'and the attempts count on');

# -- undo ----------------------------------------------------------------------------

define($node, 'undone', {
	steps => {
		first => { agent => 'remote', call => { %post, path => '/do' },
			undo => { call => { method => 'POST', path => '/undo', body => {} } } },
		second => { agent => 'remote', call => { path => '/refused' }, after => ['first'] } } });
$service->script(do => [ { status => 503 }, { json => 1 } ], undo => [ { status => 503 }, { json => 1 } ], refused => [ { status => 400 } ]);
$run = run_of($node, submit($node, 'undone', {}));
is("$run->{result}", 'compensated', 'a run whose second step is refused is undone');
my @do = $service->requests('do');
my @undo = $service->requests('undo');
is(scalar(@do) . ' ' . scalar(@undo), '2 2', 'call and undo were tried twice');
is(scalar(keys_of(@do)) . scalar(keys_of(@undo)) . scalar(keys_of(@do, @undo)), '112', 'an undo has a key of its own, the same in all its attempts');
is(scalar traces_of(@do, @undo), 1, 'and belongs to the same trace');
is(join(' ', map { ($_->{undo} ? 'undo' : 'do') . $_->{status} } grep { $_->{step} eq 'first' } @{ $run->{attempts} }),
	'dofailed dosucceeded undofailed undosucceeded', 'sas.attempts tells attempts of the undo from those of the call');
my $other = run_of($node, submit($node, 'undone', {}));
isnt($other->{trace_id}, $run->{trace_id}, 'another run has another trace id');
my %key = map { $_ => 1 } keys_of($service->requests('do'));
is(scalar keys %key, 2, 'and other keys');

# -- Retry-After ---------------------------------------------------------------------

$service->script(after_1 => [ { status => 503, headers => [ [ 'Retry-After', '1' ] ] }, { json => 1 } ]);
$run = run_call($node, 'remote', { path => '/after_1' });
@came = $service->requests('after_1');
cmp_ok($came[1]{at} - $came[0]{ended}, '>=', 0.99, 'Retry-After is waited for, though the back-off would be shorter');
is("$run->{result} $run->{steps}{it}{failure_count}", 'success 0', 'inside the window');
my $at = time();
my $due = clock_gettime(CLOCK_MONOTONIC) + int($at) + 4 - $at;
$service->script(after_date => [
	{ status => 429, headers => [ [ 'Retry-After', POSIX::strftime('%a, %d %b %Y %H:%M:%S GMT', gmtime($at + 4)) ] ] }, { json => 1 } ]);
run_call($node, 'remote', { path => '/after_date' });
@came = $service->requests('after_date');
cmp_ok($came[1]{at}, '>=', $due - 0.1, 'Retry-After may be a date');

$service->script(beyond => [ { status => 503, headers => [ [ 'Retry-After', '8' ] ] }, { json => 1 } ]);
define($node, 'beyond', { steps => { it => { agent => 'remote', call => { path => '/beyond' }, complete_in => '6 s' } },
	recovery => { max_failures => 1 }, on_failure => 'fail' });
my $id = submit($node, 'beyond', {});
ok(wait_for($node, "SELECT state || ' ' || waiting_kind || ' ' || failure_count FROM sas.steps WHERE run_id = $id", 'suspended retry 0'),
	'a Retry-After beyond the window ends the window uncounted');
$run = run_of($node, $id);
@came = $service->requests('beyond');
is("$run->{result} $run->{steps}{it}{failure_count}", 'success 0', 'and the step is served in a later one');
cmp_ok($came[1]{at} - $came[0]{ended}, '>=', 7.99, 'not before the service wants to be asked again');

$service->script(far => [ { status => 503, headers => [ [ 'Retry-After', '80000' ] ] }, { json => 1 } ]);
define($node, 'far', { steps => { it => { agent => 'remote', call => { path => '/far' } } } });
$id = submit($node, 'far', {});
wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $id", 'suspended');
is($node->safe_psql('postgres', "SELECT waiting_until BETWEEN now() + interval '50 min' AND now() + interval '1 hour' FROM sas.steps WHERE run_id = $id"),
	't', 'Retry-After is capped at an hour');
$node->safe_psql('postgres', q{SELECT sas.reset_agent('remote')});
is(run_of($node, $id)->{result}, 'success', 'and sas.reset_agent ends such a wait');

# -- too late ------------------------------------------------------------------------

$service->script(late => [ { delay => 6, json => 'too late' }, { json => 'in time' } ]);
$run = run_call($node, 'remote', { %post, path => '/late' },
	{ step => { complete_in => '4 s' }, workflow => { recovery => { max_failures => 5, initial => '4 s', jitter => JSON::PP::false() } } });
@came = $service->requests('late');
is("$run->{result} $run->{output}{body}", 'success in time', 'an answer after complete-by is not taken, the next window\'s is');
is($run->{steps}{it}{failure_count}, 1, 'the window that passed counts as a failure');
is(scalar(@came) . scalar(keys_of(@came)), '21', 'both calls were made under one key');
is(join(' ', map { $_->{status} } @{ $run->{attempts} }), 'timed_out succeeded', 'the agent that was too late said nothing, not even an error');
is($node->safe_psql('postgres', q{SELECT stale_replies FROM sas.agents WHERE name = 'remote'}), '0', 'nor did it send a reply that had to be fenced off');
done_testing();
