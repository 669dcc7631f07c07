# SPDX-License-Identifier: PostgreSQL
#
# Functions whose result nobody needs may return void: finalize of a run and of
# a step, hooks, items and turns of infinite tasks.
# Takes about 20 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

$sql->(q{CREATE TABLE told (who text, what jsonb);
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE FUNCTION ended(context jsonb) RETURNS void LANGUAGE sql AS $$INSERT INTO told VALUES ('run', context -> 'input')$$;
	CREATE FUNCTION made(context jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN INSERT INTO told VALUES ('step', context -> 'input'); END$$;
	CREATE FUNCTION hears(event jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN INSERT INTO told VALUES ('hook', event -> 'result'); END$$;
	CREATE FUNCTION takes(items jsonb) RETURNS void LANGUAGE sql AS $$INSERT INTO told VALUES ('items', items)$$;
	CREATE FUNCTION turns(turn jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN INSERT INTO told VALUES ('turn', turn -> 'cursor'); END$$;
	SELECT sas.create_workflow('w', '{"steps": {"a": {"function": "public.echo", "finalize": "public.made"}}, "finalize": "public.ended",
		"hooks": [{"on": "success", "function": "public.hears"}]}')});
is($sql->(q{SELECT * FROM sas.submit('w', '{"n": 7}')}) =~ s/\|.*//r, '1', 'a run is submitted');
is($sql->(q{SELECT state, result FROM sas.wait(1)}), 'stopped|success', 'and ends');
ok(wait_for($node, q{SELECT count(*) FROM told}, '3'), 'three functions were called');
is($sql->(q{SELECT string_agg(who || ' ' || what, ', ' ORDER BY who) FROM told}), 'hook "success", run {"n": 7}, step {"n": 7}', 'each with what it is about');
is($sql->(q{SELECT output FROM sas.steps WHERE step = 'finalize'}), 'null', 'void counts as null');
ok(wait_for($node, q{SELECT state || ' ' || result FROM sas.hook_runs}, 'stopped success'), 'the hook has succeeded');

$sql->(q{SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.create_watcher('feed', '{"agent": "host", "external": {}, "items": {"function": "public.takes"}}');
	SELECT sas.create_watcher('clock', '{"function": "public.turns", "every": "1 h"}');
	SELECT sas.watch('feed', 'a'), sas.watch('clock', 'b')});
my $host = SasSession->new($node);
my ($id) = $host->query(q{SELECT sas.register_node('host', 1, '{host}', lease => '1 h')}) =~ /(\d+)/;
my $task;
ok(wait_until(sub { ($task) = $host->query("SELECT watch_id || ', ' || epoch FROM sas.claim_watchers($id, 1)") =~ /(\d+, \d+)/ }), 'a host has a task');
$host->query(qq{SELECT sas.append_items($task, '[1, 2]')});
ok(wait_for($node, q{SELECT what FROM told WHERE who = 'items'}, '[1, 2]'), 'items are taken');
ok(wait_for($node, q{SELECT count(*) FROM told WHERE who = 'turn'}, '1'), 'a turn is made');
ok(wait_for($node, q{SELECT waiting FROM sas.watches WHERE key = 'a'}, '0'), 'and no item waits');
is($sql->(q{SELECT string_agg(state || failures, ' ' ORDER BY key) FROM sas.watches}), 'processing0 processing0', 'nothing has failed');
$host->query(qq{SELECT sas.release_watches($id, '{}'), sas.leave_node($id)});

my (undef, undef, $refused) = $node->psql('postgres', q{SELECT sas.create_workflow('v', '{"steps": {"a": {"function": "public.ended"}}}')});
like($refused, qr/function public.ended\(jsonb\) does not return jsonb/, 'a step returns its output');
(undef, undef, $refused) = $node->psql('postgres', q{SELECT sas.create_workflow('v', '{"plan": "public.ended"}')});
like($refused, qr/function public.ended\(jsonb\) does not return jsonb/, 'a plan function its plan');
done_testing();
