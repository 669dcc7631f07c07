# SPDX-License-Identifier: PostgreSQL
#
# The tables in shared memory hold fewer entries than are wanted: places of
# agents, low-water marks, metrics, owners, exclusions. What finds no room is slower or
# less exact, and none waits for ever; limits hold; an alert names the
# setting; what is dropped gives its room back.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.max_agents' => 64, 'sas.max_low_water_marks' => 32, 'sas.max_metrics' => 64, 'sas.max_exclusions' => 2, 'sas.max_owners' => 16,
	'sas.agents' => 2, 'sas.supervisor_interval' => '1 s', max_worker_processes => 24);
my $service = SasService->new;
my $each = 150;

sub sql { my ($sql, $database) = @_; return $node->safe_psql($database // 'postgres', $sql) }
sub taken { my ($table) = @_; return "SELECT taken FROM _sas.shared_tables() WHERE name = '$table'" }

sub alert
{
	my ($like, $name) = @_;
	return ok(wait_for($node, "SELECT EXISTS (SELECT FROM sas.alerts WHERE kind = 'shared-memory' AND message ~ '$like')"), $name);
}

# -- more agents than fit, in two databases at once ------------------------------------

sql('CREATE DATABASE beside');
sql('CREATE EXTENSION sas', 'beside');
my @databases = qw(postgres beside);

# held until all places are taken; each agent has two runs and takes one call at a time
$service->script($_ => [ { gate => 1 } ]) foreach @databases;
foreach my $database (@databases)
{
	sql("SELECT sas.create_agent('one_' || i, '@{[ $service->url ]}', max_in_flight => 1), sas.create_workflow('one_' || i, jsonb_build_object('steps',
			jsonb_build_object('it', jsonb_build_object('agent', 'one_' || i, 'call', jsonb_build_object('path', '/$database/' || i))))) FROM generate_series(1, $each) i", $database);
	sql("SELECT FROM generate_series(1, $each) i, sas.submit_batch('one_' || i, '{\"{}\",\"{}\"}'::jsonb[])", $database);
}
ok(wait_for($node, taken('places'), '64'), 'all places are taken');
ok(wait_for($node, taken('spare places'), '64'), 'and all spare places');
alert('^(5[2-9]|6[0-4]) of 64 places .*see sas.max_agents', 'an alert names the setting before that');
alert('^all 64 places .*slower.*see sas.max_agents', 'another one then');
is(sql('SELECT ok FROM sas.health()'), 'f', 'health says so, too');
is(sql('SELECT sum(in_flight) FROM (SELECT in_flight FROM sas.agents UNION ALL SELECT 0) x') + sql('SELECT sum(in_flight) FROM sas.agents', 'beside'), '64',
	'the agents with a place show their calls');
cmp_ok(sql('SELECT max(in_flight) FROM sas.agents'), '<=', 1, 'none has more than it may');

# one worker dies, and all of its calls are made again by the others, or by its successor
my $before = scalar(map { $service->requests($_) } @databases);
is($before, 128, 'no agent is called beyond its place');
kill('KILL', (worker_pids($node, 'agent'))[0]);
ok(wait_for($node, taken('places'), '64'), 'after kill -9 of a worker all places are taken again');
my $held = $service->requests;
$service->script($_ => [ { delay => 0.05 } ]) foreach @databases;
$service->release;
foreach my $database (@databases)
{
	ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, 2 * $each, dbname => $database), "every agent of $database is called, every run ends");
}
my (%last, $beside);
foreach my $request ((sort { $a->{at} <=> $b->{at} } $service->requests)[ $held .. $service->requests - 1 ])
{
	my $before = $last{ $request->{target} };
	$beside++ if $before && $before->{ended} > $request->{at};
	$last{ $request->{target} } = $request;
}
is(scalar keys %last, 2 * $each, 'each agent was called since');
is($beside, undef, 'no agent had two calls at a time');
ok(wait_for($node, q{SELECT taken <= 32 FROM _sas.shared_tables() WHERE name = 'places'}), 'then half of the places are free');
ok(wait_for($node, taken('spare places'), '0'), 'and all spare places');
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'shared-memory' AND message ~ 'sas.max_agents' AND closed_at IS NULL}, '0'), 'and the alerts are closed');

# -- low-water marks --------------------------------------------------------------------

alert('32 low-water marks .*see sas.max_low_water_marks', 'an alert names the setting of low-water marks');
is(sql('SELECT count(*) <= 32 FROM _sas.low_water_marks()'), 't', 'more lanes than that are scanned, and have no mark');

# -- metrics ----------------------------------------------------------------------------

