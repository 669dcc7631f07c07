# SPDX-License-Identifier: PostgreSQL

=head1 NAME

TortureFaults - what happens to a server under load, at random

=head1 SYNOPSIS

    my $faults = TortureFaults->new($node, $load);
    $faults->strike while time() < $end;		# one after the other
    $faults->calm;								# what was begun is ended: stopped processes, prepared transactions
    $node = $faults->{node};					# it may be another server than in the beginning

Each strike is noted with its time, for the checker and for the report.

=cut

package TortureFaults;

use strict;
use warnings;

use FindBin;
use POSIX ();
use PostgreSQL::Test::Utils ();
use SasSession;
use SasTest qw(wait_for);
use Test::More ();
use Time::HiRes qw(sleep time);

# how often, compared with the others; [name, weight]
my @kinds = (
	[ stop_worker => 10 ], [ kill_worker => 4 ], [ freeze_worker => 8 ], [ end_backend => 8 ], [ kill_backend => 2 ],
	[ restart_fast => 2 ], [ restart_immediate => 2 ], [ promote => 2 ], [ change_settings => 6 ], [ hold_rows => 10 ],
	[ hold_table => 4 ], [ vacuum_full => 4 ], [ prepare => 6 ], [ long_transaction => 4 ], [ restart_workers => 3 ],
	[ checkpoint => 1 ], [ change_agent => 4 ], [ quiet => 8 ], [ promote_late => 2 ], [ fill_disk => 2 ], [ jump_clock => 4 ],
	[ use_up_connections => 3 ], [ use_up_slots => 2 ], [ update_extension => 2 ], [ change_schema => 6 ]);

sub new
{
	my ($class, $node, $load) = @_;
	my $self = bless { node => $node, load => $load, struck => [], frozen => {}, held => [], servers => 1, count => {}, vain => {}, ahead => 0, most_ahead => 0 }, $class;
	return $self;
}

# open_strikes(folder): before any server is started. Servers from here on have a disk that can be full and a clock
# that can jump (test/modules/strikes.c).
sub open_strikes
{
	my ($folder) = @_;
	system('cc', '-O2', '-shared', '-fPIC', '-o', "$folder/strikes.so", "$FindBin::RealBin/../modules/strikes.c", '-ldl') == 0 or die 'no module';
	$ENV{SAS_STRIKES} = "$folder/strikes";
	PostgreSQL::Test::Utils::append_to_file($ENV{SAS_STRIKES}, "\0" x 8192);
	PostgreSQL::Test::Utils::append_to_file("$ENV{SAS_STRIKES}.ahead", '0');
	$ENV{LD_PRELOAD} = "$folder/strikes.so";
	return;
}

