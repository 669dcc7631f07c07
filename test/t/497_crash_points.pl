# SPDX-License-Identifier: PostgreSQL
#
# The server crashes at each point that workers reach: where a function of _sas begins or ends, before a commit, after
# it and before anybody is woken, after an abort (test/modules/crash_points.c); in the middle of each kind of record in its
# log of changes, and behind it; and in the middle of any write to that log (test/modules/strikes.c). Each time runs of all kinds are on their way. Every run ends, and in the end the
# books are proved as those of torture are (test/torture).
#
#   SEED=7          which points; printed
#   POINTS=100      how many (6; SAS_LONG=1: all)
#   MINUTES=30      as many of them as can be done in that time (20; SAS_LONG=1: 50)
#   ONLY='record Heap 10|take_back'    only points whose name matches this
#   PART=2/4        only the second quarter of the points: four such runs together do all, whatever their seeds
#
# Takes about 60 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../torture";
use SasSession;
use SasTest;
use Test::More;
use List::Util qw(shuffle);
use Digest::MD5 qw(md5);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time sleep);
use TortureChecker;
use TortureFaults;
use TortureLoad;

my $seed = $ENV{SEED} || int(rand(1 << 30));
srand($seed);

my $dir = PostgreSQL::Test::Utils::tempdir();
my ($includes) = split /\n/, `pg_config --includedir-server`;
system('cc', '-shared', '-fPIC', "-I$includes", '-o', "$dir/crash_points.so", "$FindBin::RealBin/../modules/crash_points.c") == 0 or die 'no module';

TortureFaults::open_strikes($dir);
my $node = new_node('main', shared_preload_libraries => "sas, $dir/crash_points", 'sas.complete_in' => '4 s', 'sas.supervisor_interval' => '10 s',
	'sas.agents' => 1, 'sas.function_workers' => 1, log_min_messages => 'warning');
my $url = TortureLoad::start_service($seed);
TortureLoad::define_all($node, $url);
$node->safe_psql('postgres', qq{
	CREATE FUNCTION crash_record(boolean) RETURNS void LANGUAGE c AS '$dir/crash_points';
	CREATE FUNCTION crash_seen() RETURNS text LANGUAGE c AS '$dir/crash_points';
	CREATE FUNCTION crash_arm(text, int) RETURNS void LANGUAGE c AS '$dir/crash_points';
	CREATE FUNCTION crash_armed() RETURNS boolean LANGUAGE c AS '$dir/crash_points';});

my @workflows = ((map { [ $_, 'false' ] } qw(chain fan beside parent waits timer polled task keyed queued again falls joined planned)),
	map { [ $_, 'true' ] } qw(chain fan beside parent waits));

# What a server that may be down just now answers; undef: nothing. The session stays open until a crash ends it:
# a new one for each question would double what a point costs the machine.
my $session;

sub ask
{
	my ($query) = @_;
	my ($out) = eval {
		$session //= SasSession->new($node, 'postgres', options => [ '-XqAt', '-v', 'ON_ERROR_STOP=1' ]);
		$session->outcome_of("SET statement_timeout = '60 s';\n$query");
	};
	return $out if defined $out && $session->is_open;
	undef $session;
	return;
}

# A run of each kind; each with its row of the application. What a crash took with it was never submitted.
sub submit_all
{
	foreach my $w (@workflows)
	{
		ask(qq{
			WITH b AS (INSERT INTO torture.business (id, workflow, input)
				SELECT n::text, '$w->[0]', jsonb_build_object('id', n::text, 'bad', $w->[1], 'k', (random() < 0.5)::int, 'items', '[1, 2]'::jsonb) FROM gen_random_uuid() n RETURNING *)
			SELECT count(*) FROM b, sas.submit(b.workflow, b.input, key => b.id)});
	}
	# one is cancelled, and one task is left to its lease
	ask(q{SELECT count(*) FROM (SELECT run_id FROM sas.runs WHERE workflow = 'beside' AND state IN ('running', 'pending') LIMIT 1) r, LATERAL sas.cancel(r.run_id)});
	ask(q{SELECT count(*) FROM sas.claim('outside', 'torture', 1, lease => '500 ms')});
	return;
}

# Until every run has ended: signals are sent, tasks done, paused runs go on; some are cancelled in the state in which a
# crash has left them.
sub drive
{
	my $end = time() + 600;
	my $was = '';
	while (time() < $end)
	{
		my $open = ask(q{SELECT count(*) FROM _sas.run r WHERE r.state <> 'stopped' AND r.schedule IS NULL});
		return 1 if defined $open && $open eq '0';
		my $start = ask(q{SELECT backend_start FROM pg_stat_activity WHERE backend_type = 'checkpointer'}) // '';
		ask(q{SELECT count(*) FROM (SELECT run_id FROM sas.runs WHERE workflow IN ('chain', 'fan', 'beside', 'waits', 'polled') AND state = 'running'
			AND parent_run_id IS NULL ORDER BY random() LIMIT 4) r, LATERAL sas.cancel(r.run_id)}) if $was ne '' && $start ne '' && $start ne $was;
		$was = $start if $start ne '';
		ask('DROP TABLE IF EXISTS pg_temp.t;' . TortureLoad::signal_some() . TortureLoad::claim_some(1) . q{SELECT count(*) FROM (SELECT run_id FROM sas.runs WHERE state = 'paused') r, LATERAL sas.resume(r.run_id)});
		sleep 0.1;
	}
	return 0;
}