alert('64 metrics .*less exact.*see sas.max_metrics', 'an alert names the setting of metrics');
is(sql(q{SELECT sum(value) FROM sas.metrics('{sas_runs}')}), 2 * $each, 'every run is counted, though most of them under one name');
cmp_ok(sql(q{SELECT value FROM sas.metrics('{sas_runs}') WHERE labels = '{"workflow": "_other", "result": "_other"}'}), '>', 0, 'which says so');
is(sql(q{SELECT sum(value) FROM sas.metrics('{sas_metrics_dropped}')}), '0', 'no count is lost');
# whichever database's series are there: a metric that is counted for the first time may have summed up all the others
ok(wait_until(sub {
	sql(q{SELECT _sas.count_metric('alert', 0, 0, 'early ' || i, 1) FROM generate_series(1, 100) i});
	return sql(taken('metrics')) eq '64';
}), 'the table is full');
sql(q{SET sas.clock = '2100-01-01'; SELECT _sas.count_metric('alert', 0, 0, 'late one', 1)});
is(sql(q{SELECT sum(value) FROM sas.metrics('{sas_alerts}') WHERE labels = '{"kind": "late one"}'}), '1', 'what was not counted for an hour makes room');
cmp_ok(sql(taken('metrics')), '<', 64, 'and is summed up');
is(sql(q{SELECT sum(value) FROM sas.metrics('{sas_runs}')}), 2 * $each, 'so that nothing is lost');
is(sql(q{SELECT value FROM sas.metrics('{sas_shared_memory_capacity}') WHERE labels = '{"table": "metrics"}'}), '64', 'metrics show how full the tables are');

# -- owners -----------------------------------------------------------------------------

sql(q{CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('echo', '{"steps": {"a": {"function": "public.echo"}}}')});
# each has a run that waits, and one that is to end
foreach my $n (1 .. 20)
{
	sql("CREATE ROLE own_$n; SELECT sas.grant_usage('own_$n', 'user'), sas.grant_workflow('echo', 'own_$n')");
	sql("SET ROLE own_$n; SELECT FROM sas.submit('echo', start_at => now() + interval '1 day'); SELECT FROM sas.submit('echo')");
}
alert('of 16 owners .*see sas.max_owners', 'an alert names the setting of owners');
alert('^all 16 owners .*less exact.*see sas.max_owners', 'another one says that all are taken');
ok(wait_for($node, q{SELECT count(DISTINCT submitted_by) FROM sas.runs WHERE workflow = 'echo' AND result = 'success'}, '20'), 'the runs of all roles end, also of those without a place');
sql(q{SELECT count(*) FROM sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs WHERE workflow = 'echo' AND state <> 'stopped'))});
ok(wait_for($node, q{SELECT taken < 16 FROM _sas.shared_tables() WHERE name = 'owners'}), 'those that have nothing open make room');

# -- exclusions -------------------------------------------------------------------------

sql("CREATE DATABASE d$_") foreach 1 .. 3;
my @sessions = map { SasSession->new($node) } 1 .. 2;
$sessions[$_]->query("BEGIN; ALTER DATABASE d@{[ $_ + 1 ]} RENAME TO renamed@{[ $_ + 1 ]}") foreach 0 .. 1;
alert('2 of 2 exclusions .*see sas.max_exclusions', 'an alert names the setting of exclusions');
my $third = SasSession->new($node);
$third->query('BEGIN; ALTER DATABASE beside RENAME TO away');
is(sql(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'beside' AND backend_type LIKE 'sas %'}), '0', 'one more session finds no worker in the way');
my ($pid) = worker_pids($node, 'scheduler');
kill('TERM', $pid);
ok(wait_for($node, "SELECT count(*) FROM sas.workers WHERE actor = 'scheduler'", '0'), 'a worker of another database ends');
alert('^all 2 exclusions .*see sas.max_exclusions', 'an alert says that it cannot come back');
is(sql("SELECT count(*) FROM sas.workers WHERE actor = 'scheduler'"), '0', 'and it does not as long as that lasts');
$third->query('ROLLBACK');
ok(wait_for($node, "SELECT count(*) FROM sas.workers WHERE actor = 'scheduler'", '1'), 'but then');
ok(wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4', dbname => 'beside'), 'as do those of the database');
$_->query('ROLLBACK') foreach @sessions;
ok(wait_for($node, taken('exclusions'), '0'), 'no exclusion is left');

# -- what is dropped --------------------------------------------------------------------

my $marks = q{SELECT string_agg(name || ' ' || taken, ', ' ORDER BY name) FROM _sas.shared_tables() WHERE name NOT IN ('exclusions', 'spare places')};
sql('DROP EXTENSION sas CASCADE');
sql('DROP DATABASE beside');
sql('CREATE EXTENSION sas');
is(sql('SELECT sum(taken) FROM _sas.shared_tables()') <= 20, 1, 'what is dropped gives its room back') or diag(sql($marks));
done_testing();
