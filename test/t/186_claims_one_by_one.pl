# SPDX-License-Identifier: PostgreSQL
#
# A step that cannot be claimed is put aside with an alert, and holds up no
# other step of its lane: of calls, of functions and of tasks. It is claimed
# when that has been mended. A step whose request or input cannot be built,
# whatever the error, fails by itself. Takes about 60 s, which the pause of a
# minute makes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1, 'sas.function_workers' => 1);
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

make_agent($node, 'remote', $service);
$sql->(q{
	SELECT sas.create_agent('outside', kind => 'external');
	SELECT sas.create_queue('narrow', 1);
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE TABLE refused (run_id bigint PRIMARY KEY);
	-- what a damaged row, or somebody's trigger, does
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		IF NEW.state = 'running' AND EXISTS (SELECT FROM public.refused r WHERE r.run_id = NEW.run_id) THEN
			RAISE EXCEPTION 'refused by the test';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON _sas.step FOR EACH ROW EXECUTE FUNCTION refuse()});
my %kind = (call => { agent => 'remote', call => { path => '/quick' } }, function => { function => 'public.echo' }, task => { agent => 'outside', task => {} },
	queued => { function => 'public.echo', queue => 'narrow' });
define($node, $_, { steps => { x => $kind{$_} } }) foreach keys %kind;

# ten of each in one commit, and the fourth of each is refused
my %bad;
$sql->(q{BEGIN;
	CREATE TEMP TABLE made AS SELECT n, w, (sas.submit(w, jsonb_build_object('n', n))).run_id
		FROM generate_series(1, 10) n, unnest('{call,function,task,queued}'::text[]) w;
	INSERT INTO refused SELECT run_id FROM made WHERE n = 4;
	COMMIT});
$bad{$_} = $sql->("SELECT run_id FROM sas.runs JOIN refused USING (run_id) WHERE workflow = '$_'") foreach keys %kind;

my @claimed = split /\n/, $sql->(q{SELECT run_id FROM sas.claim('outside', 'me', 20, '1 h')});
is(scalar @claimed, 9, 'an outside program gets all tasks but the one that cannot be claimed');
ok(!grep({ $_ == $bad{task} } @claimed), 'and not that one');
is($sql->(q{SELECT count(*) FROM sas.claim('outside', 'me', 20, '1 h')}), '0', 'nor does the next claim, which finds nothing');
foreach my $kind (qw(call function queued))
{
	ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow = '$kind' AND result = 'success'", '9'), "$kind: all others end");
	ok(wait_for($node, "SELECT count(*) FROM sas.alerts WHERE kind = 'stuck' AND run_id = $bad{$kind} AND message LIKE 'run $bad{$kind}: a step cannot be claimed: refused by the test%'", '1'),
		"$kind: an alert names the run that cannot be claimed");
	is($sql->("SELECT state FROM sas.steps WHERE run_id = $bad{$kind}"), 'ready', "$kind: its step waits");
	is($sql->("SELECT waiting_kind || (waiting_until > now())::text FROM sas.steps WHERE run_id = $bad{$kind}"), 'asidetrue', "$kind: and says for what");
	like($sql->("SELECT text FROM sas.explain($bad{$kind}) WHERE step = 'x'"), qr/it could not be claimed \(alert "stuck" in sas.alerts says why\), and is tried again at /, "$kind: in words, too");
}
is($sql->("SELECT count(*) FROM sas.alerts WHERE kind = 'stuck' AND run_id = $bad{task}"), '1', 'the task has an alert, too');
$sql->(qq{SELECT run_id FROM sas.submit('$_')}) foreach qw(call function);
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow IN ('call', 'function') AND result = 'success'", '20'), 'what comes later ends, too');

# keys of inputs: those of which none could be made, and those that are damaged
$sql->(q{SELECT sas.alter_agent('remote', options => '{"concurrency": {"key": "{{input.tenant?}}", "per_key": 2}}'), sas.create_queue('by_tenant', 2, '{{input.tenant?}}', 1)});
define($node, "keyed_$_->[0]", { steps => { x => $_->[1] } }) foreach [ agent => $kind{call} ], [ queue => { function => 'public.echo', queue => 'by_tenant' } ];
$sql->(q{SELECT (sas.submit(w, jsonb_build_object('tenant', t))).run_id FROM unnest('{keyed_agent,keyed_queue}'::text[]) w,
	unnest(ARRAY['a', repeat('\\', 300), repeat('b', 300), repeat(E'\n\x01\\x', 100), repeat('"', 1000), 'a']) t});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow LIKE 'keyed%' AND result = 'success'}, '12'), 'whatever a key is made of, it holds up nobody');

# one that is cancelled meanwhile ends
$sql->("SELECT sas.cancel($bad{function})");
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $bad{function}", 'stopped'), 'a run whose step was put aside can be cancelled');

# a damaged definition
define($node, "broken_$_", { on_failure => 'fail', steps => { x => $kind{$_} } }) foreach qw(call function);
$sql->(q{UPDATE _sas.workflow_step w SET request = '"x"', input = CASE WHEN w.kind = 'function' THEN '"{{input.n}}"'::jsonb END, lane = w.lane
	FROM _sas.workflow_version v JOIN _sas.workflow f USING (workflow_id) WHERE w.version_id = v.version_id AND f.name LIKE 'broken%'});
$sql->(q{SELECT (sas.submit(w)).run_id FROM unnest('{call,broken_call,call,function,broken_function,function}'::text[]) w});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow IN ('call', 'function') AND result = 'success'}, '24'), 'a request that cannot be built holds up no other');
ok(wait_for($node, q{SELECT string_agg(result, ' ') FROM sas.runs WHERE workflow LIKE 'broken%'}, 'error error'), 'and its run fails');

$sql->('TRUNCATE refused');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $bad{call}", 'success', limit => 180), 'once mended, the call is claimed');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $bad{queued}", 'success', limit => 180), 'and the function of the queue');
ok(wait_for($node, q{SELECT run_id FROM sas.claim('outside', 'me', 20, '1 h')}, $bad{task}), 'and so is the task');
ok(wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('sas agent', 'sas function')", '2'), 'no worker has ended');
done_testing();
