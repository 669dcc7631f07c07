# SPDX-License-Identifier: PostgreSQL
#
# How an application learns what became of its run: sas.wait, reply queues,
# and notifications.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main');
my $service = SasService->new;
make_agent($node, 'remote', $service);
define($node, 'held', { steps => { it => { agent => 'remote', call => { path => '/held' } } }, output => '{{steps.it.output.body}}' });
define($node, 'stuck', { steps => { it => { agent => 'remote', call => { path => '/stuck' } } }, on_failure => 'pause' });
$service->script(held => [ { gate => 1, json => { n => 7 } } ], stuck => [ { gate => 1, status => 400 } ]);
my ($out, $err);
my %asked = (held => 1, stuck => 0);	# calls so far

# -- sas.wait -----------------------------------------------------------------------------------

my $session = SasSession->new($node);
my $id = submit($node, 'held', {});
$service->wait_for_requests('held', 1);
is($node->safe_psql('postgres', "SELECT state, result FROM sas.wait($id, '0')"), 'running|', 'a wait of no time looks once');
my $before = time();
is($node->safe_psql('postgres', "SELECT state, result, output FROM sas.wait($id, '300 ms')"), 'running||', 'a wait that is over gives the state so far');
cmp_ok(time() - $before, '>=', 0.3, 'not before its time');
$service->release;
is($session->query("SELECT state, result, output FROM sas.wait($id, '10 min')"), 'stopped|success|{"n": 7}', 'it ends with the run, its result and its output');
is($node->safe_psql('postgres', "SELECT state FROM sas.wait($id)"), 'stopped', 'a run that has ended is not waited for');

# A wait looks by itself after ten seconds. So that a busy machine is no failure, one time of five is enough.
sub hear_at_once
{
	my ($name, $workflow, $answer, @who) = @_;
	my ($taken, $wrong) = (99, '');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach (1 .. 5)
	{
		$id = submit($node, $workflow, {});
		$service->wait_for_requests($workflow, ++$asked{$workflow});
		$_->start_query("SELECT state, result, error ->> 'status' FROM sas.wait($id, '20 min')") foreach @who;
		wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%wait($id, %20 min%' AND wait_event = 'Extension' AND pid <> pg_backend_pid()", scalar @who);
		$wrong .= ' answered too soon' if grep { $_->answered } @who;
		my $begun = time();
		$service->release;
		foreach (@who) { my $said = $_->answer; $wrong .= " $said" if $said ne $answer }
		$taken = time() - $begun;
		last if $taken < 5;
	}
	is($wrong, '', $name);
	return cmp_ok($taken, '<', 5, "$name: at once, before it would look by itself");
}

$service->script(held => [ { gate => 1 } ]);
hear_at_once('a wait sleeps while the run goes on, and ends with it', 'held', 'stopped|success|', $session);
hear_at_once('a wait ends when the run is paused, and says why', 'stuck', 'paused||400', $session);
$node->safe_psql('postgres', q{SELECT sas.cancel(run_id, 'enough') FROM sas.runs WHERE workflow = 'stuck' AND state = 'paused'});

like($session->query('BEGIN; CREATE TABLE t (); SELECT * FROM sas.wait(1)'), qr/cannot wait for a run in a transaction that has written/, 'refused in a transaction that has written');
$session->query('ROLLBACK');
like($session->query("BEGIN; SELECT run_id FROM sas.submit('held'); SELECT * FROM sas.wait(1)"), qr/cannot wait for a run in a transaction that has written/, 'a submit among it');
$session->query('ROLLBACK');
foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	like($session->query("BEGIN ISOLATION LEVEL $level; SELECT * FROM sas.wait($id)"), qr/cannot wait for a run above isolation level READ COMMITTED/, "refused in $level");
	$session->query('ROLLBACK');
}
like($session->query("BEGIN; SELECT state FROM sas.wait($id); COMMIT"), qr/^stopped$/m, 'allowed in a transaction that has only read');
like($session->query('SELECT * FROM sas.wait(987654321)'), qr/run 987654321 does not exist/, 'a run that is not there is said not to be');
like($session->query("SELECT * FROM sas.wait($id, '-1 s')"), qr/the timeout must not be negative/, 'a negative time is refused');

