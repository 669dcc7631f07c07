# SPDX-License-Identifier: PostgreSQL
#
# Outside programs host infinite tasks: the example as it is told in the
# documentation, killed, stopped, cut off; each line of each file is taken in
# once, whatever becomes of the programs and of the server.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $files = 20;
my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $dir = PostgreSQL::Test::Utils::tempdir();
$sql->(q{
	SELECT sas.create_agent('tailer', kind => 'external');
	CREATE TABLE line (id bigint GENERATED ALWAYS AS IDENTITY, key text, item jsonb NOT NULL);
	SELECT sas.create_watcher('files', '{"agent": "tailer", "external": {"path": "{{input.path}}"}, "items": {"table": "public.line"}, "retry": {"initial": "100 ms", "max": "1 s"}}')});

my %written;
sub write_lines
{
	my ($quantity) = @_;
	foreach my $n (1 .. $files)
	{
		open(my $file, '>>', "$dir/$n.txt") or die;
		print $file "line $_ of $n\n" foreach map { ++$written{$n} } 1 .. $quantity;
		close $file;
	}
	return;
}

my %log;
sub start_tailer
{
	my ($name, $capacity) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	local $ENV{PATH} = "/usr/local/bin:/usr/bin:/bin:$ENV{PATH}";
	delete local $ENV{PGUSER};
	$log{$name} = "$dir/$name.log";
	return SasTest::start_program($log{$name}, 'python3', "$SasTest::tree/examples/outside/tailer.py", $name, $capacity);
}

# each line once, in its order
sub all_lines_are_there
{
	my ($name) = @_;
	my $wanted = join '|', map { "$_ $written{$_}" } sort keys %written;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( wait_for(
			$node, q{SELECT string_agg(key || ' ' || n, '|' ORDER BY key COLLATE "C") FROM (SELECT key, count(*) AS n FROM line GROUP BY 1) x}, $wanted),
		"$name: all lines come");
	is( $sql->(q{SELECT count(*) FROM (SELECT key, item, 'line ' || row_number() OVER (PARTITION BY key ORDER BY id) || ' of ' || key AS wanted FROM line) x WHERE item #>> '{}' <> wanted}),
		'0', "$name: each once, in order");
	return;
}
my $spread = sub { return $sql->(q{SELECT string_agg(name || ' ' || watches, ', ' ORDER BY name) FROM sas.nodes WHERE kind = 'outside' AND NOT is_deleted}) };

# -- twice the capacity ----------------------------------------------------------------------------

write_lines(3);
$sql->(qq{SELECT count(*) FROM generate_series(1, $files) n, sas.watch('files', n::text, jsonb_build_object('path', '$dir/' || n || '.txt'))});
my $a = start_tailer('a', 10);
ok(wait_for($node, q{SELECT state || ' ' || count(*) FROM sas.watches GROUP BY state ORDER BY 1}, "created 10\nprocessing 10"), 'a program hosts as many as it said; the rest wait as created');
my $b = start_tailer('b', 20);
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing'}, $files), 'they start when there is room');
all_lines_are_there('two programs');
is($spread->(), 'a 10, b 10', 'the views show who hosts how many');
my $c = start_tailer('c', 20);
wait_for($node, q{SELECT count(*) FROM sas.nodes WHERE name = 'c'}, '1');
cmp_ok($sql->('SELECT sas.rebalance()'), '>', 0, 'sas.rebalance asks for some back');
ok(wait_for($node, q{SELECT string_agg(name || ' ' || watches, ', ' ORDER BY name) FROM sas.nodes WHERE kind = 'outside'}, 'a 4, b 8, c 8'), 'for the one that came later');
write_lines(3);
all_lines_are_there('moved while they run');

# -- killed -------------------------------------------------------------------------------------------

my $begun = time();
SasTest::stop_program($b, 'KILL');
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing' AND node IN ('a', 'c')}, $files), 'what a killed program hosted goes to the others');
note(sprintf 'after %.2f s', time() - $begun);
is($sql->(q{SELECT ended_for FROM sas.nodes WHERE name = 'b'}), 'its connection is gone', 'as soon as its connection is gone, not with its lease');
write_lines(3);
all_lines_are_there('one was killed');

# -- its session is ended by an administrator: the program comes back under its name --------------------

my $was = $sql->(q{SELECT node_id FROM sas.nodes WHERE name = 'c'});
$sql->(q{SELECT pg_terminate_backend(pid) FROM sas.nodes WHERE name = 'c'});
ok(wait_for($node, "SELECT node_id > $was FROM sas.nodes WHERE name = 'c' AND NOT is_deleted"), 'a program that lost its session is born again, with another id');
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing'}, $files), 'and all are hosted');
write_lines(3);
all_lines_are_there('one lost its session');

# -- the server goes down without a word -----------------------------------------------------------------

write_lines(20);
$node->stop('immediate');
write_lines(20);
$node->start;
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing'}, $files), 'after a crash of the server all are hosted again');
all_lines_are_there('the server crashed');

# -- everything off, everything on again --------------------------------------------------------------------

SasTest::stop_program($_, 'KILL') foreach $a, $c;
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'created' AND node IS NULL}, $files), 'with all programs gone, all tasks wait');
$node->stop('fast');
write_lines(3);
$node->start;
my $d = start_tailer('d', 30);
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing' AND node = 'd'}, $files), 'all off and on again: whoever came back hosts them all');
all_lines_are_there('all off and on again');

