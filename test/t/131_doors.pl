# SPDX-License-Identifier: PostgreSQL
#
# Doors: what keeps a step that is ready from being called is told while it
# lasts, as the workers see it: places, rate and breaker of its agent; and that
# nobody is there to do the work.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2, 'sas.supervisor_interval' => '1 s', timezone => 'UTC');
my $service = SasService->new;

sub waits_for { my ($workflow) = @_; return qq{SELECT string_agg(k || ' ' || o || ' ' || n, ', ' ORDER BY n, k) FROM (SELECT waiting_kind AS k, waiting_on AS o, count(*) AS n FROM sas.steps JOIN sas.runs r USING (run_id) WHERE r.workflow = '$workflow' AND waiting_kind IS NOT NULL GROUP BY 1, 2) x} }
sub tells { my ($kind) = @_; return $node->safe_psql('postgres', "SELECT text FROM sas.explain() WHERE waiting_kind = '$kind'") }
sub submit_many { my ($workflow, $n) = @_; return $node->safe_psql('postgres', "SELECT count(*) FROM sas.submit_batch('$workflow', array_fill('{}'::jsonb, ARRAY[$n]))") }

# places: three calls are on their way, seven wait for them
make_agent($node, 'narrow', $service, max_in_flight => 3);
define($node, 'gated', { steps => { it => { agent => 'narrow', call => { path => '/gated' } } } });
$service->script(gated => [ ({ gate => 1 }) x 3, {} ]);
submit_many('gated', 10);
ok(wait_for($node, waits_for('gated'), 'reply narrow 3, slot narrow 7'), 'seven steps wait for a place, three for a reply');
is(tells('slot'), '7 runs wait: all places of agent "narrow" are taken: 3 of 3', 'in words');
like($node->safe_psql('postgres', q{SELECT text FROM sas.runs r, sas.explain(r.run_id) e WHERE e.waiting_kind = 'reply' LIMIT 1}), qr/^step "it" (?:waits|has waited .*): worker "agent \d+" has it, with "narrow"; a reply counts until /, 'which worker has it, and until when');
$service->release;
all_ended($node, 'they all get one');

# rate: what is over it waits for a token
make_agent($node, 'slow', $service, rate_limit => '1/h');
define($node, 'paced', { steps => { it => { agent => 'slow', call => { path => '/paced' } } } });
$service->script(paced => [ {} ]);
submit_many('paced', 5);
ok(wait_for($node, waits_for('paced'), 'rate slow 4'), 'four steps wait for the rate');
like(tells('rate'), qr{^4 runs wait: the rate limit of agent "slow" \(1/h\) lets none through just now$}, 'in words');
is($node->safe_psql('postgres', q{SELECT bool_and(waiting_until BETWEEN now() AND now() + interval '1 hour') FROM sas.steps WHERE waiting_kind = 'rate'}), 't', 'until the next token, within an hour');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('slow', reset => '{rate_limit}')});
all_ended($node, 'without a limit they go');

# breaker
make_agent($node, 'down', $service, retry => '{"max_attempts": 1}', breaker => '{"failures": 1, "open_for": "1 h"}', max_in_flight => 1);
define($node, 'broken', { steps => { it => { agent => 'down', call => { path => '/broken' } } }, recovery => { initial => '100 ms', max => '100 ms' } });
$service->script(broken => [ { status => 500 }, {} ]);
submit_many('broken', 6);
ok(wait_for($node, waits_for('broken'), 'breaker down 6'), 'all wait for the breaker, the one that failed too');
like(tells('breaker'), qr/^6 runs wait: the breaker of agent "down" is open until .* \(in 59 min\); sas\.reset_agent\('down'\) lets a call through now$/, 'in words');
is($node->safe_psql('postgres', q{SELECT bool_and(s.waiting_until = a.open_until) FROM sas.steps s JOIN sas.agents a ON a.name = s.waiting_on WHERE s.waiting_kind = 'breaker'}), 't', 'until what sas.agents says');
$node->safe_psql('postgres', q{SELECT sas.reset_agent('down')});
all_ended($node, 'what was told to do sets them going');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.explain()'), '0', 'and nothing waits any more');

# nobody there
$node->append_conf('postgresql.conf', "sas.function_workers = 0\nsas.agents = 0");
$node->reload;
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor IN ('agent', 'function')}, '0'), 'no worker is there to call anything');
define($node, 'both', { steps => { a => { agent => 'narrow', call => { path => '/a' } }, f => { function => 'public.f' } } }) if $node->safe_psql('postgres', q{CREATE FUNCTION public.f(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1'}) eq '';
submit_many('both', 2);
is(tells('agent'), '2 runs wait: no agent worker runs in this database (setting sas.agents)', 'calls say so');
is(tells('worker'), '2 runs wait: no function worker runs in this database (setting sas.function_workers)', 'functions too');
$node->append_conf('postgresql.conf', "sas.function_workers = 1\nsas.agents = 1");
$node->reload;
all_ended($node, 'then they are there again');
done_testing();
