# SPDX-License-Identifier: PostgreSQL
#
# One transaction holds many ready steps of a role, or is inserting them: a
# claim passes only some of them, and takes the steps of others. The next
# claims go on where it stopped, so that the role's own steps behind them are
# claimed, too.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $n = 40000;
my $definitions = q{
	CREATE ROLE holder;
	CREATE ROLE other;
	CREATE SCHEMA t;
	GRANT USAGE ON SCHEMA t TO holder, other;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('w', '{"steps": {"a": {"function": "t.echo"}}}');
	SELECT sas.grant_usage(r, 'user') FROM unnest('{holder,other}'::regrole[]) r;
	SELECT sas.grant_workflow('w', r) FROM unnest('{holder,other}'::regrole[]) r};

my $node = new_node('main', 'sas.function_workers' => 0, 'sas.schedulers' => 0, 'sas.supervisors' => 0, 'sas.agents' => 0);
$node->safe_psql('postgres', $definitions);
$node->safe_psql('postgres', q{
	-- t.claim(n): index entries that it has read; the owners of what it has claimed
	CREATE FUNCTION t.claim(n int, OUT entries bigint, OUT holders bigint, OUT others bigint) LANGUAGE plpgsql AS $$
	DECLARE
		before bigint := pg_stat_get_xact_tuples_returned('_sas.ready_claim'::regclass);
	BEGIN
		SELECT count(*) FILTER (WHERE c.owner = 'holder'::regrole), count(*) FILTER (WHERE c.owner = 'other'::regrole)
		INTO holders, others FROM _sas.claim_functions(n, 1, 1, 'w', urgent => true) c;
		entries := pg_stat_get_xact_tuples_returned('_sas.ready_claim'::regclass) - before;
	END $$});

sub submit
{
	my ($on, $role, $how_many, $more) = @_;
	$more //= '';
	return $on->safe_psql('postgres', "SET ROLE $role; SELECT min(run_id) FROM sas.submit_batch('w', array_fill('{}'::jsonb, ARRAY[$how_many])$more)");
}

# a claim as a worker makes it
my $worker = SasSession->new($node);
$worker->query('SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off');
my $claim = sub { return split /\|/, $worker->query('SELECT * FROM t.claim(100)') };

# claims until the steps of the holder's run are claimed, or nothing is left to pass
sub claims_until_holder
{
	my ($most, $claims) = (0, 0);
	while ($claims++ < 100)
	{
		my ($entries, $holders) = $claim->();
		$most = $entries if $entries > $most;
		return ($claims, $most, $holders) if $holders > 0;
	}
	return ($claims, $most, 0);
}

my $holder = SasSession->new($node);
foreach my $how ('deletes', 'inserts')
{
	my ($runs, $entries, $holders, $others, $claims);

	# plans are made, and what was deleted here before is passed
	submit($node, 'holder', 1);
	claims_until_holder();
	if ($how eq 'deletes')
	{
		submit($node, 'holder', $n);
		$holder->query(q{BEGIN; DELETE FROM _sas.ready WHERE owner = 'holder'::regrole});
	}
	else
	{
		# an urgent one stands before those that nobody sees yet
		$holder->query(qq{BEGIN; SET LOCAL ROLE holder; SELECT count(*) FROM sas.submit_batch('w', array_fill('{}'::jsonb, ARRAY[$n]))});
		submit($node, 'holder', 1, ', priority => 1');
	}
	submit($node, 'other', 1);
	($entries, $holders, $others) = $claim->();
	is($others, 1, "another transaction $how $n steps of one role: that of another role is claimed");
	cmp_ok($entries, '<', $n / 2, 'and not all of the others are passed by');
	is($holders, $how eq 'deletes' ? 0 : 1, 'the urgent one is claimed, too') if $how eq 'inserts';

	submit($node, 'holder', 1);
	($claims, $entries, $holders) = claims_until_holder();
	is($holders, 1, 'the next claims go on there: the step behind them is claimed');
	cmp_ok($claims, '<', 40, "by claim $claims");
	cmp_ok($entries, '<', $n / 2, 'none of which passes all');
	submit($node, 'holder', 3, ', priority => 2');
	($entries, $holders) = $claim->();
	is($holders, 3, 'urgent ones are found at once, wherever it has come to');

	# until it has come to the end
	$claim->() foreach 1 .. 40;
	if ($how eq 'deletes')
	{
		($entries) = $claim->();
		cmp_ok($entries, '<', 6000, 'then no claim goes beyond the first of them before a wake-up');
	}
	$holder->query('ROLLBACK');
	next if $how eq 'inserts';
	($entries, $holders) = $claim->();
	is($holders, 100, 'when the transaction has ended, its steps are claimed from the first on');
	cmp_ok($entries, '<', 1000, 'without a walk');
	$node->safe_psql('postgres', 'DELETE FROM _sas.ready');
}
$_->quit foreach $holder, $worker;
$node->stop;

# -- a worker by itself: nothing wakes it a second time -------------------------------------------------

$node = new_node('live', 'sas.function_workers' => 1, 'sas.agents' => 0);
$node->safe_psql('postgres', $definitions);
$holder = SasSession->new($node);
# nobody claims them before they are held
my $door = SasSession->new($node);
$door->query('BEGIN; LOCK TABLE _sas.lease IN SHARE MODE');
submit($node, 'holder', $n);
$holder->query(q{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.ready FOR UPDATE SKIP LOCKED) x});
$door->query('COMMIT');
my $run = submit($node, 'holder', 1);
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped'), 'a worker claims the step behind those that are held');
# as a verb does that has locked them
$holder->query(q{SELECT _sas.wake('{0}', false, false, '{}'); COMMIT});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, 0, limit => 900), 'and all of them afterwards');

# some of those that are held become free while the worker passes the others
my $many = 120000;
my $release = SasSession->new($node);
my $resume = hold_supervisor($node);
$door->query('BEGIN; LOCK TABLE _sas.lease IN SHARE MODE');
my $first = submit($node, 'holder', $many);
$release->query(sprintf 'BEGIN; SELECT count(*) FROM (SELECT FROM _sas.ready WHERE run_id BETWEEN %d AND %d FOR UPDATE) x', $first + 5000, $first + 5099);
$holder->query(q{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.ready FOR UPDATE SKIP LOCKED) x});
$door->query('COMMIT');
$release->query(q{SELECT _sas.wake('{0}', false, false, '{}')});
$door->query(q{SELECT _sas.wake('{0}', false, false, '{}')});
$release->query('COMMIT');
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id BETWEEN $first + 5000 AND $first + 5099 AND state = 'stopped'", 100), 'steps that become free among those that it has passed are claimed');
# what nobody announces, the supervisor would find late
$holder->query(q{SELECT _sas.wake('{0}', false, false, '{}'); COMMIT});
$resume->();
$_->quit foreach $holder, $door, $release;
$node->stop;
done_testing();
