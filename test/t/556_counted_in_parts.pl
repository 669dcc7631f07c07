# SPDX-License-Identifier: PostgreSQL
#
# What each role has open is counted again from time to time. The supervisor does so in parts, so that failures do not
# wait for the whole count, and the parts together are exact, whatever begins and ends between them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 0, 'sas.schedulers' => 0, 'sas.agents' => 0, 'sas.supervisors' => 0);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $n = 45_000;
$sql->(q{
	CREATE ROLE one;
	CREATE ROLE two;
	CREATE SCHEMA t;
	GRANT USAGE ON SCHEMA t TO one, two;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('echo', '{"steps": {"a": {"function": "t.echo"}}}');
	SELECT sas.create_watcher('turns', '{"function": "t.echo", "every": "1 h"}');
	SELECT sas.grant_usage(r, 'user'), sas.grant_workflow('echo', r) FROM unnest('{one,two}'::regrole[]) r;
	-- cancels these runs, and does what a scheduler would do
	CREATE FUNCTION t.cancel(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM sas.cancel_runs(ids);
		WHILE (SELECT worked FROM _sas.scheduler_tick(5000)) > 0 LOOP NULL; END LOOP;
	END $$;
	CREATE FUNCTION t.used() RETURNS text LANGUAGE sql AS $$
		SELECT string_agg(format('%s %s %s', role, name, used), ', ' ORDER BY role, name) FROM sas.limits
		WHERE role IN ('one', 'two') AND name IN ('open_runs', 'children', 'bytes', 'watches') $$;
	CREATE FUNCTION t.open() RETURNS text LANGUAGE sql AS $$
		SELECT string_agg(format('%s %s %s', o.role, n.name, n.used), ', ' ORDER BY o.role, n.name)
		FROM (SELECT r AS role, count(u.run_id) AS runs, count(u.parent_run_id) AS children, coalesce(sum(_sas.share_size(u.input)), 0) AS bytes,
		          (SELECT count(*) FROM _sas.watch w WHERE w.owner = r AND w.state <> 'deleted') AS watches
		      FROM unnest('{one,two}'::regrole[]) r LEFT JOIN _sas.run u ON u.owner = r AND u.state <> 'stopped' GROUP BY r) o
		CROSS JOIN LATERAL (VALUES ('open_runs', o.runs), ('children', o.children), ('bytes', o.bytes), ('watches', o.watches)) n (name, used) $$});
sub submit { my ($role, $k) = @_; return $sql->(qq{SET ROLE $role; SELECT count(*) FROM sas.submit_batch('echo', array_fill('{"a": 12345}'::jsonb, ARRAY[$k]))}) }
submit('one', $n / 3);
submit('two', $n / 3);
submit('one', $n / 3);

# -- by hand, with something in between ----------------------------------------------------------------------------

# they are wrong before, as after a start of the server
sub forget { $sql->(q{SELECT _sas.begin_part(true, NULL, NULL), _sas.end_part(true)}); return }
# every hundredth of these runs
sub cancel { my ($which) = @_; return $sql->(qq{SELECT t.cancel(ARRAY(SELECT run_id FROM _sas.run WHERE run_id % 100 = $which))}) }

forget();
is($sql->(q{SELECT sum(open_runs) FROM _sas.shares()}), 0, 'nothing is counted');
my $long = SasSession->new($node);
$long->query(q{BEGIN; SET LOCAL ROLE two; SELECT count(*) FROM sas.submit_batch('echo', array_fill('{"b": 1}'::jsonb, ARRAY[70]))});
my $parts = 0;
my $more;
do
{
	# a session of its own each time, as another leader
	$more = $sql->('SELECT _sas.recount_part()');
	$parts++;
		cancel($parts);
	submit('two', 10);
	$long->query('COMMIT') if $parts == 1;
	$sql->(q{SET ROLE one; SELECT count(*) FROM sas.watch('turns', 'a')}) if $parts == 2;
} until $more eq 'f' || $parts == 100;
$long->quit;
cmp_ok($parts, '>=', 3, 'a count of many runs has several parts');
cmp_ok($parts, '<', 100, 'and comes to an end');
cmp_ok($sql->(q{SELECT count(*) FROM _sas.run WHERE state = 'stopped'}), '>', $n / 100, 'runs have ended between them');
is($sql->('SELECT t.used()'), $sql->('SELECT t.open()'), 'what began and ended between them is counted once');
cancel(50);
is($sql->('SELECT t.used()'), $sql->('SELECT t.open()'), 'so is what ends afterwards');

is($sql->('SELECT _sas.recount_part()'), 't', 'another count');
$sql->(q{DO $$ BEGIN PERFORM _sas.begin_part(false, 4096, NULL); PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END $$});
is($sql->('SELECT _sas.recounted_from() IS NULL'), 't', 'begins again after a part that has failed');
1 while $sql->('SELECT _sas.recount_part()') eq 't';
is($sql->('SELECT t.used()'), $sql->('SELECT t.open()'), 'and is right');

# runs that end and were counted already, or not yet, in subtransactions of one transaction
$sql->('SELECT _sas.recount_part()');
$sql->(q{DO $$
BEGIN
	FOR i IN 1 .. 50 LOOP
		BEGIN
			PERFORM t.cancel(ARRAY(SELECT run_id FROM _sas.run WHERE run_id % 900 = 5 * i + 3));
			IF i % 3 = 0 THEN RAISE division_by_zero; END IF;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
END $$});
1 while $sql->('SELECT _sas.recount_part()') eq 't';
is($sql->('SELECT t.used()'), $sql->('SELECT t.open()'), 'what parts of a transaction have ended is counted once');

# -- by a supervisor -----------------------------------------------------------------------------------------------

forget();
$sql->(q{
	CREATE TABLE t.sized (xid xid8);
	CREATE OR REPLACE FUNCTION _sas.share_size(input jsonb) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
	BEGIN
		INSERT INTO t.sized VALUES (pg_current_xact_id());
		RETURN 1;
	END $$});
$node->append_conf('postgresql.conf', 'sas.supervisors = 1');
$node->restart;
my $open = $sql->(q{SELECT count(*) FROM _sas.run WHERE state <> 'stopped'});
ok(wait_for($node, 'SELECT _sas.shares_counted_ago() IS NOT NULL', 't'), 'a supervisor counts after its start');
cmp_ok($sql->('SELECT count(*) FROM t.sized'), '>=', $open, 'every open run');
cmp_ok($sql->('SELECT max(n) FROM (SELECT count(*) AS n FROM t.sized GROUP BY xid) x'), '<', $n * 0.6, 'but not all in one transaction');
is($sql->('SELECT sum(open_runs) FROM _sas.shares()'), $open, 'and knows how many there are');
$node->stop;
done_testing();
