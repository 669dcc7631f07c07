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
	-- does what a scheduler would do
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
$sql->('SELECT _sas.recount_shares()');
end();
is($sql->($used), 3, 'new runs are counted once');

my $last = $sql->('SELECT max(run_id) FROM _sas.run');
in_the_moment("SELECT t.cancel('{$last}')", 2);
$sql->('SELECT _sas.recount_shares()');
end();
is($sql->($used), 2, 'so is the end of one');

$sql->('SET ROLE one; ' . $submit->(1));
is($sql->($used), 3, 'and what is submitted afterwards');

# -- one that begins in it, and goes on after it -----------------------------------------------------------------------

$sql->('SET ROLE one; ' . $submit->(42_000));
$last = $sql->('SELECT max(run_id) FROM _sas.run');
in_the_moment("SET LOCAL ROLE one; " . $submit->(5) . "; RESET ROLE; SELECT t.cancel('{$last}')", 42_003 + 4);
is($sql->('SELECT _sas.recount_part()'), 't', 'a first part');
end();
$sql->('SET ROLE one; ' . $submit->(10));
is($sql->('SELECT _sas.recount_part()'), 't', 'a second one');
# in its part, and before
my $second = $sql->('SELECT _sas.recounted_from()');
in_the_moment("SELECT t.cancel(ARRAY[$second + 5, 7])", 42_003 + 12);
is($sql->('SELECT _sas.recount_part()'), 'f', 'the last one');
end();
is($sql->($used), $sql->($open), 'what was seen by the part that it belongs to is not added');

# -- while another database is counted ---------------------------------------------------------------------------------

$sql->('CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION sas');
is($sql->('SELECT _sas.recount_part()'), 't', 'a first part again');
in_the_moment('SET LOCAL ROLE one; ' . $submit->(4), 42_003 + 16);
is($node->safe_psql('other', 'SELECT _sas.recount_part()'), 'f', 'another database is counted');
is($sql->('SELECT _sas.recount_part()'), 't', 'a second part');
end();
1 while $sql->('SELECT _sas.recount_part()') eq 't';
is($sql->($used), $sql->($open), 'what another database has seen is added');

# -- while others commit all the time ----------------------------------------------------------------------------------

my @others = map { SasSession->new($node) } 1 .. 2;
$_->start_query(q{SET ROLE one; DO $$ BEGIN FOR n IN 1 .. 150 LOOP PERFORM FROM sas.submit('echo'); COMMIT; END LOOP; END $$}) foreach @others;
$sql->('SELECT _sas.recount_shares() FROM generate_series(1, 10)');
$_->outcome foreach @others;
$_->quit foreach @others;
is($sql->($used), $sql->($open), 'nor is anything left out');
$session->quit;
$node->stop;
done_testing();
