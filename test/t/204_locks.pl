# SPDX-License-Identifier: PostgreSQL
#
# A session holds what the workers want, and goes away; nobody else is held up.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

allow_late('sessions lock rows of the queue by hand, and nothing wakes a worker when they let go');
my $node = new_node('main', 'sas.supervisor_interval' => '6 min');
my $service = start_service('payments');
my $soon = 30;					# seconds; a look that nobody asks for comes after 60
$node->safe_psql('postgres', qq{
	CREATE TABLE ledger (n int PRIMARY KEY);
	CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
		INSERT INTO public.ledger (n) VALUES ((input->>'n')::int) RETURNING to_jsonb(n) \$\$;
	SELECT sas.create_agent('payments', base_url => '@{[ $service->url ]}', request_timeout => '50 s');
	SELECT sas.create_workflow('order', '{"steps": {
		"charge": {"agent": "payments", "call": {"method": "POST", "path": "/charges",
			"body": {"order": "{{input.n}}", "amount": 1, "card": "card-1"}}},
		"book": {"function": "public.book", "after": ["charge"]}}}');});

my $n = 0;

sub submit
{
	my ($quantity) = @_;
	my $first = $n + 1;
	$n += $quantity;
	return split /\n/, $node->safe_psql('postgres', qq{
		SELECT run_id FROM sas.submit_batch('order',
			ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series($first, $n) i))});
}

sub ended
{
	my (@runs) = @_;
	return wait_for($node, 'SELECT count(*) FROM sas.runs WHERE result = \'success\' AND run_id IN (' . join(',', @runs) . ')', scalar @runs);
}

# goes through: a run whose call is under way is held in the way given; other
# runs end meanwhile; then the holder goes away in the way given.
sub held_by
{
	my ($name, $hold, $let_go) = @_;
	$service->hold('now');
	my $before = $service->books->{counters}{requests};
	my ($run) = submit(1);
	$service->wait_for_requests($before + 1);
	my $session = SasSession->new($node);
	$session->query('BEGIN');
	unlike($session->query(sprintf $hold, $run), qr/ERROR/, "$name: the session has the run");
	my @others = submit(100);
	$service->release;
	ok(ended(@others), "$name: a hundred other runs end meanwhile");
	is($node->safe_psql('postgres', "SELECT state FROM sas.steps WHERE run_id = $run AND step = 'charge'"),
		'running', "$name: the reply of the held one is set aside");
	is($node->safe_psql('postgres', q{
			SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND wait_event_type = 'Lock'}),
		'0', "$name: no worker waits for the lock");
	my $begun = time();
	$let_go->($session);
	ok(ended($run), "$name: the held run ends when the session lets go");
	my $taken = time() - $begun;
	cmp_ok($taken, '<', $soon, sprintf '%s: at once (%.2f s)', $name, $taken);
	is($service->books->{counters}{requests}, $before + 101, "$name: no call was made twice");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM _sas.lease'), '0', "$name: no claim is left over");
	$session->quit;
	return;
}

held_by('row lock, rolled back', 'SELECT 1 FROM _sas.run WHERE run_id = %d FOR UPDATE', sub { $_[0]->query('ROLLBACK') });
held_by('row lock, the client dies', 'SELECT 1 FROM _sas.run WHERE run_id = %d FOR UPDATE', sub { $_[0]->kill });
held_by('row lock, the backend is terminated', 'SELECT 1 FROM _sas.run WHERE run_id = %d FOR UPDATE',
	sub {
		$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'});
	});
held_by('pause, rolled back', 'SELECT changed FROM sas.pause(%d)', sub { $_[0]->query('ROLLBACK') });
held_by('pause and resume, committed', 'SELECT changed FROM sas.pause(%1$d); SELECT changed FROM sas.resume(%1$d)', sub { $_[0]->query('COMMIT') });

# a pause that is committed holds up this one only, and lasts
my ($run) = do { $service->hold('now'); submit(1) };
wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $run AND step = 'charge'", 'running');
$node->safe_psql('postgres', "SELECT sas.pause($run)");
$service->release;
ok(wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $run AND step = 'charge'", 'succeeded'), 'a paused run takes the reply of a call on its way');
is($node->safe_psql('postgres', "SELECT state FROM sas.runs WHERE run_id = $run"), 'paused', 'and stays paused');
$node->safe_psql('postgres', "SELECT sas.resume($run)");
ok(ended($run), 'after resume it ends');

# a function that runs while a session holds its run and then halts it: its claim is over
$node->safe_psql('postgres', q{
	CREATE TABLE gate (name text);
	CREATE FUNCTION wait_at_gate(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = input->>'gate') LOOP PERFORM pg_sleep(0.05); END LOOP;
		RETURN '{}';
	END $$;
	SELECT sas.create_workflow('gated', '{"steps": {"it": {"function": "public.wait_at_gate"}}}')});
my $gated = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('gated', '{"gate": "first"}')});
wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $gated", 'running');
my $held = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('gated', '{"gate": "second"}')});
my $holder = SasSession->new($node);
$holder->query("BEGIN; SELECT FROM _sas.run WHERE run_id = $held FOR UPDATE");
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('first')});
ok(wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $held", 'running'), 'a function is claimed whose run a session holds');
like($holder->query("SELECT changed FROM sas.halt($held)"), qr/^t/m, 'who halts it');
$holder->query('COMMIT');
$holder->quit;
ok(ended($gated), 'the function before it ends');
ok(wait_for($node, 'SELECT count(*) FROM _sas.lease', '0'), 'and no claim is left over');

# the queue's own rows held, by a session that rings no bell: others are
# claimed past them, and the supervisor's look finds them afterwards
$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.supervisor_interval = '1 s'});
$node->reload;
my $session = SasSession->new($node);
$node->safe_psql('postgres', q{SELECT sas.alter_agent('payments', enabled => false)});
($run) = submit(1);
$session->query('BEGIN');
is($session->query("SELECT count(*) FROM (SELECT FROM _sas.ready WHERE run_id = $run FOR UPDATE) q"), '1', 'a session holds a row of the queue');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('payments', enabled => true)});
ok(ended(submit(50)), 'what stands behind it in the queue is claimed past it');
my $begun = time();
$session->query('ROLLBACK');
ok(ended($run), 'and it is claimed when the session lets go');
note sprintf 'after %.2f s', time() - $begun;
$session->quit;
is($node->safe_psql('postgres', 'SELECT count(*) FROM ledger'), $n, 'each run was booked once');
done_testing();