# -- the supervisor is away while nodes come and go ---------------------------------------------------------

$sql->(q{ALTER SYSTEM SET sas.supervisors = 0; SELECT pg_reload_conf()});
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'supervisor'}, '0'), 'no supervisor');
my $e = start_tailer('e', 30);
wait_for($node, q{SELECT count(*) FROM sas.nodes WHERE name = 'e'}, '1');
SasTest::stop_program($d, 'KILL');
$sql->(q{SELECT * FROM sas.unwatch('files', '{1}')});
wait_for($node, q{SELECT count(*) FROM sas.nodes n JOIN pg_stat_activity a ON a.pid = n.pid WHERE n.name = 'd'}, '0');
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing' AND node = 'e'}, '19'), 'the programs find each other gone without one');
$sql->(q{SELECT * FROM sas.unwatch('files', '{2}')});
ok(wait_for($node, q{SELECT string_agg(x, ' ') FROM (SELECT state || ' ' || coalesce(node, 'none') || ' ' || count(*) AS x FROM sas.watches GROUP BY state, node ORDER BY 1) y}, 'deleted none 2 processing e 18'),
	'and a stop that nobody answers does not wait for one');
$sql->(q{ALTER SYSTEM RESET sas.supervisors; SELECT pg_reload_conf()});
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'supervisor'}, '1'), 'a supervisor is there again');
SasTest::stop_program($e, 'KILL');
$e = start_tailer('e', 30);
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing' AND node = 'e'}, '18'), 'and all is as it should be');
delete @written{1, 2};
$sql->(q{DELETE FROM line WHERE key IN ('1', '2')});

# -- a program that hangs: by its lease --------------------------------------------------------------------

my $f = start_tailer('f', 30);
wait_for($node, q{SELECT count(*) FROM sas.nodes WHERE name = 'f'}, '1');
$begun = time();
kill('STOP', $e);
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'processing' AND node = 'f'}, 18), 'what a program that hangs hosted goes to another when its lease is over');
note(sprintf 'after %.2f s', time() - $begun);
kill('CONT', $e);
ok(wait_for($node, q{SELECT count(*) FROM sas.nodes WHERE name = 'e' AND NOT is_deleted}, '1'), 'when it wakes up it is told that it has ended, and is born again');
foreach my $n (3 .. 20) { open(my $file, '>>', "$dir/$n.txt") or die; print $file 'line ' . ++$written{$n} . " of $n\n"; close $file; }
all_lines_are_there('one hung');

# -- stopped --------------------------------------------------------------------------------------------

$sql->(q{SELECT * FROM sas.unwatch('files', ARRAY(SELECT key FROM sas.watches WHERE state <> 'deleted'))});
ok(wait_for($node, q{SELECT DISTINCT state FROM sas.watches}, 'deleted'), 'told to stop, the programs end their tasks and say so');
SasTest::stop_program($f, 'TERM');
is($sql->(q{SELECT ended_for FROM sas.nodes WHERE name = 'f'}), 'it unregistered', 'a program that is stopped says good-bye');
is($sql->(q{SELECT (SELECT count(*) FROM _sas.watch_wait) + (SELECT count(*) FROM _sas.watch_held) + (SELECT count(*) FROM _sas.watch_batch) + (SELECT count(*) FROM _sas.watch_work) + (SELECT count(*) FROM _sas.watch_note)}),
	'0', 'nothing is left over');
is($sql->(q{SELECT count(*) FROM sas.alerts}), '0', 'and there was nothing to be alarmed about');
done_testing();
