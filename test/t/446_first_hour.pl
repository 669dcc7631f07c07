# SPDX-License-Identifier: PostgreSQL
#
# What a newcomer meets: a server without the library preloaded says so, an
# agent that is defined anew says what it lost, a submit per row makes a run
# per row; and a signal to a run reaches its children.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

# -- a server without the library ---------------------------------------------------------

my $bare = new_node('bare', shared_preload_libraries => '', _extension => 0);
my ($out, $err) = ('', '');
$bare->psql('postgres', 'CREATE EXTENSION sas', stderr => \$err, on_error_stop => 0);
like($err, qr/WARNING: +no worker of sas can start: library "sas" is not preloaded\s+DETAIL: +Runs are accepted.*HINT: +Add sas to shared_preload_libraries/s, 'CREATE EXTENSION warns when no worker can start');
$bare->safe_psql('postgres', q{SELECT sas.create_agent('a', 'http://127.0.0.1:1'); CREATE FUNCTION public.f(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
	SELECT sas.create_workflow('w', '{"steps": {"x": {"agent": "a", "call": {}}, "y": {"function": "public.f"}}}'); SELECT sas.submit('w')});
is($bare->safe_psql('postgres', q{SELECT count(*) FROM sas.explain(1) WHERE step IS NOT NULL AND text LIKE '%no worker can start: library "sas" is not preloaded (setting shared_preload_libraries)%'}), 2, 'and sas.explain says the same of each step');
is($bare->safe_psql('postgres', q{SELECT workers_loaded FROM sas.health()}), 'f', 'as sas.health knows it');
$bare->stop;

# -- a server with it -----------------------------------------------------------------------

my $node = new_node('main', _extension => 0, 'sas.schedulers' => 1);
$node->psql('postgres', 'CREATE EXTENSION sas', stderr => \$err);
unlike($err, qr/WARNING/, 'with the library there is nothing to warn of');

$node->psql('postgres', q{SELECT sas.create_agent('pay', 'http://127.0.0.1:1', max_in_flight => 5, rate_limit => '5/s', headers => '{"a": "b"}', breaker => '{"off": true}')}, stderr => \$err);
is($err, '', 'a new agent is not remarked on');
$node->psql('postgres', q{SELECT sas.alter_agent('pay', enabled => false); SELECT sas.create_agent('pay', 'http://127.0.0.1:2', headers => '{"a": "c"}')}, stderr => \$err);
like($err, qr/NOTICE: +agent "pay" exists, and went back to the default of: breaker, enabled, max_in_flight, rate_limit\s+HINT: +sas\.alter_agent/, 'create_agent over an existing one names what went back to its default');
$node->psql('postgres', q{SELECT sas.create_agent('pay', 'http://127.0.0.1:2', headers => '{"a": "d"}')}, stderr => \$err);
is($err, '', 'and says nothing where nothing did');
is($node->safe_psql('postgres', q{SELECT detail -> 'from' ->> 'max_in_flight' FROM sas.history WHERE act = 'create_agent' AND detail -> 'from' ? 'max_in_flight'}), 5, 'the history has what was');

$node->safe_psql('postgres', q{SELECT sas.create_workflow('x', '{"steps": {}}')});
$node->safe_psql('postgres', q{SELECT sas.submit('x') FROM generate_series(1, 50)});
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'x'}), 50, 'a submit in the select list makes a run per row');
$node->safe_psql('postgres', q{SELECT run_id FROM generate_series(1, 50) g, LATERAL sas.submit('x', jsonb_build_object('n', g))});
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'x'}), 100, 'so does one in FROM that refers to the row');

# -- children: signals reach them ---------------------------------------

$node->safe_psql('postgres', q{
	SELECT sas.create_workflow('inner', '{"steps": {"w": {"wait": {"signal": "go"}}}}');
	SELECT sas.create_workflow('outer', '{"steps": {"a": {"workflow": "x"}, "b": {"workflow": "inner", "after": ["a"]}}}')});
my $parent = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('outer')});
my $waits = "SELECT s.waiting_kind FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'inner' AND r.parent_run_id = ";
ok(wait_for($node, $waits . $parent, 'signal'), 'one child has ended, the other waits for a signal');
$node->safe_psql('postgres', "SELECT sas.signal($parent, 'go')");
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $parent", 'success'), 'a signal to the parent reaches the child that waits for it');
is($node->safe_psql('postgres', "SELECT string_agg(workflow || ' ' || result, ', ' ORDER BY workflow) FROM sas.runs WHERE parent_run_id = $parent"), 'inner success, x success', 'both children have ended well');
done_testing();
