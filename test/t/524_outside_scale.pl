# SPDX-License-Identifier: PostgreSQL
#
# Outside agents at scale: 50 programs in two languages come through pgbouncer in
# transaction mode, with LISTEN past it, and do 10,000 tasks and host 1,000
# infinite tasks. Meanwhile programs, the pooler and the server are killed, and
# the network is cut, or silent. Nothing is lost, and nothing is done twice.
#
#   SEED=7          which strikes; printed
#   TASKS=10000 PROGRAMS=50 FILES=1000 RATE=80      sizes, and tasks a second
#
# Takes about 300 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasClients;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $tasks = $ENV{TASKS} || 10_000;
my $programs = $ENV{PROGRAMS} || 50;
my $files = $ENV{FILES} || 1000;
my $rate = $ENV{RATE} || 80;
my $seed = $ENV{SEED} || int(rand(1 << 30));
srand($seed);
note("SEED=$seed");
$SasTest::limit = 600;

my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $node = new_node('main', max_connections => 150, max_worker_processes => 16);
my $user = $node->safe_psql('postgres', 'SELECT current_user');
my $server = $node->host . '/.s.PGSQL.' . $node->port;
my $port = free_port();
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
default_pool_size = 20
max_client_conn = 1000
server_login_retry = 1
pidfile = $dir/pid
logfile = $dir/pgbouncer.log
INI

sub sql { return $node->safe_psql('postgres', $_[0]) }

sub printed
{
	my ($file, $pattern) = @_;
	return -e $file && slurp_file($file) =~ $pattern;
}

# -- the pooler, and four cables from the programs to it and to the server ----------------

my (%pid, @cable);

sub start_pooler
{
	$pid{pooler} = SasTest::start_program("$dir/pooler.out", $pgbouncer, "$dir/pgbouncer.ini");
	return wait_until(sub { system("psql -XqAt -d 'host=$dir port=$port dbname=postgres' -c 'SELECT 1' >/dev/null 2>&1") == 0 });
}

sub start_cable
{
	my ($n) = @_;
	$cable[$n] //= { pooled => free_port(), direct => free_port() };
	unlink "$dir/cable$n.log";
	foreach (1 .. 50)
	{
		$pid{"cable $n"} = SasTest::start_program("$dir/cable$n.log", 'python3', "$FindBin::RealBin/../lib/cable.py", $cable[$n]{pooled}, "$dir/.s.PGSQL.$port", $cable[$n]{direct}, $server);
		wait_until(sub { printed("$dir/cable$n.log", qr/carries/) || waitpid($pid{"cable $n"}, POSIX::WNOHANG()) != 0 });
		return 1 if printed("$dir/cable$n.log", qr/carries/);
		sleep 0.2;
	}
	return 0;
}
{
	local $ENV{PATH} = "/usr/local/bin:/usr/bin:/bin:$ENV{PATH}";
	ok(start_pooler(), 'pgbouncer in transaction mode');
	is(scalar(grep { start_cable($_) } 0 .. 3), 4, 'four cables');
}

# -- programs -----------------------------------------------------------------------------

my $site = PostgreSQL::Test::Utils::tempdir();
{
	local $ENV{PATH} = "/usr/local/bin:/usr/bin:/bin:$ENV{PATH}";
	command_ok([ qw(python3 -m pip install -q --no-index --no-deps --no-build-isolation --disable-pip-version-check --target), $site, "$SasTest::tree/clients/python" ], 'the library for Python');
}
my $home = node_home() or die 'no Node.js with pg';

# start(name): p1 Python, n1 Node.js, h1 a host of infinite tasks
my %started;

