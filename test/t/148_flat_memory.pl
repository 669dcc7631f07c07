# SPDX-License-Identifier: PostgreSQL
#
# No process holds more the more it has done: single operations of each kind, a
# transaction each, in rounds. What each worker, and the session that submits,
# holds after the last round is compared with half way: its memory contexts, and
# beside them what libcurl and others have allocated. If that is more, it goes on,
# and the last rounds are compared with those before.
#
#   SAS_FLAT=4000           operations of each kind in a round (500: 32 bytes that each leaves are found)
#   SAS_FLAT_KINDS="..."    only these kinds
#
# Takes about 200 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use SasStreams;
use Test::More;
use List::Util qw(max min);

my $each = $ENV{SAS_FLAT} // 500;
my @kinds = split ' ', $ENV{SAS_FLAT_KINDS} // 'call refused_call function failing_function signal timer child item stream';
my $rounds = 8;
# Caches differ by some kB from round to round; what leaks is more with each operation.
my $tolerated = 48 * 1024;
my $tolerated_outside = 3 * 1024 * 1024;

my $node = new_node('main', 'sas.schedulers' => 1, 'sas.agents' => 1, 'sas.function_workers' => 1, 'sas.supervisors' => 1,
	'sas.retain_success' => '1 min', (map { ("sas.retain_$_" => '1 min') } qw(error compensated)), fsync => 'off', log_min_messages => 'warning',
	autovacuum_naptime => '5 s');
my $service = SasService->new;
my $streams = SasStreams->new;
$service->script(refuse => [ { status => 422, json => { message => 'x' x 200 } } ]);
make_agent($node, 'remote', $service, retry => '{"max_attempts": 1}', breaker => '{"off": true}');
make_agent($node, 'feed', $streams, breaker => '{"off": true}');
make_table($node);
make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}' } });
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
CREATE FUNCTION fail(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no: %', input; END $$;
SELECT sas.create_workflow('call', '{"steps": {"it": {"agent": "remote", "call": {"method": "POST", "path": "/call/{{input.n}}", "body": "{{input}}"}}}}');
SELECT sas.create_workflow('refused_call', '{"recovery": {"max_failures": 1}, "steps": {
	"before": {"agent": "remote", "call": {"method": "POST", "path": "/before"}, "undo": {"call": {"method": "DELETE", "path": "/undo"}}},
	"it": {"agent": "remote", "call": {"method": "POST", "path": "/refuse/{{input.n}}"}, "after": ["before"]}}}');
SELECT sas.create_workflow('function', '{"steps": {"it": {"function": "public.echo"}}}');
SELECT sas.create_workflow('failing_function', '{"steps": {"it": {"function": "public.fail", "retry": {"max_attempts": 2, "initial": "1 ms", "max": "1 ms"}}}}');
SELECT sas.create_workflow('signal', '{"steps": {"it": {"wait": {"signal": "go"}}, "then": {"function": "public.echo", "after": ["it"]}}}');
SELECT sas.create_workflow('timer', '{"steps": {"it": {"wait": {"for": "10 ms"}}}}');
SELECT sas.create_workflow('child', '{"steps": {"it": {"workflow": "function", "input": "{{input}}"}}}');
SELECT sas.create_agent('outside', kind => 'external');
SELECT sas.create_watcher('fed', '{"agent": "outside", "external": {}, "items": {"table": "public.item"}}');
CREATE PROCEDURE submit(kind text, first int, quantity int) LANGUAGE plpgsql AS $$
BEGIN
	FOR n IN first .. first + quantity - 1 LOOP
		PERFORM FROM sas.submit(kind, jsonb_build_object('n', n, 'text', repeat('x', 500)));
		COMMIT;
	END LOOP;
END $$;
CREATE PROCEDURE signal() LANGUAGE plpgsql AS $$
DECLARE
	run bigint;
BEGIN
	FOR run IN SELECT s.run_id FROM sas.steps s WHERE s.waiting_kind = 'signal' LOOP
		PERFORM FROM sas.signal(run, 'go', '{"by": "test"}');
		COMMIT;
	END LOOP;
END $$;
CREATE PROCEDURE append(watch bigint, epoch bigint, first int, quantity int) LANGUAGE plpgsql AS $$
BEGIN
	FOR n IN first .. first + quantity - 1 LOOP
		ASSERT sas.append_items(watch, epoch, to_jsonb(ARRAY[jsonb_build_object('n', n)])) = 'go';
		COMMIT;
	END LOOP;
END $$;
END

my $session = SasSession->new($node);
my ($host) = $session->query("SELECT sas.register_node('items', 1, '{outside}', lease => '1 day', by_connection => false)") =~ /(\d+)/;
watch($node, 'fed', 'one');
my ($watch, $epoch);
ok( wait_until(
		sub {
			($watch, $epoch) = $session->query("SELECT watch_id || ' ' || epoch FROM sas.claim_watchers($host, 1)") =~ /^(\d+) (\d+)$/;
			return defined $epoch;
		}),
	'a node hosts a task that items are appended to');
