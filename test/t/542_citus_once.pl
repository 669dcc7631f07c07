# SPDX-License-Identifier: PostgreSQL
#
# A Citus cluster in which keys follow a distributed table, and schedules are on
# all nodes: a key has one run in the cluster, also while its shard moves, and is
# found without asking all nodes; a schedule fires once, whatever becomes of the
# nodes that have copies of it.
# Takes about 60 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use SasCitus;
use SasTest;
use Test::More;

my ($c, @w) = citus_cluster(2);
my @all = ($c, @w);
$SasCitus::user = 'ann';

sub admin { return what(@_[ 0, 1 ], 'postgres') }

# The same answer on each of these nodes.
sub everywhere
{
	my ($nodes, $statement, $wanted, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(what($_, $statement), $wanted, "$name: " . $_->name) foreach @$nodes;
	return;
}

$c->safe_psql('postgres', $_) foreach split /\n;;\n/, <<'SQL';
CREATE ROLE ann LOGIN
;;
CREATE ROLE bob LOGIN
;;
CREATE TABLE account (tenant int PRIMARY KEY, booked int NOT NULL DEFAULT 0)
;;
SELECT create_distributed_table('account', 'tenant', shard_count => 8)
;;
CREATE TABLE local (tenant int)
;;
CREATE FUNCTION public.looks(tenant int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN tenant > 0; END $$
;;
CREATE DOMAIN public.checked AS int CHECK (public.looks(VALUE))
;;
CREATE TABLE odd (tenant public.checked PRIMARY KEY)
;;
SELECT create_distributed_table('odd', 'tenant', colocate_with => 'none')
;;
GRANT ALL ON account, local, odd TO ann
;;
SELECT sas.grant_usage(r, 'user') FROM unnest('{ann,bob}'::regrole[]) r
;;
CREATE FUNCTION public.place(tenant int, flow text, key text, input jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT run_id FROM sas.submit(flow, input, key => key));
END $$
;;
SELECT create_distributed_function('public.place(int, text, text, jsonb)', 'tenant', colocate_with => 'account')
SQL
my $waits = '{"steps": {"go": {"wait": {"signal": "go", "timeout": "1 day"}}}}';
is(what($c, "SELECT sas.create_workflow('$_', '$waits')"), '1', "workflow $_") foreach 'waits', 'free', 'plain';
is(what($c, q{SELECT sas.create_workflow('nothing', '{"steps": {}}')}), '1', 'workflow nothing');

# the node of a tenant's shard, as Citus knows it
sub home { return $c->safe_psql('postgres', "SELECT groupid FROM pg_dist_placement WHERE shardid = get_shard_id_for_distribution_column('account', $_[0])") }
sub submit { my ($node, $key, $input, $flow) = @_; return what($node, sprintf q{SELECT run_id FROM sas.submit('%s', '%s', key => '%s')}, $flow // 'waits', $input // '{}', $key) }

# -- keys follow a table ------------------------------------------------------------------------------

my $follows = q{SELECT keys_follow, key_separator FROM sas.workflows WHERE workflow = 'waits'};
refused(what($w[0], q{SELECT sas.distribute_keys('waits', 'account')}), '55000', 'another node refuses it');
refused(what($c, q{SELECT sas.distribute_keys('waits', 'local')}), '42809', 'keys follow a distributed table');
refused(what($c, q{SELECT sas.distribute_keys('waits', 'odd')}), '42809', 'whose column has no type that calls functions of users');
refused(what($c, q{SELECT sas.distribute_keys('waits', 'account', '')}), '22023', 'a separator is not empty');
refused(what($c, q{SELECT sas.distribute_keys('waits', 'account')}, 'bob'), '42501', 'the workflow is the caller\'s');
what($c, q{BEGIN; SELECT sas.distribute_keys('waits', 'account'); ROLLBACK});
everywhere(\@all, $follows, '|', 'nothing of this is left');
is(what($c, q{SELECT sas.distribute_keys('waits', 'account', ':'), sas.distribute_keys('plain', 'account', ':')}), '|', 'the keys of a workflow follow a table');
everywhere(\@all, $follows, 'public.account|:', 'on all nodes');

my %run = map { ($_ => submit($c, "$_:a")) } 1 .. 20;
is(join(' ', map { $run{$_} >> 41 } 1 .. 20), join(' ', map { home($_) } 1 .. 20), 'a run with a key is on the node of the shard');
my ($one) = grep { home($_) == 1 } 1 .. 20;
my ($two) = grep { home($_) == 2 } 1 .. 20;
everywhere(\@all, "SELECT run_id, created FROM sas.submit('waits', '{}', key => '$one:a')", "$run{$one}|f", 'which any node finds');
refused(submit($_, "$one:a", '{"other": 1}'), '23505', 'a key has one input, asked of ' . $_->name) foreach @all;
is(what($w[1], "SELECT created, run_id >> 41 FROM sas.submit('plain', '{}', key => '$one:p')"), 't|1', 'a run that waits for nothing goes there, too');
is(what($w[1], "SELECT created, run_id >> 41 FROM sas.submit('plain', '{}')"), 't|2', 'a run without a key is made here');
is(what($w[1], "SELECT run_id >> 41 FROM sas.submit('free', '{}', key => '$one:a')"), '2', 'and so is one whose keys follow nothing');
refused(submit($c, 'x:1'), '22P02', 'a key is a value of the column');
what($w[1], "BEGIN; SELECT sas.submit('waits', '{}', key => '$one:b'); ROLLBACK");
is(what($c, "SELECT count(*) FROM sas.cluster_runs WHERE key = '$one:b'"), '0', 'a rollback takes it back on the other node');
is(what($c, "SELECT place($one, 'waits', '$one:c', '{}') >> 41"), '1', 'a distributed function makes it beside the shard');
refused(what($c, "SET ROLE bob; SELECT * FROM sas.submit('waits', '{}', key => '$one:a')", 'postgres'), '42\d+', 'a role may do there what it may here');
is(what($w[0], "SELECT count(*) FROM sas.submit_batch('waits', ARRAY['{}', '{}']::jsonb[], '{$one:d,$one:e}')"), '2', 'a batch is made where its keys belong');
refused(what($w[1], "SELECT count(*) FROM sas.submit_batch('waits', ARRAY['{}', '{}']::jsonb[], '{$two:f,$one:f}')"), '55000', 'and refused elsewhere');
is(what($c, "SELECT count(*) FROM sas.cluster_runs WHERE key LIKE '%:f'"), '0', 'as a whole');
refused(what($w[1], "SELECT * FROM sas.submit('waits', '{}', after_run => $run{$one})"), '55000', 'a run follows none of another node');

# -- a signal asks the node of the key, and no other ----------------------------------------------------

$w[0]->stop('immediate');
is(what($c, "SELECT sas.signal_key('waits', '$two:a', 'go')"), '', 'while another node is down, a signal finds the key');
is(submit($c, "$two:z") >> 41, 2, 'and a new run is made');
refused(submit($c, "$one:z"), '08\d\d\d', 'but not one that belongs to it');
$w[0]->start;
is(what($w[0], "SELECT state, result FROM sas.wait($run{$two})"), 'stopped|success', 'the run has the signal');
refused(what($w[0], "SELECT sas.signal_key('waits', '$two:none', 'go')"), '42704', 'no run has that key');
what($w[$_], "SELECT run_id FROM sas.submit('free', '{}', key => 'both')") foreach 0, 1;
refused(what($c, q{SELECT sas.signal_key('free', 'both', 'go')}), '21000', 'a key that follows no table may have several runs');

# -- what has keys elsewhere cannot follow ----------------------------------------------------------------

refused(what($c, q{SELECT sas.distribute_keys('free', 'account', ':')}), '(22P02|55000)', 'a workflow whose keys are elsewhere cannot follow a table');
everywhere(\@all, $follows =~ s/waits/free/r, '|', 'and follows none');

# -- a shard that moves -----------------------------------------------------------------------------------

my %node = (1 => $w[0], 2 => $w[1]);

sub move_statement
{
	my ($tenant) = @_;
	my ($from, $to) = home($tenant) == 1 ? @node{ 1, 2 } : @node{ 2, 1 };
	return sprintf q{SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('account', %d), '%s', %d, '%s', %d, 'block_writes')},
		$tenant, $from->host, $from->port, $to->host, $to->port;
}

# not before those who submit are done
my $session = SasSession->new($w[0], undef, user => q{ann});
$session->query("BEGIN; SELECT sas.submit('waits', '{}', key => '$one:held')");
my $mover = SasSession->new($c);
$mover->start_query(move_statement($one));
ok(wait_for($w[0], q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, '1'), 'a shard does not move while a run with one of its keys is submitted');
$session->query('COMMIT');
$mover->answer;
is(home($one), '2', 'then it does');

my $kept = what($c, "SELECT run_id FROM sas.cluster_runs WHERE key = '$one:held'");
is($kept >> 41, 1, 'the runs of a shard that has moved stay');
everywhere(\@all, "SELECT run_id, created FROM sas.submit('waits', '{}', key => '$one:held')", "$kept|f", 'and a new submit with the key finds the old run');
refused(submit($_, "$one:held", '{"other": 1}'), '23505', 'which has its input, asked of ' . $_->name) foreach @all;
is(what($w[0], "SELECT count(*) FROM sas.submit_batch('waits', ARRAY['{}']::jsonb[], '{$one:g}')") =~ /55000/, 1, 'a batch is refused where the shard was');
refused(what($w[1], "SELECT count(*) FROM sas.submit_batch('waits', ARRAY['{}']::jsonb[], '{$one:held}')"), '55000', 'and where it is, if the key has its run elsewhere');
is(submit($w[0], "$one:new") >> 41, 2, 'a new key is where the shard is');
is(what($w[1], "SELECT sas.signal_key('waits', '$one:held', 'go')"), '', 'a signal finds the run that has stayed');
is(what($c, "SELECT state, result FROM sas.wait($kept)"), 'stopped|success', 'which ends');
is(what($c, "SELECT sas.signal_key('waits', '$one:new', 'go')"), '', 'and one that is where the shard is');
everywhere(\@all, "SELECT run_id, created FROM sas.submit('waits', '{}', key => '$one:held')", "$kept|f", 'a run that has ended has its key');
refused(what($c, q{SELECT sas.distribute_keys('waits', 'account', ':')}), '55000', 'while old runs have keys of the shard, the others are asked');
$w[0]->stop('immediate');
refused(submit($c, "$one:later"), '08\d\d\d', 'so no new run is made while one of them is down');
is(submit($c, "$two:later") >> 41, 2, 'but for a shard that has not moved');
$w[0]->start;
admin($_, q{SELECT sas.cancel(run_id) FROM sas.runs WHERE workflow = 'waits' AND state <> 'stopped'}) foreach @all;
ok(wait_for($w[0], q{SELECT count(*) FROM sas.runs WHERE workflow = 'waits' AND state <> 'stopped'}, '0'), 'the old runs end');
ok(wait_for($w[0], q{SELECT more FROM sas.purge('0')}, 'f'), 'and are purged');
is(what($c, "SELECT run_id >> 41, created FROM sas.submit('waits', '{}', key => '$one:held')"), '2|t', 'then the key is free, and is where the shard is');
my $open = SasSession->new($w[1], undef, user => q{ann});
$open->query("BEGIN; SELECT sas.submit('waits', '{}', key => '$two:open')");
my $declares = SasSession->new($c, undef, user => q{ann});
$declares->start_query(q{SELECT sas.distribute_keys('waits', 'account', ':')});
ok(wait_for($w[1], q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 29537 AND NOT granted}, '1'), 'a table is declared when those who submit keys are done');
is(submit($w[1], "$two:meanwhile", '{}', 'plain') >> 41, 2, 'which holds up no other workflow');
$open->query('COMMIT');
is($declares->answer, '', 'then all keys are where they belong');
$w[0]->stop('immediate');
is(submit($c, "$one:later") >> 41, 2, 'so that no other node is asked');
$w[0]->start;

# there and back
$c->safe_psql('postgres', move_statement($one));
my $away = submit($w[1], "$one:away");
is($away >> 41, 1, 'the shard moves back, and has a new key');
$c->safe_psql('postgres', move_statement($one));
everywhere(\@all, "SELECT run_id, created FROM sas.submit('waits', '{}', key => '$one:away')", "$away|f", 'and when it is away again, too');
is(what($c, "SELECT place($one, 'waits', '$one:away', '{}')"), $away, 'a distributed function finds the run on the other node');
my ($beside) = grep { home($_) == 1 } 1 .. 20;
is(what($c, "SELECT place($beside, 'waits', '$two:odd', '{}') >> 41"), '2', 'and makes one where its key belongs');

# two clients at once, one at the old node of a shard and one at the new one
my ($near, $far) = map { SasSession->new($_, undef, user => q{ann}) } @w;
$near->query("BEGIN; SELECT sas.submit('waits', '{}', key => '$one:race')");
$far->start_query("SELECT created FROM sas.submit('waits', '{}', key => '$one:race')");
ok(wait_for($w[1], q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%:race%'}, '1'), 'of two that submit a key, one waits');
$near->query('COMMIT');
$far->answer;
is(what($c, "SELECT count(*) FROM sas.cluster_runs WHERE key = '$one:race'"), '1', 'and the key has one run');

is(what($c, q{SELECT sas.distribute_keys('waits', NULL)}), '', 'keys follow no table any more');
everywhere(\@all, $follows, '|', 'on no node');
is(submit($w[0], "$one:own") >> 41, 1, 'then a run is made where it is submitted');
is(what($c, q{SELECT sas.distribute_keys('waits', 'account', ':')}) =~ /55000/, 1, 'which is against the distribution');

# -- schedules are on all nodes, and fire on one ----------------------------------------------------------

my $shown = q{SELECT name, timezone, state, fires_on, next_run_at IS NOT NULL FROM sas.schedules ORDER BY 1};
is(what($c, q{SET timezone = 'Asia/Tokyo'; SELECT sas.schedule('daily', '30 4 * * *', 'nothing') > now()}), 't', 'a schedule is made on the coordinator');
is(what($c, $shown), 'daily|Asia/Tokyo|active|here|t', 'where it fires');
everywhere(\@w, $shown, 'daily|Asia/Tokyo|active|coordinator|f', 'and on the other nodes, as a copy');
what($c, q{BEGIN; SELECT sas.schedule('gone', 'every 1 h', 'nothing'), sas.unschedule('daily'); ROLLBACK});
everywhere(\@w, 'SELECT string_agg(name, $$ $$) FROM sas.schedules', 'daily', 'a rollback takes it back on all');
is(what($c, q{SELECT sas.pause_schedule('daily', 'holidays')}), 't', 'it is paused');
everywhere(\@all, 'SELECT state, paused_reason FROM sas.schedules', 'paused|holidays', 'on all nodes');
is(what($c, q{SELECT sas.resume_schedule('daily')}), 't', 'and resumed');
is(what($c, q{SELECT sas.schedule('daily', '30 5 * * *', 'nothing', timezone => 'UTC', overlap => 'wait') > now()}), 't', 'and changed');
everywhere(\@all, 'SELECT spec, timezone, overlap, state FROM sas.schedules', '30 5 * * *|UTC|wait|active', 'on all nodes');
refused(what($w[0], "SELECT sas.$_"), '55000', "another node refuses $_")
	foreach q{schedule('daily', 'every 1 h', 'nothing')}, q{unschedule('daily')}, q{pause_schedule('daily')}, q{resume_schedule('daily')}, q{trigger_schedule('daily')};
refused(what($w[0], q{SET sas.this_node_only = on; SELECT sas.trigger_schedule('daily')}), '55000', 'a copy submits no run by hand');
is(what($w[0], q{SELECT count(*) FROM sas.calendar(now(), now() + interval '3 days')}), '0', 'nor does its calendar');
is(admin($w[0], q{SELECT sum(value) FROM sas.metrics('{sas_schedules_defined,sas_schedules_due,sas_schedule_late_seconds}')}), '0', 'and metrics do not count copies');
is(what($c, q{SELECT count(*) FROM sas.calendar(now(), now() + interval '3 days')}), '3', 'as those of the coordinator do');

$w[1]->stop('immediate');
refused(what($c, q{SELECT sas.pause_schedule('daily')}), '08\d\d\d', 'while a node is down, no schedule is paused on all');
is(what($c, q{SET sas.this_node_only = on; SELECT sas.pause_schedule('daily')}), 't', 'but where it fires, it is');
$w[1]->start;
is(admin($c, 'SELECT sum(applied) FROM sas.sync_nodes()'), '2', 'the others follow when all are up');
everywhere(\@all, 'SELECT state FROM sas.schedules', 'paused', 'and it is paused');
is(what($c, q{SELECT sas.resume_schedule('daily')}), 't', 'until it is resumed');
everywhere(\@all, 'SELECT state FROM sas.schedules', 'active', 'on all nodes');

what($c, q{SELECT sas.schedule('tick', 'every 1 s', 'nothing')});
my $ticks = q{SELECT count(*) FROM sas.runs WHERE schedule = 'tick'};
ok(wait_for($c, "SELECT ($ticks) >= 3"), 'a schedule fires on the coordinator');
everywhere(\@w, $ticks, '0', 'and on no other node');
is(what($c, q{SELECT count(*) = count(DISTINCT scheduled_at) FROM sas.cluster_runs WHERE schedule = 'tick'}), 't', 'each instant once');
like(admin($w[0], 'SELECT sas.console_schedules()'), qr/on the coordinator/, 'the console says where it fires');
is(admin($w[0], q{SELECT ok OR problems::text !~ 'schedule' FROM sas.health()}), 't', 'no node is late with it');

# -- a node that is added gets them, and does not fire when it has left -------------------------------------

my $third = citus_node('node3');
add_citus_node($c, $third);
ok(wait_for($third, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), 'a node is added');
is(admin($third, 'SELECT count(*) FROM sas.schedules'), '0', 'it has no schedule');
like(admin($c, 'SELECT applied > 0 FROM sas.sync_nodes() WHERE node_id = 3'), qr/^t$/, 'sas.sync_nodes() makes them');
is(what($third, 'SELECT string_agg(name || $$ $$ || fires_on, $$, $$ ORDER BY name) FROM sas.schedules'), 'daily coordinator, tick coordinator', 'as copies');
is(what($third, $follows =~ s/waits/plain/r), 'public.account|:', 'and what keys follow');
is(admin($c, 'SELECT sum(applied), sum(surplus) FROM sas.sync_nodes()'), '0|0', 'nothing differs any more');
is(admin($third, q{SET ROLE ann; SET sas.this_node_only = on; SELECT sas.schedule('tick', 'every 1 s', 'nothing') IS NOT NULL}), 't', 'a node makes a schedule of its own, by intent');
is(admin($c, 'SELECT applied FROM sas.sync_nodes() WHERE node_id = 3'), '1', 'sas.sync_nodes() makes it a copy');
my $before = what($third, $ticks);
is(admin($c, sprintf q{SELECT citus_remove_node('%s', %d)}, $third->host, $third->port), '', 'the node is removed');
$third->restart;
is(what($third, q{SET sas.this_node_only = on; SELECT sas.schedule('mine', 'every 1 s', 'nothing', max_runs => 3) IS NOT NULL}), 't', 'it makes schedules');
ok(wait_for($third, q{SELECT count(*) FROM sas.runs WHERE schedule = 'mine'}, '3'), 'which fire');
is(what($third, $ticks), $before, 'but those of its cluster do not');
is(what($third, $shown =~ s/ORDER/WHERE name <> 'mine' ORDER/r), "daily|UTC|active|coordinator|f\ntick|GMT|active|coordinator|f" =~ s/GMT/what($third, q{SELECT timezone FROM sas.schedules WHERE name = 'tick'})/er, 'they are copies still');
refused(what($third, q{SELECT sas.trigger_schedule('tick')}), '55000', 'and submit no run');
is(what($third, q{SET sas.this_node_only = on; SELECT sas.resume_schedule('tick')}), 'f', 'nor when they are resumed');
is(what($third, q{SET sas.this_node_only = on; SELECT sas.schedule('tick', 'every 1 s', 'nothing', max_runs => 2) IS NOT NULL}), 't', 'a schedule that is made again there');
ok(wait_for($third, "SELECT ($ticks) > $before"), 'fires there');

like(admin($c, q{SELECT col_description('sas.agents'::regclass, attnum) FROM pg_attribute WHERE attrelid = 'sas.agents'::regclass AND attname = 'max_in_flight'}),
	qr/Each node of a Citus cluster has this limit for itself/, 'sas.agents says that its limits are per node');

# -- dumps -------------------------------------------------------------------------------------------------

my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$w[0]->command_ok([ 'pg_dump', '-f', $dump, '-d', $w[0]->connstr('postgres') ], 'a node is dumped');
my $dumped = PostgreSQL::Test::Utils::slurp_file($dump);
my ($schedules) = $dumped =~ /^COPY _sas\.schedule \((.*?)^\\\.$/ms;
like($schedules, qr/copy\) FROM stdin;\n.*tick.*\tt$/ms, 'with its copies of schedules');
my ($workflows) = $dumped =~ /^COPY _sas\.workflow \((.*?)^\\\.$/ms;
like($workflows, qr/\tpublic\.account\t:\t\{/, 'and what keys follow');
unlike($dumped, qr/^COPY _sas\.home \(.*?\n\S+.*?^\\\.$/ms, 'it has no work that fires elsewhere') if admin($w[0], q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}) eq '0';

# -- the coordinator is lost, and its standby takes over ------------------------------------------------------

$c->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($c, 'copy', has_streaming => 1);
chmod 0600, $standby->data_dir . '/server.key';
$standby->start;
$c->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()});
ok(wait_for($c, q{SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'}, '1'), 'the coordinator has a synchronous standby');
my $so_far = what($c, $ticks);
ok(wait_for($c, "SELECT ($ticks) > $so_far"), 'the schedule goes on');
kill_citus_node($c);
$so_far = what($standby, $ticks);
$standby->promote;
ok(wait_for($standby, "SELECT ($ticks) > $so_far + 1"), 'the coordinator is lost: the schedule fires on its promoted standby');
is(what($standby, q{SELECT count(*) = count(DISTINCT scheduled_at) FROM sas.runs WHERE schedule = 'tick'}), 't', 'each instant once');
everywhere(\@w, $ticks, '0', 'and on no other node');
done_testing();
