# SPDX-License-Identifier: PostgreSQL
#
# The table of the doors of agents has room for so many, of all databases:
# what is dropped makes room, what rests makes way, and when there is none
# agents are called more slowly, within their limits, and an alert says so.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.max_agents' => 8, 'sas.agents' => 2, 'sas.supervisor_interval' => '1 s', max_prepared_transactions => 2);
my $service = SasService->new;
my $entries = 'SELECT count(*) FROM _sas.limit_entries()';
my $taken = q{SELECT taken FROM _sas.shared_tables() WHERE name = 'places'};
my $gate = { gate => 1 };

sub sql { my ($sql, $database) = @_; return $node->safe_psql($database // 'postgres', $sql) }

# a workflow of one call of an agent, under the agent's name; path: of the call
sub define_call { my ($agent, $path) = @_; return define($node, $agent, { steps => { it => { agent => $agent, call => { path => $path // "/$agent" } } }, recovery => { initial => '50 ms', max => '50 ms' } }) }
sub submit_many { my ($workflow, $n) = @_; return sql("SELECT count(*) FROM sas.submit_batch('$workflow', array_fill('{}'::jsonb, ARRAY[$n]))") }

# agents of a database, each called once; how many runs ended well
sub call_each
{
	my ($prefix, $n, $database) = @_;
	sql("SELECT sas.create_agent('${prefix}_' || i, '@{[ $service->url ]}'), sas.create_workflow('${prefix}_' || i, jsonb_build_object('steps',
			jsonb_build_object('it', jsonb_build_object('agent', '${prefix}_' || i, 'call', jsonb_build_object('path', '/$prefix'))))) FROM generate_series(1, $n) i", $database);
	sql("SELECT FROM generate_series(1, $n) i, sas.submit('${prefix}_' || i)", $database);
	my $ended = "SELECT count(*) FROM sas.runs WHERE workflow LIKE '${prefix}\\_%' AND result = 'success'";
	wait_for($node, $ended, $n, dbname => $database // 'postgres');
	return sql($ended, $database);
}

sub drop_each { my ($prefix, $n) = @_; sql("SELECT sas.drop_workflow('${prefix}_' || i), sas.drop_agent('${prefix}_' || i) FROM generate_series(1, $n) i"); return }

# -- what is dropped makes room ------------------------------------------------------

is(call_each('several', 5), '5', 'agents are called');
is(sql($entries), '5', 'and have a place each');
sql(q{BEGIN; SELECT sas.drop_workflow('several_1'), sas.drop_agent('several_1'); SAVEPOINT a; SELECT 1; ROLLBACK TO a; COMMIT});
is(sql($entries), '4', 'one that is dropped gives it back with the commit');
sql(q{BEGIN; SELECT sas.drop_workflow('several_2'), sas.drop_agent('several_2'); PREPARE TRANSACTION 'two'});
is(sql($entries), '4', 'not when that is prepared');
sql(q{COMMIT PREPARED 'two'});
ok(wait_for($node, $entries, '3'), 'but when it is committed');
sql(q{SELECT sas.drop_workflow('several_' || i), sas.drop_agent('several_' || i) FROM generate_series(3, 5) i});
is(sql($entries), '0', 'none is left');

# more than fit at once, again and again
my $called = 0;
foreach my $round (1 .. 4)
{
	$called += call_each("round$round", 6);
	drop_each("round$round", 6);
}
is($called, 24, 'of three times as many agents as have room, made and dropped in turn, each is called');

# a call is on its way meanwhile
make_agent($node, 'leaving', $service);
$service->script(leaving => [$gate]);
my $run = submit($node, define_call('leaving'));
$service->wait_for_requests('leaving', 1);
sql("BEGIN; SELECT FROM sas.halt($run); SELECT sas.drop_workflow('leaving'), sas.drop_agent('leaving'); COMMIT");
ok(wait_for($node, $entries, '0'), 'an agent that is dropped while a call is on its way gives its place back after it');
$service->release;

# -- what rests makes way, in whichever database --------------------------------------

sql('CREATE DATABASE beside');
sql('CREATE EXTENSION sas', 'beside');
is(call_each('resting', 8, 'beside'), '8', 'agents of one database have all the places');
is(sql($entries, 'beside'), '8', 'as it shows');
is(call_each('other', 3), '3', 'agents of another are called nevertheless');
is(call_each('again', 8, 'beside'), '8', 'and so are further ones of the first');
cmp_ok(sql($taken), '<=', 8, 'all within the room there is');
drop_each('other', 3);
sql('DROP EXTENSION sas CASCADE', 'beside');

# as long as there are few, all that are there count as taken
my $prepared = q{BEGIN; DROP EXTENSION sas CASCADE; PREPARE TRANSACTION 'gone'; COMMIT PREPARED 'gone'};
foreach my $gone ('DROP EXTENSION sas CASCADE', $prepared, 'DROP DATABASE beside')
{
	my $extension = $gone =~ /EXTENSION/;
	is(sql($taken), '0', 'no place is taken');
	sql('CREATE EXTENSION sas', 'beside');
	is(call_each('resting', 4, 'beside'), '4', 'agents of a database are called');
	sql("BEGIN; SAVEPOINT a; DROP EXTENSION sas CASCADE; ROLLBACK TO a; COMMIT", 'beside');
	is(sql($taken), '4', 'and keep their places');
	sql($gone, $extension ? 'beside' : 'postgres');
	is(sql($taken), '0', "$gone gives them back");
}

# a look for work takes a token for a moment
sql("SELECT sas.create_agent('unused_' || i, '@{[ $service->url ]}', rate_limit => '1/min') FROM generate_series(1, 8) i");
is(call_each('looked', 1), '1', 'agents with a slow rate are there beside one that is called');
ok(wait_for($node, q{SELECT taken <= 1 FROM _sas.shared_tables() WHERE name = 'places'}), 'and take no place by being there');
sql("SELECT sas.drop_agent('unused_' || i) FROM generate_series(1, 8) i");

# -- what matters does not -------------------------------------------------------------

my %slow = (retry => '{"max_attempts": 1}');
make_agent($node, 'broken', $service, %slow, breaker => '{"failures": 1, "window": "1 h", "open_for": "1 h"}');
make_agent($node, 'shaky', $service, %slow, breaker => '{"failures": 2, "window": "1 h", "open_for": "1 h"}');
make_agent($node, 'paced', $service, %slow, rate_limit => '1/h');
$service->script($_ => [ { status => 500 } ]) foreach qw(broken shaky);
define_call($_) foreach qw(broken shaky paced);
# the run of shaky fails once, and is not tried again
define($node, 'shaky', { steps => { it => { agent => 'shaky', call => { path => '/shaky' } } }, recovery => { max_failures => 1 }, on_failure => 'fail' });
submit($node, $_) foreach qw(broken paced);
run_of($node, submit($node, 'shaky'));
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'broken'}, 'open'), 'a breaker opens');
$service->wait_for_requests('paced', 1);
sql(q{BEGIN; SELECT sas.drop_workflow('shaky'), sas.drop_agent('shaky'); ROLLBACK});
sql(q{BEGIN; SAVEPOINT a; SELECT sas.drop_workflow('shaky'), sas.drop_agent('shaky'); ROLLBACK TO a; COMMIT});
is(call_each('crowd', 20), '20', 'a crowd of agents passes by, and one is not dropped after all');
is(sql(q{SELECT string_agg(a.name || ' ' || p.breaker || ' ' || (p.open_for_ms > 3000000) || ' ' || (p.rate_for_ms >= 0), ', ' ORDER BY a.name) FROM _sas.limit_entries() p JOIN _sas.agent a USING (agent_id) WHERE a.name IN ('broken', 'shaky', 'paced')}),
	'broken open true true, paced closed false true, shaky closed false true', 'none of it takes the place of an open breaker, of failures that count or of a rate that is used up');
submit($node, 'paced');
ok(wait_for($node, q{SELECT string_agg(waiting_kind, ' ' ORDER BY waiting_kind) FROM sas.steps WHERE waiting_kind IN ('breaker', 'rate')}, 'breaker rate'), 'so the breaker and the rate still hold');
run_of($node, submit($node, 'shaky'));
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'shaky'}, 'open'), 'and the second failure opens the other');
is(join(' ', map { scalar $service->requests($_) } qw(broken shaky paced)), '1 2 1', 'after no more calls than that');
sql(q{SELECT sas.alter_agent('paced', reset => '{rate_limit}')});
$service->script($_ => [ {} ]) foreach qw(broken shaky);
sql("SELECT sas.reset_agent(a) FROM unnest('{broken,shaky}'::text[]) a");
run_of($node, submit($node, 'shaky'));
all_ended($node, 'reset, they let calls through');
drop_each('crowd', 20);

# -- no room at all -----------------------------------------------------------------------

my $slowly = 12;
foreach my $i (1 .. 8)
{
	make_agent($node, "held_$i", $service, max_in_flight => 1);
	define_call("held_$i", '/held');
}
$service->script(held => [$gate]);
submit($node, "held_$_") foreach 1 .. 8;
$service->wait_for_requests('held', 8);
is(sql($taken), '8', 'calls are on their way that leave no room');
make_agent($node, 'late', $service, %slow, max_in_flight => 50, rate_limit => '20/s');
define_call('late');
$service->script(late => [ { delay => 0.05 } ]);
submit_many('late', $slowly);
ok($service->wait_for_requests('late', $slowly), 'a further agent is called');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'late' AND result = 'success'}, $slowly), 'with success');
is($service->figures->{most}{late}, 1, 'one call at a time, of all workers');
my @at = sort { $a <=> $b } map { $_->{at} } $service->requests('late');
my ($worst, $where) = (0, '');
foreach my $from (0 .. $#at)
{
	foreach my $to ($from + 1 .. $#at)
	{
		# two may go at once; what arrives may have been on its way for a moment
		my $over = $to - $from + 1 - (2 + 20 * ($at[$to] - $at[$from] + 0.5));
		($worst, $where) = ($over, "$from to $to") if $over > $worst;
	}
}
cmp_ok($worst, '<=', 0, 'nor more than its rate allows') or diag($where);
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'shared-memory' AND message ~ 'all 8 places .*slower.*sas.max_agents'}, '1'), 'an alert says so and names the setting');
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'shared-memory' AND closed_at IS NULL AND message ~ '[78] of 8 places .*sas.max_agents'}, '1'), 'another says how many were taken when it was raised');