# each connection ends after some items, so that there are many
$streams->feeds(events => { items => 0, per => 20, how => 'close' });
watch($node, 'events', 'events');

# the processes: a name of each, and its pid
sub processes
{
	my %pid = split /[|\n]/, $node->safe_psql('postgres', q{
		SELECT CASE WHEN pid = } . $session->query('SELECT pg_backend_pid()') . q{ THEN 'the session that submits' ELSE backend_type END, pid FROM pg_stat_activity
		WHERE backend_type LIKE 'sas %' OR pid = } . $session->query('SELECT pg_backend_pid()'));
	return %pid;
}

# what a process holds: in its memory contexts, and of its own altogether
sub held
{
	my ($pid) = @_;
	my $from = -s $node->logfile;
	my $used;
	$node->safe_psql('postgres', "SELECT pg_log_backend_memory_contexts($pid)");
	wait_until(
		sub {
			($used) = PostgreSQL::Test::Utils::slurp_file($node->logfile, $from) =~ /\[$pid\] LOG:  Grand total: .* (\d+) used$/m;
			return defined $used;
		}) or die "process $pid does not tell of its memory";
	my ($own) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/smaps_rollup") =~ /^Anonymous: +(\d+) kB/m;
	return [ $used, 1024 * $own ];
}

sub round
{
	my ($n) = @_;
	my $first = 1 + $n * $each;
	foreach my $kind (@kinds)
	{
		if ($kind eq 'item')
		{
			my $answer = $session->query("CALL append($watch, $epoch, $first, $each)", 600);
			die $answer if $answer =~ /ERROR/;
		}
		elsif ($kind eq 'stream') { $streams->feeds(events => { items => $first + $each - 1 }) }
		else
		{
			my $answer = $session->query("CALL submit('$kind', $first, $each)", 600);
			die $answer if $answer =~ /ERROR/;
		}
	}
	foreach my $watched (grep { my $kind = $_ eq 'fed' ? 'item' : 'stream'; grep { $_ eq $kind } @kinds } qw(fed events))
	{
		return 0 unless wait_for($node, "SELECT count(*) FROM public.item WHERE watcher = '$watched'", $first + $each - 1, limit => 600);
	}
	if (grep { $_ eq 'signal' } @kinds)
	{
		return 0 unless wait_for($node, q{SELECT count(*) FROM sas.steps WHERE waiting_kind = 'signal'}, $each, limit => 600);
		$session->query('CALL signal()', 600);
	}
	return wait_for($node, 'SELECT count(*) FROM _sas.run WHERE state <> \'stopped\'', 0, limit => 600);
}

my %pid = processes();
is(scalar keys %pid, 6, 'a launcher, one worker of each kind, and a session');
my @held;
sub rounds
{
	my ($quantity) = @_;
	foreach my $n (scalar(@held) .. @held + $quantity - 1)
	{
		round($n) or BAIL_OUT("round $n does not end");
		push @held, { map { $_ => held($pid{$_}) } keys %pid };
		note "after round $n: " . join '; ', map { sprintf '%s %d and %d kB', $_, map { $_ / 1024 } @{ $held[-1]{$_} } } sort keys %pid;
	}
	return;
}

# By how much a process has grown in the last rounds, half as many as there are at first: the most of the two before them,
# the least of the last two. What is just being done is in one of two.
sub grown
{
	my ($name, $what) = @_;
	my $half = $rounds / 2;
	return min(map { $_->{$name}[$what] } @held[ -2, -1 ]) - max(map { $_->{$name}[$what] } @held[ -$half - 2, -$half - 1 ]);
}

# a session takes nothing outside of its contexts, and its heap has gaps of other sizes each time
my @outside = grep { /^sas/ } keys %pid;
rounds($rounds);
# What a busy machine makes run for the first time late is planned, and the plan is kept: that grows once. A leak goes on.
foreach (1 .. 3)
{
	last unless grep({ grown($_, 0) > $tolerated } keys %pid) || grep { grown($_, 1) > $tolerated_outside } @outside;
	rounds($rounds / 2);
}
foreach my $name (sort keys %pid)
{
	cmp_ok(grown($name, 0), '<=', $tolerated, "$name: its memory contexts hold no more after further operations");
	cmp_ok(grown($name, 1), '<=', $tolerated_outside, "$name: nor does it outside of them") if grep { $_ eq $name } @outside;
}
is_deeply({ processes() }, \%pid, 'and they are the same processes all the while');
note $node->safe_psql('postgres', q{SELECT string_agg(format('%s %s', result, n), ', ' ORDER BY result) FROM (SELECT result, count(*) n FROM sas.runs GROUP BY 1) x});
$session->quit;
done_testing();
