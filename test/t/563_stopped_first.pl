# SPDX-License-Identifier: PostgreSQL
#
# The undo of a call that a cancel has stopped is sent after the worker has closed the connection of the call, and when
# the call has had a moment to reach the service; also where that worker is stopped (SIGSTOP) meanwhile, and others
# could send the undo. Only the end of its window ends that wait. An answer that has arrived counts.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
sub holder { my ($run) = @_; return sql("SELECT substring(locked_by from '[0-9]+\$') FROM sas.steps WHERE run_id = $run AND step = 'it' AND state = 'running'") }
sub ended { my ($run, $state, $what) = @_; return ok(wait_for($node, "SELECT r.result || ' ' || s.state FROM sas.runs r JOIN sas.steps s USING (run_id) WHERE r.run_id = $run", $state), $what) }

# each call has a workflow, and a script, of its own
sub one
{
	my ($name, %more) = @_;
	define($node, $name, { steps => { it => { agent => 'remote', complete_in => '5 min', call => { method => 'POST', path => "/$name" },
					undo => { call => { method => 'POST', path => "/undo_$name" } }, %more } } });
	return submit($node, $name, {});
}

# runs whose calls different workers hold: the first is that of the worker that will be stopped
sub held_by_two
{
	my ($name, %more) = @_;
	my @runs;
	my %of;
	wait_until(
		sub {
			my $one = $name . '_' . scalar @runs;
			$service->script($one => [ { how => 'watch' } ]);
			push @runs, one($one, %more);
			$service->wait_for_requests($one, 1);
			$of{ holder($runs[-1]) } //= [ $runs[-1], $one ];
			return keys %of == 2;
		});
	return %of;
}

make_agent($node, 'remote', $service, request_timeout => '100 s');

# -- a worker that is stopped ---------------------------------------------------------------------------------

my %of = held_by_two('stopped');
my ($pid, $other) = sort { $a <=> $b } keys %of;
my ($run, $name) = @{ $of{$pid} };
kill('STOP', $pid);
sql("SELECT sas.cancel($run)");
# what others do meanwhile shows that there was time for it
sql("SELECT sas.cancel($of{$other}[0])");
ended($of{$other}[0], 'cancelled compensated', 'another worker stops its call, and undoes it');
is(scalar $service->requests("undo_$name"), 0, 'the call of a stopped worker is not undone while its connection is open');
is(sql("SELECT r.state || ' ' || s.state FROM sas.runs r JOIN sas.steps s USING (run_id) WHERE r.run_id = $run"), 'compensating running', 'the run waits for that worker');
kill('CONT', $pid);
ended($run, 'cancelled compensated', 'when the worker continues, it stops the call');
foreach my $one ($name, $of{$other}[1])
{
	my ($call, $more) = $service->requests($one);
	my ($undo) = $service->requests("undo_$one");
	ok(!$more && $call->{hung_up} && $call->{hung_up} < $undo->{at}, 'the undo arrives after the end of the call');
	cmp_ok($undo->{at} - $call->{at}, '>', 0.8, 'and not just after the call');
}
is(sql("SELECT string_agg(status, ', ' ORDER BY started_at) FROM sas.attempts WHERE run_id = $run"), 'cancelled, succeeded', 'its attempt is stored once');

# -- for as long as its window lasts ---------------------------------------------------------------------------

%of = held_by_two('late', complete_in => '8 s');
($pid) = keys %of;
($run, $name) = @{ $of{$pid} };
kill('STOP', $pid);
sql("SELECT sas.cancel($run)");
ended($run, 'cancelled compensated', 'past complete-by the undo waits no longer');
kill('CONT', $pid);
ok(wait_until(sub { (grep { $_->{hung_up} } $service->requests($name)) == 1 }), 'the worker stops the call when it continues');
is(scalar $service->requests($name), 1, 'and sends nothing more');

# -- between two attempts ----------------------------------------------------------------------------------------

$service->script(again => [ { status => 503 }, {} ]);
$run = one('again', retry => { initial => '3 s', max_attempts => 3, jitter => JSON::PP::false });
ok(wait_for($node, "SELECT count(*) FROM sas.attempts WHERE run_id = $run", '1'), 'a call waits for its next attempt');
$pid = holder($run);
kill('STOP', $pid);
my $stopped = time();
sql("SELECT sas.cancel($run)");
wait_until(sub { return time() > $stopped + 4 });
kill('CONT', $pid);
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'cancelled'), 'it is cancelled while its worker is stopped');
is(scalar $service->requests('again'), 1, 'the next attempt is not sent, though it is due');

# -- nothing was sent -----------------------------------------------------------------------------------------------

sql(q{SELECT sas.create_agent('nobody', base_url => 'http://127.0.0.1:1', retry => '{"initial": "100 s", "max_attempts": 3}', breaker => '{"off": true}')});
$run = one('never', agent => 'nobody');
ok(wait_for($node, "SELECT count(*) FROM sas.attempts WHERE run_id = $run", '1'), 'a call whose connection was refused waits for its next attempt');
sql("SELECT sas.cancel($run)");
ended($run, 'cancelled cancelled', 'it was not carried out, so there is nothing to undo');

# -- answered ---------------------------------------------------------------------------------------------------------

$service->script(answered => [ { gate => JSON::PP::true, json => { is => 'done' } } ]);
$run = one('answered');
$service->wait_for_requests('answered', 1);
$pid = holder($run);
kill('STOP', $pid);
$service->release;
ok(wait_until(sub { ($service->requests('answered'))[0]{ended} }), 'a service answers a worker that is stopped');
sql("SELECT sas.cancel($run)");
kill('CONT', $pid);
ended($run, 'cancelled compensated', 'it is undone');
is(sql("SELECT output -> 'body' ->> 'is' FROM sas.steps WHERE run_id = $run AND step = 'it'"), 'done', 'and the answer counts: it had arrived before the worker heard of the cancel');

# -- asked to come back later -------------------------------------------------------------------------------------------

$service->script(later => [ { gate => JSON::PP::true, status => 429, headers => [ [ 'Retry-After', '3000' ] ] } ]);
$run = one('later');
$service->wait_for_requests('later', 1);
$pid = holder($run);
kill('STOP', $pid);
$service->release;
ok(wait_until(sub { ($service->requests('later'))[0]{ended} }), 'a service asks a worker that is stopped to come back in an hour');
sql("SELECT sas.cancel($run)");
kill('CONT', $pid);
ended($run, 'cancelled cancelled', 'the cancelled run does not wait for that');

# -- an operator need not wait -------------------------------------------------------------------------------------------

%of = held_by_two('halted');
($pid) = keys %of;
($run, $name) = @{ $of{$pid} };
kill('STOP', $pid);
sql("SELECT sas.cancel($run)");
sql("SELECT sas.halt($run, 'enough')");
ended($run, 'error failed', 'a halt ends the run, whatever its worker does');
kill('CONT', $pid);
ok(wait_until(sub { (grep { $_->{hung_up} } $service->requests($name)) == 1 }), 'the worker ends the call');
is(sql('SELECT sum(stale_replies) FROM sas.agents'), '0', 'no reply came in vain');
$node->stop;
done_testing();
