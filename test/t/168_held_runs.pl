# SPDX-License-Identifier: PostgreSQL
#
# A session holds a run: the heartbeat of an outside program acts at once and extends its lease; what waits for the run
# is woken when the session ends its transaction, by commit or by abort, whatever it has called.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main', 'sas.supervisor_interval' => '6 min', max_prepared_transactions => 5);
my $service = SasService->new;
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
make_agent($node, 'remote', $service, request_timeout => '100 s');
sql(q{SELECT sas.create_agent('people', kind => 'external')});
define($node, 'task', { steps => { it => { agent => 'people', task => {}, complete_in => '5 min' } } });
define($node, 'call', { steps => { it => { agent => 'remote', complete_in => '5 min', call => { method => 'POST', path => '/held' } }, after => { agent => 'remote', after => ['it'], call => { path => '/after' } } } });
my $session = SasSession->new($node);
sub hold { my ($run) = @_; $session->query("BEGIN; SET LOCAL statement_timeout = 0; SELECT FROM _sas.run WHERE run_id = $run FOR UPDATE"); return }

# -- heartbeats ---------------------------------------------------------------------------------------

my $run = submit($node, 'task', {});
my $request;
wait_until(sub { $request = sql(q{SELECT request_id FROM sas.claim('people', 'ann', lease => '4 s')}) });
hold($run);
is(sql("SELECT sas.heartbeat('$request', 0.5)"), 'go', 'a heartbeat acts while a session holds the run');
my $claimed = time();
sleep(0.2), is(sql("SELECT sas.heartbeat('$request')"), 'go', 'and again') while time() - $claimed < 6;
is(sql("SELECT state FROM sas.steps WHERE run_id = $run"), 'running', 'past its first lease the task is held still');
is(sql("SELECT sas.complete('$request', '{}')"), 't', 'and what came of it counts');
$session->query('COMMIT');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'the run ends when it is free');
is(sql("SELECT count(*) FROM sas.attempts WHERE run_id = $run AND status <> 'succeeded'"), '0', 'and nothing was taken back');
is(sql("SELECT count(*) FROM _sas.external_slot WHERE extended_by IS NOT NULL"), '0', 'its place is free again');

# nobody extends it: it is taken back, whoever holds the run, when the run is free
$run = submit($node, 'task', {});
wait_until(sub { $request = sql(q{SELECT request_id FROM sas.claim('people', 'ann', lease => '1 s')}) });
hold($run);
is(sql("SELECT sas.heartbeat('$request')"), 'go', 'one heartbeat');
sleep(2.5);
is(sql("SELECT sas.heartbeat('$request')"), 'lost', 'a lease that is over is over');
$session->query('ROLLBACK');
ok(wait_for($node, "SELECT failure_count FROM sas.steps WHERE run_id = $run", '1'), 'and the task is taken back');
sql("SELECT sas.halt($run)");
done_testing();
