# SPDX-License-Identifier: PostgreSQL
#
# Runs of one role whose submit costs the scheduler much hold up no other role: those of schedules that are due at
# one instant, and child runs. None of them fails for what the others cost.
# Takes about 60 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use JSON::PP ();
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as_eager = sub { return $sql->("SET ROLE eager; $_[0]") };
my $json = sub { return '$$' . JSON::PP->new->canonical->encode($_[0]) . '$$' };
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm;
	SELECT sas.create_agent('remote', base_url => 'http://127.0.0.1:9');
	SELECT sas.grant_usage(r, 'user'), sas.grant_agent('remote', r) FROM unnest('{eager,calm}'::regrole[]) r;
	SET ROLE calm;
	SELECT sas.create_workflow('calm', '{"steps": {"a": {"wait": {"for": "1 ms"}}}}')});
my $calm_ends = sub {
	my ($what) = @_;
	my $run = $sql->("SET ROLE calm; SELECT run_id FROM sas.submit('calm')");
	is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', "$what: a run of another role succeeds");
};

# some tens of milliseconds for the key of each run
my $value = q{(SELECT jsonb_build_object('l', jsonb_agg(g), 'm', jsonb_agg(-g)) FROM generate_series(1, 2000) g)};
my $key = { key => 'x{{input.n}}{{input.n ? ($.input.l == $.input.m)}}' };
my %large = map { ("s$_" => { wait => { signal => 'go' } }) } 1 .. 1500;
my %workflows = (
	cheap => { steps => {} },
	keyed => { steps => {}, concurrency => $key },
	child => { steps => { a => { wait => { signal => 'go' } } }, concurrency => $key },
	parent => { steps => { m => { workflow => 'child', each => '{{input.items}}', input => { n => '{{index}}', l => '{{input.l}}', m => '{{input.m}}' } } } },
	planner => { steps => { m => { workflow => 'planned', each => '{{input.items}}', input => { agent => '{{item}}' }, max_failed => 100 } } },
	planned => { steps => { %large, a => { agent => '{{input.agent}}', agents => '*', call => {} } } });
$as_eager->("SELECT sas.create_workflow('$_', " . $json->($workflows{$_}) . ')') foreach qw(cheap keyed child parent planned planner);

# schedules that are due at one instant, after cheap ones, with which a tick takes many; also where it takes long to
# create them
my $due = sub {
	my ($name, $n, $workflow, $input, $in) = @_;
	my $now = $sql->(q{SELECT date_trunc('second', clock_timestamp())});
	$sql->("SET sas.clock = '$now'; SET ROLE eager; SELECT count(sas.schedule('${name}_' || n, 'every 1 day', '$workflow', jsonb_build_object('n', n) || $input, start_at => '$now'::timestamptz + interval '$in s')) FROM generate_series(1, $n) n");
};
my $submitted = sub { return $sql->("SELECT count(*) FROM sas.schedules WHERE name ~ '^$_[0]_' AND last_scheduled_at > created_at") };
$due->('keyed', 200, 'keyed', $value, 12);
$due->('cheap', 1000, 'cheap', q{'{}'}, 6);
wait_until(sub { return $submitted->('keyed') > 0 });
$calm_ends->('keys of scheduled runs');
cmp_ok($submitted->('keyed'), '<', 100, 'before most of these are submitted');
ok(wait_until(sub { return $submitted->('keyed') == 200 }), 'all are');
is($sql->(q{SELECT count(*) FROM sas.runs WHERE schedule ~ '^keyed_'}), '200', 'each once');
ok(wait_until(sub { return $submitted->('cheap') == 1000 }), 'so are the cheap ones');

# the steps depend on the input, which names no agent: each is planned, and refused, by itself
$due->('planned', 30, 'planned', q{jsonb_build_object('agent', 'none')}, 4);
my $refused = q{SELECT count(*) FROM sas.schedules WHERE name ~ '^planned_' AND error ->> 'title' LIKE 'agent "none" does not exist%'};
wait_for($node, "SELECT ($refused) > 0");
$calm_ends->('plans of scheduled runs');
cmp_ok($sql->($refused), '<', 20, 'before most of these are planned');
ok(wait_for($node, $refused, '30'), 'all are');

my $parent = $as_eager->("SELECT run_id FROM sas.submit('parent', $value || jsonb_build_object('items', (SELECT jsonb_agg(g) FROM generate_series(1, 150) g)))");
my $begun = sub { return $sql->("SELECT count(*) FROM sas.runs WHERE parent_run_id = $parent") };
my $failed = sub { return $sql->("SELECT string_agg(DISTINCT error ->> 'detail', ', ') FROM sas.steps WHERE run_id = $parent AND state = 'failed'") };
wait_until(sub { return $begun->() > 0 || $failed->() ne '' });
$calm_ends->('keys of child runs');
cmp_ok($begun->(), '<', 100, 'before most of these begin');
ok(wait_until(sub { return $begun->() == 150 || $failed->() ne '' }), 'all begin');
is($failed->(), '', 'and none fails');

# each is refused
my $planner = $as_eager->(q{SELECT run_id FROM sas.submit('planner', jsonb_build_object('items', (SELECT jsonb_agg('none' || g) FROM generate_series(1, 40) g)))});
my $of_elements = "FROM sas.steps WHERE run_id = $planner AND element IS NOT NULL AND error IS NOT NULL";
wait_for($node, "SELECT count(*) > 0 $of_elements");
$calm_ends->('plans of child runs');
cmp_ok($sql->("SELECT count(*) $of_elements"), '<', 30, 'before most of these are planned');
is($sql->("SELECT result FROM sas.wait($planner, '100 s')"), 'warning', 'all are');
is($sql->(qq{SELECT string_agg(DISTINCT regexp_replace(error ->> 'detail', 'none[0-9]+', 'none'), ', ') $of_elements}), 'agent "none" does not exist (At /steps/a/agent)', 'and refused with that reason');
my $one = $as_eager->(q{SELECT run_id FROM sas.submit('planner', '{"items": ["remote"]}')});
ok(wait_for($node, "SELECT count(*) FROM sas.steps JOIN sas.runs USING (run_id) WHERE parent_run_id = $one AND step = 'a'", '1'), 'a sound plan has its run');
done_testing();
