# SPDX-License-Identifier: PostgreSQL
#
# Single operations of each kind while everything rests: none waits for a look
# that nobody asked for. Two databases at the same time, many agents, several
# workers of each kind.
#
#   SAS_SOAK=40000          operations of each kind in each database (20; SAS_LONG=1: 1,000)
#   SAS_SOAK_KINDS="..."    only these kinds
#   SAS_SOAK_WORKERS=4      of each actor (2)
#   SAS_SOAK_DATABASES=1    (2)
#   SAS_SOAK_AGENTS=3000    in each database (100; SAS_LONG=1: 3,000)
#
# Takes about 60 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

my @kinds = split ' ', $ENV{SAS_SOAK_KINDS}
  // 'submit call call_one signal timer child after_run key queue alter_agent resume watch item claim prepared subtransaction disconnect';
my $each = $ENV{SAS_SOAK} // ($ENV{SAS_LONG} ? 1000 : 20);
my $workers = $ENV{SAS_SOAK_WORKERS} // 2;
my $agents = $ENV{SAS_SOAK_AGENTS} // ($ENV{SAS_LONG} ? 3000 : 100);
my @databases = map { "soak_$_" } 1 .. ($ENV{SAS_SOAK_DATABASES} // 2);
# what nobody was woken for is found after ten seconds; a busy machine takes its time
my $late_ms = 8000;

my $node = new_node('main', _extension => 0, max_worker_processes => 20 + 5 * $workers * @databases, max_prepared_transactions => 10,
	'sas.schedulers' => $workers, 'sas.agents' => $workers, 'sas.function_workers' => $workers, 'sas.supervisors' => $workers,
	'sas.max_agents' => 8192, 'sas.retain_success' => '1 min', synchronous_commit => 'on', fsync => 'off', log_checkpoints => 'off');
my $service = SasService->new;
my $url = $service->url;

foreach my $database (@databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	create_extension($node, $database);
	$node->safe_psql($database, qq{SELECT count(sas.create_agent('agent_' || n, '$url', breaker => '{"off": true}')) FROM generate_series(1, $agents) n});
	$node->safe_psql($database, PostgreSQL::Test::Utils::slurp_file("$FindBin::RealBin/../lib/soak.sql"));
	ok(wait_for($node, "SELECT count(*) FROM sas.workers WHERE database = current_database() AND pid IS NOT NULL", 4 * $workers, dbname => $database), "$database has its workers");
}

sub number { my ($text) = @_; return $text =~ /(\d+)/ ? $1 : die "no number in: $text" }

# a node, and a task that it hosts, as arguments of append_items
sub host
{
	my ($session, $name, $capacity) = @_;
	return number($session->query("SELECT sas.register_node('$name', $capacity, '{outside}', lease => '1 day')"));
}

sub claim
{
	my ($session, $id) = @_;
	return $session->query("SELECT watch_id || ' ' || epoch FROM sas.claim_watchers($id, 1)") =~ /(\d+) (\d+)/;
}

# a transaction that one session prepares and commits
sub prepared
{
	my ($session, $database, $n) = @_;
	my $run = number($session->query("BEGIN; SELECT soak.submit('local')"));
	$session->query("PREPARE TRANSACTION '$database $n'");
	my $began = time();
	my $answer = $session->query("COMMIT PREPARED '$database $n'; SELECT soak.wait($run)");
	return $answer =~ /ERROR/ ? die $answer : $session->query("INSERT INTO soak.taken VALUES ('prepared', $n, " . 1000 * (time() - $began) . ')');
}

# the session of a node ends, and another one is given its task
my %other;

sub disconnect
{
	my ($session, $database, $n) = @_;
	my $first = SasSession->new($node, $database);
	my $id = host($first, "first_$n", 1);
	$session->query("SELECT FROM sas.watch('feed', 'd$n')");
	my ($task, $epoch);
	wait_until(sub { ($task, $epoch) = claim($first, $id) }) or die 'the first node gets no task';
	$other{$database} //= host($session, 'second', 10);
	my $began = time();
	$first->quit;
	my $next;
	wait_until(sub { ($next) = claim($session, $other{$database}) }) or die 'the second node gets no task';
	$session->query("INSERT INTO soak.taken VALUES ('disconnect', $n, " . 1000 * (time() - $began) . ')');
	$session->query("SELECT FROM sas.unwatch('feed', '{d$n}'); SELECT sas.release_watches($other{$database}, ARRAY[$next])");
	return;
}

my %session = map { $_ => SasSession->new($node, $_) } @databases;
foreach my $database (@databases)
{
	my $session = $session{$database};
	my $id = number($session->query("SELECT sas.register_node('items', 1, '{outside}', lease => '1 day', by_connection => false)"));
	$session->query("SELECT FROM sas.watch('feed', 'items')");
	my ($watch, $epoch);
	ok(wait_until(sub { ($watch, $epoch) = claim($session, $id) }), 'a node hosts a task that items are appended to');
	$session->query("SET soak.watch_id = $watch; SET soak.epoch = $epoch; SET soak.agents = $agents");
}

foreach my $kind (@kinds)
{
	my $began = time();
	if ($kind eq 'prepared' || $kind eq 'disconnect')
	{
		foreach my $n (1 .. $each)
		{
			foreach my $database (@databases)
			{
				$kind eq 'prepared' ? prepared($session{$database}, $database, $n) : disconnect($session{$database}, $database, $n);
			}
		}
	}
	else
	{
		$session{$_}->start_query("CALL soak.operations('$kind', $each)") foreach @databases;
		foreach my $database (@databases)
		{
			my $answer = $session{$database}->answer(100 + $each * 3);
			is($answer, '', "$kind in $database") if $answer ne '';
		}
	}
	foreach my $database (@databases)
	{
		is($node->safe_psql($database, "SELECT count(*), count(*) FILTER (WHERE ms > $late_ms) FROM soak.taken WHERE kind = '$kind'"),
			"$each|0", "$kind, $each times: none waited for a look that nobody asked for");
	}
	note(sprintf '%s: %.0f s; %s', $kind, time() - $began, join '; ', map {
			$node->safe_psql($_, qq{SELECT format('median %s ms, 99.9 of 100 within %s ms, longest %s ms, %s longer than a second', round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 1),
				round(percentile_cont(0.999) WITHIN GROUP (ORDER BY ms)::numeric, 1), round(max(ms)), count(*) FILTER (WHERE ms > 1000)) FROM soak.taken WHERE kind = '$kind'})
		} @databases);
}
$session{$_}->quit foreach @databases;
is($node->safe_psql($_, 'SELECT found_late FROM sas.health()'), '0', "nothing was found late in $_") foreach @databases;
is($node->safe_psql($databases[0], q{SELECT coalesce(sum(n), 0) FROM _sas.series() WHERE metric = 'lock_timeout'}), '0', 'no tick has given up a lock');
done_testing();
