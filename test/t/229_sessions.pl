# SPDX-License-Identifier: PostgreSQL
#
# What a session does, and goes on doing, is not felt by others: a wait keeps
# no snapshot, a COPY of nothing keeps no worker away, and DROP EXTENSION waits
# for sessions inside sas without holding what they need.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $workers = q{SELECT count(*) FROM sas.workers};
$sql->(q{
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE TABLE big AS SELECT repeat(md5(n::text), 10000) AS text FROM generate_series(1, 2) n;
	CREATE FUNCTION grow(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_agg(text) FROM public.big $$;
	SELECT sas.create_workflow('waits', '{"steps": {"it": {"wait": {"signal": "go"}}, "big": {"function": "public.grow", "after": ["it"]}}, "output": "{{steps.big.output}}"}');
	SELECT sas.create_workflow('quick', '{"steps": {"it": {"function": "public.echo"}}}')});
ok(wait_for($node, $workers, '4'), 'four workers run');

# -- sas.wait ------------------------------------------------------------------------------------

my $run = $sql->(q{SELECT run_id FROM sas.submit('waits')});
my $waiter = SasSession->new($node);
my $pid = $waiter->query('SELECT pg_backend_pid()');
my $xmin = "SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $pid AND wait_event_type = 'Extension'";
foreach my $in_block (0, 1)
{
	$waiter->query('BEGIN') if $in_block;
	$waiter->start_query("SELECT state, result, length(output::text) > 600000 FROM sas.wait($run, '2 min')");
	my $what = $in_block ? 'in a transaction block' : 'by itself';
	ok(wait_for($node, $xmin, 't'), "$what: a session that waits keeps no snapshot");
	$sql->('CREATE TABLE gone (); DROP TABLE gone');
	if ($in_block)
	{
		$sql->("SELECT sas.signal($run, 'go')");
		is($waiter->answer(60), 'stopped|success|t', "$what: it sees the end, with a large output");
		is($waiter->query("SELECT count(*) FROM sas.runs WHERE run_id = $run AND state = 'stopped'"), '1', "$what: and goes on");
		is($waiter->query('COMMIT'), '', "$what: to its end");
	}
	else
	{
		$sql->("SELECT sas.pause($run)");
		is($waiter->answer(60), 'paused||', "$what: it sees the pause");
		$sql->("SELECT sas.resume($run)");
	}
}
my $leaver = SasSession->new($node);
my $left = $leaver->query('SELECT pg_backend_pid()');
$run = $sql->(q{SELECT run_id FROM sas.submit('waits')});
$leaver->start_query("SELECT sas.wait($run, '1 day')");
ok(wait_for($node, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $left", 'Extension'), 'a client waits');
$leaver->kill;
ok(wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $left", '0'), 'and dies: its connection is given back');
foreach my $list ("sas.wait($run)", "(sas.wait($run)).state", "(sas.wait($run)).*", "now() IS NOT NULL, sas.wait($run)")
{
	$waiter->start_query("SELECT $list");
	ok(wait_for($node, $xmin, 't'), "select list: a session that waits keeps no snapshot: $list");
	$sql->("SELECT sas.pause($run)");
	like($waiter->answer(60), qr/paused/, "select list: it sees the pause: $list");
	$sql->("SELECT sas.resume($run)");
}
$sql->("SELECT sas.halt($run)");
is($waiter->query("SELECT w.state, r.run_id FROM sas.runs r, sas.wait($run, '1 s') w WHERE r.run_id = $run"), "stopped|$run", 'beside other tables it works as well');
is($waiter->query("SELECT (SELECT state FROM sas.wait($run, '0'))"), 'stopped', 'and below a query');
is($waiter->query("BEGIN; DECLARE c CURSOR FOR SELECT state FROM sas.wait($run, '1 s'); FETCH c; COMMIT"), 'stopped', 'and in a cursor');
$run = $sql->(q{SELECT run_id FROM sas.submit('waits')});
$waiter->start_query("SELECT state FROM sas.wait($run, '5 min')");
ok(wait_for($node, $xmin, 't'), 'a session waits');
$sql->("SELECT pg_cancel_backend($pid)");
like($waiter->answer(60), qr/canceling statement due to user request/, 'and is cancelled');
is($waiter->query("SELECT state FROM sas.wait($run, '100 ms')"), 'running', 'its next wait is over in time');
$waiter->quit;

# -- COPY ---------------------------------------------------------------------------------------

my $copier = SasSession->new($node);
$pid = $copier->query('SELECT pg_backend_pid()');
is($copier->query("COPY _sas.signal FROM PROGRAM 'true'"), '', 'a COPY of no rows into a table of sas');
ok(wait_for($node, $workers, '4'), 'keeps no worker away while its session lives');
is($sql->('SELECT held_by IS NULL FROM sas.health()'), 't', 'and nobody is said to');
$copier->query(q{COPY _sas.idle_version FROM PROGRAM 'echo 0'});
ok(wait_for($node, $workers, '0'), 'one of a row does: it may be a restore');
like($sql->('SELECT held_by FROM sas.health()'), qr/process $pid restores a dump/, 'and sas.health says who');
$copier->quit;
ok(wait_for($node, $workers, '4'), 'until its session ends');

# -- DROP EXTENSION -----------------------------------------------------------------------------

$sql->(q{SELECT sas.pause_workflow('quick')});
# what each session has done first, and thus holds
my %inside = ((map { ($_ => "LOCK TABLE _sas.$_ IN ROW EXCLUSIVE MODE") } qw(run step message agent ready workflow)),
	'public view' => 'LOCK TABLE sas.settings IN ACCESS SHARE MODE', 'foreign table' => 'PREPARE it AS SELECT * FROM sas.cluster_runs');
foreach my $table (sort keys %inside)
{
	my $inside = SasSession->new($node);
	is($inside->query("BEGIN; $inside{$table}"), '', "$table: a session is inside sas");
	my $dropper = SasSession->new($node);
	$pid = $dropper->query('SELECT pg_backend_pid()');
	$dropper->query('BEGIN');
	$dropper->start_query('DROP EXTENSION sas CASCADE');
	ok(wait_for($node, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid", 'Lock'), "$table: another one drops the extension");
	like($inside->query(q{SELECT run_id FROM sas.submit('quick')}, 60), qr/^[0-9]+$/, "$table: the first one goes on");
	is($inside->query(q{SELECT count(*) FROM sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs WHERE workflow = 'quick'))}, 60) =~ /^[0-9]+$/, 1, "$table: with whatever it does");
	is($inside->query('COMMIT'), '', "$table: and commits");
	unlike($dropper->answer(60), qr/ERROR/, "$table: then the extension is dropped");
	is($dropper->query('ROLLBACK'), '', "$table: which is taken back");
	$_->quit foreach $inside, $dropper;
	ok(wait_for($node, $workers, '4'), "$table: and the workers are back");
}
$sql->(q{SELECT sas.resume_workflow('quick')});
$run = $sql->(q{SELECT run_id FROM sas.submit('quick')});
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'a run goes through');
done_testing();