# -- the points -----------------------------------------------------------------------------------

my $faults = TortureFaults->new($node);
ask('SELECT crash_record(true)');
$faults->set_strikes(record => 1 << 17);
submit_all();
ask('CHECKPOINT');
ok(drive(), 'without a crash every run ends');
ask('SELECT crash_record(false)');
$faults->set_strikes(record => 0);
my @points = sort split /\n/, ask('SELECT crash_seen()');
cmp_ok(scalar(@points), '>', 200, 'there are many points');
# "record Heap 10 torn": its manager, and what xl_info says
my %managers = split /[|\n]/, ask('SELECT rm_id, rm_name FROM pg_get_wal_resource_managers()');
my %kinds = map { my $kind = $_; map { (sprintf('record %s %02X %s', $managers{ $kind >> 8 }, $kind & 255, $_) => $kind) } qw(torn whole) } TortureFaults::record_kinds();
cmp_ok(scalar(keys %kinds), '>', 30, 'there are many kinds of records');
note('figure: ' . keys(%kinds) / 2 . ' kinds of records: ' . join(', ', map { /^record (.*) whole$/ ? $1 : () } sort keys %kinds));
my $only = $ENV{ONLY} // '.';
@points = grep { /$only/ } @points, sort keys %kinds;
if ($ENV{PART})
{
	# by their names: the next run may not see quite the same points
	my ($part, $parts) = $ENV{PART} =~ m{^([1-9]\d*)/([1-9]\d*)$} or die "PART is like 2/4, not $ENV{PART}";
	@points = grep { unpack('N', md5($_)) % $parts == $part - 1 } @points;
}
my $wanted = $ENV{POINTS} || ($ENV{SAS_LONG} ? @points : 6);
my @chosen = (shuffle(@points))[ 0 .. ($wanted < @points ? $wanted : @points) - 1 ];
note("figure: SEED=$seed, " . @chosen . ' of ' . @points . ' points' . ($ENV{PART} ? " (PART=$ENV{PART})" : ''));

# -- a crash at each ------------------------------------------------------------------------------

my @struck;
my $crashes = 0;
my $tried = 0;
# tools/check gives a file half an hour, or an hour
my $enough = time() + ($ENV{MINUTES} || ($ENV{SAS_LONG} ? 50 : 20)) * 60;
foreach my $point (shuffle(@chosen, ('a write to the log of changes') x ($ENV{ONLY} ? 0 : $wanted / 3)))
{
	last if time() > $enough;
	$tried++;
	my $of_log = $point =~ /log of changes|^record /;
	my $nth = defined $kinds{$point} ? 1 : 1 + int(rand($of_log ? 200 : 2));
	my $begun = time();
	if (defined $kinds{$point}) { $faults->set_strikes(record => 1 << 16 | $kinds{$point}, torn => $point =~ /torn$/ ? 1 : 0, from => ask(q{SELECT pg_current_wal_insert_lsn() - '0/0'})) }
	elsif ($of_log) { $faults->set_strikes(wal_writes => $nth) }
	else { ask("SELECT crash_arm('$point', $nth)") }
	submit_all();
	ask('CHECKPOINT') if defined $kinds{$point};
	my $ended = drive();
	my $armed = $of_log ? TortureFaults::is_armed() ? 't' : 'f' : ask('SELECT crash_armed()') // 'f';
	ask(q{SELECT crash_arm('', 0)});
	$faults->set_strikes(wal_writes => 0, record => 0);
	$crashes++ if $armed eq 'f';
	push @struck, [ $begun, time(), 'crash' ];
	ok($ended, "every run ends: $point, for time $nth" . ($armed eq 'f' ? '' : ' (not reached)'))
	  or diag($node->safe_psql('postgres', q{SELECT r.run_id, r.workflow, r.state, s.step, s.state, s.waiting_kind, s.error FROM sas.runs r LEFT JOIN sas.steps s USING (run_id) WHERE r.state <> 'stopped' LIMIT 20}));
}
note("figure: $crashes crashes at $tried points");

# -- and after ------------------------------------------------------------------------------------

$node->safe_psql('postgres', q{
	SELECT sas.unschedule('often'); SELECT count(*) FROM sas.unwatch('turns', '{1,2,3,4}'); SELECT FROM sas.unwatch('lines', '{k}') l, sas.unwatch('taken', '{k}') t});
ok(wait_for($node, q{SELECT (SELECT count(*) FROM _sas.run WHERE state <> 'stopped') + (SELECT count(*) FROM _sas.lease)
	+ (SELECT count(*) FROM sas.watches WHERE state <> 'deleted')}, '0'), 'the server comes to rest');
TortureChecker::check($node, http_get("$url/books"), \@struck);
$node->stop;
done_testing();
