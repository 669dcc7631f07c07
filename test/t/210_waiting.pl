# SPDX-License-Identifier: PostgreSQL
#
# Runs that wait: timers, signals, maps, turns and children, with real calls,
# while workers are killed and the server goes down. Then timers that come due
# while it is down, and the width of a map through kill -9.
# Takes about 45 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main',
	'sas.agents' => 2,
	'sas.function_workers' => 2);
my $service = start_service('inventory');
$node->safe_psql('postgres', qq{
	SELECT sas.create_agent('inventory', base_url => '@{[ $service->url ]}', max_in_flight => 50, request_timeout => '5 s',
		retry => '{"initial": "20 ms", "max": "500 ms"}', breaker => '{"off": true}')});
$node->safe_psql('postgres', q{
	-- who has sent which vote: once each, though the sender may not learn whether its transaction was committed
	CREATE TABLE vote (run_id bigint, n int, PRIMARY KEY (run_id, n));
	CREATE FUNCTION vote(n int) RETURNS bigint LANGUAGE sql AS $$
		WITH v AS (INSERT INTO vote SELECT r.run_id, n FROM sas.runs r WHERE r.workflow = 'all' ON CONFLICT DO NOTHING RETURNING run_id),
		s AS (SELECT sas.signal(v.run_id, 'vote', to_jsonb(n)) FROM v)
		SELECT count(*) FROM s $$;
	SELECT sas.create_workflow('child', '{"steps": {
		"slot": {"agent": "inventory", "call": {"path": "/reservations", "body": {"order": "child {{input.order}}", "sku": "sku-1"}}}}, "recovery": {"initial": "100 ms"},
		"output": {"order": "{{input.order}}"}}');
	SELECT sas.create_workflow('all', '{"steps": {
		"map":   {"agent": "inventory", "each": "{{input.items}}", "concurrency": 2, "call": {"path": "/reservations", "body": {"order": "map {{input.n}} {{item}}", "sku": "sku-1"}}},
		"early": {"wait": {"signal": "early", "timeout": "1 hour"}, "after": ["map"]},
		"pause": {"wait": {"for": "{{input.pause}}"}, "after": ["early"]},
		"votes": {"wait": {"signal": "vote"}, "each": "{{input.items}}", "after": ["pause"]},
		"turns": {"agent": "inventory", "repeat": {"while": "$.index < 3", "every": "50 ms"}, "after": ["pause"],
			"call": {"path": "/reservations", "body": {"order": "turn {{input.n}} {{index}}", "sku": "sku-1"}}},
		"ship":  {"workflow": "child", "each": "{{input.items}}", "input": {"order": "{{input.n}} {{item}}"}, "after": ["turns"]}},
		"recovery": {"initial": "100 ms"},
		"output": {"early": "{{steps.early.output}}", "votes": "{{steps.votes.output}}", "ship": "{{steps.ship.output[*].order}}"}}')});

# Dies when the server never comes back; tried again until it is done.
sub vote
{
	my ($n) = @_;
	wait_for($node, "SELECT count(vote($n)) + (SELECT count(*) FROM vote WHERE n = $n) > 0", 't') or die "vote $n was not sent";
	wait_for($node, "SELECT count(*) FROM vote WHERE n = $n", '200') or die "vote $n was not sent";
	return;
}

sub killed
{
	my ($actor) = @_;
	my $boot = $node->safe_psql('postgres', 'SELECT _sas.current_boot()');
	isnt($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}), '0', "in the middle of it the $actor worker is killed");
	kill_worker($node, $actor, 'KILL');
	ok(wait_for($node, "SELECT _sas.current_boot() <> $boot"), 'and the server restarts');
	return;
}

sub down
{
	my ($when) = @_;
	$node->stop('immediate');
	$node->start;
	isnt($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}), '0', "the server goes down in the middle, $when");
	return;
}

# -- the whole of it, through kills and crashes -------------------------------------

# a signal in the transaction of the submit: long before anyone waits for it
$node->safe_psql('postgres', q{
	SELECT sas.signal(s.run_id, 'early', to_jsonb(n))
	FROM generate_series(1, 200) n,
		LATERAL sas.submit('all', jsonb_build_object('n', n, 'items', jsonb_build_array(1, 2, 3), 'pause', 100 + n * 10 || ' ms')) s});
