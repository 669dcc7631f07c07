# SPDX-License-Identifier: PostgreSQL
#
# ALTER EXTENSION UPDATE finds no worker in the way; a version that the library
# does not know runs nothing and says so.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;
use Time::HiRes qw(time);

# version 0.2.900 and the way back are in test/modules
my $node = new_node('main', 'sas.supervisor_interval' => '6 min');
my $service = start_service('payments');
$node->safe_psql('postgres', qq{
	CREATE TABLE gate (open boolean);
	CREATE FUNCTION sleep_long(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate) LOOP
			PERFORM pg_sleep(0.2);
		END LOOP;
		RETURN '{}';
	END \$\$;
	SELECT sas.create_agent('payments', base_url => '@{[ $service->url ]}', request_timeout => '50 s');
	SELECT sas.create_workflow('call', '{"steps": {"s": {"agent": "payments",
		"call": {"method": "POST", "path": "/charges", "body": {"order": "{{input.n}}", "amount": 1, "card": "card-1"}}}}, "recovery": {"initial": "100 ms"}}');
	SELECT sas.create_workflow('long', '{"steps": {"s": {"function": "public.sleep_long", "complete_in": "300 s"}}, "recovery": {"initial": "100 ms"}}')});
$service->hold('now');
$node->safe_psql('postgres', q{
	SELECT count(*) FROM sas.submit_batch('call', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, 10) i));
	SELECT run_id FROM sas.submit('long')});
$service->wait_for_requests(10);
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}, '1');

my $log = -s $node->logfile;
my $begun = time();
my ($out, $err);
is($node->psql('postgres', q{ALTER EXTENSION sas UPDATE TO '0.2.900'}, stdout => \$out, stderr => \$err, timeout => 120), 0,
	'ALTER EXTENSION UPDATE with calls on their way and a long function') or diag($err);
cmp_ok(time() - $begun, '<', 30, 'at once');
ok(wait_until(sub { PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /0\.2\.900/ }), 'a version that the library does not know is named in the log');
my $state = wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND backend_type <> 'sas launcher'}, '0');
ok($state, 'and nothing runs');

$begun = time();
is($node->psql('postgres', q{ALTER EXTENSION sas UPDATE TO '0.2.0'}, stdout => \$out, stderr => \$err, timeout => 120), 0, 'and back');
ok(wait_for($node, q{SELECT count(DISTINCT actor) FROM sas.workers}, '4'), 'a version that it knows runs at once');
cmp_ok(time() - $begun, '<', 30, 'without a restart of the server');
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (true)');
$service->release;
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result IS DISTINCT FROM 'success'}, '0'), 'and every run ends with success');
done_testing();
