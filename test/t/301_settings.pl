# SPDX-License-Identifier: PostgreSQL
#
# The numbers of workers change on reload; too few process slots; workers that
# fail again and again; a schema that the library does not know; no preload.
# Takes about 35 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', max_worker_processes => 14);
my $counts = q{SELECT string_agg(actor || ' ' || n, ', ' ORDER BY actor) FROM (SELECT actor, count(*) AS n FROM sas.workers GROUP BY 1) w};

sub define
{
	my ($server) = @_;
	$server->safe_psql('postgres', q{
		CREATE TABLE ledger (n int NOT NULL);
		CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
			INSERT INTO public.ledger VALUES ((input->>'n')::int) RETURNING to_jsonb(n) $$;
		SELECT sas.create_workflow('book', '{"steps": {"s": {"function": "public.book"}}}')});
	return;
}

sub set
{
	my (%settings) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $_ = '$settings{$_}'") foreach keys %settings;
	$node->reload;
	return;
}

# -- reload -----------------------------------------------------------------------

ok(wait_for($node, $counts, 'agent 1, function 1, scheduler 1, supervisor 1'), 'one worker of each kind by default');
define($node);
set('sas.schedulers' => 2, 'sas.agents' => 3, 'sas.function_workers' => 2, 'sas.supervisors' => 2);
ok(wait_for($node, $counts, 'agent 3, function 2, scheduler 2, supervisor 2'), 'more of them on reload');
set('sas.agents' => 1, 'sas.function_workers' => 0);
ok(wait_for($node, $counts, 'agent 1, scheduler 2, supervisor 2'), 'fewer of them on reload, down to none');
$node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('book', '{"n": 1}')});
is($node->safe_psql('postgres', 'SELECT state, waiting_kind FROM sas.steps'), 'ready|worker', 'while there is none its work waits, and says for what');
set('sas.function_workers' => 1);
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '1'), 'and is done when there is one again');

# -- too few slots ----------------------------------------------------------------

my $log = -s $node->logfile;
set('sas.agents' => 40);
ok(wait_for($node, 'SELECT slots_missing > 0 FROM sas.health()'), 'sas.health tells how many worker slots are missing');
ok(wait_until(sub { PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /WARNING:.*(worker|process) slot/s }), 'and the log has a WARNING');
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'worker-slots'}, '1'), 'and there is one alert');
$node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('book', '{"n": 2}')});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '2'), 'those that run do their work');
set('sas.agents' => 1);
ok(wait_for($node, 'SELECT slots_missing FROM sas.health()', '0'), 'fewer wanted: none is missing');

# slots that others take, and free again
$node->safe_psql('postgres', 'CREATE DATABASE second');
set('sas.agents' => 6);
wait_for($node, $counts, 'agent 6, function 1, scheduler 2, supervisor 2');
create_extension($node, 'second');
ok(wait_for($node, 'SELECT slots_missing > 0 FROM sas.health()'), 'a second database finds no slots');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');
$node->reload;
ok(wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4', dbname => 'second'), 'and gets its workers when slots are free again');
$node->safe_psql('postgres', 'DROP DATABASE second');

# one too few from the start
my $short = new_node('short', max_worker_processes => 4, max_logical_replication_workers => 0);
ok(wait_for($short, q{SELECT count(*) FROM sas.alerts WHERE kind = 'worker-slots' AND closed_at IS NULL}, '1'), 'there is an alert where a slot is missing from the start, too');
is($short->safe_psql('postgres', $counts), 'agent 1, scheduler 1, supervisor 1', 'because the supervisor gets its slot before others');
$short->append_conf('postgresql.conf', 'sas.agents = 0');
$short->reload;
ok(wait_for($short, q{SELECT count(*) FROM sas.alerts WHERE kind = 'worker-slots' AND closed_at IS NOT NULL}, '1'), 'it closes when all have one');
$short->stop;

# -- failing workers --------------------------------------------------------------

$log = -s $node->logfile;
$node->safe_psql('postgres', 'ALTER TABLE _sas.message RENAME TO message_away');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM sas.workers WHERE actor = 'supervisor'});
my $gave_up = sub {
	my @found = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /^(\d+-\d+-\d+ \d+:\d+:[\d.]+).*sas supervisor exits after/mg;
	return @found;
};
ok(wait_until(sub { $gave_up->() >= 1 }), 'a worker that meets one error after another gives up');
my $errors = () = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /sas supervisor.*ERROR|ERROR:.*due.*does not exist/g;
cmp_ok($errors, '<', 60, 'with pauses between: the log is not flooded');
$node->safe_psql('postgres', 'ALTER TABLE _sas.message_away RENAME TO message');
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'supervisor' AND leader}, '1'), 'and another takes its place');
$node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('book', '{"n": 3}')});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '3'), 'everything works as before');

# -- no preload -------------------------------------------------------------------

my $bare = new_node('bare', shared_preload_libraries => '');
define($bare);
$bare->safe_psql('postgres', q{SELECT count(*) FROM sas.submit_batch('book', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, 20) i))});
is($bare->safe_psql('postgres', 'SELECT count(*) FROM sas.workers'), '0', 'without preload there are no workers');
is($bare->safe_psql('postgres', 'SELECT workers_loaded, ok FROM sas.health()'), 'f|f', 'and sas.health says so');
is($bare->safe_psql('postgres', q{SELECT DISTINCT state FROM sas.runs}), 'pending', 'submit works and waits');
$bare->append_conf('postgresql.conf', "shared_preload_libraries = 'sas'\n");
$bare->restart;
ok(wait_for($bare, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '20'), 'with preload the runs end');
is($bare->safe_psql('postgres', 'SELECT count(*) || \' \' || count(DISTINCT n) FROM ledger'), '20 20', 'each done once');
done_testing();
