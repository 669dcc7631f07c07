# SPDX-License-Identifier: PostgreSQL
#
# A large answer is evaluated and written by itself: the next one is evaluated
# when it is written, so what is held does not grow; small calls are claimed
# and written between two of them; and one that cannot be written keeps none
# of the others.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.agent_memory' => '16MB');
my $service = SasService->new;
$service->script(
	large => [ { json => [ map { { id => $_, name => "customer number $_", tags => [ 'a', 'b' ] } } 1 .. 80000 ] } ],
	small => [ { json => 'well' } ]);
make_agent($node, 'greedy', $service, request_timeout => '5 min');
make_agent($node, 'modest', $service, request_timeout => '5 min');
define($node, 'small', { steps => { it => { agent => 'modest', call => { path => '/small' } } } });
define($node, 'large', { steps => { it => { agent => 'greedy', complete_in => '5 min', call => { path => '/large' } } } });
my $worker;

# -- what is held while nothing can be written ---------------------------------------------

my $given_up = sub { return $node->safe_psql('postgres', q{SELECT coalesce(sum(value), 0)::int FROM sas.metrics() WHERE name = 'sas_lock_timeouts_total'}) };
my $session = SasSession->new($node);
$node->safe_psql('postgres', q{SELECT count(s.run_id) FROM generate_series(101, 110) g, sas.submit('large', jsonb_build_object('n', g)) s});
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE state = 'running'}, '10'), 'ten large answers are on their way');
$session->query('BEGIN');
$session->query('LOCK TABLE _sas.step IN EXCLUSIVE MODE');
my $before = $given_up->();
ok(wait_until(sub { return $given_up->() >= $before + 8 }), 'a session keeps the worker from writing them, many times');
cmp_ok($node->safe_psql('postgres', q{SELECT max(memory) FROM sas.workers WHERE actor = 'agent'}), '<', 8e6 + 2 * 11e6,
	'no answer is evaluated until the one before it is written');
$session->query('COMMIT');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'large' AND result = 'success'}, '10'), 'then all of them are written');

# -- what is held while they are written ---------------------------------------------------

my ($most, $shut) = (0, 0);
my $small = q{SELECT count(*) FROM sas.runs WHERE workflow = 'small' AND result = 'success'};
$node->safe_psql('postgres', q{SELECT count(s.run_id) FROM generate_series(1, 16) g, sas.submit('large', jsonb_build_object('n', g)) s});
$node->safe_psql('postgres', q{SELECT count(sas.submit('small')) FROM generate_series(1, 16)});
$worker = (worker_pids($node, 'agent'))[0];
ok(wait_until(sub {
	my ($held, $open, $said) = split /\|/, $node->safe_psql('postgres', q{
		SELECT coalesce((SELECT max(memory) FROM sas.workers WHERE actor = 'agent'), 0),
			(SELECT count(*) FROM sas.runs WHERE workflow = 'large' AND state <> 'stopped'),
			(SELECT count(*) FROM sas.explain() WHERE text LIKE '%sas.agent_memory%' AND text LIKE '%modest%')});
	$most = $held if $held > $most;
	$shut += $said;
	return !$open;
}, 300), 'large answers are taken in');
ok(wait_for($node, $small, '16'), 'and calls of another agent');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'large' AND result = 'success'}), '26', 'all of them succeed');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'large' AND CASE jsonb_typeof(s.output -> 'body') WHEN 'array' THEN jsonb_array_length(s.output -> 'body') END = 80000}),
	'26', 'and are stored whole');
# half of the budget, one answer beyond it, one that is evaluated
cmp_ok($most, '<', 8e6 + 2 * 11e6, 'no more is held than an agent may, and one that is evaluated');
is($node->safe_psql('postgres', qq{$small AND finished_at < (SELECT max(finished_at) FROM sas.runs WHERE workflow = 'large')}), '16',
	'small calls end while large answers wait');
is($shut, 0, 'the door was never shut for the other agent');
is((worker_pids($node, 'agent'))[0], $worker, 'it is the same process');
ok(wait_for($node, q{SELECT memory FROM sas.workers WHERE actor = 'agent'}, '0'), 'and nothing is held in the end');

# -- one that cannot be written ------------------------------------------------------------

$node->safe_psql('postgres', q{
	CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF pg_column_size(NEW.output) > 10000 THEN
			RAISE EXCEPTION 'refused by the test';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE UPDATE ON _sas.step FOR EACH ROW EXECUTE FUNCTION public.refuse()});
my $log = -s $node->logfile;
my $run = submit($node, 'large', { n => 17 });
$node->wait_for_log(qr/refused by the test/, $log);
is(run_call($node, 'modest', { path => '/small' })->{result}, 'success', 'a call ends though a large reply cannot be written');
$node->wait_for_log(qr/run $run: could not store a reply to step 1/, $log);
pass('the large reply is given up after some tries, though small ones were written between them');
ok(wait_for($node, q{SELECT memory FROM sas.workers WHERE actor = 'agent'}, '0'), 'and nothing is held of it');
is((worker_pids($node, 'agent'))[0], $worker, 'it is the same process still');
done_testing();
