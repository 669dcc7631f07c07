# SPDX-License-Identifier: PostgreSQL
#
# Real outside programs work through 50 tasks; one is killed in the middle, the
# server goes down without a word, and nothing is lost or done twice.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE TABLE packed (order_id bigint PRIMARY KEY, worker text, pages int);
	CREATE TABLE noted (order_id bigint);
	CREATE FUNCTION note(input jsonb) RETURNS jsonb LANGUAGE sql AS 'INSERT INTO public.noted VALUES ((input ->> ''box'')::bigint) RETURNING ''{}''::jsonb';
	SELECT sas.create_agent('packer', kind => 'external');
	SELECT sas.create_agent('other', kind => 'external');
	SELECT sas.create_workflow('pack', '{"steps": {
		"pack": {"agent": "packer", "task": {}, "recovery": {"initial": "100 ms", "max": "1 s"}},
		"note": {"function": "public.note", "input": {"box": "{{steps.pack.output.box}}"}}}}');
	SELECT sas.create_workflow('by_hand', '{"steps": {"a": {"agent": "other", "task": {}, "recovery": {"initial": "100 ms"}, "retry": {"initial": "50 ms"}}}}')});
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $dir = PostgreSQL::Test::Utils::tempdir();

# a program of its own; it lives through a restart of the server
sub start_packer
{
	my ($name, $page_takes) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	delete local $ENV{PGUSER};
	return SasTest::start_program("$dir/$name.log", 'bash', "$SasTest::tree/examples/outside/packer.sh", $name, $page_takes);
}
sub log_of { my ($name) = @_; return slurp_file("$dir/$name.log") }

# -- killed in the middle --------------------------------------------------------------------------

$sql->(q{SELECT count(*) FROM generate_series(1, 20) n, sas.submit('pack', jsonb_build_object('order', n, 'pages', 3))});
my $p1 = start_packer('p1', 0.05);
ok(wait_for($node, 'SELECT count(*) >= 10 FROM packed'), 'an outside program works on the tasks');
# a slow one takes over, and is killed with a checkpoint behind it
SasTest::stop_program($p1, 'TERM');
my $slow = start_packer('slow', 1);
my $order = '';
ok( wait_until(
		sub {
			$order = $sql->(q{SELECT r.input ->> 'order' FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE s.locked_by = 'slow' AND s.progress BETWEEN 0.3 AND 0.7});
			return $order ne '';
		}),
	'sas.steps shows who holds a task and how far it is');
SasTest::stop_program($slow, 'KILL');
start_packer('p2', 0.1);
ok(wait_for($node, "SELECT count(*) = 1 FROM packed WHERE order_id = $order AND worker = 'p2'"), 'another program takes the task of a killed one');
like(log_of('p2'), qr/^p2: order $order from page [23]$/m, 'and goes on from its checkpoint');
unlike(log_of('p2'), qr/^p2: order $order page 1$/m, 'what was done is not done again');
is($sql->(qq{SELECT string_agg(a.status || ' by ' || a.worker, ', ' ORDER BY a.attempt) FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE a.step = 'pack' AND r.input ->> 'order' = '$order'}),
	'timed_out by slow, succeeded by p2', 'both are in sas.attempts');

# -- the server goes down -------------------------------------------------------------------------

