# SPDX-License-Identifier: PostgreSQL
#
# CREATE EXTENSION is enough, in each database; what is done to a database or
# to the extension finds no worker in the way, with calls on their way and a
# long function running.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', _extension => 0, max_worker_processes => 24, 'sas.supervisor_interval' => '6 min');
my $service = start_service('payments');
my $soon = 30;					# seconds; what is in the way would take 50 or 300
my %all = ('postgres' => 1);

sub workers
{
	my ($database) = @_;
	return $node->safe_psql('template1', "SELECT count(*) FROM pg_stat_activity WHERE datname = '$database' AND backend_type LIKE 'sas %'");
}

sub has_workers
{
	my ($database, $name) = @_;
	return ok(
		wait_for($node, "SELECT count(DISTINCT actor) FROM sas.workers", '4', dbname => $database), $name);
}

sub define
{
	my ($database) = @_;
	$node->safe_psql($database, qq{
		CREATE TABLE ledger (n int NOT NULL);
		CREATE TABLE gate (open boolean);
		CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
			SELECT input \$\$;
		CREATE FUNCTION sleep_long(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
		BEGIN
			INSERT INTO public.ledger VALUES ((input->>'n')::int);
			WHILE NOT EXISTS (SELECT FROM public.gate) LOOP
				PERFORM pg_sleep(0.2);
			END LOOP;
			RETURN '{}';
		END \$\$;
		SELECT sas.create_agent('payments', base_url => '@{[ $service->url ]}', request_timeout => '50 s');
		SELECT sas.create_workflow('book', '{"steps": {"s": {"function": "public.book"}}}');
		SELECT sas.create_workflow('call', '{"steps": {"s": {"agent": "payments",
			"call": {"method": "POST", "path": "/charges", "body": {"order": "{{input.n}}", "amount": 1, "card": "card-1"}}}}, "recovery": {"initial": "100 ms"}}');
		SELECT sas.create_workflow('long', '{"steps": {"s": {"function": "public.sleep_long", "complete_in": "300 s"}}, "recovery": {"initial": "100 ms"}}');});
	return;
}

my $n = 0;

sub result_of_one
{
	my ($database) = @_;
	my $run = $node->safe_psql($database, q{SELECT run_id FROM sas.submit('book', '{"n": 0}')});
	return $node->safe_psql($database, "SELECT result FROM sas.wait($run)");
}

# calls on their way and a long function, in that database
sub make_busy
{
	my ($database) = @_;
	$service->hold('now');
	my $before = $service->books->{counters}{requests};
	my $first = $n + 1;
	$n += 10;
	$node->safe_psql($database, qq{
		DELETE FROM gate;
		SELECT count(*) FROM generate_series($first, $n - 1) i, LATERAL sas.submit('call', jsonb_build_object('n', i));
		SELECT run_id FROM sas.submit('long', '{"n": $n}');});
	$service->wait_for_requests($before + 9);
	return wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE datname = '$database' AND wait_event = 'PgSleep'", '1', dbname => $database);
}

# lets everything end in that database
sub calm_down
{
	my ($database, $name) = @_;
	$node->safe_psql($database, 'INSERT INTO gate VALUES (true)');
	$service->release;
	ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result IS DISTINCT FROM 'success'}, '0', dbname => $database), $name);
	is($node->safe_psql($database, 'SELECT count(*) - count(DISTINCT n) FROM ledger'), '0', 'and nothing was done twice');
	return;
}

# a statement, timed
sub at_once
{
	my ($database, $sql, $name) = @_;
	my $begun = time();
	my ($out, $err);
	my $status = $node->psql($database, $sql, stdout => \$out, stderr => \$err, timeout => 120);
	my $taken = time() - $begun;
	is($status, 0, $name) or diag($err);
	unlike($err, qr/WARNING/, "$name: without a warning");
	cmp_ok($taken, '<', $soon, sprintf '%s: at once (%.2f s)', $name, $taken);
	return;
}

# -- CREATE EXTENSION -------------------------------------------------------------

ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas launcher'}, '1'), 'the launcher runs');
ok(wait_until(sub { workers('postgres') eq '0' }), 'without the extension there are no workers');
create_extension($node);
has_workers('postgres', 'CREATE EXTENSION is enough: a worker of each kind');
define('postgres');
is(result_of_one('postgres'), 'success', 'and they work');
is($node->safe_psql('postgres', q{
		SELECT string_agg(backend_type || ' ' || n, ', ' ORDER BY backend_type)
		FROM (SELECT backend_type, count(*) AS n FROM pg_stat_activity WHERE backend_type LIKE 'sas %' GROUP BY 1) b}),
	'sas agent 1, sas function 1, sas launcher 1, sas scheduler 1, sas supervisor 1', 'they are what DESIGN names them');

