# SPDX-License-Identifier: PostgreSQL
#
# Limits of roles, with workers: a workflow that starts itself tenfold comes to its end and stops nobody else; functions
# do not submit faster than their owner may, and do not take all function workers; what a role has open is counted again
# after a restart and a crash. Takes about 60 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main');
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
sub used { my ($role, $name) = @_; return "SELECT coalesce(sum(used), 0) FROM sas.limits WHERE role = '$role' AND name = '$name'" }

sql(q{
	CREATE ROLE eager;
	CREATE ROLE calm;
	CREATE SCHEMA app;
	GRANT USAGE ON SCHEMA app TO eager, calm;
	CREATE FUNCTION app.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	CREATE FUNCTION app.ten(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT to_jsonb(count(s.run_id)) FROM generate_series(1, 10) n, sas.submit('again', '{}') s $$;
	SELECT sas.grant_usage('eager', 'user'), sas.grant_usage('calm', 'user');
	SELECT sas.create_workflow('echo', '{"steps": {"a": {"function": "app.echo"}}}');
	SELECT sas.create_workflow('bomb', '{"steps": {"a": {"function": "app.echo"}}}');
	SELECT sas.create_workflow('bomb', '{"steps": {"again": {"workflow": "bomb", "each": "{{input.ten}}"}}}');
	SELECT sas.create_workflow('wait', '{"steps": {"a": {"wait": {"signal": "go"}}}}');
	SELECT sas.create_workflow('again', '{"steps": {"a": {"function": "app.ten"}}}');
	SELECT sas.grant_workflow(w, r) FROM unnest('{echo,bomb,wait,again}'::text[]) w, unnest('{eager,calm}'::regrole[]) r;
	SELECT sas.set_limit('eager', 'children', 300)});
ok(wait_for($node, 'SELECT _sas.quotas_counted_ago() IS NOT NULL', 't'), 'the supervisor has counted what is open');

# -- a workflow that starts itself tenfold --------------------------------------------------

sql(q{SET ROLE eager; SELECT sas.submit('bomb', '{"ten": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}')});
my $other = sql(q{SET ROLE calm; SELECT run_id FROM sas.submit('echo')});
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $other", 'success', limit => 120), 'a run of another role goes on beside it');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'bomb' AND state <> 'stopped'}, '0', limit => 300), 'it ends')
  or diag(sql(q{SELECT state, count(*) FROM sas.runs GROUP BY 1}));
cmp_ok(sql(q{SELECT count(*) FROM sas.runs WHERE workflow = 'bomb'}), '<', 3000, 'after few of its runs');
ok(wait_for($node, used('eager', 'children'), '0'), 'and nothing of it counts any longer');

# -- functions that submit --------------------------------------------------------------------

sql(q{SELECT sas.set_limit('eager', 'submits_per_s', 1)});
sql(q{SET ROLE eager; SELECT sas.submit('again')});
ok(wait_for($node, q{SELECT count(*) > 0 FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE r.workflow = 'again' AND a.error ->> 'title' LIKE '%submit too fast%'}, 't'),
	'functions that submit too fast fail, for this moment') or diag(sql(q{SELECT error FROM sas.attempts}));
cmp_ok(sql(q{SELECT count(*) FROM sas.runs WHERE workflow = 'again'}), '<', 300, 'and make few runs');
# a function that ran when its run was cancelled may have submitted more
ok( wait_until(
		sub {
			sql(q{SELECT sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs WHERE workflow = 'again' AND state <> 'stopped'))});
			return sql(used('eager', 'open_runs')) eq '0';
		},
		120),
	'cancelled, they count no longer') or diag(sql(q{SELECT * FROM sas.runs WHERE state <> 'stopped'}));
sql(q{SELECT sas.set_limit('eager', 'submits_per_s', 0)});

# -- counted again ------------------------------------------------------------------------------

