# SPDX-License-Identifier: PostgreSQL
#
# A turn of the supervisor that takes long, after its look at what is due next, makes nothing late: the next look
# judges by when things are due, not by when the turn ended. The turn sleeps for five seconds behind its look.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '60 s');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

$sql->(q{ALTER FUNCTION _sas.supervise_watches RENAME TO quick_watches;
	CREATE FUNCTION _sas.supervise_watches(boot bigint, live bigint[], newest bigint, OUT worked int, OUT next_due timestamptz) LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_sleep(5); SELECT q.* INTO worked, next_due FROM _sas.quick_watches($1, $2, $3) q; END'});
$sql->(q{BEGIN;
	INSERT INTO _sas.lease (boot, worker_id, locked_by, next_by, run_ids, step_nos, elements) VALUES (0, 0, 'ann', clock_timestamp() + interval '6 s', '{}', '{}', '{}');
	SELECT _sas.wake('{}', false, true, '{}') \g /dev/null
	COMMIT});
ok(wait_for($node, q{SELECT count(*) FROM _sas.lease}, '0'), 'a lease that is over, under which nothing is held, goes');
my $turn = q{SELECT coalesce(max(xact_start), '-infinity') FROM pg_stat_activity WHERE backend_type = 'sas supervisor' AND wait_event = 'PgSleep'};
my $gone = $sql->($turn);
ok(wait_for($node, "SELECT ($turn) <> '$gone'"), 'and that turn ends');
is($sql->(q{SELECT coalesce(sum(value), 0) FROM sas.metrics('{sas_found_late}')}), '0', 'and was not found late');
done_testing();
