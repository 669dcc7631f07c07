# SPDX-License-Identifier: PostgreSQL
#
# The work of a worker that died is taken back at once, not at complete-by,
# and whoever else was not in its batch is not held up.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', 'sas.function_workers' => 2, max_prepared_transactions => 5,
	'sas.supervisor_interval' => '6 min');
my $service = start_service('payments');
my $soon = 30;					# seconds; complete_in is 60, and so is a look that nobody asks for

$node->safe_psql('postgres', qq{
	CREATE TABLE ledger (n int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
	CREATE TABLE gate (name text PRIMARY KEY);
	CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
		INSERT INTO public.ledger (n) VALUES ((input->>'n')::int) RETURNING to_jsonb(n) \$\$;
	CREATE FUNCTION book_slowly(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO public.ledger (n) VALUES ((input->>'n')::int);
		-- slow the first time only
		IF NOT EXISTS (SELECT FROM public.gate WHERE name = 'open') THEN
			PERFORM pg_sleep(300);
		END IF;
		RETURN '{}';
	END \$\$;
	SELECT sas.create_agent('payments', base_url => '@{[ $service->url ]}', request_timeout => '50 s');
	SELECT sas.create_workflow('call', '{"steps": {"charge": {"agent": "payments",
		"call": {"method": "POST", "path": "/charges", "body": {"order": "{{input.n}}", "amount": 1, "card": "card-1"}}}},
		"recovery": {"initial": "100 ms"}}');
	SELECT sas.create_workflow('book', '{"steps": {"book": {"function": "public.book"}}, "recovery": {"initial": "100 ms"}}');
	SELECT sas.create_workflow('slow', '{"steps": {"book": {"function": "public.book_slowly"}}, "recovery": {"initial": "100 ms"}}');});

sub submit
{
	my ($workflow, $n) = @_;
	return $node->safe_psql('postgres', qq{SELECT run_id FROM sas.submit('$workflow', '{"n": $n}')});
}

sub ended
{
	my ($run, $limit) = @_;
	return wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $run", 'stopped success', limit => $limit);
}

# -- a call ---------------------------------------------------------------------

$service->hold('now');
my $run = submit('call', 1);
$service->wait_for_requests(1);
my ($holder) = split /\n/, $node->safe_psql('postgres', "SELECT locked_by FROM sas.steps WHERE run_id = $run");
like($holder, qr/^agent \d+$/, 'locked_by names the worker that holds the step');
my ($pid) = $holder =~ /(\d+)/;
my $begun = time();
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
ok(wait_for($node, "SELECT failure_count FROM sas.steps WHERE run_id = $run", '1'), 'the call of a terminated worker counts as failed');
my $taken = time() - $begun;
cmp_ok($taken, '<', $soon, sprintf 'and is taken back at once (%.2f s) though complete_in is 60 s', $taken);
is($node->safe_psql('postgres', "SELECT status FROM sas.attempts WHERE run_id = $run"), 'lost', 'its attempt is shown as lost');
ok($service->wait_for_requests(2), 'the call is made again');
$service->release;
ok(ended($run), 'the run ends');
my @keys = map { $_->{key} // $_->{headers}{'idempotency-key'} // '' } $service->requests;
is(scalar @keys, 2, 'the service got two requests');
is($keys[0], $keys[1], 'both under one key');
is(scalar(grep { $_->{kind} eq 'charge' } @{ $service->books->{entries} }), 1, 'and charged once');

# -- a function -------------------------------------------------------------------

$run = submit('slow', 2);
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}, '1'), 'a function step is running');
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('open')});
$begun = time();
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'});
ok(ended($run), 'the run of a function whose worker was terminated ends');
$taken = time() - $begun;
cmp_ok($taken, '<', $soon, sprintf 'at once (%.2f s)', $taken);
is($node->safe_psql('postgres', 'SELECT count(*) FROM ledger WHERE n = 2'), '1', 'what the function wrote is there once');
is($node->safe_psql('postgres', "SELECT failure_count FROM sas.steps WHERE run_id = $run"), '0', 'no failure was counted: that was a planned stop');

# -- supervisor and scheduler -----------------------------------------------------

$begun = time();
my ($leader) = split /\n/, $node->safe_psql('postgres', q{SELECT pid FROM sas.workers WHERE leader});
$node->safe_psql('postgres', "SELECT pg_terminate_backend($leader)");
ok(wait_for($node, "SELECT count(*) FROM sas.workers WHERE leader AND pid <> $leader", '1'), 'a terminated supervisor is replaced and the new one leads');
$taken = time() - $begun;
cmp_ok($taken, '<', $soon, sprintf 'at once (%.2f s)', $taken);

# both at once: nobody is there to see the agent worker go
$service->hold('now');
my $before = $service->books->{counters}{requests};
$run = submit('call', 3);
$service->wait_for_requests($before + 1);
$begun = time();
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM sas.workers});
ok(wait_for($node, "SELECT failure_count FROM sas.steps WHERE run_id = $run", '1'),
	'work is taken back when all workers are terminated in one statement');
$taken = time() - $begun;
cmp_ok($taken, '<', $soon, sprintf 'at once (%.2f s)', $taken);
$service->release;
ok(ended($run), 'and the run ends');

# -- wake-ups -----------------------------------------------------------------------

$node->safe_psql('postgres', q{BEGIN; SELECT run_id FROM sas.submit('book', '{"n": 10}', key => 'prepared'); PREPARE TRANSACTION 'p'});
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE key = 'prepared'}), '0', 'a prepared submit is not there yet');
$begun = time();
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
ok(wait_for($node, q{SELECT state FROM sas.runs WHERE key = 'prepared'}, 'stopped'), 'COMMIT PREPARED of a submit wakes the workers');
$taken = time() - $begun;
cmp_ok($taken, '<', $soon, sprintf 'at once (%.2f s)', $taken);

$begun = time();
$node->safe_psql('postgres', q{SET synchronous_commit = off; SELECT run_id FROM sas.submit('book', '{"n": 11}', key => 'lazy')});
ok(wait_for($node, q{SELECT state FROM sas.runs WHERE key = 'lazy'}, 'stopped'), 'a submit with synchronous_commit off wakes the workers');
$taken = time() - $begun;
cmp_ok($taken, '<', $soon, sprintf 'at once (%.2f s)', $taken);

is($node->safe_psql('postgres', q{BEGIN; SELECT created FROM sas.submit('book', '{"n": 12}', key => 'gone'); ROLLBACK;
	SELECT count(*) FROM sas.runs WHERE key = 'gone'}), "t\n0", 'a submit that is rolled back leaves no run');
is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT n) FROM ledger'), '0', 'no function step was done twice');
done_testing();
