# SPDX-License-Identifier: PostgreSQL
#
# A function step that comes by itself is handed over to one worker. None is
# left behind when that worker is frozen, ends, or calls a long function.
# Takes about 15 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 3, 'sas.function_workers_max' => 3);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	CREATE FUNCTION long(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_lock_shared(1);
		PERFORM pg_advisory_unlock_shared(1);
		RETURN input;
	END $$;
	SELECT sas.create_workflow('echo', '{"steps": {"a": {"function": "public.echo"}}}');
	SELECT sas.create_workflow('long', '{"steps": {"a": {"function": "public.long"}}}')});
my $submit = sub { return $sql->("SELECT run_id FROM sas.submit('$_[0]', '{}')") };
my $result = sub { return $sql->("SELECT result FROM sas.wait($_[0])") };
# each in a transaction of its own
my $quickly = sub { $sql->(join '', map { "SELECT run_id FROM sas.submit('echo', '{}');\n" } 1 .. $_[0]); return };
my $open = q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'};
my $asleep = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND state = 'idle'};
my $waits = q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted};

# nobody looks for what was forgotten: the supervisor sends none
my $let_go = hold_supervisor($node);
ok(wait_for($node, $asleep, '3'), 'all function workers sleep');

# -- frozen -----------------------------------------------------------------------------

my @pids = worker_pids($node, 'function');
is(scalar @pids, 3, 'there are three function workers');
foreach my $n (0 .. $#pids)
{
	$quickly->(30);
	ok(wait_for($node, $open, '0'), 'steps have come quickly');
	my $thaw = hold_workers($node, $pids[$n]);
	$quickly->(30);
	ok(wait_for($node, $open, '0'), "worker $n is frozen while it sleeps: the others do all that comes");
	is($result->($submit->('echo')), 'success', 'and so they do what comes later');
	$thaw->();
}
ok(wait_for($node, $asleep, '3'), 'all function workers sleep again');
foreach my $n (0 .. $#pids)
{
	my $thaw = hold_workers($node, grep { $_ != $pids[$n] } @pids);
	$quickly->(30);
	ok(wait_for($node, $open, '0'), "worker $n does everything while all others are frozen");
	$thaw->();
}

# one step, at once after others: on a machine that is not too slow the others know that such steps come quickly, and
# it is handed over, to the frozen worker where that is the first
my $one = q{SELECT run_id FROM sas.submit('echo', '{}')};
my $session = SasSession->new($node);
foreach my $n ((0 .. $#pids) x 3)
{
	wait_until(sub {
		$session->query($one) for 1 .. 5;
		$session->query('SELECT FROM sas.wait(' . $session->query($one) . ')');
		kill('STOP', $pids[$n]);
		return 1 if $session->query("SELECT count(*) FROM pg_locks WHERE pid = $pids[$n]") eq '0';
		kill('CONT', $pids[$n]);
		return 0;
	}) or die 'a worker is in a transaction for ever';
	my $run = $session->query($one);
	is($session->query("SELECT result FROM sas.wait($run)"), 'success', "worker $n is frozen after quick steps: one more is done");
	kill('CONT', $pids[$n]);
}
$session->quit;
ok(wait_for($node, $open, '0'), 'all have ended');

# -- leaves -----------------------------------------------------------------------------

$quickly->(30);
kill 'TERM', $pids[0];
$quickly->(30);
ok(wait_for($node, $open, '0'), 'a worker ends: others do all that comes');
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function' AND pid <> } . $pids[0], '3'), 'there are three workers again');

# -- long calls -------------------------------------------------------------------------

my $gate = SasSession->new($node);
$gate->query('SELECT pg_advisory_lock(1)');
my @long = map { $submit->('long') } 1, 2;
ok(wait_for($node, $waits, '2'), 'two of three workers call long functions');
is($result->($submit->('echo')), 'success', 'the third one does what comes');
push @long, $submit->('long');
ok(wait_for($node, $waits, '3'), 'three workers call long functions');
my $last = $submit->('echo');
# so that each worker knows that the function is a long one
ok(wait_for($node, "$waits AND waitstart < clock_timestamp() - interval '300 ms'", '3'), 'each of them for a while');
$gate->query('SELECT pg_advisory_unlock(1)');
is($result->($last), 'success', 'what came then is done when a worker is free');
is(join(' ', map { $result->($_) } @long), join(' ', ('success') x 3), 'and the long ones have ended');

ok(wait_for($node, $asleep, '3'), 'all function workers sleep again');
$gate->query('SELECT pg_advisory_lock(1)');
$sql->(q{SELECT count(*) FROM sas.submit_batch('long', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 3)))});
ok(wait_for($node, $waits, '3'), 'steps that come together are shared among all workers');
$gate->query('SELECT pg_advisory_unlock(1)');
$gate->quit;
ok(wait_for($node, $open, '0'), 'all runs have ended');
$let_go->();
$node->stop;
done_testing();
