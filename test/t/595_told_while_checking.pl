# SPDX-License-Identifier: PostgreSQL
#
# A session in sas.wait checks the run, and has to wait for a lock meanwhile. The run ends while it does. The session sees
# that when it has the lock: it does not sleep, although the server has reset its latch, and the state that the check
# reads is older.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
define($node, 'waits', { steps => { it => { wait => { signal => 'go' } } } });
my ($done, $run) = map { $sql->(q{SELECT run_id FROM sas.submit('waits')}) } 1, 2;
$sql->("SELECT sas.halt($done)");
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'running'), 'a run waits');

my ($ends, $locks, $waits) = map { SasSession->new($node) } 1 .. 3;
my $pid = $waits->query('SELECT pg_backend_pid()');
my $waits_for = sub { return $sql->("SELECT coalesce(wait_event_type, '') FROM pg_stat_activity WHERE pid = $_[0]") };
# it has planned its check
$waits->query("SELECT state FROM sas.wait($done)") foreach 1 .. 7;

$ends->query('BEGIN');
$ends->query("SELECT sas.halt($run)");
my $locker = $locks->query('SELECT pg_backend_pid()');
$locks->query('BEGIN');
$locks->start_query('ALTER INDEX _sas.run_pkey SET TABLESPACE pg_default');
ok(wait_until(sub { $waits_for->($locker) eq 'Lock' }), 'a session wants to lock an index of the runs');
$waits->start_query("SELECT state FROM sas.wait($run, '10 min')");
ok(wait_until(sub { $waits_for->($pid) eq 'Lock' }), 'the check of the one that waits for the run comes behind it');
$ends->query('COMMIT');
$locks->answer;
is($waits_for->($pid), 'Lock', 'the run has ended, and the check waits on');
$locks->query('ROLLBACK');
my $slept = 0;
ok(wait_until(sub { $slept ||= $waits_for->($pid) eq 'Extension'; return $waits->answered }), 'it ends when the index is free');
is($waits->answer, 'stopped', 'with the state of the run');
ok(!$slept, 'it has not slept in between');
done_testing();
