# SPDX-License-Identifier: PostgreSQL
#
# An agent worker gives up what it cannot store: a reply, and the end of a lease. If the alert about it cannot be raised
# either, the log says so, it is not tried again, and the worker goes on.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use PostgreSQL::Test::Utils;
use Test::More;

# the supervisor ends what the worker could not, in its own time
my $node = new_node('main', 'sas.agents' => 1, 'sas.supervisor_interval' => '2 s');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$service->script(hangs => [ { how => 'silent' } ]);
make_agent($node, 'remote', $service);
define($node, 'call', { steps => { it => { agent => 'remote', complete_in => '20 s', call => { method => 'POST', path => '/{{input.path}}' } } } });

# what a disk, or somebody's trigger, does to one row
$sql->(q{
	CREATE TABLE refused (what text, run_id bigint);
	CREATE SEQUENCE alerts_refused;
	CREATE FUNCTION refuse_reply() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.refused r WHERE r.what = 'reply' AND r.run_id = NEW.run_id) THEN
			RAISE EXCEPTION 'refused by the test: reply';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE UPDATE ON _sas.step FOR EACH ROW WHEN (NEW.state = 'succeeded') EXECUTE FUNCTION refuse_reply();
	CREATE FUNCTION refuse_lease() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.refused r WHERE r.what = 'lease') AND
		   (SELECT a.backend_type FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()) = 'sas agent' THEN
			RAISE EXCEPTION 'refused by the test: lease';
		END IF;
		RETURN OLD;
	END $$;
	CREATE TRIGGER refuse BEFORE DELETE ON _sas.lease FOR EACH ROW EXECUTE FUNCTION refuse_lease();
	CREATE FUNCTION refuse_alert() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.refused r WHERE r.what = 'alert') THEN
			PERFORM nextval('public.alerts_refused');
			RAISE EXCEPTION 'refused by the test: alert';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE INSERT ON _sas.alert FOR EACH ROW WHEN (NEW.kind = 'stuck') EXECUTE FUNCTION refuse_alert()});
my ($worker) = worker_pids($node, 'agent');
my $times = sub { return $sql->('SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM alerts_refused') };

# -- the end of a lease -----------------------------------------------------------------------------------

my $halted = submit($node, 'call', { path => 'hangs' });
$service->wait_for_requests('hangs', 1);
$sql->(q{INSERT INTO refused VALUES ('lease')});
my $lease = $sql->('SELECT lease_id FROM _sas.lease');
$sql->("SELECT FROM sas.halt($halted)");
ok(wait_for($node, "SELECT count(*) FROM sas.alerts WHERE kind = 'stuck' AND message LIKE 'could not store the end of lease $lease: refused by the test: lease. The supervisor ends it%'", '1'),
	'an alert says that the end of a lease could not be stored');
$sql->('TRUNCATE refused');
ok(wait_for($node, 'SELECT count(*) FROM _sas.lease', '0'), 'the supervisor ends it');

# -- a reply, and its alert -------------------------------------------------------------------------------

my $log = -s $node->logfile;
my $run = $sql->(q{
	BEGIN;
	SELECT set_config('test.run', run_id::text, true) FROM sas.submit('call', '{"path": "lost"}') \g /dev/null
	INSERT INTO refused VALUES ('reply', current_setting('test.run')::bigint), ('alert', NULL);
	SELECT current_setting('test.run');
	COMMIT});
ok($node->wait_for_log(qr/WARNING: .*run $run: could not store a reply to step 1: refused by the test: reply/, $log), 'the log says that a reply could not be stored');
my $before;
ok(wait_until(sub { return ($before = $times->()) > 0 }), 'the alert about it cannot be raised');
is(run_of($node, submit($node, 'call', { path => "well$_" }))->{result}, 'success', "another reply is stored: $_") foreach 1 .. 5;
is($times->(), $before, 'the alert is not tried again');
is($sql->("SELECT count(*) FROM sas.alerts WHERE kind = 'stuck' AND run_id = $run"), '0', 'there is none');
is((worker_pids($node, 'agent'))[0], $worker, 'it is the same worker');
$sql->('TRUNCATE refused');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'the supervisor takes the step back, and its run ends');
is(scalar($service->requests('lost')), 2, 'that call was made again');
$node->stop;
done_testing();