sub start
{
	my ($name) = @_;
	my ($kind, $n) = $name =~ /^(\w)(\d+)$/;
	my $cable = $cable[ $n % 4 ];
	local %ENV = (%ENV, PATH => "/usr/local/bin:/usr/bin:/bin:$ENV{PATH}", PYTHONPATH => $site,
		LEASE => 20, PGHOST => '127.0.0.1', PGPORT => $cable->{pooled}, PGDATABASE => 'postgres', PGUSER => $user,
		LISTEN => "host=127.0.0.1 port=$cable->{direct} dbname=postgres user=$user");
	$ENV{LISTEN} = "postgres://$user\@127.0.0.1:$cable->{direct}/postgres" if $kind eq 'n';
	my @command = $kind eq 'p' ? ('python3', "$SasTest::tree/examples/outside/packer.py", $name, 0.05)
	  : $kind eq 'n' ? ('node', "$home/packer.mjs", $name, 0.05)
	  : ('python3', "$SasTest::tree/examples/outside/tailer.py", $name, int(2 * $files / ($programs / 5)));
	return $pid{$name} = SasTest::start_program("$dir/$name." . $started{$name}++ . '.log', @command);
}

sql(qq{
	CREATE TABLE orders (order_id bigint PRIMARY KEY);
	CREATE TABLE packed (order_id bigint PRIMARY KEY, worker text, pages int);
	CREATE TABLE line (id bigint GENERATED ALWAYS AS IDENTITY, key text, item jsonb NOT NULL);
	SELECT sas.create_agent('packer', kind => 'external', max_in_flight => 1000);
	SELECT sas.create_workflow('pack', '{"steps": {"pack": {"agent": "packer", "task": {},
		"retry": {"initial": "100 ms", "max": "1 s"}, "recovery": {"initial": "100 ms", "max": "1 s", "max_failures": 1000}}}}');
	SELECT sas.create_agent('tailer', kind => 'external');
	SELECT sas.create_watcher('files', '{"agent": "tailer", "external": {"path": "{{input.path}}"}, "items": {"table": "public.line"},
		"retry": {"initial": "100 ms", "max": "1 s"}}')});
