# SPDX-License-Identifier: PostgreSQL
#
# What a tick costs beside many agents, queues, workflows, schedules, watchers, roles and alerts. All actors
# do some of their work, while auto_explain logs how many rows each statement read only to throw them away: a
# fixed number for each object at most. A statement that compares all objects with all is found, whatever time
# it takes.
# Takes about 40 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasPlans;
use SasService;
use Test::More;

# of each kind; rows thrown away for each of them
my $n = 200;
my $most = 120;

my $node = new_node('main', plans_logged(), 'auto_explain.log_min_duration' => -1, 'sas.supervisor_interval' => '5 s', max_wal_size => '4GB');
my $service = SasService->new;
my $url = $service->url;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

$service->script(broken => [ { status => 503 } ]);
$sql->(qq{
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE FUNCTION bad(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN RAISE EXCEPTION 'bad'; END \$\$;
	SELECT count(sas.set_secret('secret_' || g, 'hidden' || g)) FROM generate_series(1, $n) g;
	SELECT count(sas.create_agent('agent_' || g, '$url', headers => jsonb_build_object('X-Token', '{{secret.secret_' || g || '}}'),
		breaker => '{"failures": 1, "open_for": "5 s"}', options => '{"concurrency": {"key": "{{input.g}}", "per_key": 2}}')) FROM generate_series(1, $n) g;
	SELECT count(sas.create_agent('outside_' || g, kind => 'external')) FROM generate_series(1, $n) g;
	SELECT count(sas.create_queue('queue_' || g, 2, '{{input.g}}', 1)) FROM generate_series(1, $n) g;
	SELECT count(sas.create_workflow('work_' || g, jsonb_build_object('steps', jsonb_build_object(
		'calls', jsonb_build_object('agent', 'agent_' || g, 'call', '{"path": "/fine"}'::jsonb),
		'local', '{"function": "public.echo"}'::jsonb || jsonb_build_object('queue', 'queue_' || g))))) FROM generate_series(1, $n) g;
	SELECT count(sas.create_workflow('broken_' || g, jsonb_build_object('steps', jsonb_build_object(
		'calls', jsonb_build_object('agent', 'agent_' || g, 'call', '{"path": "/broken"}'::jsonb, 'retry', '{"max_attempts": 1}'::jsonb, 'recovery', '{"max_failures": 1}'::jsonb,
			'fallback', '{"function": "public.echo", "on": ["breaker_open", "failed"]}'::jsonb))))) FROM generate_series(1, $n) g;
	SELECT count(sas.create_workflow('fails_' || g, '{"steps": {"it": {"function": "public.bad", "on_failure": "pause", "retry": {"max_attempts": 1}, "recovery": {"max_failures": 1}}}}')) FROM generate_series(1, $n) g;
	SELECT count(sas.create_watcher('watcher_' || g, '{"function": "public.echo", "every": "1 h"}')) FROM generate_series(1, $n) g});
$sql->("CREATE ROLE role_$_; SELECT sas.grant_usage('role_$_', 'user'); SELECT sas.set_limit('role_$_', 'open_runs', 1000)") foreach 1 .. 3;
$sql->(join('', map { "CREATE ROLE role_$_;" } 4 .. $n) . q{ SELECT count(sas.grant_usage(oid::regrole, 'user')) FROM pg_roles WHERE rolname ~ '^role_'});

my $from = -s $node->logfile;
$node->append_conf('postgresql.conf', 'auto_explain.log_min_duration = 0');
$node->reload;

$sql->("SELECT count(*) FROM generate_series(1, $n) g, sas.submit('work_' || g, jsonb_build_object('g', g))");
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow ~ '^work' AND result = 'success'}, $n, limit => 240), 'one run of each workflow');
$sql->("SELECT count(*) FROM generate_series(1, 2) i, generate_series(1, $n) g, sas.submit('broken_' || g, jsonb_build_object('g', g, 'i', i))");
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow ~ '^broken' AND state = 'stopped'}, 2 * $n, limit => 240), 'each breaker opens, and fallbacks do the work');
$sql->("SELECT count(*) FROM generate_series(1, $n) g, sas.submit('fails_' || g, jsonb_build_object('g', g))");
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow ~ '^fails' AND state = 'paused'}, $n, limit => 240), 'one run of each fails');
cmp_ok($sql->('SELECT count(*) FROM sas.alerts WHERE closed_at IS NULL'), '>=', $n, 'and has an alert');
$sql->("SELECT count(sas.schedule('schedule_' || g, 'every 1 s', 'work_' || g, jsonb_build_object('g', g), max_runs => 1)) FROM generate_series(1, $n) g");
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow ~ '^work' AND state = 'stopped'}, 2 * $n, limit => 240), 'each schedule submits a run');
$sql->("SELECT count(*) FROM generate_series(1, $n) g, sas.watch('watcher_' || g, 'it')");
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing'}, $n, limit => 240), 'each watcher has a task');
$sql->("SELECT count(sas.alter_agent('agent_' || g, max_in_flight => 3)) FROM generate_series(1, $n) g");
$sql->(q{SELECT count(*) FROM sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs WHERE state = 'paused'))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, 0, limit => 240), 'all end');
$sql->('SELECT ok FROM sas.health(); SELECT count(*) FROM sas.metrics(); SELECT count(*) FROM sas.agents; SELECT count(*) FROM sas.grants');

my ($actors, $found) = thrown_away($node, $from, $most * $n);
is(join(', ', sort grep { $actors->{$_} > 5 } keys %$actors), 'client backend, sas agent, sas function, sas scheduler, sas supervisor', 'statements of all actors are seen');
is(join("\n", map { "$found->{$_} rows, $_" } sort { $found->{$b} <=> $found->{$a} } keys %$found), '', "no statement throws away more than $most rows for each of $n objects");

done_testing();
