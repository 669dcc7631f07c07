# SPDX-License-Identifier: PostgreSQL
#
# Requests and answers of polls count against sas.agent_memory, as those of calls do: an agent worker keeps no large
# request between two polls, begins no poll for which there is no room, and reads answers as far as there is room.
# Takes about 40 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;

my $node = new_node('main', 'sas.agent_memory' => '16MB');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
$service->script(quick => [ { json => 'well' } ], stuck => [ { how => 'stuck' } ], large => [ { body => 'x' x 4_000_000 } ]);
make_agent($node, 'remote', $service, max_in_flight => 1000, request_timeout => '10 min');
make_agent($node, 'other', $service);
$sql->(q{CREATE ROLE heavy; CREATE ROLE light;
	SELECT sas.grant_usage(r, 'user'), sas.grant_agent(a, r) FROM unnest('{heavy,light}'::regrole[]) r, unnest('{remote,other}'::text[]) a;
	CREATE TABLE public.item (item jsonb); GRANT ALL ON public.item TO heavy, light});
my $watcher = sub {
	my ($role, $name, $agent, $path, $every) = @_;
	$as->($role, qq{SELECT sas.create_watcher('$name', '{"agent": "$agent", "poll": {"call": {"method": "POST", "path": "/$path", "body": "{{input}}"},
		"every": "$every"}, "items": {"table": "public.item"}}')});
};
$watcher->('heavy', 'rare', 'remote', 'quick', '1 hour');
$watcher->('heavy', 'stuck', 'remote', 'stuck', '1 hour');
$watcher->('heavy', 'answered', 'remote', 'large', '1 hour');
$watcher->('light', 'calm', 'remote', 'quick', '1 s');
$as->('light', q{SELECT sas.create_workflow('calm', '{"steps": {"it": {"agent": "remote", "call": {"path": "/quick"}}}}')});
my ($worker) = worker_pids($node, 'agent');
my $held = sub { return $sql->(q{SELECT max(memory) FROM sas.workers WHERE actor = 'agent'}) };
my $watch = sub { my ($name, $n, $bytes) = @_; $as->('heavy', "SELECT count(sas.watch('$name', 'k' || g, jsonb_build_object('x', repeat('y', $bytes)))) FROM generate_series(1, $n) g") };
my $calm = sub { my ($what) = @_; is($sql->("SET ROLE light; SELECT run_id FROM sas.submit('calm')") =~ /(\d+)/ && $sql->("SELECT result FROM sas.wait($1, '60 s')"), 'success', "$what: a call of another role ends") };

# -- between polls -------------------------------------------------------------------------

my $before = own_memory($worker);
$watch->('rare', 80, 900_000);
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE watcher = 'rare' AND items > 0}, '80'), 'many tasks with large inputs poll once');
needs_less(own_memory($worker) - $before, 45_000, 'and their requests are not kept until the next poll');
ok(wait_for($node, q{SELECT max(memory) FROM sas.workers WHERE actor = 'agent'}, '0'), 'nothing is held');

# -- while they go on ----------------------------------------------------------------------

$watch->('stuck', 80, 900_000);
ok(wait_until(sub { return $held->() > 5_000_000 }), 'requests of polls that go on are counted');
$calm->('requests');
$as->('light', q{SELECT sas.watch('calm', 'a')});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE watcher = 'calm' AND items > 0}, '1'), 'and a poll of another role');
cmp_ok($held->(), '<', 18_000_000, 'they hold no more than the setting');
needs_less(own_memory($worker) - $before, 90_000, 'and the process is not much larger');
my $open = $sql->(q{SELECT in_flight FROM sas.agents WHERE name = 'remote'});
cmp_ok($open, '<', 30, 'the other polls wait');
$service->script(stuck => [ { json => 'well' } ]);
$service->release;
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE watcher = 'stuck' AND items > 0}, '80'), 'all of them have their turn');
$sql->(q{SELECT sas.unwatch('stuck', array_agg(key)) FROM sas.watches WHERE watcher = 'stuck'});

# -- answers -------------------------------------------------------------------------------

$watch->('answered', 30, 10);
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE watcher = 'answered' AND items > 0}, '30'), 'large answers to polls are taken in');
is($sql->(q{SELECT sum(failures) FROM sas.watches WHERE watcher = 'answered'}), '0', 'and none fails');
$calm->('answers');
ok(wait_for($node, q{SELECT max(memory) FROM sas.workers WHERE actor = 'agent'}, '0'), 'nothing is held in the end');
is((worker_pids($node, 'agent'))[0], $worker, 'in the same process');
done_testing();