sql(q{SET ROLE calm; SELECT sas.submit_batch('wait', array_fill('{"n": 1}'::jsonb, ARRAY[7]))});
is(sql(used('calm', 'open_runs')), '7', 'what a role has open is counted');
my $bytes = sql(used('calm', 'bytes'));
for my $how ('fast', 'immediate')
{
	$node->stop($how);
	$node->start;
	ok(wait_for($node, used('calm', 'open_runs'), '7'), "and counted again after a stop that is $how");
	is(sql(used('calm', 'bytes')), $bytes, 'with the same bytes');
}
sql(q{SELECT sas.set_limit('calm', 'open_runs', 7)});
my ($ret, $out, $err) = $node->psql('postgres', q{SET ROLE calm; SELECT sas.submit('wait')});
like($err, qr/role "calm" has too many runs open/, 'no more is submitted then');
sql(q{SELECT sas.signal(run_id, 'go') FROM sas.runs WHERE workflow = 'wait'});
ok(wait_for($node, used('calm', 'open_runs'), '0'), 'until they have ended');
ok(sql(q{SET ROLE calm; SELECT created FROM sas.submit('wait')}) eq 't', 'then there is room');

# -- function workers ------------------------------------------------------------------------------

sql(q{
	ALTER SYSTEM SET sas.function_workers = 3;
	SELECT sas.set_limit('calm', 'open_runs', NULL)});
sql(q{ALTER SYSTEM SET sas.function_workers_max = 8});
$node->reload;
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '3'), 'there are three function workers');
sql(q{
	CREATE TABLE app.gate (open boolean);
	GRANT SELECT ON app.gate TO eager, calm;
	CREATE FUNCTION app.asleep(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM app.gate) LOOP
			PERFORM pg_sleep(0.05);
		END LOOP;
		RETURN '{}';
	END $$;
	SELECT sas.create_workflow('asleep', '{"steps": {"a": {"function": "app.asleep", "complete_in": "10 min"}}}');
	SELECT sas.grant_workflow('asleep', 'eager'), sas.grant_workflow('asleep', 'calm');
	SELECT sas.set_limit('eager', 'function_workers', 2)});
my $asleep = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND wait_event = 'PgSleep'};
# as often as asked, the most that were seen at a time
sub most_asleep { my $most = 0; foreach (1 .. 40) { my $n = sql($asleep); $most = $n if $n > $most; select(undef, undef, undef, 0.05) } return $most }
sql(q{SET ROLE eager; SELECT sas.submit_batch('asleep', array_fill('{}'::jsonb, ARRAY[6]))});
ok(wait_for($node, $asleep, '2'), 'as many functions of a role run as may');
is(most_asleep(), 2, 'and no more');
is(sql(used('eager', 'function_workers')), '2', 'sas.limits shows them');
$other = sql(q{SET ROLE calm; SELECT run_id FROM sas.submit('echo')});
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $other", 'success', limit => 60), 'a function of another role goes on');
like(sql(q{SELECT text FROM sas.explain() WHERE waiting_kind = 'function_workers'}), qr/functions of role "eager" run on as many workers as may: 2 of 2/, 'sas.explain says what the others wait for');
kill_worker($node, 'function', 'KILL');
ok(wait_for($node, $asleep, '2', limit => 120), 'after a crash as many run again');
is(most_asleep(), 2, 'and no more');
$node->restart;
ok(wait_for($node, $asleep, '2', limit => 120), 'and after a restart');
sql(q{SELECT sas.set_limit('eager', 'function_workers', 3)});
ok(wait_for($node, $asleep, '3', limit => 60), 'a larger limit holds at once');
is(most_asleep(), 3, 'and no more run');
sql(q{SELECT sas.set_limit('eager', 'function_workers', 1); INSERT INTO app.gate VALUES (true)});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'asleep' AND state <> 'stopped'}, '0'), 'all of them end');
is(sql(q{SELECT string_agg(DISTINCT result, ' ') FROM sas.runs WHERE workflow = 'asleep'}), 'success', 'with success');
is(sql(q{SELECT string_agg(s.failure_count::text, ' ') FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'asleep' AND s.failure_count > 0}), '1 1', 'the crash counted one failure of each function that ran then, the restart none')
  or diag(sql(q{SELECT a.* FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE r.workflow = 'asleep'}));
# many short ones, one worker at a time; each is woken by the one before
sql(q{SET ROLE eager; SELECT count(*) FROM generate_series(1, 300), LATERAL sas.submit('echo')});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'echo' AND state <> 'stopped'}, '0'), 'many short ones end, too');
($ret, $out, $err) = $node->psql('postgres', q{SELECT sas.set_limit('eager', 'function_workers', 0)});
like($err, qr/functions of a role need a worker/, 'none at all is refused');
done_testing();
