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
	SELECT sas.create_workflow('small', '{"steps": {"a": {"function": "t.echo"}}}');
	SELECT sas.create_workflow('wide', (SELECT jsonb_build_object('steps',
		jsonb_object_agg('s' || g, '{"function": "t.echo", "after": ["first", "never"]}'::jsonb)
		|| '{"first": {"function": "t.echo"}, "never": {"wait": {"signal": "never"}}}') FROM generate_series(1, $follow) g))});

# the function is known to be short, and batches have grown
$node->safe_psql('postgres', q{SELECT count(*) FROM sas.submit_batch('small', array_fill('{}'::jsonb, ARRAY[2000]))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'small' AND state <> 'stopped'}, 0), 'short functions share transactions');
cmp_ok($node->safe_psql('postgres', 'SELECT max(n) FROM (SELECT count(*) AS n FROM _sas.step GROUP BY xmin::text) x'), '>', 1, 'more than one in a transaction');

$node->safe_psql('postgres', "SELECT count(*) FROM sas.submit_batch('wide', array_fill('{}'::jsonb, ARRAY[$runs]))");
ok(wait_for($node, q{SELECT count(*) FROM _sas.step WHERE state = 'waiting'}, $runs * $follow), "$runs steps have ended, for each of which $follow wait");
is($node->safe_psql('postgres', q{SELECT max(n) FROM (SELECT count(*) AS n FROM _sas.step WHERE state = 'waiting' GROUP BY xmin::text) x}), $follow,
	'no transaction has changed more than those that wait for one step');
is($node->safe_psql('postgres', q{SELECT count(*) FROM _sas.step WHERE state = 'running'}), 0, 'and none of the steps is left behind');
$node->stop;
done_testing();
