# SPDX-License-Identifier: PostgreSQL
#
# sas.health() says no when anything stops work, and what; and says ok when that is over, though alerts of it are open
# for longer. How many seconds both took is printed and not judged: ten are promised, and a slow machine needs more.
# Takes about 180 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../torture";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(time);
use TortureFaults;

allow_late('workers are stopped on purpose');
TortureFaults::open_strikes(PostgreSQL::Test::Utils::tempdir());
my $node = new_node('main', 'sas.max_exclusions' => 2, wal_level => 'logical', max_wal_senders => 2, max_replication_slots => 2, max_prepared_transactions => 2);
my $service = SasService->new;
make_agent($node, 'remote', $service);
$node->safe_psql('postgres', q{SELECT sas.create_agent('outside', kind => 'external'); CREATE FUNCTION public.note(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
define($node, 'call', { steps => { it => { agent => 'remote', call => { path => '/it' } } } });
define($node, 'local', { steps => { it => { function => 'public.note' } } });
define($node, 'timer', { steps => { it => { wait => { for => '1 s' } } } });
define($node, 'task', { steps => { it => { agent => 'outside', task => {} } } });
my $health = q{SELECT concat_ws(' ', ok::text, nullif(array_to_string(problems, '; '), '')) FROM sas.health()};

# Until health says what is expected; the seconds.
sub until_health
{
	my ($like, $name) = @_;
	my $begin = time();
	my $said;
	ok(wait_until(sub { $said = $node->safe_psql('postgres', $health); return $said =~ $like }), $name) or diag($said);
	return sprintf '%.1f s', time() - $begin;
}

# One fault: from its begin until health says so, and from its end until all is well.
sub fault
{
	my ($name, $like, $break, $mend) = @_;
	$break->();
	my $no = until_health(qr/^false .*$like/, "$name: $like");
	$mend->();
	my $ok = until_health(qr/^true$/, "$name: all is well again");
	note("figure: $name: told after $no, ok again after $ok");
	return;
}

sub set
{
	my (%settings) = @_;
	$node->safe_psql('postgres', defined $settings{$_} ? "ALTER SYSTEM SET $_ = $settings{$_}" : "ALTER SYSTEM RESET $_") foreach keys %settings;
	$node->reload;
	return;
}
sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

until_health(qr/^true$/, 'all is well');

# -- workers that are stopped -----------------------------------------------------------

my @stopped;
sub stop_them { my (@pids) = @_; @stopped = @pids; return is(kill('STOP', @pids), scalar @pids, 'stopped: ' . join(', ', @pids)) }
sub go_on { return kill('CONT', @stopped) }

foreach my $case ([ scheduler => 'timer' ], [ agent => 'call' ], [ function => 'local' ])
{
	my ($actor, $workflow) = @$case;
	fault("$actor stopped", "$actor worker \\d+ was woken \\S+ ago and does nothing",
		sub { stop_them(worker_pids($node, $actor)); submit($node, $workflow, {}) }, \&go_on);
}
fault('supervisor stopped', 'the supervisor has left due work lying|supervisor worker \d+ was woken \S+ ago',
	sub {
		stop_them(worker_pids($node, 'supervisor'));
		submit($node, 'task', {});
		sql(q{SELECT count(*) FROM sas.claim('outside', 'w', 1, lease => '1 s')});
	}, \&go_on);
fault('agent worker gone', 'no agent worker runs', sub { stop_them(worker_pids($node, 'launcher')); kill_worker($node, 'agent', 'TERM') }, \&go_on);
fault('no standby', 'worker \d+ has been in one tick for .* SyncRep',
	sub {
		set('synchronous_standby_names' => q{'nobody'});
		# once the server knows of it
		ok(wait_until(sub {
			sql(q{SET synchronous_commit = local; SELECT FROM sas.submit('local')});
			return sql(q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')}) eq 't';
		}), 'a worker waits for a standby that is not there');
	},
	sub { set('synchronous_standby_names' => undef) });

# -- workers that fail ------------------------------------------------------------------

my $away = sub { sql('ALTER FUNCTION _sas.claim_functions RENAME TO claim_functions_away'); submit($node, 'local', {}) };
my $back = sub { sql('ALTER FUNCTION _sas.claim_functions_away RENAME TO claim_functions') };
fault('ticks fail', '\d+ ticks in a row of function worker \d+ have failed', $away, $back);
my $log = -s $node->logfile;
fault('workers end and begin', 'no function worker runs',
	sub { $away->(); wait_until(sub { PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /sas function exits after/ }) }, $back);

# -- what workers need ------------------------------------------------------------------

my $holder = SasSession->new($node);
my $reader = SasSession->new($node);
my $lock = 'BEGIN; LOCK TABLE _sas.ready IN ACCESS EXCLUSIVE MODE';
fault('table locked', 'table ready is locked by process \d+', sub { $holder->query($lock) }, sub { $holder->query('ROLLBACK') });
fault('table to be locked', 'table ready is to be locked by process \d+',
	sub {
		$reader->query('BEGIN; SELECT count(*) FROM _sas.ready');
		$holder->start_query($lock);
	},
	sub {
		$reader->query('ROLLBACK');
		$holder->answer;
		$holder->query('ROLLBACK');
	});
fault('table locked by a prepared transaction', 'table ready is locked by prepared transaction "held"',
	sub { $holder->query("$lock; PREPARE TRANSACTION 'held'") }, sub { sql(q{ROLLBACK PREPARED 'held'}) });
fault('sequence locked', 'sequence run_run_id_seq is locked by process \d+',
	sub { $holder->query('BEGIN; ALTER SEQUENCE _sas.run_run_id_seq MINVALUE 1') }, sub { $holder->query('ROLLBACK') });
define($node, 'later', { steps => { wait => { wait => { for => '1 s' } }, it => { function => 'public.note', after => ['wait'] } } });
my $run;
fault('run held', 'process \d+ holds run \d+',
	sub { $run = submit($node, 'later', {}); $holder->query("BEGIN; SELECT FROM _sas.run WHERE run_id = $run FOR UPDATE") }, sub { $holder->query('ROLLBACK') });
fault('runs held by a prepared transaction', 'prepared transaction "held" holds run \d+',
	sub {
		my @runs = map { submit($node, 'later', {}) } 1, 2;
		$holder->query("BEGIN; SELECT FROM _sas.run WHERE run_id IN ($runs[0], $runs[1]) FOR UPDATE; PREPARE TRANSACTION 'held'");
	}, sub { sql(q{ROLLBACK PREPARED 'held'}) });
# it holds up nobody, but its run does not begin
fault('a prepared transaction is left', 'prepared transaction "left" has waited for 00:00:\d\d to be committed or rolled back',
	sub {
		sql(q{BEGIN; CREATE TABLE public.not_of_sas (); INSERT INTO public.not_of_sas DEFAULT VALUES; PREPARE TRANSACTION 'other'});
		sql(q{BEGIN; SELECT FROM sas.submit('local', key => 'left'); PREPARE TRANSACTION 'left'});
	}, sub { sql(q{COMMIT PREPARED 'left'}) });
is(sql(q{SELECT gid FROM pg_prepared_xacts}), 'other', 'a prepared transaction that did nothing in sas is no problem');
sql(q{ROLLBACK PREPARED 'other'});
ok(wait_for($node, q{SELECT state FROM sas.runs WHERE key = 'left'}, 'stopped'), 'and the run begins at COMMIT PREPARED');
fault('no process slot', '\d+ workers find no free process slot', sub { set('sas.agents' => 40) }, sub { set('sas.agents' => undef) });
sql("CREATE DATABASE d$_") foreach 1, 2;
my @sessions = map { SasSession->new($node) } 1, 2;
fault('shared memory full', '2 of 2 exclusions in shared memory are taken',
	sub { $sessions[ $_ - 1 ]->query("BEGIN; ALTER DATABASE d$_ RENAME TO e$_") foreach 1, 2 },
	sub { $_->query('ROLLBACK') foreach @sessions });

# -- the server ----------------------------------------------------------------------

my $disk = TortureFaults->new($node);
fault('disk full', 'ticks in a row of \w+ worker \d+ have failed|no \w+ worker runs|was woken|in one tick',
	sub { foreach my $n (1 .. 3) { sql(q{SELECT count(*) FROM sas.submit_batch('local', array_fill('{}'::jsonb, ARRAY[2000]))}) } $disk->set_strikes(full => 1) }, sub { $disk->set_strikes(full => 0) });
fault('another version', 'no agent worker runs', sub { sql(q{ALTER EXTENSION sas UPDATE TO '0.2.900'}); submit($node, 'local', {}) },
	sub { wait_for($node, q{SET lock_timeout = '5 s'; ALTER EXTENSION sas UPDATE TO '0.2.0'}, '') });

# Those that run go, too. Only a session from before can ask.
my $inside = SasSession->new($node);
$node->safe_psql('d1', 'ALTER DATABASE postgres ALLOW_CONNECTIONS false');
ok(wait_until(sub { return $inside->query($health) =~ /^false .*no agent worker runs.*the database refuses connections/ }), 'connections refused: the database refuses connections');
$node->safe_psql('d1', 'ALTER DATABASE postgres ALLOW_CONNECTIONS true');
until_health(qr/^true$/, 'connections refused: all is well again');

# What stops nothing is no problem.
sql(q{SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput')});
set(default_transaction_read_only => 'on');
wait_for($node, 'SHOW default_transaction_read_only', 'on');
is(run_of($node, sql("SET default_transaction_read_only = off; SELECT run_id FROM sas.submit('$_')"))->{result}, 'success',
	"a slot that nobody reads, and transactions that only read by default: $_ is done") foreach qw(call local timer);
until_health(qr/^true$/, 'and nothing is a problem');
set(default_transaction_read_only => undef);
wait_for($node, 'SHOW default_transaction_read_only', 'off');
sql(q{SELECT pg_drop_replication_slot('left_behind')});

# -- nothing is lost --------------------------------------------------------------------

sql(q{SELECT count(*) FROM sas.runs r, sas.cancel(r.run_id) WHERE r.workflow = 'task' AND r.state <> 'stopped'});
all_ended($node, 'every run ends');
is(sql(q{SELECT count(*) FROM sas.runs WHERE workflow <> 'task' AND result <> 'success'}), '0', 'and well');
$node->stop;
done_testing();
