# SPDX-License-Identifier: PostgreSQL
#
# The breaker of a shared agent is open, and a role has thousands of steps that wait for it. A tick of the
# supervisor looks at some of them for steps that have a fallback, and the next tick goes on: failures of others
# do not wait for all of them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $n = 12000;
my $node = new_node('main', 'sas.function_workers' => 0, 'sas.schedulers' => 0, 'sas.supervisors' => 0, 'sas.agents' => 0);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE SCHEMA t;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_agent('shared', 'http://127.0.0.1:9');
	SELECT sas.create_workflow('plain', '{"steps": {"a": {"agent": "shared", "call": {"path": "/"}}}}');
	SELECT sas.create_workflow('falls', '{"steps": {"a": {"agent": "shared", "call": {"path": "/"}, "fallback": {"function": "t.echo", "on": ["breaker_open"]}}}}')});
# they become ready before it opens
$sql->(qq{SELECT count(*) FROM sas.submit_batch('plain', array_fill('{}'::jsonb, ARRAY[$n]))});
my @runs = split /\n/, $sql->(q{SELECT run_id FROM sas.submit_batch('falls', array_fill('{}'::jsonb, ARRAY[3]))});
$sql->(q{SELECT _sas.scheduler_tick(1000)});
my $open = q{SELECT _sas.write_health(ARRAY[agent_id], ARRAY['open'], ARRAY[600000.0], ARRAY[NULL::jsonb]) FROM _sas.agent WHERE name = 'shared'};
$sql->($open);

my $supervisor = SasSession->new($node);
$supervisor->query('SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off');
my $entries = sub { return $supervisor->query(q{SELECT pg_stat_get_xact_tuples_returned('_sas.ready_claim'::regclass)}) };
my $fallen = sub { return $sql->('SELECT count(*) FROM _sas.ready q WHERE q.lane = 0 AND q.run_id IN (' . join(',', @runs) . ')') };

# one turn: what it returns, and how many entries of the index it reads
sub turn
{
	my ($before, $found, $after) = split /\n/, $supervisor->query(q{BEGIN;
		SELECT pg_stat_get_xact_tuples_returned('_sas.ready_claim'::regclass);
		SELECT _sas.leave_closed_limits(200);
		SELECT pg_stat_get_xact_tuples_returned('_sas.ready_claim'::regclass);
		COMMIT});
	return ($found, $after - $before);
}

my ($found, $read) = turn();
cmp_ok($read, '<', $n / 2, 'a turn does not look at all steps that wait');
is($found, 1, 'but knows that there are more');
my $most = $read;
for my $i (1 .. 40)
{
	last if $fallen->() == 3;
	($found, $read) = turn();
	$most = $read if $read > $most;
}
is($fallen->(), 3, 'the steps behind them that have a fallback fall back in a later turn');
cmp_ok($most, '<', $n / 2, 'and no turn has looked at all');
turn() foreach 1 .. 20;
($found) = turn();
is($found, 0, 'then there is nothing more to look at');

# -- a step whose pause is over, behind all of them ---------------------------------------------------------

my $paused = $sql->(q{SELECT run_id FROM sas.submit('falls')});
$sql->(q{SELECT _sas.write_health(ARRAY[agent_id], ARRAY['closed'], ARRAY[0.0], ARRAY[NULL::jsonb]) FROM _sas.agent WHERE name = 'shared'});
$sql->('SELECT _sas.scheduler_tick(1000)');
my $no = $sql->("DELETE FROM _sas.ready WHERE run_id = $paused RETURNING step_no");
$sql->(qq{SELECT _sas.move_steps(ARRAY[_sas.make_step_change(run_id => $paused, step_no => $no, element => 0, from_state => 'none',
	to_state => 'suspended', attempt => 1, waiting_kind => 'retry', waiting_until => sas.now())])});
$sql->($open);
$sql->("SELECT _sas.wake_steps(ARRAY[$paused], ARRAY[$no], ARRAY[0])");
is($sql->("SELECT count(*) FROM _sas.ready q WHERE run_id = $paused AND step_no = $no"), 0, 'a step whose pause is over falls back at once, however many wait before it');

# -- turns that are rolled back -----------------------------------------------------------------------------

$sql->(q{DELETE FROM _sas.ready});
$sql->(q{SELECT _sas.write_health(ARRAY[agent_id], ARRAY['closed'], ARRAY[0.0], ARRAY[NULL::jsonb]) FROM _sas.agent WHERE name = 'shared'});
@runs = split /\n/, $sql->(q{SELECT run_id FROM sas.submit_batch('falls', array_fill('{}'::jsonb, ARRAY[300]))});
$sql->(q{SELECT _sas.scheduler_tick(1000)});
$sql->($open);
$supervisor->query('SELECT _sas.begin_walks(), _sas.begin_walks()');
foreach my $how ('BEGIN; %s; ROLLBACK', 'BEGIN; SAVEPOINT s; %s; ROLLBACK TO s; COMMIT')
{
	$supervisor->query(sprintf $how, 'SELECT _sas.leave_closed_limits(200)');
	is($fallen->(), 0, 'a turn is rolled back');
}
turn() foreach 1 .. 2;
is($fallen->(), 300, 'then the steps that it had passed fall back in the next turns');

# -- many lanes ----------------------------------------------------------------------------------------------

is($supervisor->query(q{SELECT _sas.begin_walks() \g /dev/null
	SELECT count(_sas.walk_to(1, o::oid, '2020-01-01', o, false)) FROM generate_series(1, 1000) o \g /dev/null
	SELECT count(*) FROM generate_series(1, 1000) o CROSS JOIN LATERAL _sas.walk_from(1, o::oid) w WHERE w.run_id = o}), 1000,
	'a look at the steps of a thousand roles goes on for each of them');

$sql->(q{SELECT _sas.write_health(ARRAY[agent_id], ARRAY['closed'], ARRAY[0.0], ARRAY[NULL::jsonb]) FROM _sas.agent WHERE name = 'shared'});
($found) = turn();
is($found, 0, 'nor when the breaker has closed');
$supervisor->quit;
$node->stop;
done_testing();
