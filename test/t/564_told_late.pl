# SPDX-License-Identifier: PostgreSQL
#
# A transaction that held a run has ended for others a moment before its session wakes the worker that waits for the run.
# A worker that looks in that moment takes the run up, and does not say that nobody woke it. What it has taken up in a
# tick that is rolled back it takes up again. Takes about 75 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use PostgreSQL::Test::Utils;

my $node = new_node('main', 'sas.supervisor_interval' => '6 min');
my $service = SasService->new;
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($includes) = split /\n/, `pg_config --includedir-server`;
system('cc', '-shared', '-fPIC', "-I$includes", '-o', "$dir/told_late.so", "$FindBin::RealBin/../modules/told_late.c") == 0 or die 'no module';
sql("CREATE FUNCTION told_late(text) RETURNS void LANGUAGE c STRICT AS '$dir/told_late', 'told_late'");
make_agent($node, 'remote', $service, request_timeout => '100 s');
define($node, 'call', { steps => { it => { agent => 'remote', complete_in => '5 min', call => { method => 'POST', path => '/held' } } } });
my $lock = 'SELECT FROM _sas.run WHERE run_id = %s FOR UPDATE';

# -- the scheduler ----------------------------------------------------------------------------------------

$service->script(held => [ { gate => 1 } ]);
my $run = submit($node, 'call', {});
$service->wait_for_requests('held', 1);
my $holder = SasSession->new($node);
$holder->query('SET statement_timeout = 0; BEGIN; ' . sprintf($lock, $run) . "; SELECT told_late('$dir/scheduler')");
$service->release;
ok(wait_for($node, "SELECT count(*) FROM _sas.message WHERE run_id = $run AND due_at > now()", '1'), 'a run that a session holds is set aside');
$holder->start_query('COMMIT');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'it goes on before the session says that it has ended');
is(scalar(SasTest::late_work()), 0, 'and it is not said that nobody woke the scheduler');
append_to_file("$dir/scheduler", '');
$holder->outcome;

# -- in a session that does what a tick does --------------------------------------------------------------

$service->script(held => [ { gate => 1 } ]);
$run = submit($node, 'call', {});
$service->wait_for_requests('held', 2);
my $tick = SasSession->new($node);
$tick->query('SET log_statement = none; SET client_min_messages = log');
my $take = q{SELECT count(*) FROM _sas.freed_runs('s')};
# notes that it waits for the holder until a time
my $await = sub { my ($until) = @_; return $tick->query("SELECT _sas.await_holders('s', '{$run}', $until)") };
foreach my $until (q{now() + '1 h'}, 'now()')
{
	$holder->query('BEGIN; ' . sprintf($lock, $run));
	is($await->($until), "{$run}", "until $until: a session waits for the holder of a run");
	is($tick->query($take), '0', "until $until: not as long as it holds it");
	$holder->query('COMMIT');
	is($tick->query("BEGIN; $take"), '1', "until $until: it takes the run up when the holder has ended");
	is($tick->query("$take; ROLLBACK"), '0', "until $until: once");
	is($tick->query("BEGIN; SAVEPOINT s; $take"), '1', "until $until: again after a rollback");
	is($tick->query("ROLLBACK TO s; $take"), '1', "until $until: and after that of a savepoint");
	is($tick->query("SAVEPOINT t; ROLLBACK TO t; $take"), '0', "until $until: but not after that of another one");
	is($tick->query("ROLLBACK; BEGIN; SAVEPOINT s; SAVEPOINT t; $take"), '1', "until $until: in a savepoint in another one");
	is($tick->query("RELEASE t; ROLLBACK TO s; $take"), '1', "until $until: again after the rollback of the outer one");
	is($tick->query("COMMIT; $take"), '0', "until $until: not after a commit");
}

# the holder has ended for others, and says so within ten seconds, or later
foreach my $case ([ 'in time', 0, '0' ], [ 'too late', 12, '1' ])
{
	my ($name, $seconds, $expected) = @$case;
	$holder->query('BEGIN; ' . sprintf($lock, $run) . "; SELECT told_late('$dir/$seconds')");
	$await->('now()');
	$holder->start_query('ROLLBACK');
	ok(wait_until(sub { $tick->query($take) eq '1' }), "$name: a run is taken up before its holder says anything");
	$tick->query("SELECT pg_sleep($seconds)");
	append_to_file("$dir/$seconds", '') if $seconds == 0;
	$holder->outcome if $seconds == 0;
	my $said = $tick->query($take);
	is(($said =~ /found work that was not announced: 1 of kind "held"/) + 0, $expected, "$name: it is said that nobody woke it: $expected");
	is($tick->query($take), '0', "$name: once");
	append_to_file("$dir/$seconds", '') if $seconds > 0;
	$holder->outcome if $seconds > 0;
}
$service->release;
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'the run ends');

# -- a scheduler that has nothing else to do --------------------------------------------------------------

$service->script(held => [ { gate => 1 } ]);
$run = submit($node, 'call', {});
$service->wait_for_requests('held', 3);
$holder->query(sprintf("BEGIN; $lock; SELECT told_late('$dir/idle')", $run));
$service->release;
ok(wait_for($node, "SELECT count(*) FROM _sas.message WHERE run_id = $run AND due_at > now()", '1'), 'a run is set aside again');
$holder->start_query('COMMIT');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'it ends before the session says that it has ended');
my $before = SasTest::late_work();
# each one wakes the scheduler, and is a transaction of another session
ok(wait_until(sub { sql(q{SELECT sas.set_limit(NULL, 'depth', 100)}); return SasTest::late_work() > $before }), 'which it does not do in time, so it is said that nobody woke the scheduler');
append_to_file("$dir/idle", '');
$holder->outcome;
SasTest::allow_late('a session says too late that it has ended, on purpose');
done_testing();
