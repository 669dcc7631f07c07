# SPDX-License-Identifier: PostgreSQL
#
# No ring is lost: not one that comes while a worker waits for something else,
# nor one whose worker was turned away by the agent's limits, nor one whose
# claim was rolled back. What waits for a synchronous standby waits on the same
# latch that the bell sets, and there a worker can be held for as long as a test
# needs.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(time sleep);

# neither the looks that the supervisor takes by itself nor an alarm that a wait has left behind must help
my $node = new_node('main', 'sas.supervisor_interval' => '6 min', deadlock_timeout => '5 min', wal_level => 'replica', max_wal_senders => 5);
my $service = SasService->new;
my $soon = 30;					# seconds; a look that nobody asks for comes after 60
my $probe = SasSession->new($node);

make_agent($node, 'narrow', $service, max_in_flight => 1);
$probe->query('CREATE TABLE probe (n int)');
$node->safe_psql('postgres', q{CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$});
define($node, 'plain', { steps => { it => { function => 'public.echo' } } });
define($node, 'call_narrow', { steps => { it => { agent => 'narrow', call => { method => 'POST', path => '/narrow' } } } });

# commits of workers wait from now on; those of these sessions do not
sub hold_commits
{
	$node->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
	$node->safe_psql('postgres', q{SELECT pg_reload_conf()});
	# the checkpointer tells everybody: until then commits do not wait
	my $waits = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event = 'SyncRep'};
	my $held = wait_until(
		sub {
			$probe->start_query('INSERT INTO probe VALUES (1)') if $probe->answered;
			return $node->safe_psql('postgres', $waits) eq '1';
		});
	return ok($held, 'commits wait');
}

sub let_commits_go
{
	$node->safe_psql('postgres', q{ALTER SYSTEM RESET synchronous_standby_names});
	$node->safe_psql('postgres', q{SELECT pg_reload_conf()});
	return ok(wait_until(sub { $probe->answered }), 'commits wait no more');
}

# what was rung is heard meanwhile; shorter than that takes, this proves less and fails nothing
sub give_it_time { sleep 0.5; return }

sub held
{
	my ($type) = @_;
	return ok(wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = '$type' AND wait_event = 'SyncRep'", '1'), "a $type waits in its commit");
}

sub submit_local
{
	my ($arguments) = @_;
	return $node->safe_psql('postgres', "SET synchronous_commit = local; SELECT run_id FROM sas.submit($arguments)");
}

sub ends_soon
{
	my ($run, $result, $name) = @_;
	my $begun = time();
	ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", $result, limit => 50), $name);
	cmp_ok(time() - $begun, '<', $soon, "$name: soon");
	return;
}

# -- rung while a commit waits ----------------------------------------------------------------

hold_commits();
my $first = submit_local(q{'plain', start_at => clock_timestamp() + interval '200 ms'});
held('sas scheduler');
my $second = submit_local(q{'plain', start_at => clock_timestamp() + interval '100 ms'});
give_it_time();
let_commits_go();
ends_soon($second, 'success', 'a timer that was set meanwhile');
ends_soon($first, 'success', 'and the one before it');

# -- rolled back ------------------------------------------------------------------------------------

# its claim is cancelled while it waits for a lock; the answer that has come meanwhile is written first, by itself
$service->script(narrow => [ { gate => 1 }, {} ]);
$node->safe_psql('postgres', q{SELECT sas.alter_agent('narrow', max_in_flight => 2)});
$first = submit_local(q{'call_narrow'});
$service->wait_for_requests('narrow', 1);
my $locker = SasSession->new($node);
$locker->query('BEGIN; LOCK TABLE _sas.step IN ACCESS EXCLUSIVE MODE');
$second = submit_local(q{'call_narrow'});
my $agent = $node->safe_psql('postgres', q{SELECT pid FROM sas.workers WHERE actor = 'agent'});
my $waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = $agent AND wait_event_type = 'Lock'";
ok(wait_for($node, $waits, '1'), 'a claim waits for a lock');
$service->release;
give_it_time();
my $log = -s $node->logfile;
$node->safe_psql('postgres', "SELECT pg_cancel_backend($agent)");
wait_until(sub { PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /canceling statement/ });
ok(wait_for($node, $waits, '1'), 'cancelled, its worker writes an answer, which waits for the lock');
$locker->query('COMMIT');
ends_soon($first, 'success', 'a reply after a claim that was rolled back');
ends_soon($second, 'success', 'and the step that was to be claimed');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('narrow', max_in_flight => 1)});

# -- turned away -----------------------------------------------------------------------------------

# one worker has the only place and looks in vain; the other one hears of a step, and finds no place
$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.agents = 2});
$node->safe_psql('postgres', q{SELECT pg_reload_conf()});
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, '2');
$service->script(narrow => [ { gate => 1 }, {} ]);
$first = submit_local(q{'call_narrow'});
$service->wait_for_requests('narrow', 3);
give_it_time();
hold_commits();
$service->release;
held('sas agent');
$second = submit_local(q{'call_narrow'});
give_it_time();
let_commits_go();
ends_soon($second, 'success', 'a step whose worker found no place, which the other one had and did not need');
ends_soon($first, 'success', 'and the one before it');

# one worker has the only place; its call is to rest for longer than the test lasts, gives the place back, and keeps the
# worker's only slot: the place is for the other one, which was refused
$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.agent_slots = 1});
$node->safe_psql('postgres', q{SELECT pg_reload_conf()});
$node->safe_psql('postgres', q{SELECT sas.alter_agent('narrow', retry => '{"initial": "100 s", "max": "100 s"}')});
define($node, 'call_long', { steps => { it => { agent => 'narrow', complete_in => '10 min', call => { method => 'POST', path => '/narrow' } } } });
ok(wait_for($node, q{SELECT setting FROM pg_settings WHERE name = 'sas.agent_slots'}, '1'), 'a worker has one slot');
$service->script(narrow => [ { gate => 1, status => 503 }, {} ]);
my $came = $service->requests('narrow');
$first = submit_local(q{'call_long'});
$service->wait_for_requests('narrow', $came + 1);
$second = submit_local(q{'call_long'});
give_it_time();
is($node->safe_psql('postgres', "SELECT waiting FROM sas.agents WHERE name = 'narrow'"), '1', 'the other worker was refused');
my $let_go = hold_supervisor($node);
$service->release;
ends_soon($second, 'success', 'a step whose worker was refused, when the place is free and who had it has no slot');
$let_go->();
done_testing();
