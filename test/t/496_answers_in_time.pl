# SPDX-License-Identifier: PostgreSQL
#
# An answer that arrived in time is never asked for again, however long the store takes for the answers before it. Large
# answers are evaluated one by one: those that wait for that count as replies that are not written yet.
# So does what an outside program says. Takes about 80 s.
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
# what an outside program says in time counts, too, when its runs could not be locked until the lease had ended
$node->safe_psql('postgres', q{SELECT sas.create_agent('packer', kind => 'external')});
define($node, 'pack', { steps => { it => { agent => 'packer', task => {} } } });
submit($node, 'pack', {}) foreach 1 .. 3;
my @ids = split /\n/, $node->safe_psql('postgres', q{SELECT request_id FROM sas.claim('packer', 'p', 3, '20 s')});
my $judge = SasSession->new($node);
$judge->query('BEGIN');
$judge->query('SELECT count(*) FROM (SELECT FROM _sas.lease WHERE worker_id = 0 FOR NO KEY UPDATE) l');
$session->query('BEGIN');
$session->query('LOCK TABLE _sas.run IN EXCLUSIVE MODE');
my @says = map { SasSession->new($node) } @ids;
$says[0]->start_query("SELECT sas.complete_tasks('{$ids[0]}', '{1}')");
$says[1]->start_query("SELECT sas.fail('$ids[1]', 'no', true)");
$says[2]->start_query("SELECT sas.heartbeat('$ids[2]')");
my $waiting = q{SELECT count(*) FROM pg_stat_activity a WHERE a.query ~ 'sas.(complete_tasks|fail|heartbeat)\(' AND a.wait_event_type = 'Lock'
	AND a.pid <> pg_backend_pid()};
ok(wait_for($node, $waiting, '3'), 'three reports of an outside program wait for a lock of their runs');
my $in_time = $node->safe_psql('postgres', q{SELECT bool_and(complete_by > clock_timestamp()) FROM _sas.step WHERE request_id IS NOT NULL});
SKIP:
{
	skip 'the machine was too slow: they began too late', 2 if $in_time ne 't';
	ok(wait_for($node, q{SELECT bool_and(complete_by < clock_timestamp() - interval '100 ms') FROM _sas.step WHERE request_id IS NOT NULL}, 't'),
		'until the lease has ended');
	$session->query('COMMIT');
	is(join(' ', map { $_->answer } @says), '{t} t go', 'and count');
}
# A worker that is kept in the transaction of a claim does not read its sockets meanwhile. What arrived there in time counts,
# though complete-by, or the time-out of the request, has passed when it is read.
$node->safe_psql('postgres', q{
	CREATE SEQUENCE gate;
	CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		WHILE (SELECT last_value FROM public.gate) = 1 LOOP
			PERFORM pg_sleep(0.05);
		END LOOP;
		RETURN NULL;
	END $$;});
$service->script(early => [ { gate => 1 } ]);
make_agent($node, 'hurried', $service, request_timeout => '15 s');
my $call = { method => 'POST', path => '/early' };
define($node, 'early', { steps => { it => { agent => 'remote', complete_in => '20 s', call => $call } } });
define($node, 'hurried', { steps => { it => { agent => 'hurried', complete_in => '10 min', call => $call } } });
define($node, 'other', { steps => { it => { agent => 'remote', call => { method => 'POST', path => '/other' } } } });
$node->safe_psql('postgres', q{SELECT count(s.run_id) FROM generate_series(1, 5) g, sas.submit(CASE WHEN g < 4 THEN 'early' ELSE 'hurried' END, jsonb_build_object('n', g)) s});
ok(wait_until(sub { $service->requests('early') == 5 }), 'five calls are on their way');
my $last = $node->safe_psql('postgres', q{SELECT max(run_id) FROM sas.runs});
my $of = "run_id BETWEEN $last - 4 AND $last";
$node->safe_psql('postgres', qq{CREATE TRIGGER stall AFTER INSERT ON _sas.step FOR EACH ROW WHEN (NEW.run_id > $last) EXECUTE FUNCTION stall()});
submit($node, 'other', {});
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas agent' AND wait_event = 'PgSleep'}, '1'),
	'their worker is kept in the transaction of another claim');
$service->release;
$in_time = $node->safe_psql('postgres', "SELECT count(*) = 5 AND bool_and(started_at > clock_timestamp() - interval '12 s') FROM _sas.step WHERE $of AND request_id IS NOT NULL");
SKIP:
{
	skip 'the machine was too slow: they were answered too late', 5 if $in_time ne 't';
	ok(wait_for($node, "SELECT min(complete_by) < clock_timestamp() - interval '2 s' FROM _sas.step WHERE $of"),
		'the answers wait in its sockets until complete-by has passed');
	$node->safe_psql('postgres', q{SELECT nextval('gate'), nextval('gate')});
	ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow IN ('early', 'hurried', 'other') AND result = 'success'}, '6'), 'then all of them are written');
	is($node->safe_psql('postgres', "SELECT count(*) FROM sas.attempts WHERE $of AND status = 'timed_out'"), '0', 'none was taken back');
	is($node->safe_psql('postgres', "SELECT count(*) FROM sas.attempts WHERE $of AND status <> 'succeeded'"), '0', 'none counts as one that took too long');
	is(scalar($service->requests('early')), 5, 'and none is asked for again');
}
$node->stop;
done_testing();
