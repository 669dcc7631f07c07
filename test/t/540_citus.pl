# SPDX-License-Identifier: PostgreSQL
#
# A Citus cluster: definitions are made on all nodes in one transaction, verbs
# find the node of a run, views show all nodes, a schedule fires once, and a
# node that is added gets the definitions. No role acts as another on the way.
# Takes about 60 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasCitus;
use SasTest;
use Test::More;

my ($c, @w) = citus_cluster(2, 'citus.log_local_commands' => 'on', log_min_messages => 'notice');
my @all = ($c, @w);

sub definitions { return what($_[0], q{SELECT kind, name, owner, facts FROM _sas.definitions() ORDER BY 1, 2, 3, 4::text}) }

sub alike
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $wanted = definitions($c);
	is(definitions($w[$_]), $wanted, "$name: node " . ($_ + 1)) foreach 0 .. $#w;
	return;
}

# -- definitions ------------------------------------------------------------------------------------

$c->safe_psql('postgres', $_) foreach split /\n;;\n/, <<'SQL';
CREATE ROLE ann LOGIN
;;
CREATE ROLE bob LOGIN
;;
CREATE ROLE team
;;
GRANT CREATE, USAGE ON SCHEMA public TO ann
;;
CREATE TABLE account (tenant int PRIMARY KEY, booked int NOT NULL DEFAULT 0)
;;
SELECT create_distributed_table('account', 'tenant', shard_count => 8)
;;
INSERT INTO account SELECT generate_series(1, 40)
;;
GRANT ALL ON account TO ann
;;
SELECT sas.grant_usage(r, 'user') FROM unnest('{ann,bob,team}'::regrole[]) r
;;
CREATE FUNCTION public.book(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    UPDATE public.account SET booked = booked + 1 WHERE tenant = (input ->> 'tenant')::int;
    RETURN '{}';
END $$
;;
CREATE FUNCTION public.place(tenant int, flow text, key text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT run_id FROM sas.submit(flow, jsonb_build_object('tenant', tenant), key => key));
END $$
;;
CREATE FUNCTION public.echo(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN input; END $$
;;
CREATE FUNCTION public.tell(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM sas.emit('{"half": 1}'); RETURN input; END $$
;;
SELECT create_distributed_function('public.place(int, text, text)', 'tenant', colocate_with => 'account')
;;
SELECT sas.set_secret('token', 'sesame-4711')
;;
SELECT sas.create_agent('packer', kind => 'external')
;;
SELECT sas.create_agent('payments', 'http://127.0.0.1:9', headers => '{"Authorization": "Bearer {{secret.token}}"}', request_timeout => '2 hours 3 min')
;;
SELECT sas.grant_agent('payments', 'ann', '{GET}', '{/a,/b}')
;;
SELECT sas.grant_usage('bob', 'worker', agent => 'packer')
;;
SELECT sas.create_queue('slow', 2)
;;
SELECT sas.set_limit('bob', 'open_runs', 100)
;;
SELECT sas.pause_agent('packer')
SQL
my $waits = '{"steps": {"go": {"wait": {"signal": "go", "timeout": "1 day"}}, "book": {"function": "public.book", "after": ["go"]}}}';
is(what($c, "SELECT sas.create_workflow('waits', '$waits')", 'ann'), '1', 'a role defines a workflow on the coordinator');
is(what($c, q{SELECT sas.create_workflow('books', '{"steps": {"book": {"function": "public.book"}}}')}, 'ann'), '1', 'and another');
is(what($c, q{SELECT sas.create_workflow('parent', '{"steps": {"books": {"workflow": "books"}}}')}, 'ann'), '1', 'and one that names it');
is(what($c, q{SELECT sas.create_workflow('books', '{"steps": {"book": {"function": "public.book"}, "then": {"function": "public.book", "after": ["book"]}}}')}, 'ann'), '2', 'and a new version');
is(what($c, q{SELECT sas.grant_workflow('books', 'bob', version => 1)}, 'ann'), '', 'a version is granted');
alike('the verbs make definitions, grants and secrets on all nodes');
is($c->safe_psql('postgres', 'SELECT count(*) FROM _sas.definitions()'), '18', 'which are all of them');

what($c, q{BEGIN; SELECT sas.create_workflow('gone', '{"steps": {}}'); SELECT sas.create_queue('gone', 1); SELECT sas.pause_workflow('books'); ROLLBACK});
is(what($_, q{SELECT count(*) FROM _sas.definitions() WHERE name = 'gone' OR (facts ->> 'paused')::boolean}), '0', 'a rollback leaves none on ' . $_->name) foreach @all;

$c->safe_psql('postgres', $_) foreach split /\n/, <<'SQL';
SELECT sas.create_middleware('later', 'call', before => 'public.echo(jsonb)', workflow => 'waits'); SELECT sas.create_middleware('first', 'call', before => 'public.echo(jsonb)', workflow => 'waits', goes_before => '{later}')
SELECT sas.create_watcher('lines', '{"agent": "packer", "external": {}, "items": {"function": "public.echo"}}')
SELECT sas.create_workflow('aside', '{"steps": {"note": {"function": "public.echo"}}}')
SELECT sas.subscribe('aside', 'parent')
SELECT sas.set_alert_hook('public.echo(jsonb)')
SELECT sas.create_queue('still', 1); SELECT sas.pause_queue('still'); SELECT sas.pause_workflow('aside')
SQL
alike('middleware, watchers, subscriptions, hooks and pauses as well');
is($c->safe_psql('postgres', q{SELECT string_agg(kind, ' ' ORDER BY kind) FROM _sas.definitions() WHERE kind IN ('middleware', 'watcher', 'subscription', 'alert_hook')}), 'alert_hook middleware middleware subscription watcher', 'which are there');

$c->safe_psql('postgres', q{SET citus.enable_ddl_propagation = off; CREATE FUNCTION public.here(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
refused(what($c, q{SELECT sas.create_workflow('here', '{"steps": {"a": {"function": "public.here"}}}')}), '42883', 'what one node refuses is refused, with the place and a hint');
is(what($_, q{SELECT count(*) FROM sas.workflows WHERE workflow = 'here'}), '0', 'and is on no node: ' . $_->name) foreach @all;

refused(what($w[0], q{SELECT sas.create_workflow('w', '{"steps": {}}')}), '55000', 'another node refuses to define');
refused(what($w[0], q{SELECT sas.schedule('s', 'every 1 h', 'books')}), '55000', 'and to schedule');
is(what($w[0], q{SET sas.this_node_only = on; SELECT sas.create_queue('mine', 1)}), '', 'a node may have a definition of its own');
is(what($w[1], q{SELECT count(*) FROM sas.queues WHERE name = 'mine'}), '0', 'which others do not have');
$w[0]->safe_psql('postgres', q{SET sas.this_node_only = on; SELECT sas.drop_queue('mine')});

# -- runs of all nodes -------------------------------------------------------------------------------

my %run_of;    # node id => tenants and their runs
my @placed = split /\n/, what($c, join("\n", map { "SELECT public.place($_, 'waits', 'k$_');" } 1 .. 40), 'ann');
push @{ $run_of{ $placed[ $_ - 1 ] >> 41 } }, [ $_, $placed[ $_ - 1 ] ] foreach 1 .. 40;
my @ids = sort { $a <=> $b } keys %run_of;
cmp_ok(scalar(@ids), '>=', 2, "runs are where the shards are: nodes @ids");
is(what($_, 'SELECT count(*), count(DISTINCT run_id), count(DISTINCT node_id) FROM sas.cluster_runs', 'ann'), '40|40|' . @ids, 'sas.cluster_runs has all of them, asked of ' . $_->name) foreach @all;
is(what($c, 'SELECT count(*) FROM sas.cluster_runs', 'bob'), '0', 'and shows a role no run of another');
is(what($c, 'SELECT count(*) FROM sas.cluster_steps WHERE step = $$go$$ AND state = $$suspended$$', 'ann'), '40', 'sas.cluster_steps as well');
my ($tenant, $run) = @{ $run_of{ $ids[-1] }[0] };
my $plan = what($c, "EXPLAIN (COSTS off) SELECT state FROM sas.cluster_runs WHERE key = 'k$tenant' AND labels \@> '{}'");
like($plan, qr/Query on each node: .*key = 'k$tenant'::text/, 'conditions are checked on the nodes');
is(what($w[0], "SELECT run_id FROM sas.cluster_runs WHERE key = 'k$tenant'"), $run, 'and what they pick is right');

foreach my $condition ("key IN ('k1', 'k2', 'k40')", "state = 'running' AND key > 'k3'", "created_at <= now()", 'key IS NULL', "NOT key LIKE 'k1%'",
	"labels @> '{}' OR random() < 2", "run_id = (SELECT max(run_id) FROM sas.runs)", "run_id = ANY (ARRAY[$run, 1])", "coalesce(key, '') = 'k7'", '(finished_at IS NULL) = true')
{
	my $all_rows = "WITH a AS MATERIALIZED (SELECT * FROM sas.cluster_runs) SELECT count(*) FROM a WHERE $condition";
	is(what($w[0], "SELECT count(*) FROM sas.cluster_runs WHERE $condition"), what($w[0], $all_rows), "a condition picks the same on the nodes and here: $condition");
}
is(what($_, 'SELECT count(*) FROM (SELECT FROM sas.cluster_runs LIMIT 3) x'), '3', 'who reads some rows gets some, of ' . $_->name) foreach @all;
is(what($c, q{SET enable_material = off; SELECT count(*) FROM generate_series(1, 2) g CROSS JOIN LATERAL (SELECT FROM sas.cluster_runs r WHERE length(r.key) > g) x}), '71', 'and may read them again');

my $list = join ',', map { $_->[1] } map { @{ $run_of{$_} } } @ids;
is(what($w[1], "SELECT count(*), bool_and(changed) FROM sas.pause_runs('{$list}')", 'ann'), '40|t', 'one verb pauses runs of all nodes, asked of any');
is(what($c, q{SELECT count(*) FROM sas.cluster_runs WHERE state = 'paused'}), '40', 'and they are paused');
is(what($c, "SELECT count(*), bool_and(changed) FROM sas.resume_runs('{$list}')", 'ann'), '40|t', 'and go on');
is(what($c, "SELECT count(*) FROM sas.pause_runs('{$list}') WHERE refused IS NOT NULL", 'bob'), '40', 'another role may not, on any node');
like(what($c, "SELECT refused FROM sas.pause(4095::bigint << 41)", 'ann'), qr/does not exist/, 'a node that there is not has no run');
what($c, "BEGIN; SELECT count(*) FROM sas.pause_runs('{$list}'); ROLLBACK", 'ann');
is(what($c, q{SELECT count(*) FROM sas.cluster_runs WHERE state = 'paused'}), '0', 'a rollback takes the verb back on all nodes');

# -- alerts: of a run that is paused on another node than the one that is asked ---------------------------

my $pauses = '{"on_failure": "pause", "steps": {"a": {"function": "public.book", "expect": "output.n == 1"}}}';
what($c, "SELECT sas.create_workflow('pauses', '$pauses')", 'ann');
my $paused = what($c, "SELECT public.place($tenant, 'pauses', 'p')", 'ann');
ok(wait_for($c, qq{SELECT count(*) FROM sas.cluster_alerts WHERE run_id = $paused AND node_id = $paused >> 41 AND closed_at IS NULL}, '1'), 'sas.cluster_alerts has the alert of another node');
is(what($c, 'SELECT count(*) FROM sas.cluster_alerts', 'bob'), '0', 'and shows a role no alert of another');
my $alert = what($c, "SELECT alert_id FROM sas.cluster_alerts WHERE run_id = $paused");
is($alert >> 41, $paused >> 41, 'its id has the number of its node');
my $beside = ($alert >> 41) == 1 ? $w[1] : $w[0];
is(what($beside, "SELECT changed, refused FROM sas.acknowledge_alerts('{$alert}')"), 't|', 'it is acknowledged from another node');
is(what($c, "SELECT count(*) FROM sas.cluster_alerts WHERE alert_id = $alert AND acknowledged_at IS NOT NULL"), '1', 'on its node');
what($c, "SELECT sas.cancel($paused)", 'ann');

# -- signals and waits: by id, by key, by token -------------------------------------------------------

my ($far) = grep { $_ != 1 } reverse @ids;
my $from = $far == 2 ? $w[0] : $w[1];
my @far = @{ $run_of{$far} };
refused(what($from, "SELECT sas.signal($far[0][1], 'go')", 'bob'), '42704', 'a role cannot signal the run of another through a node');
is(what($from, "SELECT sas.signal($far[0][1], 'go')", 'ann'), '', 'a signal finds the node by the run id');
is(what($c, "SELECT state, result FROM sas.wait($far[0][1])", 'ann'), 'stopped|success', 'and so does a wait');
is(what($from, "SELECT sas.signal_key('waits', 'k$far[1][0]', 'go')", 'ann'), '', 'a signal finds the node by the key');
is(what($from, "SELECT state, result FROM sas.wait($far[1][1])", 'ann'), 'stopped|success', 'and ends the wait');
refused(what($from, "SELECT sas.signal_key('waits', 'none', 'go')", 'ann'), '42704', 'no node has that key');
is(what($c, "SELECT sum(booked) FROM account WHERE tenant IN ($far[0][0], $far[1][0])"), '2', 'each of them was booked once');
refused(what($from, "SELECT sas.signal(NULL, 'go')", 'ann'), '42704', 'null is no run');
refused(what($from, 'SELECT * FROM sas.wait(NULL)', 'ann'), '22004', 'nor is it one to wait for');
is(what($from, 'SELECT count(*) FROM sas.pause_runs(NULL)', 'ann') =~ /^\d+$|DETAIL/, 1, 'nor are there any to pause');
my $asks = '{"steps": {"answer": {"wait": {"signal": "answer", "timeout": "1 day"}}, "ask": {"function": "public.tell", "input": {"token": "{{steps.answer.token}}"}}}}';
what($c, "SELECT sas.create_workflow('asks', '$asks')", 'ann');
my $asked = what($c, "SELECT public.place($far[0][0], 'asks', 'a')", 'ann');
my $token_of = "SELECT output ->> 'token' FROM sas.cluster_steps WHERE run_id = $asked AND step = 'ask'";
ok(wait_for($c, "SELECT ($token_of) IS NOT NULL"), 'a run has told its token');
my $token = what($c, $token_of);
is(what($from, "SELECT chunk, emitted_at > now() - interval '1 h' FROM sas.chunks($asked, 'ask')", 'ann'), '{"half": 1}|t', 'what a step has stored so far is read through another node');
like(what($from, "SELECT refused FROM sas.set_version($asked, 7)", 'ann'), qr/version/, 'the version of a run is set through another node');
is(what($from, "SELECT sas.signal_token('$token')", 'ann'), '', 'a signal finds the node by the token');
is(what($from, "SELECT state, result FROM sas.wait($asked)", 'ann'), 'stopped|success', 'and ends the wait');
refused(what($from, "SELECT sas.signal_token('$token')", 'ann'), '55000', 'once');

my ($here_too) = @{ $run_of{ $far == 2 ? 1 : 2 } };
what($c, "SELECT public.place($_, 'waits', 'twice')", 'ann') foreach $here_too->[0], $far[0][0];
refused(what($c, "SELECT sas.signal_key('waits', 'twice', 'go')", 'ann'), '21000', 'two nodes have a run with that key');

# team has no LOGIN: it cannot get to another node
my $said = what($c, "SET ROLE team; SELECT sas.signal($far[2][1], 'go')");
refused($said, '08006', 'a role that may not log in does not get to another node');
$c->safe_psql('postgres', q{CREATE FUNCTION public.for_ann(id bigint) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$SELECT sas.signal(id, 'go')$$; ALTER FUNCTION public.for_ann(bigint) OWNER TO ann});
is(what($c, "SELECT public.for_ann($far[2][1])", 'bob'), '', 'a function of ann signals as ann');
$c->safe_psql('postgres', 'ALTER FUNCTION public.for_ann(bigint) OWNER TO bob');
refused(what($c, "SELECT public.for_ann($far[3][1])", 'ann'), '42704', 'and one of bob as bob');
like(what($c, 'SELECT * FROM sas.sync_nodes()', 'ann'), qr/42501:/, 'only a superuser makes the definitions of others');

# -- a schedule fires once ----------------------------------------------------------------------------

is(what($c, q{SELECT sas.schedule('often', 'every 1 s', 'books', '{"tenant": 1}', max_runs => 2) IS NOT NULL}, 'ann'), 't', 'a schedule is on the coordinator');
ok(wait_for($c, q{SELECT count(*) FROM sas.cluster_runs WHERE schedule = 'often' AND state = 'stopped'}, '2'), 'its instants have one run each');
is(what($c, q{SELECT count(*), count(DISTINCT scheduled_at) FROM sas.cluster_runs WHERE schedule = 'often'}), '2|2', 'in the whole cluster');
refused(what($w[0], q{SELECT sas.trigger_schedule('often')}, 'ann'), '55000', 'another node has no schedules');

# -- a node that does not answer ----------------------------------------------------------------------

my $down = $far == 2 ? $w[1] : $w[0];
$down->stop('immediate');
is(what($c, 'SELECT node_id, answers, problem IS NULL FROM sas.cluster_health ORDER BY 1'), join("\n", map { $_ == $far ? "$_|f|f" : "$_|t|t" } 0 .. 2), 'sas.cluster_health says which');
refused(what($c, "SELECT sas.signal($far[4][1], 'go')", 'ann'), '08\d\d\d', 'a signal to it is an error');
refused(what($c, 'SELECT count(*) FROM sas.cluster_runs', 'ann'), '08\d\d\d', 'and so is a view of all nodes');
refused(what($c, q{SELECT sas.create_queue('late', 1)}), '08\d\d\d', 'and a definition for all');
is(what($c, q{SELECT count(*) FROM sas.queues WHERE name = 'late'}), '0', 'which is made on none');
my ($near) = grep { $_ != $far } @ids;
is(what($c, "SELECT sas.signal($run_of{$near}[5][1], 'go')", 'ann'), '', 'other nodes answer');
is(what($c, "SELECT state, result FROM sas.wait($run_of{$near}[5][1])", 'ann'), 'stopped|success', 'and work');
$down->start;
is(what($c, "SELECT sas.signal($far[4][1], 'go')", 'ann'), '', 'when it is back, its runs go on');
is(what($c, "SELECT state, result FROM sas.wait($far[4][1])", 'ann'), 'stopped|success', 'to their end');

# -- a node that is added -------------------------------------------------------------------------------

my $third = citus_node('node3');
add_citus_node($c, $third);
push @w, $third;
push @all, $third;
ok(wait_for($third, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), 'a node that is added has the extension and its workers');
is(what($third, 'SELECT count(*) FROM _sas.definitions()'), '0', 'but no definitions');
# what cannot be made there is an error, and nothing is made
sub synced_in_vain
{
	my ($sqlstate, $name, $statement, $undo) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$c->safe_psql('postgres', "SET sas.this_node_only = on; SET citus.enable_ddl_propagation = off; $statement");
	refused(what($c, 'SELECT * FROM sas.sync_nodes()'), $sqlstate, $name);
	is(what($third, 'SELECT count(*) FROM _sas.definitions()'), '0', 'and nothing is made there');
	$c->safe_psql('postgres', "SET sas.this_node_only = on; SET citus.enable_ddl_propagation = off; $undo");
	return;
}
synced_in_vain('42883', 'a function that is not there is an error of sas.sync_nodes()',
	q{SELECT sas.create_workflow('here', '{"steps": {"a": {"function": "public.here"}}}')}, q{SELECT sas.drop_workflow('here')});
synced_in_vain('42704', 'and so is a role', q{CREATE ROLE new_here; SELECT sas.grant_usage('new_here', 'user')}, q{SELECT sas.revoke_usage('new_here', 'user'); DROP ROLE new_here});

my $again = q{SELECT sas.create_workflow('books', '{"steps": {"book": {"function": "public.book"}}}')};
refused(what($c, $again), '55000', 'a new version would be another one there');
refused(what($c, $again, 'ann'), '42501', 'and its owner has no right there yet');
is(what($c, 'SELECT node_id, applied > 0, surplus FROM sas.sync_nodes() ORDER BY 1'), "1|f|0\n2|f|0\n3|t|0", 'sas.sync_nodes() makes them there');
alike('after sas.sync_nodes()');
is(what($c, 'SELECT sum(applied), sum(surplus) FROM sas.sync_nodes()'), '0|0', 'and again finds nothing to do');
is(what($c, $again, 'ann'), '3', 'then new versions are alike');
$third->safe_psql('postgres', q{SET sas.this_node_only = on; SELECT sas.alter_agent('payments', rate_limit => '5/s'); SELECT sas.pause_workflow('books'); SELECT sas.create_queue('own', 1)});
is(what($c, 'SELECT applied, surplus FROM sas.sync_nodes() WHERE node_id = 3'), '2|1', 'what differs is made alike, what it has besides stays');

# -- a shard that moves leaves its runs where they are ---------------------------------------------------

my ($moved_tenant, $moved_run) = @{ $far[5] };
$c->safe_psql('postgres', sprintf(q{SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('account', %d), '%s', %d, '%s', %d, 'block_writes')},
		$moved_tenant, $down->host, $down->port, $third->host, $third->port));
is(what($c, "SELECT sas.signal($moved_run, 'go')", 'ann'), '', 'a run whose shard has moved gets a signal');
is(what($c, "SELECT state, result FROM sas.wait($moved_run)", 'ann'), 'stopped|success', 'and books on the other node');
is(what($c, "SELECT booked FROM account WHERE tenant = $moved_tenant"), '1', 'once');
my $new = what($c, "SELECT public.place($moved_tenant, 'books', 'n1')", 'ann');
is($new >> 41, 3, 'new runs are where the shard is');
is(what($c, "SELECT state, result FROM sas.wait($new)", 'ann'), 'stopped|success', 'on the added node, too');

# -- the page --------------------------------------------------------------------------------------------

my $page = PostgreSQL::Test::Utils::slurp_file("$SasTest::tree/docs/how-to/scale-out.md");
foreach my $block ($page =~ /^```sql citus\n(.*?)^```$/msg)
{
	unlike(what($c, $block), qr/ERROR/, 'the page runs: ' . substr($block, 0, 40) =~ s/\n.*//sr);
}
ok(wait_for($c, q{SELECT booked FROM shop.account WHERE tenant = 7}, '10'), 'and the order of the page is booked');

ok(PostgreSQL::Test::Utils::slurp_file($down->logfile) =~ /sas function\[\d+\] NOTICE:  executing the command locally: UPDATE public.account_/, 'a function step updates the shard beside it in its own session');
ok(PostgreSQL::Test::Utils::slurp_file($_->logfile) !~ /terminated by signal 11/, 'no process of ' . $_->name . ' has crashed') foreach @all;
done_testing();
