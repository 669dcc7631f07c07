# SPDX-License-Identifier: PostgreSQL
#
# Applications and outside programs come through pgbouncer in transaction mode,
# more of them than it has connections; it is killed and started again.
# Nothing is lost or done twice.
# Takes about 30 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $port = free_port();
my $user = $node->safe_psql('postgres', 'SELECT current_user');
my ($pgbouncer) = grep { -x } '/usr/sbin/pgbouncer', '/usr/bin/pgbouncer';
append_to_file("$dir/pgbouncer.ini", <<"INI");
[databases]
postgres = host=@{[ $node->host ]} port=@{[ $node->port ]} user=$user
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $dir
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
pidfile = $dir/pid
logfile = $dir/pgbouncer.log
INI
my $pooler;

# once it answers
sub start_pooler
{
	$pooler = SasTest::start_program("$dir/out", $pgbouncer, "$dir/pgbouncer.ini");
	return wait_until(sub { return pooled('SELECT 1') eq '1' });
}

# what one session says through the pooler, with or without an answer
sub pooled
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	# psql that does not connect may be gone before it has read the statements
	eval {
		IPC::Run::run([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', "host=$dir port=$port dbname=postgres" ], '<', \$sql, '>', \$out, '2>', \$err);
		1;
	} or return '';
	chomp $out;
	return $out;
}

$node->safe_psql('postgres', q{
	CREATE TABLE orders (order_id bigint PRIMARY KEY);
	CREATE TABLE packed (order_id bigint PRIMARY KEY, worker text, pages int);
	CREATE FUNCTION echo(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
	SELECT sas.create_agent('packer', kind => 'external');
	SELECT sas.create_workflow('pack', '{"steps": {"pack": {"agent": "packer", "task": {}, "recovery": {"initial": "100 ms", "max": "1 s"}}}}');
	SELECT sas.create_workflow('ask', '{"steps": {"a": {"wait": {"signal": "go"}}, "b": {"function": "public.echo", "after": ["a"]}}}')});
ok(start_pooler(), 'pgbouncer in transaction mode');

# -- a session of an application ---------------------------------------------------

my $run = pooled(q{SELECT run_id FROM sas.submit('ask', key => 'one')});
is(pooled(q{BEGIN; INSERT INTO orders VALUES (1000); SELECT created FROM sas.submit('ask', key => 'two'); ROLLBACK}), 't', 'a submit in a transaction of the application');
is(pooled(q{SELECT count(*) FROM sas.runs WHERE key = 'two'}), '0', 'ends with it');
is(pooled(qq{BEGIN; SET LOCAL sas.reason = 'asked'; SELECT changed FROM sas.pause($run); SELECT changed FROM sas.resume($run); COMMIT}), "t\nt", 'verbs with a reason');
is(pooled(qq{SELECT DISTINCT coalesce(reason, '') FROM sas.history WHERE run_id = $run AND act IN ('pause', 'resume')}), 'asked', 'which holds for the transaction only');
is(pooled(qq{SELECT sas.signal($run, 'go') IS NOT NULL; SELECT result FROM sas.wait($run, '1 min')}), "t\nsuccess", 'signal and wait');

# -- more programs than connections --------------------------------------------------

foreach my $n (1 .. 8)
{
	local $ENV{PGHOST} = $dir;
	local $ENV{PGPORT} = $port;
	local $ENV{PGDATABASE} = 'postgres';
	delete local $ENV{PGUSER};
	SasTest::start_program("$dir/packer$n.log", 'bash', "$SasTest::tree/examples/outside/packer.sh", "p$n", 0.05);
}
my $orders = 120;
foreach my $ten (0 .. $orders / 10 - 1)
{
	# an answer that did not come: the same is said again, under the same keys
	my $sql = "INSERT INTO orders SELECT generate_series(10 * $ten + 1, 10 * $ten + 10) ON CONFLICT DO NOTHING;
		SELECT count(s.run_id) FROM generate_series(10 * $ten + 1, 10 * $ten + 10) n, sas.submit('pack', jsonb_build_object('order', n, 'pages', 2), key => n::text) s;";
	wait_until(sub { return pooled("BEGIN; $sql COMMIT") eq '10' }) or fail("orders of $ten");
	if ($ten == 3 || $ten == 7)
	{
		ok(wait_for($node, "SELECT count(*) >= 4 * $ten FROM packed", 't'), 'the programs work through the pooler');
		SasTest::stop_program($pooler, 'KILL');
		ok(start_pooler(), 'which is killed, and started again');
	}
}
ok(wait_for($node, "SELECT count(*) FROM packed", $orders), 'every order is packed') or diag($node->safe_psql('postgres', q{SELECT state, count(*) FROM sas.steps GROUP BY 1}));
all_ended($node, 'every run ended');
is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT key) FROM sas.runs WHERE workflow = 'pack' AND result = 'success'}), "$orders|$orders", 'once');
cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT worker) FROM packed'), '>', 4, 'more programs than connections took part');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()}), '<=', 4, 'of which the server has four');
done_testing();
