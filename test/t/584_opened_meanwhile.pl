# SPDX-License-Identifier: PostgreSQL
#
# A worker is granted a call, and while it claims one, another worker opens the breaker. The call does not go out:
# it is handed back, and waits for the breaker like all others.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasService;
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2, 'sas.agent_slots' => 1);
my $service = SasService->new;
make_agent($node, 'fuse', $service, retry => '{"max_attempts": 1}', breaker => '{"failures": 1, "open_for": "1 h"}');
my @runs;
foreach my $name (qw(first second))
{
	$service->script($name => [ $name eq 'first' ? { gate => 1, status => 500 } : {}, {} ]);
	define($node, $name, { steps => { it => { agent => 'fuse', call => { method => 'POST', path => "/$name" } } },
			recovery => { max_failures => 100, initial => '20 ms', max => '20 ms' } });
}
push @runs, submit($node, 'first', {});
ok($service->wait_for_requests('first', 1), 'one worker waits for an answer');

my $holder = SasSession->new($node);
$holder->query('BEGIN; LOCK TABLE _sas.lease IN ACCESS EXCLUSIVE MODE');
push @runs, submit($node, 'second', {});
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas agent' AND wait_event_type = 'Lock'}, '1'), 'the other one is about to claim');
$service->release;
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'fuse'}, 'open'), 'the answer opens the breaker');
$holder->query('COMMIT');
ok(wait_for($node, q{SELECT string_agg(waiting_kind, ' ') FROM sas.steps}, 'breaker breaker'), 'both steps wait for it');
is(scalar $service->requests('second'), 0, 'and no call has gone out');
is($node->safe_psql('postgres', q{SELECT sum(attempt) FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'second'}), '0', 'nor counts as an attempt');
$node->safe_psql('postgres', q{SELECT sas.reset_agent('fuse')});
all_ended($node, 'when it closes, they go on');
is(scalar $service->requests('second'), 1, 'with one call');
$node->stop;
done_testing();