$service->wait_for_requests(150);
killed('scheduler');
vote(1);
$service->wait_for_requests(500);
killed('agent');
wait_for($node, q{SELECT count(*) >= 20 FROM sas.runs WHERE workflow = 'child'});
vote(2);
down('with children under way');
wait_for($node, q{SELECT count(*) >= 200 FROM sas.runs WHERE workflow = 'child'});
down('with 200 children submitted');
wait_for($node, q{SELECT count(*) >= 400 FROM sas.runs WHERE workflow = 'child' AND state = 'stopped'});
down('with 400 children ended');
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE step = 'votes' AND element = 3 AND state = 'suspended' AND waiting_on = 'vote'}, '200'),
	'every run waits for its third signal, and for nothing else: those before were delivered')
  or diag($node->safe_psql('postgres', q{SELECT * FROM sas.steps WHERE step = 'votes' AND run_id IN
	(SELECT run_id FROM sas.steps WHERE step = 'votes' AND element = 3 AND state <> 'suspended')}));
vote(3);
all_ended($node, 'every run ends: maps, timers, signals, turns and children, though two workers were killed and the server went down three times');
is($node->safe_psql('postgres', q{SELECT string_agg(workflow || ' ' || result || ' ' || n, ', ' ORDER BY workflow) FROM (SELECT workflow, result, count(*) AS n FROM sas.runs GROUP BY 1, 2) r}),
	'all success 200, child success 600', 'with success, and a child was submitted once for each element');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'all' AND output->'votes' = '[1, 2, 3]' AND output->'early' = input->'n'}), '200',
	'each signal was delivered once and in order, also one that came before anyone waited for it')
  or diag($node->safe_psql('postgres', q{SELECT s.* FROM sas.steps s JOIN sas.runs r USING (run_id)
	WHERE r.workflow = 'all' AND r.output->'votes' <> '[1, 2, 3]' AND s.step IN ('pause', 'votes')}));
is($node->safe_psql('postgres', 'SELECT count(*) FROM _sas.signal'), '0', 'and none is left over');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs
		WHERE workflow = 'all' AND output->'ship' = jsonb_build_array(input->>'n' || ' 1', input->>'n' || ' 2', input->>'n' || ' 3')}), '200',
	'the outputs of the children are those of the elements, in order');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs p JOIN sas.runs c ON c.parent_run_id = p.run_id WHERE c.finished_at > p.finished_at OR c.created_at < p.created_at}), '0',
	'no parent ended before its children');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.steps WHERE step = 'pause' AND finished_at < started_at + (SELECT (input->>'pause')::interval FROM sas.runs r WHERE r.run_id = steps.run_id)}), '0',
	'no timer fired before its time');

my $books = $service->books;
is($books->{counters}{key_conflicts}, 0, 'no key came with another body');
is($books->{counters}{without_key}, 0, 'and no call without a key');
my %made;
$made{ $_->{order} }++ foreach @{ $books->{entries} };
is_deeply([ grep { $made{$_} != 1 } keys %made ], [], 'nothing was done twice');
is_deeply(
	[ sort keys %made ],
	[ sort map { my $n = $_; map { ("map $n $_", "turn $n " . ($_ - 1), "child $n $_") } 1 .. 3 } 1 .. 200 ],
	'and all of it was done: 600 elements, 600 turns, 600 children');
is( join("\n", sort map { $_->{key} } @{ $books->{entries} }),
	join("\n", sort split /\n/, $node->safe_psql('postgres', q{SELECT idempotency_key FROM sas.steps WHERE step IN ('map', 'turns') AND element IS NOT NULL OR step = 'slot'})),
	'each element, turn and child has one key, the one that sas.steps shows');
is($node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM _sas.message WHERE actor = 's') || ' ' || (SELECT count(*) FROM _sas.ready) || ' ' || (SELECT count(*) FROM _sas.lease)}), '0 0 0',
	'no timer and no claim is left over');
note("$books->{counters}{requests} calls for 1800 entries");

# -- timers and signals while the server is down -------------------------------------

$node->safe_psql('postgres', q{
	SELECT sas.create_workflow('until', '{"steps": {"at": {"wait": {"until": "{{input.at}}"}}}}');
	SELECT sas.create_workflow('signal', '{"steps": {"sig": {"wait": {"signal": "go"}}, "then": {"wait": {"for": "10 ms"}, "after": ["sig"]}}, "output": "{{steps.sig.output}}"}');
	SELECT sas.create_workflow('late', '{"steps": {"sig": {"wait": {"signal": "go", "timeout": "10 s"}, "on_failure": "fail"}}}')});
