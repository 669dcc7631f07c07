# SPDX-License-Identifier: PostgreSQL
#
# Large answers of one role take up the memory of an agent worker. The calls of another role begin and end meanwhile, at
# the same agent, too; its large answers come in turn with those of the first. And so do calls of the same role at
# another agent.
# Takes about 20 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agent_memory' => '16MB', 'sas.agent_slots' => 200);
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
my @agents = map { "shared$_" } 1 .. 5;
$service->script(stuck => [ { how => 'stuck' } ], quick => [ { json => 'well' } ], large => [ { body => 'x' x 500_000 } ]);
make_agent($node, $_, $service) foreach @agents;
foreach my $role (qw(heavy light))
{
	$sql->("CREATE ROLE $role; SELECT sas.grant_usage('$role', 'user')");
	foreach my $agent (@agents)
	{
		$sql->("SELECT sas.grant_agent('$agent', '$role')");
		$as->($role, qq{SELECT sas.create_workflow('${role}_${agent}_$_', '{"steps": {"it": {"agent": "$agent",
			"call": {"path": "/$_", "timeout": "10 min"}, "complete_in": "10 min"}}}')}) foreach qw(stuck quick large);
	}
}
my $fills = sub { my ($agent, $n) = @_; $as->('heavy', "SELECT count(*) FROM sas.submit_batch('heavy_${agent}_stuck', array_fill('{}'::jsonb, ARRAY[$n]))"); return };
my $ends = sub {
	my ($role, $agent, $what, $name) = @_;
	my $run = $as->($role, "SELECT run_id FROM sas.submit('${role}_${agent}_$what')");
	return is($sql->("SELECT result FROM sas.wait($run, '60 s')"), 'success', $name);
};
my $held = sub { my ($bytes) = @_; return wait_for($node, "SELECT max(memory) >= $bytes FROM sas.workers WHERE actor = 'agent'", 't') };

# -- one agent ---------------------------------------------------------------------------

$fills->('shared1', 40);
ok($held->(7_500_000), 'answers of one role take up the memory that it may have at an agent');
$as->('heavy', q{SELECT run_id FROM sas.submit('heavy_shared1_stuck')});
ok(wait_for($node, q{SELECT count(*) FROM sas.explain() WHERE waiting_kind = 'agent'
	AND text LIKE '%a role with much of that calls agent "shared1" again when there is room, other roles call it meanwhile%'}, '1'), 'sas.explain says for whom there is no room');
$ends->('light', 'shared1', 'quick', 'a call of another role at this agent ends') foreach 1 .. 3;
$ends->('light', 'shared1', 'large', 'and one with a large answer');
$ends->('heavy', 'shared2', 'quick', 'and one of the first role at another agent');

# -- many agents -------------------------------------------------------------------------

$fills->($_, 10) foreach @agents[ 1 .. 4 ];
ok($held->(12_500_000), 'answers of one role at many agents take up nearly all memory');
foreach my $agent (@agents)
{
	$ends->('light', $agent, 'quick', "a call of another role at $agent ends");
	$ends->('light', $agent, 'large', 'and one with a large answer');
}
is($sql->(q{SELECT count(*) FROM sas.runs r WHERE workflow LIKE '%stuck' AND state = 'stopped'}), '0', 'all this while nothing of the first role ends');
cmp_ok($sql->(q{SELECT max(memory) FROM sas.workers WHERE actor = 'agent'}), '<', 16e6 + 2e6, 'and no more is held than the setting says, and one answer');
$service->script(stuck => [ { json => 'well' } ]);
ok(wait_until(sub { $service->release; return $sql->("SELECT count(*) FROM sas.runs WHERE state <> 'stopped' OR result <> 'success'") eq '0' }), 'all ends when the service goes on');
ok(wait_for($node, q{SELECT max(memory) FROM sas.workers WHERE actor = 'agent'}, '0'), 'and nothing is held in the end');
done_testing();
