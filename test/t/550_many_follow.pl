# SPDX-License-Identifier: PostgreSQL
#
# The end of one step changes every step that waits for it. Many such steps of
# a role do not end in one transaction: functions of others are called in
# between.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my ($runs, $follow) = (20, 1000);
my $node = new_node('main', 'sas.function_workers' => 1, 'sas.agents' => 0);
$node->safe_psql('postgres', qq{
	CREATE SCHEMA t;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE TABLE t.called (workflow text NOT NULL, xid xid8 NOT NULL DEFAULT pg_current_xact_id());
	CREATE FUNCTION t.note(input jsonb) RETURNS jsonb LANGUAGE sql AS 'INSERT INTO t.called VALUES (input ->> ''of'') RETURNING input';
	SELECT sas.create_workflow('small', '{"steps": {"a": {"function": "t.note", "input": {"of": "small"}}}}');
	SELECT sas.create_workflow('wide', (SELECT jsonb_build_object('steps',
		jsonb_object_agg('s' || g, '{"function": "t.echo", "after": ["first", "never"]}'::jsonb)
		|| '{"first": {"function": "t.note", "input": {"of": "wide"}}, "never": {"wait": {"signal": "never"}}}') FROM generate_series(1, $follow) g))});

# the function is known to be short, and batches have grown
$node->safe_psql('postgres', q{SELECT count(*) FROM sas.submit_batch('small', array_fill('{}'::jsonb, ARRAY[2000]))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'small' AND state <> 'stopped'}, 0), 'short functions share transactions');
my $transactions = q{SELECT count(DISTINCT xid) FROM t.called WHERE workflow = '%s'};
cmp_ok($node->safe_psql('postgres', sprintf $transactions, 'small'), '<', 1000, 'more than one in a transaction');

$node->safe_psql('postgres', "SELECT count(*) FROM sas.submit_batch('wide', array_fill('{}'::jsonb, ARRAY[$runs]))");
ok(wait_for($node, q{SELECT count(*) FROM _sas.step WHERE state = 'waiting'}, $runs * $follow), "$runs steps have ended, for each of which $follow wait");
# a scheduler writes the replies to runs that somebody has locked meanwhile: see 557_many_ends_together
is($node->safe_psql('postgres', sprintf $transactions, 'wide'), $runs, 'each of them was called in a transaction of its own');
is($node->safe_psql('postgres', q{SELECT count(*) FROM _sas.step WHERE state = 'running'}), 0, 'and none of the steps is left behind');

# the elements of a map share transactions, and what waits for the map begins after the last of them
my $elements = 1500;
$node->safe_psql('postgres', qq{
	SELECT sas.create_workflow('map', (SELECT jsonb_build_object('steps',
		jsonb_object_agg('s' || g, '{"wait": {"signal": "never"}, "after": ["first"]}'::jsonb)
		|| '{"first": {"function": "t.echo", "input": {}, "each": "{{input.items}}"}}') FROM generate_series(1, $follow) g));
	SELECT count(*) FROM sas.submit('map', (SELECT jsonb_build_object('items', jsonb_agg(n)) FROM generate_series(1, $elements) n))});
ok(wait_for($node, q{SELECT count(*) FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'map' AND s.state = 'suspended'}, $follow), "a map of $elements elements ends, for which $follow wait");
cmp_ok($node->safe_psql('postgres', q{SELECT count(DISTINCT s.xmin::text) FROM _sas.step s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'map' AND s.element > 0}), '<', $elements / 4,
	'its elements have not each had a transaction');
$node->stop;
done_testing();
