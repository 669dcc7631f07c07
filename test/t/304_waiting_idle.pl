# SPDX-License-Identifier: PostgreSQL
#
# Waiting costs nothing: 20,000 steps that wait for signals, far timers and
# children wake nobody and write nothing; one that is signalled goes on at once.
# Takes about 40 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;
use Time::HiRes;

my $node = new_node('main',
	autovacuum => 'off',
	checkpoint_timeout => '1h',
	bgwriter_lru_maxpages => 0,
	'sas.agents' => 2,
	'sas.supervisor_interval' => '2 s');
$node->safe_psql('postgres', q{
	SELECT sas.create_workflow('signal', '{"steps": {"one": {"wait": {"signal": "go", "timeout": "2 days"}}}, "output": "{{steps.one.output}}"}');
	SELECT sas.create_workflow('timer', '{"steps": {"one": {"wait": {"for": "1 day"}}}}');
	SELECT sas.create_workflow('parent', '{"steps": {"one": {"workflow": "signal"}}}');
	SELECT sas.create_workflow('votes', '{"steps": {"one": {"wait": {"signal": "go"}, "each": "{{input.items}}"}}}')});
# a transaction each, as sessions do
$node->safe_psql('postgres', "SELECT count(*) FROM sas.submit_batch('$_', array_fill('{}'::jsonb, ARRAY[5000]))") foreach qw(signal timer parent);
$node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('votes', jsonb_build_object('items', (SELECT jsonb_agg(i) FROM generate_series(1, 1000) i)))});
ok(wait_for($node, q{SELECT count(*) FROM _sas.step WHERE state = 'suspended'}, 4 * 5000 + 1001, limit => 300), '20,000 steps wait: for signals, timers, children and elements');
$node->safe_psql('postgres', 'VACUUM ANALYZE');
quiet_for($node, 10, '20,000 waiting steps');
is($node->safe_psql('postgres', q{SELECT count(*) FROM _sas.step WHERE state <> 'suspended'}), '0', 'and all of them wait still');

my $run = $node->safe_psql('postgres', q{SELECT max(run_id) FROM sas.runs WHERE workflow = 'parent'});
my $child = $node->safe_psql('postgres', "SELECT run_id FROM sas.runs WHERE parent_run_id = $run");
my $let_go = hold_supervisor($node);
my $begun = Time::HiRes::time();
$node->safe_psql('postgres', "SELECT sas.signal($child, 'go', '7')");
is($node->safe_psql('postgres', "SELECT result FROM sas.wait($run)"), 'success', 'a signal to one child of 5,000 ends it and its parent');
cmp_ok(Time::HiRes::time() - $begun, '<', 30, 'at once');
$let_go->();
done_testing();
