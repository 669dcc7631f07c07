# SPDX-License-Identifier: PostgreSQL
#
# What each role has open is counted again soon after something that does not say what it changes: the end of a prepared
# transaction, REASSIGN OWNED, a restored dump. Otherwise it is exact, and is not counted again. Takes about 11 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node(
	'main',
	'sas.function_workers' => 0,
	'sas.schedulers' => 0,
	'sas.agents' => 0,
	'sas.supervisor_interval' => '2 s',
	max_prepared_transactions => 5);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE one;
	CREATE ROLE heir;
	CREATE SCHEMA t;
	CREATE TABLE t.other (id int);
	GRANT USAGE ON SCHEMA t TO PUBLIC;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('echo', '{"steps": {"a": {"function": "t.echo"}}}');
	SELECT sas.grant_usage(r, 'user'), sas.grant_workflow('echo', r) FROM unnest('{one,heir}'::regrole[]) r});
my $counted = 'SELECT _sas.quotas_counted_ago() IS NOT NULL';
my $used = q{SELECT coalesce(sum(used), 0) FROM sas.limits WHERE role = 'one' AND name = 'open_runs'};
my $when = q{SELECT clock_timestamp() - make_interval(secs => _sas.quotas_counted_ago())};
# a count since this time
my $since = sub { return "SELECT clock_timestamp() - make_interval(secs => _sas.quotas_counted_ago()) > '$_[0]'" };
sub prepare
{
	my ($name, $what) = @_;
	return $sql->("BEGIN; $what; RESET ROLE; PREPARE TRANSACTION '$name'");
}
my $submit = sub { return qq{SET LOCAL ROLE one; SELECT count(*) FROM sas.submit_batch('echo', array_fill('{}'::jsonb, '{$_[0]}'))} };
ok(wait_for($node, $counted, 't'), 'it is counted after a start');

# -- prepared transactions ---------------------------------------------------------------------------------------------

my $first = $sql->($when);
$sql->('BEGIN; ' . $submit->(1) . '; COMMIT');
prepare('other', 'INSERT INTO t.other VALUES (1)');
$sql->("COMMIT PREPARED 'other'");
# three checks of the supervisor, each of which looks there
my $looks = q{(SELECT seq_scan FROM pg_stat_user_tables WHERE relid = '_sas.idle_version'::regclass)};
my $looked = $sql->("SELECT $looks");
ok(wait_for($node, "SELECT $looks >= $looked + 3", 't'), 'the supervisor looks for what is to be done');
is($sql->("SELECT abs(extract(epoch FROM ($when) - '$first')) < 1"), 't', 'nothing is counted again after a commit, nor after a prepared transaction without work of sas');

prepare('a', $submit->(3));
is($sql->($used), 4, 'what a prepared transaction opens counts');
$sql->("ROLLBACK PREPARED 'a'");
ok(wait_for($node, $used, '1'), 'soon after its rollback it does not');

prepare('b', $submit->(3));
$sql->('SELECT _sas.recount_quotas()');
is($sql->($used), 1, 'a count does not find it');
$sql->("COMMIT PREPARED 'b'");
ok(wait_for($node, $used, '4'), 'soon after its commit it does');

prepare('c', $submit->(5));
$node->restart;
ok(wait_for($node, $counted, 't'), 'after a start it is counted');
is($sql->($used), 4, 'without what a transaction has prepared before');
$sql->("COMMIT PREPARED 'c'");
ok(wait_for($node, $used, '9'), 'soon after its commit it counts');

# -- other things ------------------------------------------------------------------------------------------------------

$sql->('REASSIGN OWNED BY one TO heir');
ok(wait_for($node, "SELECT used FROM sas.limits WHERE role = 'heir' AND name = 'open_runs'", '9'), 'so do the runs that a role has got from another');
is($sql->($used), 0, 'which does not have them any more');

my $before = $sql->('SELECT clock_timestamp()');
my $restore = SasSession->new($node);
$restore->query(q{COPY _sas.alert_hook FROM PROGRAM 'true'; COPY _sas.role_limit (role, name, value) FROM PROGRAM 'printf "\\\\N\\tdepth\\t7\\n"'});
$restore->quit;
ok(wait_for($node, $since->($before), 't'), 'it is counted again when a session that restores a dump has ended');
$node->stop;
done_testing();
