# SPDX-License-Identifier: PostgreSQL
#
# Large answers of one role come faster than the worker takes them in, and it lets them wait until they time out.
# Their steps are tried again, but the service has answered: its breaker, which all roles share, stays closed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.agent_memory' => '16MB');
my $service = SasService->new;
$service->script(large => [ { json => [ map { { id => $_, name => "customer number $_", tags => [ 'a', 'b' ] } } 1 .. 80000 ] } ]);
make_agent($node, 'shared', $service, request_timeout => '15 s', breaker => '{"failures": 3, "open_for": "1 h"}');
define($node, 'large', { steps => { it => { agent => 'shared', complete_in => '5 min', call => { path => '/large' } } } });
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

# the service has made that answer once, and gives it quickly, also on a slow machine
http_get($service->url('/large'));
my $session = SasSession->new($node);
$sql->(q{SELECT count(s.run_id) FROM generate_series(1, 12) g, sas.submit('large', jsonb_build_object('n', g)) s});
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE state = 'running'}, '12'), 'twelve large answers are on their way');
$session->query('BEGIN');
$session->query('LOCK TABLE _sas.step IN EXCLUSIVE MODE');
my $late = q{SELECT count(*) >= 5 FROM sas.attempts WHERE error ->> 'detail' = 'the answer did not end in time'};
ok(wait_for($node, $late, 't'), 'a session keeps the worker from writing them, so that many time out');
is($sql->(q{SELECT breaker FROM sas.agents WHERE name = 'shared'}), 'closed', 'the breaker of the agent stays closed');
$session->query('COMMIT');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '12'), 'and all of them succeed in the end');
done_testing();