# streams take tokens, no places
make_agent($node, 'streaming', $service, %slow, rate_limit => '2/s');
$service->script(streaming => [ { status => 503 } ]);
sql('CREATE TABLE item (item jsonb)');
sql(q{SELECT sas.create_watcher('streaming', '{"agent": "streaming", "stream": {"format": "sse", "path": "/streaming"}, "items": {"table": "public.item"},
	"retry": {"initial": "20 ms", "max": "20 ms"}}'), sas.watch('streaming', 'one')});
$service->wait_for_requests('streaming', 5);
@at = sort { $a <=> $b } map { $_->{at} } $service->requests('streaming');
# two seconds by the rate; what arrives may have been on its way for a while
cmp_ok($at[4] - $at[0], '>=', 0.5, 'a stream that fails again and again is begun no more often than the rate of its agent allows');
sql(q{SELECT sas.unwatch('streaming', '{one}', discard => true)});

# its breaker is the worker's own
make_agent($node, 'failing', $service, %slow, breaker => '{"failures": 1, "window": "1 h", "open_for": "1 h"}', rate_limit => '1000/s');
define_call('failing');
$service->script(failing => [ { status => 500 } ]);
submit_many('failing', 20);
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'failing'}, 'open'), 'a breaker opens without a place as well');
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE waiting_kind = 'breaker'}, '20'), 'and keeps all back');
cmp_ok(scalar $service->requests('failing'), '<=', 2, 'after one failure in each worker at most');
$service->script(failing => [ {} ]);
sql(q{SELECT sas.reset_agent('failing')});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'failing' AND result = 'success'}, '20'), 'until it is reset');
is(sql('SELECT sum(in_flight) FROM _sas.limit_entries()'), '8', 'all that while the others keep their places');

$service->release;
$service->script(held => [ {} ]);
all_ended($node, 'those that were on their way end');
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'shared-memory' AND closed_at IS NULL}, '0'), 'then the alerts are closed');
$service->script(late => [$gate]);
my $before = $service->requests('late');
submit_many('late', 5);
$service->wait_for_requests('late', $before + 5);
is(sql(q{SELECT in_flight FROM sas.agents WHERE name = 'late'}), '5', 'and the agent has a place again, and all its limits');

# -- who dies leaves nothing behind ----------------------------------------------------------

make_agent($node, 'single', $service, max_in_flight => 1);
define_call('single');
$service->script(single => [$gate]);
submit($node, 'single');
$service->wait_for_requests('single', 1);
my $n = 1;
foreach my $signal (qw(TERM KILL))
{
	kill($signal, worker_pids($node, 'agent'));
	ok($service->wait_for_requests('single', ++$n), "after $signal of the workers the only place of an agent is there again");
}
$service->script(single => [ {} ], late => [ {} ]);
$service->release;
all_ended($node, 'all ends');
is(sql(q{SELECT coalesce(sum(in_flight), 0) FROM sas.agents}), '0', 'and nothing counts as on its way');
done_testing();