my @sessions = map { SasSession->new($node) } 1 .. 12;
hear_at_once('a dozen sessions that wait for one run all hear of its end', 'held', 'stopped|success|', @sessions);
$sessions[0]->start_query("SELECT state FROM sas.wait(" . submit($node, 'held', {}) . ", '40 min')");
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%40 min%' AND wait_event = 'Extension' AND pid <> pg_backend_pid()}, '1');
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%40 min%' AND pid <> pg_backend_pid()});
like($sessions[0]->answer, qr/canceling statement due to user request/, 'a wait can be cancelled');
$_->quit foreach @sessions;
$service->script(held => [ { json => 'done' } ]);
$service->release;

# -- reply queues -------------------------------------------------------------------------------

my $listener = SasSession->new($node);
$listener->query('LISTEN sas_reply');
sub hears
{
	my ($what) = @_;
	my $heard = '';
	return wait_until(sub { ($heard .= $listener->query('SELECT')) =~ $what });
}
my $good = submit($node, 'held', {}, reply_to => 'shop', key => 'order-1');
run_of($node, $good);
ok(hears(qr/notification "sas_reply" with payload "shop"/), 'NOTIFY sas_reply tells that a queue has replies');
is($node->safe_psql('postgres', q{SELECT event, run_id, key, result, output FROM sas.read_replies('shop', 10)}),
	"accepted|$good|order-1||\ncompleted|$good|order-1|success|\"done\"", 'a reply queue gets accepted and completed, with id, key, result and output');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.read_replies('shop', 10)}), '0', 'a reply is read once');
define($node, 'bad', { steps => { it => { agent => 'remote', call => { path => '/bad' } } } });
$service->script(bad => [ { status => 400 } ]);
my $bad = submit($node, 'bad', {}, reply_to => 'shop', key => 'order-2');
run_of($node, $bad);
is($node->safe_psql('postgres', q{SELECT event, run_id, key, result, error ->> 'status' FROM sas.read_replies('shop', 10)}),
	"accepted|$bad|order-2||\nfailed|$bad|order-2|error|400", 'or failed, with the error');
my $rolled = $node->safe_psql('postgres', q{
	SELECT run_id FROM sas.submit('held', reply_to => 'other');
	BEGIN;
	SELECT count(*) FROM sas.submit('held', reply_to => 'rolled');
	ROLLBACK;
	SELECT count(*) FROM sas.read_replies('rolled', 10);});
like($rolled, qr/\n0$/, 'a submit that is rolled back leaves no reply');
all_ended($node, 'all ends');
is($node->safe_psql('postgres', q{
		SELECT string_agg(event, ' ') FROM sas.read_replies('other', 1);
		BEGIN; SELECT string_agg(event, ' ') FROM sas.read_replies('other', 1); ROLLBACK;
		SELECT string_agg(event, ' ') FROM sas.read_replies('other', 1)}), "accepted\ncompleted\ncompleted",
	'a read that is rolled back has not read');

# -- alerts -------------------------------------------------------------------------------------

$listener->query('LISTEN sas_alert');
$service->script(stuck => [ { status => 400 } ]);
$id = submit($node, 'stuck', {});
ok(hears(qr/notification "sas_alert" with payload "\{"kind": "step-failed", "run_id": \d+, "alert_id": \d+\}"/), 'NOTIFY sas_alert tells of an alert');
is($node->safe_psql('postgres', "SELECT kind, step, occurrences, agent FROM sas.alerts WHERE run_id = $id"), 'step-failed|it|1|remote', 'which is a row with its cause');
$listener->quit;
$session->quit;
done_testing();