my $due = time() + 10;
$node->safe_psql('postgres', qq{
	SELECT sas.submit('until', jsonb_build_object('at', to_timestamp($due + i * 0.01))) FROM generate_series(0, 49) i;
	SELECT sas.submit('until', jsonb_build_object('at', to_timestamp($due + 25)));
	SELECT sas.submit('late');
	SELECT sas.submit('signal') FROM generate_series(1, 20)});
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE state = 'suspended' AND step IN ('at', 'sig')}, '72'), 'timers and signals are waited for');
# the sender commits, and the server goes down before anybody can have acted: its workers are stopped
my @pids = worker_pids($node, 'scheduler');
kill('STOP', @pids);
$node->safe_psql('postgres', q{SELECT sas.signal(run_id, 'go', to_jsonb(run_id)) FROM sas.runs WHERE workflow = 'signal' AND state = 'running'});
$node->stop('immediate');
kill('CONT', @pids);
is(scalar(grep { kill(0, $_) } @pids), 0, 'the server is down') unless wait_until(sub { !grep { kill(0, $_) } @pids }, 30);
wait_until(sub { time() > $due + 3 });
$node->start;
ok(wait_for($node, q{SELECT count(*) >= 71 FROM sas.runs WHERE workflow IN ('until', 'late', 'signal') AND state = 'stopped'}),
	'timers that came due while the server was down fire when it is back; so does the time-out of a signal');
cmp_ok($node->safe_psql('postgres', q{SELECT extract(epoch FROM max(finished_at) - pg_postmaster_start_time()) FROM sas.runs WHERE workflow IN ('until', 'late') AND state = 'stopped'}), '<', 30,
	'at once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'signal' AND result = 'success' AND output = to_jsonb(run_id)}), '20',
	'signals that were committed just before the server went down are delivered when it is back');
is($node->safe_psql('postgres', q{SELECT result || ' ' || (SELECT error->>'title' FROM sas.steps s WHERE s.run_id = r.run_id) FROM sas.runs r WHERE workflow = 'late'}), 'error signal "go" did not arrive in time',
	'what timed out meanwhile has failed');
all_ended($node, 'a timer that was set before the crash for a time after it fires');
cmp_ok($node->safe_psql('postgres', q{SELECT max(extract(epoch FROM finished_at) - extract(epoch FROM (input->>'at')::timestamptz)) FROM sas.runs WHERE workflow = 'until' AND (input->>'at')::timestamptz > pg_postmaster_start_time()}), '<', 20,
	'at its time');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'until' AND finished_at < (input->>'at')::timestamptz}), '0', 'and none fired early');

# -- the width of a map ----------------------------------------------------------------

$service->reset;
# every answer takes so long: keys that arrive within that time were on their way together
my $slow = 1.5;
$service->faults({ slow => 1, slow_s => $slow });
$node->safe_psql('postgres', q{
	SELECT sas.create_workflow('narrow', '{"steps": {
		"map": {"agent": "inventory", "each": "{{input.items}}", "concurrency": 3, "call": {"path": "/reservations", "body": {"order": "{{input.n}}-{{item}}", "sku": "sku-1"}}}},
		"recovery": {"initial": "100 ms"}}');
	SELECT sas.submit('narrow', jsonb_build_object('n', n, 'items', (SELECT jsonb_agg(i) FROM generate_series(1, 30) i))) FROM generate_series(1, 4) n});
$service->wait_for_requests(30);
killed('agent');
$service->wait_for_requests(60);
killed('scheduler');
all_ended($node, 'maps of 30 elements, three at a time, end though an agent worker and the scheduler were killed');
my %of = map { $_->{key} => $_->{order} } @{ $service->books->{entries} };
is(scalar(keys %of), 120, 'each element was called under its key');
my %arrived;
foreach my $request ($service->requests)
{
	my ($n) = split /-/, $of{ $request->{key} };
	push @{ $arrived{$n} }, $request;
}
my $most = 0;
foreach my $requests (values %arrived)
{
	foreach my $last (@$requests)
	{
		my %together = map { $_->{key} => 1 } grep { $_->{monotonic} <= $last->{monotonic} && $_->{monotonic} > $last->{monotonic} - $slow * 0.95 } @$requests;
		$most = keys %together if keys %together > $most;
	}
}
is($most, 3, 'three elements of a map were on their way at once, and never more, with two agent workers and through kill -9');
is($service->books->{counters}{key_conflicts}, 0, 'no key came with another body');
done_testing();
