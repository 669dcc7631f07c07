# SPDX-License-Identifier: PostgreSQL
#
# Large answers, and paths that cost too much, keep nobody else waiting: an
# agent worker holds no more of requests and answers than sas.agent_memory,
# an agent that holds more than is left is not called, sas.explain says so, and
# all of it is answered in the end. One call that cannot be started or
# evaluated costs itself only.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agent_memory' => '16MB');
my $service = SasService->new;
$service->script(
	large => [ { json => [ map { { id => $_, name => "customer number $_", tags => [ 'a', 'b' ] } } 1 .. 25000 ] } ],
	small => [ { json => 'well' } ]);
make_agent($node, 'greedy', $service, request_timeout => '2 min');
make_agent($node, 'modest', $service);

# -- paths ---------------------------------------------------------------------------------

# in a worker: the step fails for good, and the calls beside it go on
my $costly = 'input.list[*] ? (@ > $.input.list[*] && @ < 0)';
define($node, 'costly', { steps => { it => { agent => 'modest', call => { method => 'POST', path => '/small', body => { x => "{{$costly}}" } } } } });
define($node, 'costly_expect', { steps => { it => { agent => 'modest', call => { path => '/small' }, expect => "exists(\$.$costly)" } } });
$node->safe_psql('postgres', 'CREATE FUNCTION public.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$');
define($node, 'costly_function', { steps => { it => { function => 'public.echo', input => { x => "{{$costly}}" } } } });
define($node, 'cheap', { steps => { it => { agent => 'modest', call => { path => '/small' } } } });
$node->safe_psql('postgres', q{
	SELECT count(s.run_id) FROM generate_series(1, 3) g, unnest('{costly,costly_expect,costly_function,cheap}'::text[]) w,
		(SELECT jsonb_agg(i) AS list FROM generate_series(1, 40000) i) l, sas.submit(w, jsonb_build_object('n', g, 'list', l.list)) s});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, '0'), 'steps whose paths cost too much end');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT workflow || ' ' || result, ', ' ORDER BY workflow || ' ' || result) FROM sas.runs}),
	'cheap success, costly error, costly_expect error, costly_function error', 'they fail, and those beside them do not');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM sas.steps WHERE error::text ~ 'takes more than 100 ms to evaluate|needs more than 16 MB to evaluate'}),
	'9', 'each says which limit was reached');

# -- memory --------------------------------------------------------------------------------

define($node, 'large', { steps => { it => { agent => 'greedy', complete_in => '5 min', call => { path => '/large' }, output => '{{output.status}}' } } });
my ($worker) = worker_pids($node, 'agent');
my $most = 0;
$node->safe_psql('postgres', q{SELECT count(s.run_id) FROM generate_series(1, 60) g, sas.submit('large', jsonb_build_object('n', g)) s});
ok(wait_until(sub {
	my ($held, $open) = split /\|/, $node->safe_psql('postgres', q{
		SELECT coalesce((SELECT max(memory) FROM sas.workers WHERE actor = 'agent'), 0),
			(SELECT count(*) FROM sas.runs WHERE workflow = 'large' AND state <> 'stopped')});
	$most = $held if $held > $most;
	my $run = run_call($node, 'modest', { path => '/small' }) if $open;
	return !$open || ($run->{result} ne 'success' && die 'a small call failed');
}), 'large answers are taken in, one after the other, and small ones of another agent among them');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'large' AND result = 'success'}), '60', 'all of them succeed');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.attempts WHERE step = 'it' AND agent = 'greedy'}), '60', 'with one attempt each');
cmp_ok($most, '<', 20_000_000, 'the worker held no more than its budget, and one answer');
cmp_ok($most, '>', 2_000_000, 'which sas.workers shows');
is((worker_pids($node, 'agent'))[0], $worker, 'it is the same process');
ok(wait_for($node, q{SELECT memory FROM sas.workers WHERE actor = 'agent'}, '0'), 'and nothing is held in the end');

# answers that stop in the middle shut the door of their agent; sas.explain says so, and others are called
$service->script(stuck => [ { how => 'stuck' } ]);
define($node, 'stuck', { steps => { it => { agent => 'greedy', complete_in => '5 min', call => { path => '/stuck' }, output => '{{output.status}}' } } });
$node->safe_psql('postgres', q{SELECT count(s.run_id) FROM generate_series(1, 12) g, sas.submit('stuck', jsonb_build_object('n', g)) s});
ok(wait_for($node, q{SELECT memory > 7000000 FROM sas.workers WHERE actor = 'agent'}, 't'), 'an agent alone gets half of the budget');
$node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('stuck', '{"n": 13}')});
ok(wait_for($node, q{SELECT count(*) FROM sas.explain() WHERE waiting_kind = 'agent' AND text LIKE '%sas.agent_memory%'}, '1'), 'sas.explain says what its next call waits for');
is(run_call($node, 'modest', { path => '/small' })->{result}, 'success', 'another agent is called meanwhile');
is($node->safe_psql('postgres', q{SELECT memory < 11000000 FROM sas.workers WHERE actor = 'agent'}), 't', 'and no more is held, but for one answer');
$service->script(stuck => [ { json => 'well' } ]);
$service->release;
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'stuck' AND result = 'success'}, '13'), 'all go on when there is room');
is((worker_pids($node, 'agent'))[0], $worker, 'in the same process');

# -- one by one ----------------------------------------------------------------------------

# a request that raises an error when it is put together; nothing that a definition may say does
define($node, 'broken', { steps => { it => { agent => 'modest', complete_in => '1 h', call => { path => '/small', timeout => '10 s' } } } });
define($node, 'whole', { steps => { it => { agent => 'modest', complete_in => '1 h', call => { path => '/small' } } } });
$node->safe_psql('postgres', q{UPDATE _sas.workflow_step SET request = jsonb_set(request, '{timeout}', '"no span"') WHERE request ->> 'timeout' = '10 s'});
$node->safe_psql('postgres', q{SELECT count(s.run_id) FROM generate_series(1, 20) g, sas.submit(CASE g WHEN 3 THEN 'broken' ELSE 'whole' END, jsonb_build_object('n', g)) s});
ok(wait_for($node, q{SELECT string_agg(DISTINCT workflow || ' ' || result, ', ' ORDER BY workflow || ' ' || result) FROM sas.runs WHERE workflow IN ('broken', 'whole')
	HAVING bool_and(state = 'stopped')}, 'broken error, whole success'), 'a call that cannot be started fails alone, at once');
like($node->safe_psql('postgres', q{SELECT error ->> 'detail' FROM sas.runs WHERE workflow = 'broken'}), qr/invalid input syntax for type interval/, 'with the reason');
ok(wait_for($node, q{SELECT in_flight FROM sas.agents WHERE name = 'modest'}, '0'), 'no place is left taken');
is($node->safe_psql('postgres', q{SELECT count(*) FROM _sas.lease}), '0', 'and no claim');
is((worker_pids($node, 'agent'))[0], $worker, 'the worker is the same');
done_testing();
