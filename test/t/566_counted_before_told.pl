# SPDX-License-Identifier: PostgreSQL
#
# A transaction has ended for others a moment before its session counts what it has opened and ended. What a count of all
# open runs has seen in that moment is not added to it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;
use PostgreSQL::Test::Utils;

my $node = new_node('main', 'sas.function_workers' => 0, 'sas.schedulers' => 0, 'sas.agents' => 0, 'sas.supervisors' => 0);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($includes) = split /\n/, `pg_config --includedir-server`;
system('cc', '-shared', '-fPIC', "-I$includes", '-o', "$dir/told_late.so", "$FindBin::RealBin/../modules/told_late.c") == 0 or die 'no module';
$sql->(qq{
	CREATE FUNCTION told_late(text) RETURNS void LANGUAGE c STRICT AS '$dir/told_late', 'told_late';
	CREATE ROLE one;
	CREATE SCHEMA t;
	GRANT USAGE ON SCHEMA t TO one;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('echo', '{"steps": {"a": {"function": "t.echo"}}}');
	SELECT sas.create_watcher('turns', '{"function": "t.echo", "every": "1 h"}');
	SELECT sas.grant_usage('one', 'user'), sas.grant_workflow('echo', 'one');
	-- cancels these runs, and does what a scheduler would do
	CREATE FUNCTION t.cancel(ids bigint[]) RETURNS void LANGUAGE plpgsql AS \$\$
	BEGIN
		PERFORM sas.cancel_runs(ids);
		WHILE (SELECT worked FROM _sas.scheduler_tick(5000)) > 0 LOOP NULL; END LOOP;
	END \$\$});
my $open = q{SELECT count(*) FROM _sas.run WHERE owner = 'one'::regrole AND state <> 'stopped'};
my $used = q{SELECT used FROM sas.limits WHERE role = 'one' AND name = 'open_runs'};
my $submit = sub { return qq{SELECT count(*) FROM sas.submit_batch('echo', array_fill('{}'::jsonb, '{$_[0]}'))} };
my $session = SasSession->new($node);
my $moments = 0;

# commits this, and stays in that moment until end() is called
sub in_the_moment
{
	my ($what, $expected) = @_;
	$moments++;
	$session->query("SET statement_timeout = 0; BEGIN; $what; RESET ROLE; SELECT told_late('$dir/$moments')");
	$session->start_query('COMMIT');
	ok(wait_for($node, $open, $expected), "moment $moments: $expected runs are open for others");
	return;
}
sub end { append_to_file("$dir/$moments", ''); $session->outcome; return }

# -- a count that begins and ends in that moment -----------------------------------------------------------------------

in_the_moment('SET LOCAL ROLE one; ' . $submit->(3), 3);
$sql->('SELECT _sas.recount_quotas()');
end();
is($sql->($used), 3, 'new runs are counted once');

my $last = $sql->('SELECT max(run_id) FROM _sas.run');
in_the_moment("SELECT t.cancel('{$last}')", 2);
$sql->('SELECT _sas.recount_quotas()');
end();
is($sql->($used), 2, 'so is the end of one');

$sql->('SET ROLE one; ' . $submit->(1));
is($sql->($used), 3, 'and what is submitted afterwards');

# -- while it goes on --------------------------------------------------------------------------------------------------

# a count that waits for a lock once it has its snapshot
$sql->(q{
	CREATE FUNCTION t.size(input jsonb) RETURNS bigint LANGUAGE c IMMUTABLE STRICT AS 'sas', 'sas_api_value_size';
	CREATE OR REPLACE FUNCTION _sas.value_size(input jsonb) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
	BEGIN
		IF current_setting('t.waits', true) = 'yes' THEN
			PERFORM pg_advisory_xact_lock_shared(1);
		END IF;
		RETURN t.size(input);
	END $$});
my $gate = SasSession->new($node);
my $count = SasSession->new($node);
my $begin_count = sub {
	$gate->query('SELECT pg_advisory_lock(1)');
	$count->query("SET statement_timeout = 0; SET t.waits = 'yes'");
	$count->start_query('SELECT _sas.recount_quotas()');
	ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'}, '1'), 'a count has begun');
};
my $end_count = sub { $gate->query('SELECT pg_advisory_unlock(1)'); $count->outcome };
in_the_moment('SET LOCAL ROLE one; ' . $submit->(4), 7);
$begin_count->();
end();
$sql->('SET ROLE one; ' . $submit->(2));
$end_count->();
is($sql->($used), $sql->($open), 'what a count has seen is not added, and the rest is');
is($sql->($used), 9, 'also while it goes on');

# -- while another database is counted ---------------------------------------------------------------------------------

$sql->('CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION sas');
$begin_count->();
in_the_moment('SET LOCAL ROLE one; ' . $submit->(4), 13);
is($node->safe_psql('other', 'SELECT _sas.recount_quotas()'), '0', 'another database is counted');
end();
$end_count->();
is($sql->($used), 13, 'what another database has seen is added');
in_the_moment('SET LOCAL ROLE one; ' . $submit->(4), 17);
$sql->('SELECT _sas.recount_quotas()');
$node->safe_psql('other', 'SELECT _sas.recount_quotas()');
end();
is($sql->($used), 17, 'nor is it forgotten what this one has seen');

# -- two counts at the same time ---------------------------------------------------------------------------------------

$begin_count->();
$sql->('SET ROLE one; ' . $submit->(1));
$sql->('SELECT _sas.recount_quotas()');
$sql->('SET ROLE one; ' . $submit->(1));
$end_count->();
is($sql->($used), 19, 'of two counts, that which began last counts');

# -- in a transaction that has opened something itself -----------------------------------------------------------------

$session->query('BEGIN; SET LOCAL ROLE one; ' . $submit->(3));
$sql->('SET ROLE one; ' . $submit->(2));
$session->query('RESET ROLE; SELECT _sas.recount_quotas()');
is($sql->($used), 24, 'what the transaction of a count has done counts');
$session->query('COMMIT');
is($sql->($used), 24, 'once');

# -- while others commit all the time ----------------------------------------------------------------------------------

my @others = map { SasSession->new($node) } 1 .. 2;
$_->start_query(q{SET ROLE one; DO $$ BEGIN FOR n IN 1 .. 150 LOOP PERFORM FROM sas.submit('echo'); COMMIT; END LOOP; END $$}) foreach @others;
$sql->('SELECT _sas.recount_quotas() FROM generate_series(1, 50)');
$_->outcome foreach @others;
$_->quit foreach @others;
is($sql->($used), $sql->($open), 'nor is anything left out');
$_->quit foreach $session, $gate, $count;
$node->stop;
done_testing();