sub set_strikes
{
	my ($self, %to) = @_;
	$self->{$_} = $to{$_} foreach keys %to;
	open(my $file, '+<', $ENV{SAS_STRIKES}) or die;
	syswrite $file, pack('q9', map { $self->{$_} // 0 } qw(ahead full wal_writes back record torn from), 0, 0);
	close $file;
	open($file, '>', "$ENV{SAS_STRIKES}.new") or die;
	print $file $self->{ahead};
	close $file;
	rename "$ENV{SAS_STRIKES}.new", "$ENV{SAS_STRIKES}.ahead" or die;
	return;
}

# The kinds of records in the log of changes that were written since strikes.record was set: manager << 8 | xl_info.
sub record_kinds
{
	my @seen = unpack('x72 C4096', PostgreSQL::Test::Utils::slurp_file($ENV{SAS_STRIKES}));
	return map { $_ << 4 } grep { $seen[$_] } 0 .. $#seen;
}

# Is a strike at a record, or at a write, still to come?
sub is_armed
{
	my (undef, undef, $writes, undef, $record) = unpack('q5', PostgreSQL::Test::Utils::slurp_file($ENV{SAS_STRIKES}));
	return $writes > 0 || $record > 0;
}

sub sql
{
	my ($self, $query) = @_;
	my ($out, $err) = ('', '');
	my $status = eval { $self->{node}->psql('postgres', $query, stdout => \$out, stderr => \$err, timeout => 60) };
	return defined $status && $status == 0 ? $out : undef;
}

sub strike
{
	my ($self) = @_;
	my $sum = 0;
	$sum += $_->[1] foreach @kinds;
	my $at = rand($sum);
	my $kind;
	foreach (@kinds) { $kind = $_->[0]; last if ($at -= $_->[1]) < 0 }
	$self->one($kind);
	return;
}

sub one
{
	my ($self, $kind) = @_;
	my $begun = time();
	Test::More::note(sprintf '%.1f %s', $begun, $kind);
	$self->thaw;
	$self->note_deaths;
	$self->$kind;
	push @{ $self->{struck} }, [ $begun, time(), $kind ];
	$kind eq 'restart_fast' ? delete $self->{alive} : $self->note_deaths;
	$self->{count}{$kind}++;
	sleep(rand(0.6));
	return;
}

# A statement that is the fault itself: it has not happened if, say, a lock did not come in time.
sub try
{
	my ($self, $kind, $query) = @_;
	my $out = $self->sql($query);
	$self->{vain}{$kind}++ unless defined $out;
	return defined $out;
}

# The kinds that have not happened yet.
sub missing { my ($self) = @_; return grep { ($self->{count}{$_} // 0) <= ($self->{vain}{$_} // 0) } map { $_->[0] } @kinds }

sub strike_rest
{
	my ($self) = @_;
	foreach (1 .. 30)
	{
		my @missing = $self->missing or last;
		$self->end_prepared;
		$self->let_go;
		$self->one($_) foreach @missing;
	}
	return;
}

# All processes of a server that crashed since the last look died without notice. One that was asked to end (a fast
# restart) let its workers write what they had.
sub note_deaths
{
	my ($self) = @_;
	my ($was, $since) = @{ $self->{alive} // [] };
	my $checkpointer = $self->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'}) or return;
	my $now = "$self->{servers} $checkpointer";
	push @{ $self->{struck} }, [ $since, time(), 'died' ] if defined $was && $was ne $now;
	$self->{alive} = [ $now, time() ];
	return;
}

# a worker of any kind, or the launcher
sub any_worker
{
	my ($self) = @_;
	return $self->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND backend_type <> 'sas probe' ORDER BY random() LIMIT 1});
}

sub any_backend
{
	my ($self) = @_;
	return $self->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL ORDER BY random() LIMIT 1});
}

sub until_up { my ($self) = @_; wait_for($self->{node}, 'SELECT NOT pg_is_in_recovery()') or die 'the server does not come back'; return }

sub stop_worker { my ($self) = @_; my $pid = $self->any_worker or return; kill('TERM', $pid); return }
sub kill_worker { my ($self) = @_; my $pid = $self->any_worker or return; $self->kill_process($pid); return }
sub end_backend { my ($self) = @_; my $pid = $self->any_backend or return; kill('TERM', $pid); return }
sub kill_backend { my ($self) = @_; my $pid = $self->any_backend or return; $self->kill_process($pid); return }

# The server ends all others then, whenever it finds that.
sub kill_process
{
	my ($self, $pid) = @_;
	push @{ $self->{struck} }, [ time(), time() + 1, 'died' ];
	kill('KILL', $pid);
	$self->until_up;
	return;
}

# Past complete-by, now and then. A process of its own lets it go on: one that holds a lock of the server's shared
# memory stops everybody, this program too.
sub freeze_worker
{
	my ($self) = @_;
	my $pid = $self->any_worker or return;
	my $seconds = rand() < 0.3 ? 6 : rand(2);
	my $timer = fork() // die "fork: $!";
	if ($timer == 0)
	{
		kill('STOP', $pid);
		sleep($seconds);
		kill('CONT', $pid);
		POSIX::_exit(0);
	}
	$self->{frozen}{$timer} = [ time(), $pid ];
	return;
}

# Those whose time is over are over; all: they are waited for.
sub thaw
{
	my ($self, $all) = @_;
	foreach my $timer (keys %{ $self->{frozen} })
	{
		next unless waitpid($timer, $all ? 0 : POSIX::WNOHANG());
		my ($since, $pid) = @{ $self->{frozen}{$timer} };
		push @{ $self->{struck} }, [ $since, time(), 'frozen', $pid ];
		delete $self->{frozen}{$timer};
	}
	return;
}

sub restart_fast { my ($self) = @_; $self->let_go; $self->{node}->restart; return }
sub restart_immediate { my ($self) = @_; $self->let_go; $self->{node}->stop('immediate'); $self->{node}->start; return }

# a synchronous standby takes over
sub promote
{
	my ($self) = @_;
	$self->let_go;
	my $old = $self->{node};
	my $name = 'server_' . ++$self->{servers};
	$old->backup($name, backup_options => [ '--checkpoint', 'fast' ]);
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($old, $name, has_streaming => 1);
	$standby->start;
	$old->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
	$old->reload;
	wait_for($old, q{SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'}, '1') or die 'no synchronous standby';
	sleep(rand(1));
	$old->stop('immediate');
	$standby->promote;
	$self->{node} = $standby;
	$self->until_up;
	$self->{load}->aim($standby);
	return;
}

# An asynchronous standby takes over, with what it has; the old primary comes back as its standby. What was written
# last may be gone: the checker excuses what the services did in the last seconds before.
sub promote_late
{
	my ($self) = @_;
	$self->let_go;
	my $old = $self->{node};
	my $name = 'server_' . ++$self->{servers};
	$old->backup($name, backup_options => [ '--checkpoint', 'fast' ]);
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($old, $name, has_streaming => 1);
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$standby->start;
	wait_for($old, q{SELECT count(*) >= 1 FROM pg_stat_replication WHERE state = 'streaming'}) or die 'no standby';
	sleep(rand(1));
	$old->stop('immediate');
	push @{ $self->{lost} }, time();
	$standby->promote;
	$self->{node} = $standby;
	$self->until_up;
	$self->{load}->aim($standby);
	$self->return_as_standby($old, $standby);
	return;
}

# Nothing of sas runs on a primary that has come back as a standby.
sub return_as_standby
{
	my ($self, $old, $primary) = @_;
	$self->sql('CHECKPOINT');
	Test::More::ok(PostgreSQL::Test::Utils::run_log([ 'pg_rewind', '--no-sync', '--config-file', $old->data_dir . '/postgresql.conf',
		'-D', $old->data_dir, '--source-server', $primary->connstr('postgres') ]), 'the old primary is rewound');
	$old->append_conf('postgresql.conf', 'port = ' . $old->port . "\nunix_socket_directories = '" . $old->host . "'\nsynchronous_standby_names = ''\n");
	$old->enable_streaming($primary);
	$old->set_standby_mode;
	$old->start;
	wait_for($primary, q{SELECT count(*) >= 1 FROM pg_stat_replication WHERE state = 'streaming'}) or die 'the old primary does not follow';
	Test::More::is($old->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %'}), '0', 'and nothing of sas runs there');
	$old->stop('immediate');
	return;
}

# No file grows for a while; the server may end when its log of changes cannot.
sub fill_disk
{
	my ($self) = @_;
	$self->set_strikes(full => 1);
	$self->sql('SELECT pg_switch_wal()') if rand() < 0.3;
	sleep(0.5 + rand(2));
	$self->set_strikes(full => 0);
	unless (wait_for($self->{node}, 'SELECT NOT pg_is_in_recovery()', 't', limit => 10))
	{
		$self->{node}->stop('immediate', fail_ok => 1);
		$self->{node}->start;
	}
	$self->until_up;
	return;
}

# By hours, ahead or back. It goes back for a while only: what is to happen at an instant would wait for it.
sub jump_clock
{
	my ($self) = @_;
	my $before = $self->{ahead};
	my $by = int((rand() < 0.5 ? -1 : 1) * (600 + rand(6 * 3600)));
	$self->set_strikes(ahead => $before + $by);
	$self->{most_ahead} = $before + $by if $before + $by > $self->{most_ahead};
	sleep(rand(3));
	$self->set_strikes(ahead => $before) if $by < 0;
	return;
}

# Sessions take all connections but those of superusers.
sub use_up_connections
{
	my ($self) = @_;
	my $connection = $self->{node}->connstr('postgres') . ' user=torture_guest';
	my @sessions;
	foreach (1 .. 60)
	{
		my $pid = open(my $psql, '|-', "psql -XqAt -d \"$connection\" >/dev/null 2>&1") or next;
		push @sessions, [ $pid, $psql ];
	}
	sleep(0.5 + rand(1));
	local $SIG{PIPE} = 'IGNORE';
	foreach (@sessions) { kill('TERM', $_->[0]); close $_->[1] }
	return;
}

# More workers are wanted than there are slots, and some of those that hold one die.
sub use_up_slots
{
	my ($self) = @_;
	$self->sql("ALTER SYSTEM SET sas.function_workers = 40");
	$self->sql('SELECT pg_reload_conf()');
	sleep(rand(1));
	$self->stop_worker foreach 1 .. 3;
	sleep(rand(1));
	$self->sql('ALTER SYSTEM RESET sas.function_workers');
	$self->sql('SELECT pg_reload_conf()');
	return;
}

# To a version that this library does not know, and back. What is prepared would keep its locks until then.
sub update_extension
{
	my ($self) = @_;
	$self->end_prepared;
	return unless $self->try(update_extension => q{SET lock_timeout = '5s'; ALTER EXTENSION sas UPDATE TO '0.2.900'});
	sleep(rand(1));
	SasTest::wait_until(sub { defined $self->sql(q{SET lock_timeout = '5s'; ALTER EXTENSION sas UPDATE TO '0.2.0'}) }) or die 'the extension cannot go back';
	return;
}

sub change_settings
{
	my ($self) = @_;
	my %new = ('sas.agents' => 1 + int(rand(2)), 'sas.function_workers' => 1 + int(rand(2)), 'sas.schedulers' => 1 + int(rand(2)),
		'sas.supervisors' => 1 + int(rand(2)), 'sas.agent_slots' => (20, 200)[ rand 2 ]);
	my $name = (sort keys %new)[ rand keys %new ];
	$self->sql("ALTER SYSTEM SET $name = $new{$name}");
	$self->sql('SELECT pg_reload_conf()');
	return;
}

# A session that keeps something for a while, beside what else happens.
sub hold
{
	my ($self, $seconds, $sql) = @_;
	my $session = eval { SasSession->new($self->{node}) } or return;
	$session->start_query($sql . "; SELECT pg_sleep($seconds); COMMIT");
	push @{ $self->{held} }, [ time() + $seconds + 1, $session ];
	$self->let_go(1);
	return;
}

sub let_go
{
	my ($self, $some) = @_;
	my @left;
	foreach my $held (@{ $self->{held} })
	{
		if ($some && time() < $held->[0]) { push @left, $held }
		else { $held->[1]->kill }
	}
	$self->{held} = \@left;
	return;
}

sub hold_rows
{
	my ($self) = @_;
	my $table = (qw(_sas.run _sas.run _sas.step _sas.message _sas.ready _sas.agent_health _sas.schedule _sas.watch))[ rand 8 ];
	$self->hold(rand(3), "BEGIN; SELECT count(*) FROM (SELECT FROM $table TABLESAMPLE BERNOULLI (30) LIMIT 20 FOR UPDATE SKIP LOCKED) x");
	return;
}

sub hold_table
{
	my ($self) = @_;
	my $table = (qw(run step ready message lease attempt alert queue_slot))[ rand 8 ];
	$self->hold(rand(1.5), "BEGIN; SET LOCAL lock_timeout = '1s'; LOCK TABLE _sas.$table IN SHARE ROW EXCLUSIVE MODE");
	return;
}

sub vacuum_full { my ($self) = @_; my $table = (qw(run step ready message lease attempt))[ rand 6 ]; $self->try(vacuum_full => "SET lock_timeout = '2s'; VACUUM FULL _sas.$table"); return }

# DDL on what the load calls, writes and is defined by, and on tables of sas; some of it is rolled back.
sub change_schema
{
	my ($self) = @_;
	my $ours = (qw(run step ready message lease attempt))[ rand 6 ];
	my $theirs = (qw(business effect turn line))[ rand 4 ];
	my $days = 20 + int(rand(10));
	my $change = (
		"DO \$\$ BEGIN EXECUTE pg_get_functiondef('torture.@{[ (qw(effect finish turn take))[ rand 4 ] ]}'::regproc); END \$\$",
		"ALTER TABLE torture.$theirs ADD COLUMN IF NOT EXISTS more int DEFAULT 1; ALTER TABLE torture.$theirs DROP COLUMN more",
		"BEGIN; ALTER TABLE torture.$theirs ALTER @{[ $theirs =~ /^(?:business|effect)$/ ? 'id' : 'key' ]} TYPE varchar; SELECT pg_sleep(@{[ rand(2) ]}); ROLLBACK",
		"REINDEX TABLE _sas.$ours",
		"ALTER TABLE _sas.$ours SET (autovacuum_enabled = false); ALTER TABLE _sas.$ours RESET (autovacuum_enabled)",
		"DROP TABLE IF EXISTS torture.other; CREATE TABLE torture.other AS SELECT * FROM torture.effect LIMIT 10; CREATE INDEX ON torture.other (id); DROP TABLE torture.other",
		qq{SELECT sas.create_workflow('tick', '{"steps": {"b": {"function": "torture.tick"}}, "deadline": "$days days"}')})[ rand 7 ];
	$self->try(change_schema => "SET lock_timeout = '2s'; $change");
	return;
}

sub long_transaction { my ($self) = @_; $self->hold(4 + rand(6), 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sas.runs'); return }

# Some are committed, some rolled back.
sub end_prepared
{
	my ($self, $part) = @_;
	foreach my $name (split /\n/, $self->sql('SELECT gid FROM pg_prepared_xacts') // '')
	{
		$self->sql((rand() < 0.7 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$name'") if rand() < ($part // 1);
	}
	return;
}

sub prepare
{
	my ($self) = @_;
	$self->end_prepared(0.7);
	my $name = 'p' . int(rand(1 << 30));
	$self->sql(qq{BEGIN;
		WITH b AS (INSERT INTO torture.business (id, workflow, input) SELECT n::text, 'beside', jsonb_build_object('id', n::text, 'bad', false) FROM gen_random_uuid() n RETURNING *)
		SELECT count(*) FROM b, sas.submit(b.workflow, b.input, key => b.id);
		PREPARE TRANSACTION '$name'});
	return;
}

sub restart_workers { my ($self) = @_; $self->sql('SELECT sas.worker_restart()'); return }
sub checkpoint { my ($self) = @_; $self->sql('CHECKPOINT'); return }
sub quiet { sleep(rand(1)); return }

sub change_agent
{
	my ($self) = @_;
	my $change = ("max_in_flight => 3", "max_in_flight => 100", "enabled => false", "rate_limit => '50/s'", "reset => '{rate_limit}'")[ rand 5 ];
	$self->sql("SELECT sas.alter_agent('remote', $change)");
	$self->sql(q{SELECT sas.alter_agent('remote', enabled => true)});
	return;
}

# Everything that is still held is let go, and every worker may work.
sub calm
{
	my ($self) = @_;
	$self->let_go;
	$self->thaw(1);
	# past every instant that was written
	$self->set_strikes(ahead => $self->{most_ahead} + 1, full => 0);
	$self->until_up;
	foreach my $name (split /\n/, $self->sql('SELECT gid FROM pg_prepared_xacts') // '') { $self->sql("COMMIT PREPARED '$name'") }
	$self->sql('ALTER SYSTEM RESET ALL');
	$self->sql('SELECT pg_reload_conf()');
	$self->sql(q{SELECT sas.alter_agent('remote', enabled => true, max_in_flight => 100, reset => '{rate_limit}')});
	return;
}

sub report { my ($self) = @_; return join ', ', map { "$_ $self->{count}{$_}" . ($self->{vain}{$_} ? " ($self->{vain}{$_} in vain)" : '') } sort keys %{ $self->{count} } }

1;