append_to_file("$dir/$_.txt", '') foreach 1 .. $files;
sql(qq{SELECT count(*) FROM generate_series(1, $files) n, sas.watch('files', n::text, jsonb_build_object('path', '$dir/' || n || '.txt'))});
my $fifth = $programs / 5;
my @names = ((map { "p$_" } 1 .. 2 * $fifth), (map { "n$_" } 1 .. 2 * $fifth), (map { "h$_" } 1 .. $fifth));
start($_) foreach @names;
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing'}, $files), "$files infinite tasks are hosted");
ok( wait_until(sub { return sql(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'}) eq $programs }),
	"$programs programs have their LISTEN past the pooler");

# -- the load, and the strikes ---------------------------------------------------------------

my $log = "$dir/feeder.log";
{
	local %ENV = (%ENV, PATH => "/usr/local/bin:/usr/bin:/bin:$ENV{PATH}", PGHOST => $dir, PGPORT => $port, PGDATABASE => 'postgres', PGUSER => $user);
	$pid{feeder} = SasTest::start_program($log, 'python3', "$FindBin::RealBin/../lib/feeder.py", $tasks, $rate, $files, $dir);
}
my $fed = sub { my ($n) = (-e $log ? slurp_file($log) : '') =~ /.*^(\d+)$/ms; return $n // 0 };
my %strikes = (
	'programs are killed' => sub {
		my @killed = map { $_->[ rand @$_ ] } [ grep { /p/ } @names ], [ grep { /n/ } @names ], [ grep { /h/ } @names ];
		SasTest::stop_program($pid{$_}, 'KILL') foreach @killed;
		sleep rand 3;
		start($_) foreach @killed;
	},
	'the pooler is killed' => sub { SasTest::stop_program($pid{pooler}, 'KILL'); sleep rand 2; start_pooler() },
	'the pooler is restarted' => sub { SasTest::stop_program($pid{pooler}, 'INT'); start_pooler() },
	'a cable is cut' => sub { my $n = int rand 4; SasTest::stop_program($pid{"cable $n"}, 'KILL'); sleep rand 5; start_cable($n) },
	'a cable is silent' => sub { my $n = int rand 4; kill('STOP', $pid{"cable $n"}); sleep 15; kill('CONT', $pid{"cable $n"}) },
	'a worker of sas is killed' => sub { kill_worker($node, (qw(scheduler supervisor))[ rand 2 ]); wait_until(sub { eval { sql('SELECT 1') } }) },
	'the server is killed' => sub { $node->stop('immediate'); $node->start });
my (@struck, %count);
ok(wait_until(sub { $fed->() >= $tasks / 5 || waitpid($pid{feeder}, POSIX::WNOHANG()) != 0 }) && $fed->() >= $tasks / 5, 'a fifth of the orders is submitted before the first strike')
  or BAIL_OUT(slurp_file($log));
my $calm_until = sql('SELECT now()');
while ($fed->() < $tasks * 4 / 5)
{
	my @kinds = sort { ($count{$a} // 0) <=> ($count{$b} // 0) || $a cmp $b } keys %strikes;
	my $least = $count{ $kinds[0] } // 0;
	@kinds = grep { ($count{$_} // 0) == $least } @kinds;
	my $kind = $kinds[ rand @kinds ];
	$count{$kind}++;
	note(sprintf '%s at order %d', $kind, $fed->());
	$strikes{$kind}->();
	sleep 1 + rand 3;
}
my $calm_from = sql(q{SELECT now() + interval '10 s'});
ok(wait_until(sub { printed($log, qr/^submitted $tasks/m) }), 'every order is submitted') or diag(slurp_file($log));

# -- none lost, none twice -----------------------------------------------------------------------

ok(wait_for($node, 'SELECT count(*) FROM packed', $tasks), "$tasks orders are packed, each once")
  or diag(sql(q{SELECT state, waiting_kind, count(*) FROM sas.steps WHERE state NOT IN ('succeeded') GROUP BY 1, 2}));
all_ended($node, 'every run ended');
is(sql(q{SELECT count(*), count(DISTINCT key), count(*) FILTER (WHERE result = 'success') FROM sas.runs WHERE workflow = 'pack'}), "$tasks|$tasks|$tasks", 'with success, one for each order');
is(sql(q{SELECT string_agg(DISTINCT left(worker, 1), ' ') FROM packed}), 'n p', 'both languages took part');
ok( wait_for($node, q{SELECT count(*), count(DISTINCT key) FROM line}, "$tasks|$files"), 'every line of every file is taken in')
  or diag(sql(q{SELECT state, count(*) FROM sas.watches GROUP BY 1}));
is( sql(q{SELECT count(*) FROM (SELECT key, item, 'line ' || row_number() OVER (PARTITION BY key ORDER BY id) || ' of ' || key AS wanted FROM line) x WHERE item #>> '{}' <> wanted}),
	'0', 'once, in order');
is(sql(q{SELECT count(*) FROM sas.watches WHERE state <> 'processing'}), '0', 'and all are hosted at the end');
cmp_ok(sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND query NOT LIKE 'LISTEN%' AND pid <> pg_backend_pid()}), '<=', 20,
	'over twenty connections');

# -- how soon a task is picked up ---------------------------------------------------------------------

sub picked_up
{
	my ($what, $where) = @_;
	note('figure: ' . sql(qq{
		SELECT format('%s tasks %s were claimed after %s ms (half), %s ms (99 of 100), %s ms (all)', count(*), '$what',
			round(1000 * percentile_disc(0.5) WITHIN GROUP (ORDER BY waited)), round(1000 * percentile_disc(0.99) WITHIN GROUP (ORDER BY waited)), round(1000 * max(waited)))
		FROM (SELECT extract(epoch FROM a.started_at - r.created_at) AS waited FROM sas.attempts a JOIN sas.runs r USING (run_id)
			WHERE r.workflow = 'pack' AND a.attempt = 1 AND $where) x}));
	return;
}
note(sprintf 'figure: %s; %d attempts for %d tasks; %d submits again', join(', ', map { "$count{$_} times $_" } sort keys %count),
	sql(q{SELECT count(*) FROM sas.attempts}), $tasks, slurp_file($log) =~ /again (\d+)$/m ? $1 : 0);
picked_up('at rest', "(r.created_at < '$calm_until' OR r.created_at > '$calm_from')");
picked_up('under strikes', "r.created_at BETWEEN '$calm_until' AND '$calm_from'");
foreach my $name (@names)
{
	SasTest::stop_program($pid{$name}, 'KILL');
}
done_testing();
