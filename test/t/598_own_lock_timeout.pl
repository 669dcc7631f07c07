# SPDX-License-Identifier: PostgreSQL
#
# A function of a user calls a verb that meets a locked table, in a function worker. The worker waits less for locks in its
# own ticks then; the function keeps the lock timeout that its database has.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

# nothing else takes over the tasks of a node
my $node = new_node('main', 'sas.function_workers' => 1, 'sas.supervisors' => 0);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	ALTER DATABASE postgres SET lock_timeout = '1s';
	CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY, item jsonb NOT NULL);
	CREATE FUNCTION asks(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM sas.claim_watchers((input ->> 'node')::bigint, 1);
		RETURN to_jsonb(current_setting('lock_timeout'));
	END $$;
	SELECT sas.create_agent('outside', kind => 'external');
	SELECT sas.create_watcher('feed', '{"agent": "outside", "external": {}, "items": {"table": "public.item"}}');
	SELECT sas.create_workflow('asks', '{"steps": {"it": {"function": "public.asks", "input": {"node": "{{input.node}}"}}}, "output": "{{steps.it.output}}"}')});
# its workers read the setting when they start
$node->restart;
my ($lives, $ends, $holder) = map { SasSession->new($node) } 1 .. 3;
my $id = $lives->query(q{SELECT sas.register_node('lives', 1, '{outside}', lease => '1 day')});
my $other = $ends->query(q{SELECT sas.register_node('ends', 1, '{outside}', lease => '1 day')});
$sql->(q{SELECT FROM sas.watch('feed', 'it')});
ok(wait_until(sub { $ends->query("SELECT key FROM sas.claim_watchers($other, 1)") eq 'it' }), 'a node has a task');
my $pid = $ends->query('SELECT pg_backend_pid()');
$ends->quit;
ok(wait_for($node, "SELECT count(*) FROM pg_stat_get_activity($pid)", '0'), 'its session ends');
$holder->query('BEGIN; LOCK TABLE _sas.watch_held IN SHARE ROW EXCLUSIVE MODE');
my $run = $sql->(qq{SELECT run_id FROM sas.submit('asks', '{"node": $id}')});
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped'), 'a function takes it over in vain, because a table is locked');
is($sql->(q{SELECT kind FROM _sas.deferred_work}), 'task', 'it is put off');
is($sql->("SELECT output FROM sas.runs WHERE run_id = $run"), '"1s"', 'the function still has the lock timeout of its database');
$holder->query('COMMIT');
$_->quit foreach $lives, $holder;
$node->stop;
done_testing();
