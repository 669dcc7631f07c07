# SPDX-License-Identifier: PostgreSQL
#
# A count of what each role has open that could not be made is begun again soon, not only when the next one is due: after
# a start nobody has anything until then, and no limit holds. Without room in shared memory it ends, too.
# Takes about 25 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node(
	'main',
	'sas.function_workers' => 0,
	'sas.schedulers' => 0,
	'sas.agents' => 0,
	'sas.supervisors' => 0,
	'sas.supervisor_interval' => '2 s',
	'sas.max_owners' => 8);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE SCHEMA t;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	GRANT USAGE ON SCHEMA t TO PUBLIC;
	SELECT sas.create_workflow('echo', '{"steps": {"a": {"function": "t.echo"}}}')});
foreach my $n (1 .. 8)
{
	$sql->("CREATE ROLE r$n; SELECT sas.grant_usage('r$n', 'user'), sas.grant_workflow('echo', 'r$n')");
	$sql->("SET ROLE r$n; SELECT run_id FROM sas.submit('echo')");
}
$sql->(q{SELECT count(*) FROM sas.submit_batch('echo', array_fill('{}'::jsonb, '{21000}'))});

is($sql->('SELECT count(*) FROM _sas.quotas()'), 8, 'there is no room for more owners, nor to note a count');
is($sql->('SELECT coalesce(_sas.recount_quotas()::text, $$none$$)'), 'none', 'so none is made');

# -- by a supervisor -----------------------------------------------------------------------------------------------

$sql->(q{
	CREATE TABLE t.count (fails boolean);
	INSERT INTO t.count VALUES (true);
	CREATE OR REPLACE FUNCTION _sas.value_size(input jsonb) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
	BEGIN
		IF (SELECT c.fails FROM t.count c) THEN RAISE division_by_zero; END IF;
		RETURN 1;
	END $$});
$node->append_conf('postgresql.conf', "sas.supervisors = 1\nsas.max_owners = 1024");
$node->restart;
my $alerts = q{SELECT count(*) > 0 FROM sas.alerts WHERE message ~ 'could not count what roles have open'};
ok(wait_for($node, $alerts, 't'), 'an alert says that they could not be counted');
is($sql->('SELECT _sas.quotas_counted_ago() IS NULL'), 't', 'so they are not known');
$sql->('UPDATE t.count SET fails = false');
ok(wait_for($node, 'SELECT _sas.quotas_counted_ago() IS NOT NULL', 't'), 'soon they are');
is($sql->('SELECT sum(open_runs) FROM _sas.quotas()'), 21008, 'all of them');
$node->stop;
done_testing();
