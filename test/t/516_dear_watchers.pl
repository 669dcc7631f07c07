# SPDX-License-Identifier: PostgreSQL
#
# Templates of watchers of one role that cost much keep no other role waiting: neither those that build its
# items, nor those of its requests and cursors. What costs too much fails with that reason.
# Takes about 40 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use SasStreams;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 1, 'sas.function_workers_max' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $service = SasService->new;
my $streams = SasStreams->new;
$service->script(cheap => [ { json => 'well' } ]);
make_agent($node, 'remote', $service);
make_agent($node, 'feed', $streams);
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm;
	SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.grant_usage(r, 'user'), sas.grant_agent(a, r) FROM unnest('{eager,calm}'::regrole[]) r, unnest('{host,feed,remote}'::text[]) a;
	CREATE TABLE got (key text, n int, item jsonb);
	GRANT INSERT ON got TO eager, calm;
	CREATE FUNCTION public.take(items jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.got SELECT i ->> 'key', (i ->> 'n')::int, i FROM jsonb_array_elements(items) i; SELECT NULL::jsonb $$});
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
my $json = sub { return '$$' . JSON::PP->new->canonical->encode($_[0]) . '$$' };

# each takes some tens of milliseconds, and yields an empty array; with the longer list, more than a template may
my $dear = sub { my ($at) = @_; return "$at.list[*] ? (exists(\$.$at.list[*] ? (\$.$at.s < \$.$at.s)))" };
my $value = q{jsonb_build_object('s', repeat('x', 100000), 'list', (SELECT jsonb_agg(i) FROM generate_series(1, 120) i))};
(my $too_dear = $value) =~ s/120/400/;
my $own = sub { my ($n) = @_; return "jsonb_build_object('key', c.key, 'n', $n)" };

# -- items ------------------------------------------------------------------------------------------------

$as->('eager', "SELECT sas.create_watcher('dear', " . $json->({ agent => 'host', external => {}, items => { function => 'public.take', item => { key => '{{item.key}}', n => '{{item.n}}', of => '{{' . $dear->('input') . '}}' } }, retry => { max_failures => 2, initial => '10 ms' } }) . ')');
$as->('eager', "SELECT count(*) FROM generate_series(1, 12) n, sas.watch('dear', n::text, $value)");
$as->('calm', "SELECT sas.create_watcher('plain', " . $json->({ agent => 'host', external => {}, items => { function => 'public.take' } }) . q{); SELECT sas.watch('plain', 'calm')});
my $host = SasSession->new($node);
$host->query(q{CREATE TEMP TABLE claimed AS SELECT c.* FROM sas.register_node('n', 100, '{host}', lease => '1 h') n, sas.claim_watchers(n, 100) c});
is($host->query('SELECT count(*) FROM claimed'), '13', 'one host has the tasks of both roles');
my $append = sub { my ($where, $items) = @_; return $host->query("SELECT count(*) FROM claimed c, sas.append_items(c.watch_id, c.epoch, $items) a WHERE $where AND a = 'go'") };
my $many = sub { my ($n) = @_; return '(SELECT jsonb_agg(' . $own->('i') . ") FROM generate_series(1, $n) i)" };
is($append->("c.watcher = 'dear'", $many->(20)), '12', 'items come for all tasks of the first role');
is($append->("c.watcher = 'plain'", $many->(1)), '1', 'and one item for the second one');
ok(wait_for($node, q{SELECT count(*) FROM got WHERE key = 'calm'}, '1'), 'it is delivered');
cmp_ok($sql->(q{SELECT count(DISTINCT key) FROM got WHERE key <> 'calm'}), '<', 12, 'before most of the others');
is($append->("c.key = '1'", $many->(400)), '1', 'more items come for one task than may be built');
ok(wait_for($node, q{SELECT last_error ->> 'detail' FROM sas.watches WHERE key = '1'}, 'their templates take more than 2 s, or make more than 64 MB'), 'it fails with that reason');
is($append->("c.watcher = 'plain'", $many->(1)), '1', 'an item for the second role');
ok(wait_for($node, q{SELECT count(*) FROM got WHERE key = 'calm'}, '2'), 'is delivered');
ok(wait_for($node, q{SELECT count(DISTINCT key) FROM got WHERE key <> 'calm'}, '12'), 'so are the items of all other tasks');

# -- requests and cursors ---------------------------------------------------------------------------------

$as->('calm', q{SELECT sas.create_workflow('calls', '{"steps": {"a": {"agent": "remote", "call": {"path": "/cheap"}}, "b": {"agent": "remote", "call": {"path": "/cheap"}, "after": ["a"]}}}')});
my $calm_run = sub {
	my $run = $as->('calm', q{SELECT run_id FROM sas.submit('calls')});
	return $sql->("SELECT result FROM sas.wait($run, '100 s')");
};
my $stream = { format => 'ndjson', path => '/ndjson/{{key}}' };
my $retry = { initial => '10 s', max => '10 min' };
$as->('eager', "SELECT sas.create_watcher('asks', " . $json->({ agent => 'feed', items => { function => 'public.take' }, stream => { %$stream, query => { of => '{{' . $dear->('input') . '}}' } }, retry => $retry }) . ')');
$as->('eager', "SELECT sas.create_watcher('tells', " . $json->({ agent => 'feed', items => { function => 'public.take' }, stream => $stream, cursor => { next => '{{' . $dear->('input') . '}}' }, retry => $retry }) . ')');
$as->('eager', "SELECT count(*) FROM generate_series(1, 120) n, sas.watch('asks', 'a' || n, $value)");
is($calm_run->(), 'success', 'a run of the second role succeeds while requests are built');
my $built = sub { return scalar grep { /^a/ } keys %{ $streams->all } };
cmp_ok($built->(), '<', 90, 'before most of them are');
$as->('calm', "SELECT sas.create_watcher('calm', " . $json->({ agent => 'feed', stream => $stream, items => { function => 'public.take' } }) . "); SELECT sas.watch('calm', 'c')");
ok(wait_until(sub { return exists $streams->all->{c} }), 'a stream of the second role connects');
cmp_ok($built->(), '<', 110, 'before many of them are built');
ok(wait_until(sub { return $built->() == 120 }), 'all are built');

$streams->feeds(map { ("b$_" => { items => 100 }) } 1 .. 9);
my $failed = q{SELECT count(*) FROM sas.watches WHERE watcher = 'tells' AND failures > 0};
$as->('eager', "SELECT count(*) FROM generate_series(1, 9) n, sas.watch('tells', 'b' || n, $too_dear)");
ok(wait_for($node, "SELECT ($failed) > 0", 't'), 'a batch whose cursor takes too long to find fails');
is($calm_run->(), 'success', 'a run of the second role succeeds while cursors are looked for');
cmp_ok($sql->($failed), '<', 9, 'before all of them are');
ok(wait_for($node, $failed, '9'), 'all fail');
like($sql->(q{SELECT string_agg(DISTINCT last_error ->> 'title', ', ') FROM sas.watches WHERE watcher = 'tells'}), qr/items yield no cursor/, 'with that reason');
# a busy machine may keep a worker from its turn
is($sql->(q{SELECT string_agg(DISTINCT kind, ', ') FROM sas.alerts WHERE kind <> 'stalled'}), 'watch-failed', 'only tasks that fail are amiss');
done_testing();
