# SPDX-License-Identifier: PostgreSQL
#
# Two polls are answered in one tick of their host. A session holds the row of the first one, which has no schedule:
# its items wait. The second one has a schedule, and has made the poll that was due: it makes no other one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

allow_late('the worker is stopped');
my $node = new_node('main', 'sas.agents' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my %service = map { $_ => SasService->new } qw(first second);
make_agent($node, $_, $service{$_}) foreach sort keys %service;
$service{$_}->script(poll => [ { gate => JSON::PP::true, json => { n => 1 } }, { json => { n => 2 } } ]) foreach sort keys %service;
$sql->(q{
	CREATE TABLE item (key text, item jsonb);
	SELECT sas.create_watcher('first', '{"agent": "first", "poll": {"call": {"path": "/poll"}, "every": "1 h"}, "items": {"table": "public.item"}}');
	SELECT sas.create_watcher('second', '{"agent": "second", "poll": {"call": {"path": "/poll"}, "schedule": {"spec": "0 0 1 1 *"}}, "items": {"table": "public.item"}}');
	SELECT sas.watch('second', 'one')});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE node IS NOT NULL}, '1'), 'a task with a schedule is hosted');
$sql->(q{SELECT sas.pause_watch('second', '{one}')});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE node IS NULL}, '1'), 'it is paused');
# what came due in a pause is not made up for: it is due from the moment on in which it is resumed
$sql->(q{BEGIN; SELECT sas.resume_watch('second', '{one}');
	UPDATE _sas.watch_flow f SET next_at = clock_timestamp() FROM _sas.watch w JOIN _sas.watcher d USING (watcher_id) WHERE f.watch_id = w.watch_id AND d.name = 'second';
	SELECT sas.watch('first', 'one'); COMMIT});
ok($service{$_}->wait_for_requests('poll', 1), "the $_ service is asked") foreach sort keys %service;

my $holder = SasSession->new($node);
$holder->query(q{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.watch_flow f JOIN _sas.watch w USING (watch_id) JOIN _sas.watcher d USING (watcher_id) WHERE d.name = 'first' FOR UPDATE OF f) x});
my @workers = worker_pids($node, 'agent');
kill 'STOP', @workers;
foreach my $name (sort keys %service)
{
	$service{$name}->release;
	ok(wait_until(sub { return ($service{$name}->requests('poll'))[0]{ended} }), "the $name service has answered");
}
kill 'CONT', @workers;
ok(wait_for($node, q{SELECT next_at > now() + interval '1 s' FROM sas.watches WHERE watcher = 'second'}), 'the second task waits for its next instant');
is(scalar($service{second}->requests('poll')), 1, 'and has made one poll');
ok(wait_for($node, 'SELECT count(*) FROM item', '1'), 'whose item is delivered');
$holder->query('ROLLBACK');
ok(wait_for($node, 'SELECT count(*) FROM item', '2'), 'the item of the first one follows');
is(scalar($service{first}->requests('poll')), 1, 'after one poll, too');
$holder->quit;
$node->stop;
done_testing();
