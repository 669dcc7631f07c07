# SPDX-License-Identifier: PostgreSQL
#
# An answer that arrived in time is never asked for again, however long the store takes for the answers before it. Large
# answers are evaluated one by one: those that wait for that count as replies that are not written yet.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
$service->script(large => [ { gate => 1, json => [ map { { id => $_, name => "customer number $_" } } 1 .. 40000 ] } ]);
make_agent($node, 'remote', $service, request_timeout => '5 min');
define($node, 'large', { steps => { it => { agent => 'remote', complete_in => '20 s', call => { path => '/large' } } } });

my $session = SasSession->new($node);
$node->safe_psql('postgres', q{SELECT count(s.run_id) FROM generate_series(1, 10) g, sas.submit('large', jsonb_build_object('n', g)) s});
ok(wait_until(sub { $service->requests('large') == 10 }), 'ten large answers are on their way');
$session->query('BEGIN');
$session->query('LOCK TABLE _sas.step IN EXCLUSIVE MODE');
$service->release;
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE state = 'running' AND complete_by < clock_timestamp() - interval '100 ms'}, '10'),
	'a session keeps them from being written until complete-by has passed');
$session->query('COMMIT');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '10'), 'then all of them are written');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.attempts WHERE status <> 'succeeded'}), '0', 'none was taken back');
is($node->safe_psql('postgres', q{SELECT coalesce(sum(stale_replies), 0) FROM sas.agents}), '0', 'and none was too late');
$node->stop;
done_testing();
