# SPDX-License-Identifier: PostgreSQL

=head1 NAME

SasTest - a server with the extension, and what tests ask of it

=head1 SYNOPSIS

    use SasTest;
    use Test::More;

    my $node = new_node('main', 'sas.agents' => 2);
    kill_worker($node, 'agent');
    all_ended($node, 'every run ends though an agent worker was killed');
    done_testing();

Everything started here is stopped by its process id when the test ends, however it ends. Waiting is by
asking again every 50 to 250 ms, with limits far beyond what a healthy run needs: a limit is a failure, never a
measure.

=cut

package SasTest;

use strict;
use warnings;

use Exporter 'import';
use File::Basename;
use IO::Socket::INET;
use HTTP::Tiny;
use JSON::PP ();
use POSIX ();
use SasSession ();
use Test::More;
use Time::HiRes qw(sleep time);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(
  new_node create_extension wait_for wait_until worker_pids kill_worker kill_server hold_supervisor hold_workers free_port
  http_get http_post all_ended quiet_for allow_late own_memory needs_less memory_checked);

# the tree with examples/; tools/check says where its copy is
our $tree = $ENV{SAS_TREE} // dirname(dirname(dirname(__FILE__)));

our $limit = 400;				# seconds

my %started;					# pid => name of each program to stop at the end
my $json = JSON::PP->new->utf8->canonical->allow_nonref;
my $http = HTTP::Tiny->new(timeout => 180, keep_alive => 0);

# -- servers --------------------------------------------------------------------

# new_node(name, setting => value, ...): a running server with the extension
# loaded, durable and restarting after a crash as a real one is, and CREATE
# EXTENSION done in database postgres. The settings that begin with an
# underscore are for here: _init (arguments of init, as an array), _install (the
# folder of another server), _start and _extension (0: not yet).
sub new_node
{
	my ($name, %settings) = @_;
	my $init = delete $settings{_init} // [];
	my $start = delete $settings{_start} // 1;
	my $extension = delete $settings{_extension} // 1;
	my $install = delete $settings{_install};
	my $node = PostgreSQL::Test::Cluster->new($name, $install ? (install_path => $install) : ());
	my %all = (
		shared_preload_libraries => 'sas',
		fsync => 'on',
		restart_after_crash => 'on',
		max_connections => 50,
		max_worker_processes => 16,
		log_min_messages => 'info',
		log_line_prefix => '%m %b[%p] ',
		%settings);

	# an initdb that copies a cluster with the extension; tools/check made it
	my $copies = $start && $extension && !$install && !@$init && -x "$tree/tap/bin/initdb";
	{
		local $ENV{PATH} = "$tree/tap/bin:$ENV{PATH}" if $copies;
		$node->init(@$init);
	}
	$node->append_conf('postgresql.conf', "$_ = '$all{$_}'\n") foreach sort keys %all;
	if ($start)
	{
		$node->start;
		create_extension($node) if $extension && !$copies;
	}
	return $node;
}