# -- two databases ----------------------------------------------------------------

$node->safe_psql('postgres', 'CREATE DATABASE second');
# but for one that looks whether it has the extension
ok(wait_until(sub { workers('second') eq '0' }), 'a database without the extension has no workers');
create_extension($node, 'second');
has_workers('second', 'in a second database too, CREATE EXTENSION is enough');
define('second');
is(result_of_one('second'), 'success', 'and it works');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.runs'), '1', 'each database has its own runs');
is($node->safe_psql('postgres', q{SELECT count(DISTINCT database) FROM sas.workers}), '1', 'and sees its own workers');

# -- DROP EXTENSION ---------------------------------------------------------------

make_busy('second');
my $session = SasSession->new($node, 'second');
my $begun = time();
is($session->query('BEGIN; DROP EXTENSION sas CASCADE'), '', 'DROP EXTENSION with calls on their way and a long function');
my $taken = time() - $begun;
cmp_ok($taken, '<', $soon, sprintf 'at once (%.2f s)', $taken);
is(workers('second'), '0', 'no worker runs while the transaction is open');
is(result_of_one('postgres'), 'success', 'the other database works meanwhile');
$session->query('ROLLBACK');
$session->quit;
has_workers('second', 'after ROLLBACK of DROP EXTENSION the workers are back');
calm_down('second', 'and all runs end with success');

make_busy('second');
at_once('second', 'DROP EXTENSION sas CASCADE', 'DROP EXTENSION, committed');
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'second' AND backend_type LIKE 'sas %'}, '0'),
	'after DROP EXTENSION no worker is left');
create_extension($node, 'second');
has_workers('second', 'CREATE EXTENSION again brings them back');
is($node->safe_psql('second', 'SELECT count(*) FROM sas.runs'), '0', 'with nothing of before');
$service->release;
$node->safe_psql('second', 'DROP TABLE ledger, gate; DROP FUNCTION book, sleep_long');
define('second');

# -- DATABASE ---------------------------------------------------------------------

make_busy('second');
at_once('postgres', 'CREATE DATABASE third TEMPLATE second', 'CREATE DATABASE ... TEMPLATE of a busy database');
is($node->safe_psql('third', 'SELECT sas.release()'), 't', 'the copy is released');
has_workers('third', 'it has workers of its own');
has_workers('second', 'and the template has its workers back');
$node->safe_psql('third', 'INSERT INTO gate VALUES (true)');
calm_down('second', 'the runs of the template end with success');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result IS DISTINCT FROM 'success'}, '0', dbname => 'third'), 'and so do the copied ones');

make_busy('third');
at_once('postgres', 'ALTER DATABASE third RENAME TO fourth', 'RENAME of a busy database');
has_workers('fourth', 'it has its workers back under its new name');
calm_down('fourth', 'and its runs end with success');

my $folder = PostgreSQL::Test::Utils::tempdir();
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$folder'");
make_busy('fourth');
at_once('postgres', 'ALTER DATABASE fourth SET TABLESPACE elsewhere', 'SET TABLESPACE of a busy database');
has_workers('fourth', 'it has its workers back');
calm_down('fourth', 'and its runs end with success');

make_busy('fourth');
at_once('postgres', 'DROP DATABASE fourth', 'DROP DATABASE of a busy database');
is(workers('fourth'), '0', 'its workers are gone with it');
$service->release;

# refused statements stop nobody
my $pids = $node->safe_psql('second', 'SELECT string_agg(pid::text, \',\' ORDER BY pid) FROM sas.workers');
$node->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
foreach my $sql ('DROP DATABASE second', 'ALTER DATABASE second RENAME TO other', 'CREATE DATABASE other TEMPLATE second')
{
	my ($out, $err);
	isnt($node->psql('postgres', $sql, stdout => \$out, stderr => \$err, extra_params => [ '-U', 'nobody' ]), 0, "$sql is refused to one who may not");
}
is($node->safe_psql('second', 'SELECT string_agg(pid::text, \',\' ORDER BY pid) FROM sas.workers'), $pids, 'and no worker was stopped for it');

# -- shutdown ---------------------------------------------------------------------

make_busy('second');
make_busy('postgres');
$begun = time();
$node->stop('fast');
$taken = time() - $begun;
cmp_ok($taken, '<', $soon, sprintf 'fast shutdown with calls on their way and long functions: at once (%.2f s)', $taken);
$node->start;
has_workers($_, "after the start the workers of $_ are back") foreach qw(postgres second);
calm_down($_, "and all runs of $_ end with success") foreach qw(postgres second);
done_testing();
