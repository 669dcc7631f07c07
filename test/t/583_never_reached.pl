# SPDX-License-Identifier: PostgreSQL
#
# A connection that was never made leaves nothing in doubt: the service is known not to have been asked. That holds
# whatever the connection fails by, and for calls, undos, polls and hooks. A run is not undone for it, an undo is made
# when the service is back, and a connection that breaks behind the request leaves a doubt.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }

# accepts a connection, reads what is first said of TLS, and resets it
my $resets = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 20, ReuseAddr => 1) or die;
my $child = fork() // die;
if ($child == 0)
{
	while (my $client = $resets->accept)
	{
		sysread($client, my $hello, 1);
		setsockopt($client, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
		close $client;
	}
	exit 0;
}
my %address = (
	refused => 'http://127.0.0.1:' . free_port(),
	no_name => 'http://none.invalid',
	reset_tls => 'https://127.0.0.1:' . $resets->sockport);

# what stands of a run's step, and of its undo
sub doubts { my ($run) = @_; return sql("SELECT bool_or(in_doubt) FROM _sas.step WHERE run_id = $run") }
sub tried { my ($run) = @_; return sql("SELECT count(*) FROM _sas.attempt WHERE run_id = $run AND status <> 'succeeded'") }

$service->script(begin => [ { status => 202, json => { id => 7 } } ], broken => [ { how => 'reset' } ]);
my %recovery = (recovery => { max_failures => 2, initial => '20 ms', max => '20 ms' });
foreach my $fault (sort keys %address)
{
	my $away = sub { sql("SELECT sas.alter_agent('$fault', base_url => '$address{$fault}')") };
	my $back = sub { sql("SELECT sas.alter_agent('$fault', base_url => '" . $service->url . q{')}) };
	my $step = sub { my ($path, %more) = @_; return { agent => $fault, call => { method => 'POST', path => $path }, retry => { max_attempts => 2, initial => '10 ms' }, %more } };

	make_agent($node, $fault, $service);
	define($node, "do_$fault", { %recovery, on_failure => 'compensate', steps => { it => $step->('/do', undo => { call => { path => "/do_undo_$fault" } }) } });
	define($node, "undo_$fault", { %recovery, steps => {
			it => $step->('/ok', undo => { call => { path => "/undo_$fault" }, retry => { max_attempts => 2, initial => '10 ms' }, %recovery }),
			w => { wait => { signal => 'never' }, after => ['it'] } } });
	define($node, "poll_$fault", { %recovery, on_failure => 'fail', steps => {
			it => $step->('/begin', poll => { call => { path => '/ask' }, until => '$.output.body.state == "done"', every => '50 ms' }) } });
	define($node, "hook_$fault", { steps => { it => $step->('/ok') }, hooks => [ { on => 'running', agent => $fault, call => { path => '/told' }, %recovery } ] });

	my $undone = submit($node, "undo_$fault");
	ok(wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $undone AND step = 'it'", 'succeeded'), "$fault: a call is done");
	$away->();
	my $run = submit($node, "do_$fault");
	is(run_of($node, $run)->{result}, 'error', "$fault: a call whose connections are never made fails");
	is(tried($run), 4, "$fault: each attempt of each window is tried");
	is(doubts($run), 'f', "$fault: and nothing is in doubt");
	is(scalar($service->requests("do_undo_$fault")), 0, "$fault: so nothing is undone");

	sql("SELECT sas.cancel($undone)");
	is(run_of($node, $undone)->{state}, 'paused', "$fault: an undo that cannot be made pauses the run");
	is(doubts($undone), 'f', "$fault: the undo is not in doubt");
	$back->();
	sql("SELECT sas.resume($undone)");
	is(run_of($node, $undone)->{result}, 'cancelled', "$fault: it is made when the service is back");
	is(scalar($service->requests("undo_$fault")), 1, "$fault: once");

	my $polled = submit($node, "poll_$fault");
	ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $polled", 'poll'), "$fault: a job is begun, and asked about");
	sql("SELECT sas.pause_agent('$fault')");
	my $hooked = submit($node, "hook_$fault");
	$away->();
	sql("SELECT sas.resume_agent('$fault')");
	is(run_of($node, $polled)->{result}, 'error', "$fault: asks whose connections are never made fail");
	is(doubts($polled), 'f', "$fault: and leave nothing in doubt");
	ok(wait_for($node, "SELECT count(*) > 0 AND bool_and(state = 'stopped' OR state = 'paused') FROM _sas.run WHERE hook_of = $hooked", 't'), "$fault: a hook that cannot be told ends")
	  or diag(sql("SELECT to_jsonb(r) FROM _sas.run r WHERE hook_of = $hooked"));
	is(sql("SELECT bool_or(s.in_doubt) || ' ' || count(*) FROM _sas.step s JOIN _sas.run r USING (run_id) WHERE r.hook_of = $hooked"), 'false 1', "$fault: nothing of it is in doubt");
}

make_agent($node, 'broken', $service);
define($node, 'broken', { steps => { it => { agent => 'broken', call => { method => 'POST', path => '/broken' }, retry => { max_attempts => 1 } } },
	recovery => { max_failures => 1 }, on_failure => 'fail' });
my $run = submit($node, 'broken');
run_of($node, $run);
is(doubts($run), 't', 'a connection that breaks behind the request leaves the call in doubt');

done_testing();

END
{
	kill('KILL', $child) if $child;
}