$sql->(q{SELECT count(*) FROM generate_series(21, 50) n, sas.submit('pack', jsonb_build_object('order', n, 'pages', 3))});
my $held = $sql->(q{SELECT sas.submit('by_hand'); SET synchronous_commit = off; SELECT request_id FROM sas.claim('other', 'by hand', lease => '10 min')});
$held =~ s/^.*\n//;
$sql->(qq{SELECT sas.heartbeat('$held', 0.5, '{"page": 5}')});
wait_for($node, 'SELECT count(*) >= 25 FROM packed');
$node->stop('immediate');
$node->start;
isnt($sql->('SELECT count(*) FROM packed'), '50', 'the server went down with tasks left');
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE leader AND actor = 'supervisor'}, '1');
# by now a lease of one of its own workers would have been taken back
sleep 1.5;
is($sql->(q{SELECT state, locked_by, progress FROM sas.steps WHERE agent = 'other'}), 'running|by hand|0.5', 'a claim holds though the server went down');
is($sql->("SELECT sas.heartbeat('$held')"), 'go', 'its lease can be extended');
is($sql->("SELECT sas.complete('$held', '1')"), 't', 'and it can be completed');
my $p3 = start_packer('p3', 0.05);
all_ended($node, 'every run ends');
is($sql->('SELECT count(*), count(DISTINCT order_id) FROM packed'), '50|50', 'every order is packed once');
is($sql->('SELECT count(*), count(DISTINCT order_id) FROM noted'), '50|50', 'and what follows was done once');
is($sql->(q{SELECT count(*) FROM sas.runs WHERE result <> 'success'}), '0', 'none failed');
is($sql->(q{SELECT string_agg(name || ' ' || in_flight || ' ' || waiting, ', ' ORDER BY name) FROM sas.agents}), 'other 0 0, packer 0 0', 'nothing is left over');
is($sql->('SELECT count(*) FROM _sas.lease'), '0', 'no lease either');
cmp_ok(scalar(grep { log_of($_) =~ /^$_: order/m } qw(p2 p3)), '>=', 1, 'the programs lived through it');

# -- who listens ------------------------------------------------------------------------------------

my $listener = SasSession->new($node);
$listener->query('LISTEN sas_agent_other');
sub hears
{
	my ($seconds) = @_;
	return wait_until(sub { $listener->query('SELECT') =~ /notification "sas_agent_other"/ }, $seconds // 60);
}
sub take
{
	my $id = $sql->(q{SELECT request_id FROM sas.claim('other', 'by hand')});
	return $id;
}
my $run = $sql->(q{SELECT run_id FROM sas.submit('by_hand')});
ok(hears(), 'NOTIFY sas_agent_<name> tells of a task that is ready');
ok(!hears(1), 'once');
$sql->(q{SELECT sas.submit('pack', '{"order": 51, "pages": 1}')});
ok(!hears(1), 'those of another agent are not told of');
$sql->("SELECT sas.pause($run)");
$sql->("SELECT sas.resume($run)");
ok(hears(), 'a task of a run that is resumed is told of');
# by itself nobody would look for a minute
my $let_go = hold_supervisor($node);
my $begun = time();
$sql->(sprintf(q{SELECT sas.fail('%s', 'not yet')}, take()));
ok(hears(), 'one that is offered again, too');
cmp_ok(time() - $begun, '<', 30, 'as soon as its pause is over');
$let_go->();
$sql->(sprintf(q{SELECT sas.hand_back('%s')}, take()));
ok(hears(), 'and one that is given back');
# all places are taken: who waits for one is told when it is free
$sql->(q{SELECT sas.alter_agent('other', max_in_flight => 1)});
my $id = take();
$sql->(q{SELECT sas.submit('by_hand')});
hears();
is(take(), '', 'no more than max_in_flight are given out');
ok(!hears(1), 'nothing is heard while all places are taken');
$sql->("SELECT sas.complete('$id', '1')");
ok(hears(), 'a place that is free is told of');
# a lease that ends frees it, too
$id = $sql->(q{SELECT request_id FROM sas.claim('other', 'silent', lease => '200 ms')});
$sql->(q{SELECT sas.submit('by_hand')});
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE locked_by = 'silent'}, '0'), 'a lease that ends is noticed in time');
ok(wait_until(sub { my $next = take(); length $next && $sql->("SELECT sas.complete('$next', '1')"); $sql->(q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}) eq '0' }),
	'and all tasks end');
is($sql->("SELECT sas.complete('$id', '1')"), 'f', 'the silent one is too late');

# -- idle -----------------------------------------------------------------------------------------

# looking where nothing is writes nothing
SasTest::stop_program($p3);
my $xid = $sql->(q{BEGIN; SELECT count(*) FROM sas.claim('other', 'idle'); SELECT coalesce(pg_current_xact_id_if_assigned()::text, 'none'); COMMIT});
like($xid, qr/^0\nnone$/, 'a claim that finds nothing writes nothing');
$listener->quit;
done_testing();