sub create_extension
{
	my ($node, $database) = @_;
	$node->safe_psql($database // 'postgres', 'CREATE EXTENSION sas');
	return;
}

# wait_until(sub { ... }, limit): true as soon as the function says so, false
# when the limit is over.
sub wait_until
{
	my ($condition, $seconds) = @_;
	my $begin = time();
	while (1)
	{
		return 1 if $condition->();
		my $waited = time() - $begin;
		return 0 if $waited > ($seconds // $limit);
		sleep($waited < 0.4 ? 0.05 : $waited < 2 ? $waited / 8 : 0.25);
	}
}

# wait_for(node, sql, expected, name => value ...): until the query gives what
# is expected ('t' when not said). A server that does not answer just now is
# waited for too. Options: limit, dbname. False, with what it gave last, when
# it never comes to that.
sub wait_for
{
	my ($node, $sql, $expected, %option) = @_;
	my $database = $option{dbname} // 'postgres';
	my ($out, $err, $session) = ('', '');
	$expected //= 't';
	my $done = wait_until(
		sub {
			# what does not come at once is asked for in one session: a program for each look costs more than what it looks at
			if ($session)
			{
				($out, $err) = $session->look;
				undef $session unless defined $out;
				return defined $out && $err eq '' && $out eq $expected;
			}
			# psql may be gone before it has read the query
			my $status = eval { $node->psql($database, $sql, stdout => \$out, stderr => \$err) } // 2;
			return 1 if $status == 0 && $out eq $expected;
			$session = SasSession->to_look($node, $database, $sql) if $status == 0;
			return 0;
		},
		$option{limit});
	$session->quit if $session;
	$out //= '';
	diag("waited in vain for \"$expected\" from: $sql\nlast answer: $out\nlast error: $err") unless $done;
	return $done;
}

# worker_pids(node, actor, dbname): of the scheduler, agent, function or
# supervisor workers of a database, the oldest first, or of the launcher.
sub worker_pids
{
	my ($node, $actor, $database) = @_;
	$database //= 'postgres';
	my $sql = $actor eq 'launcher'
	  ? "SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas launcher'"
	  : "SELECT pid FROM sas.workers WHERE actor = '$actor' AND database = '$database' ORDER BY started_at, pid";
	return split /\n/, $node->safe_psql($database, $sql);
}

# kill_worker(node, actor, signal, dbname): one of them, at once; its pid. One
# that is not there just now is waited for.
sub kill_worker
{
	my ($node, $actor, $signal, $database) = @_;
	my @pids;
	wait_until(sub { @pids = worker_pids($node, $actor, $database); @pids > 0 })
	  or die "there is no $actor worker to kill";
	my $pid = $pids[ rand @pids ];
	kill($signal // 'KILL', $pid) or die "kill $pid: $!";
	note("killed $actor worker $pid with " . ($signal // 'KILL'));
	return $pid;
}

# kill_server(node, actor): kills a worker of this kind, which takes the server down, and waits until another is there.
sub kill_server
{
	my ($node, $actor) = @_;
	my $before = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	kill_worker($node, $actor, 'KILL');
	wait_for($node, "SELECT count(*) > 0 FROM sas.workers WHERE actor = '$actor' AND started_at > '$before'", 't')
	  or die 'the server does not come back';
	return;
}

# hold_supervisor(node): stops the supervisor until the returned function is called, because its scans would wake
# other workers and hide what is tested.
sub hold_supervisor
{
	my ($node, $database) = @_;
	my @pids = worker_pids($node, 'supervisor', $database);
	die 'there is no supervisor' unless @pids;
	return hold_workers($node, @pids);
}

# hold_workers(node, pids): the same for these processes
sub hold_workers
{
	my ($node, @pids) = @_;
	my $them = 'pid IN (' . join(', ', @pids) . ')';
	my $asleep = "SELECT count(*) FROM pg_stat_activity WHERE $them AND state = 'idle'";
	my $locks = "SELECT count(*) FROM pg_locks WHERE $them";
	# not within a transaction, whose locks would keep others waiting
	wait_until(sub {
		wait_for($node, $asleep, scalar @pids) or return 0;
		kill('STOP', @pids) == @pids or die "kill: $!";
		return 1 if $node->safe_psql('postgres', $locks) eq '0';
		kill('CONT', @pids);
		return 0;
	}) or die 'a worker does not sleep';
	return sub { kill('CONT', @pids); return };
}

# wake-ups of all workers but supervisors, as the kernel counts them: voluntary
# context switches of each process
sub switches
{
	my ($node) = @_;
	my %of;
	foreach my $pid (split /\n/, $node->safe_psql('postgres',
			"SELECT pid FROM sas.workers WHERE actor <> 'supervisor' UNION ALL SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas launcher'"))
	{
		($of{$pid}) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	}
	return \%of;
}

# own_memory(pid): what a process keeps of its own, in kB
sub own_memory { my ($pid) = @_; my ($kb) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m; return $kb }

# Does the server run under valgrind or the address sanitizer (tools/check_memory)? They keep what was freed, and need more stack.
sub memory_checked { return ($ENV{SAS_WRAP} // '') =~ /valgrind|libasan/ }

# needs_less(kb, limit, name): tests memory that own_memory has measured
sub needs_less
{
	my ($kb, $limit, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
  SKIP:
	{
		skip('memory is not measured under a checker of it', 1) if memory_checked();
		cmp_ok($kb, '<', $limit, $name);
	}
	return;
}

# quiet_for(node, seconds, name): tests that an idle server does nothing at
# all. The node needs autovacuum, checkpoints and the background writer off.
sub quiet_for
{
	my ($node, $seconds, $name) = @_;
	my $look = q{SELECT max(last_activity_at) FROM sas.workers WHERE actor <> 'supervisor'};
	my $all = sub { my $of = switches($node); return join ' ', map { "$_ $of->{$_}" } sort keys %$of };
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# An open run gets the timer of its deadline a minute after its submit: all have theirs, or none does soon. A
	# worker that waits for an instant wakes up once a minute: not in these seconds.
	my $soon = $seconds + 5;
	my $calm = qq{
		SELECT (SELECT coalesce(min(created_at) > now() - interval '60 s' + interval '1 s' * $soon, true)
				OR _sas.lack_timer(array_agg(run_id)) = '{}'
					AND NOT EXISTS (SELECT FROM _sas.deadline_sweep WHERE until_xid IS NOT NULL)
					AND max(run_id) < 10000 + (SELECT coalesce(max(upto), 0) FROM _sas.deadline_sweep)
			FROM _sas.run WHERE state <> 'stopped')
			AND NOT EXISTS (SELECT FROM sas.workers WHERE actor <> 'supervisor'
				AND now() - last_activity_at BETWEEN interval '60 s' - interval '1 s' * $soon AND '65 s')};
	# statistics of what was done before are sent up to ten seconds later
	ok( wait_until(
			sub {
				my $was = $all->();
				sleep 10.5;
				return $was eq $all->() && $node->safe_psql('postgres', $calm) eq 't';
			}),
		"$name: the server comes to rest");
	my $lsn = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	my $active = $node->safe_psql('postgres', $look);
	my $before = switches($node);
	my $xid = $node->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())');
	sleep $seconds;
	my $after = switches($node);
	my %woken = map { $_ => $after->{$_} - ($before->{$_} // 0) } grep { $after->{$_} != ($before->{$_} // -1) } keys %$after;
	is_deeply([ sort keys %$after ], [ sort keys %$before ], "$name: the same workers are there");
	is_deeply(\%woken, {}, "$name: no process but the supervisor woke up in $seconds s")
		or diag($node->safe_psql('postgres', q{SELECT string_agg(actor || ' ' || pid, ', ') FROM sas.workers}));
	is($node->safe_psql('postgres', $look), $active, "$name: and none was active");
	is($node->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())'), $xid, "$name: nothing was written, not by the supervisor either");
	is($node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()'), $lsn, "$name: no WAL");
	return;
}

# all_ended(node, name, limit => seconds, dbname => ...): a test that every run
# comes to its end.
sub all_ended
{
	my ($node, $name, %option) = @_;
	my $ended = wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, '0',
		limit => $limit * 2, %option);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($ended, $name);
	diag($node->safe_psql($option{dbname} // 'postgres', q{
		SELECT r.run_id, r.state, s.step, s.state, s.failure_count, s.complete_by, s.error
		FROM sas.runs r LEFT JOIN sas.steps s USING (run_id)
		WHERE r.state <> 'stopped' ORDER BY 1, 3 LIMIT 20})) unless $ended;
	return $ended;
}

# -- late work --------------------------------------------------------------------

my $late_reason;

# allow_late(reason): the test file hides work from the workers on purpose.
sub allow_late
{
	($late_reason) = @_;
	return;
}

# Workers log what they found late, so that the end of a server loses nothing.
sub late_work
{
	my $prefix = basename($0, '.pl');
	return map { my $log = $_; map { basename($log) . ": $_" } grep { /found work that was not announced/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($log) }
	  glob("$PostgreSQL::Test::Utils::log_path/${prefix}_*.log");
}

# The last test of each file, whatever it tests: no wake-up was lost (sas_found_late_total).
{
	no warnings 'redefine';
	my $done_testing = \&Test::Builder::done_testing;
	*Test::Builder::done_testing = sub {
		my ($builder) = @_;
		if (!$builder->parent && !defined $late_reason)
		{
			my @late = late_work();
			$builder->ok(!@late, 'no work was found late') || diag(join "\n", splice(@late, 0, 20));
		}
		goto &$done_testing;
	};
}

# -- HTTP -----------------------------------------------------------------------

# A port of loopback that is free now, below those of outgoing connections.
sub free_port
{
	foreach (1 .. 1000)
	{
		my $port = 10_000 + int(rand(22_000));
		my $socket = IO::Socket::INET->new(
			LocalAddr => '127.0.0.1',
			LocalPort => $port,
			Proto => 'tcp',
			Listen => 1) or next;
		$socket->close;
		return $port;
	}
	die 'no port is free';
}

# http_get(url) and http_post(url, value): the decoded body; dies unless 2xx.
sub http_get
{
	my ($url) = @_;
	return answer_of($http->get($url), $url);
}

sub http_post
{
	my ($url, $value) = @_;
	return answer_of(
		$http->post(
			$url,
			{
				content => $json->encode($value // {}),
				headers => { 'content-type' => 'application/json' }
			}),
		$url);
}

sub answer_of
{
	my ($answer, $url) = @_;
	die "$url: $answer->{status} $answer->{reason} $answer->{content}" unless $answer->{success};
	return length $answer->{content} ? $json->decode($answer->{content}) : undef;
}

# Starts a program of ours with its output in a file; its pid.
sub start_program
{
	my ($log, @command) = @_;
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>', $log) && open(STDERR, '>&', \*STDOUT) or POSIX::_exit(1);
		exec { $command[0] } @command or POSIX::_exit(127);
	}
	$started{$pid} = $command[0];
	return $pid;
}

sub stop_program
{
	my ($pid, $signal) = @_;
	return unless delete $started{$pid};
	kill($signal // 'TERM', $pid);
	my $gone = wait_until(sub { waitpid($pid, POSIX::WNOHANG()) != 0 }, 5);
	unless ($gone)
	{
		kill('KILL', $pid);
		waitpid($pid, 0);
	}
	return;
}

END
{
	my $status = $?;
	stop_program($_) foreach keys %started;
	$? = $status;
}

1;
