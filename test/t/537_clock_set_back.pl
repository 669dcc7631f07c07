# SPDX-License-Identifier: PostgreSQL
#
# A clock that is set back loses no timer. In the middle of a tick: every other look of a process at its clock
# is a second earlier than the one before, so that each tick asks twice and gets two answers. While a timer is
# deferred, because a session has locked its run: it ends that while the clock is back. Before a worker looks for what
# it was told of: that is not due yet, and when it is found, no wake-up was lost (the last claim of the file).
# Takes about 30 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../torture";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use TortureFaults ();

TortureFaults::open_strikes(PostgreSQL::Test::Utils::tempdir());
my $node = new_node('main', 'sas.supervisor_interval' => '1 s');
my $service = SasService->new;
make_agent($node, 'remote', $service, retry => '{"max_attempts": 3, "initial": "100 ms"}');
$service->script(job => [ { json => { state => 'working' } }, { json => { state => 'done' } } ]);
$service->script(busy => [ { status => 429, headers => { 'Retry-After' => '1' } }, { json => {} } ]);
$service->script(down => [ map({ { status => 503 } } 1 .. 4), { json => {} } ]);
$node->safe_psql('postgres', q{
	CREATE TABLE public.turn (n int GENERATED ALWAYS AS IDENTITY);
	CREATE FUNCTION public.note(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE FUNCTION public.next(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(coalesce((input ->> 'n')::int, 0) + 1) $$;
	CREATE FUNCTION public.count(cursor jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO public.turn DEFAULT VALUES RETURNING 'null'::jsonb $$});

my %waits = (
	timer => { wait => { for => '200 ms' } },
	signal => { wait => { signal => 'never', timeout => '200 ms', on_timeout => 'go_on' } },
	poll => { agent => 'remote', call => { method => 'POST', path => '/start' }, poll => { call => { path => '/job' }, until => '$.output.body.state == "done"', every => '100 ms' } },
	later => { agent => 'remote', call => { path => '/busy' } },
	retried => { agent => 'remote', call => { path => '/down' }, recovery => { initial => '100 ms', max => '200 ms', max_failures => 1000 } },
	repeated => { function => 'public.next', input => { n => '{{last?}}' }, repeat => { while => '$.last < 3', max => 5, every => '100 ms' } });
define($node, $_, { steps => { it => $waits{$_}, last => { function => 'public.note', after => ['it'] } } }) foreach keys %waits;
define($node, 'late', { deadline => '500 ms', steps => { it => { wait => { signal => 'never' } } } });

my $clock = bless { node => $node, ahead => 0 }, 'TortureFaults';
$clock->set_strikes(back => 1);
# how often a look at a clock is earlier than the one before, in one transaction
sub steps_back { my ($clock) = @_; return $node->safe_psql('postgres', "SELECT count(*) FROM (SELECT at, lag(at) OVER (ORDER BY n) AS before FROM unnest(ARRAY(SELECT $clock FROM generate_series(1, 10))) WITH ORDINALITY AS u (at, n)) x WHERE at < before") }
cmp_ok(steps_back('clock_timestamp()'), '>', 0, 'the clock goes back');
is(steps_back('sas.now()'), '0', 'but not sas.now() within a transaction');

my $each = 40;
$node->safe_psql('postgres', "SELECT count(*) FROM sas.submit_batch('$_', array_fill('{}'::jsonb, ARRAY[$each]))") foreach sort keys %waits, 'late';
$node->safe_psql('postgres', "SELECT count(sas.submit('timer', start_at => sas.now() + interval '300 ms')) FROM generate_series(1, $each)");
foreach my $workflow (sort keys %waits)
{
	ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow = '$workflow' AND state <> 'stopped'", '0'), "$workflow: every run ends")
	  or diag($node->safe_psql('postgres', "SELECT s, (SELECT jsonb_agg(m) FROM _sas.message m WHERE m.run_id = s.run_id) FROM _sas.step s JOIN sas.runs r USING (run_id) WHERE r.workflow = '$workflow' AND r.state <> 'stopped' LIMIT 5"));
}
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'late' AND error ->> 'type' = 'urn:sas:deadline'}, $each), 'every run without an end meets its deadline');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow <> 'late' AND result <> 'success'}), '0', 'and the others succeed');

$node->safe_psql('postgres', q{SELECT sas.create_watcher('turns', '{"function": "public.count", "every": "100 ms"}'); SELECT sas.watch('turns', 'k'); SELECT sas.create_workflow('tick', '{"steps": {"it": {"function": "public.note"}}}'); SELECT sas.schedule('often', 'every 1 s', 'tick')});
ok(wait_for($node, q{SELECT count(*) >= 20 FROM public.turn}), 'an infinite task goes on');
ok(wait_for($node, q{SELECT count(*) >= 3 FROM sas.runs WHERE schedule = 'often' AND result = 'success'}), 'and a schedule');
$clock->set_strikes(back => 0);

my $session = SasSession->new($node);
$node->safe_psql('postgres', q{SELECT sas.submit(w, '{}', key => 'held') FROM unnest('{timer,late}'::text[]) w});
$session->query(q{BEGIN; SELECT count(*) FROM (SELECT FROM _sas.run WHERE key = 'held' FOR UPDATE) r});
my $deferred = q{SELECT string_agg(concat(m.ctid, m.due_at), ' ') FROM _sas.message m JOIN sas.runs r USING (run_id) LEFT JOIN sas.steps s ON s.run_id = m.run_id AND s.state = 'suspended'
	WHERE r.key = 'held' AND m.due_at > CASE m.kind WHEN 'timer' THEN s.waiting_until ELSE r.deadline END AND (m.kind = 'timer' OR r.workflow = 'late')};
ok(wait_for($node, "SELECT count(*) FROM ($deferred) x (x) WHERE x LIKE '% %'", '1'), 'a timer and a deadline of runs that a session has locked are deferred');
$clock->set_strikes(ahead => -3600);
my $before = $node->safe_psql('postgres', $deferred);
$session->query('COMMIT');
ok(wait_for($node, "SELECT x IS DISTINCT FROM '$before' FROM ($deferred) x (x)"), 'they are looked at when the session lets go, with the clock set back');
$clock->set_strikes(ahead => 0);
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE key = 'held' AND state <> 'stopped'}, '0'), 'and none is lost');

$node->safe_psql('postgres', q{SELECT sas.unschedule('often')});
$session->query(q{BEGIN; SELECT count(*) FROM sas.watch('turns', 'early') w});
my $begun = $node->safe_psql('postgres', q{SELECT clock_timestamp()});
# the supervisor announces what comes due, and after two seconds again: later its looks only nudge
my $ticks = q{SELECT max(last_activity_at) FROM sas.workers WHERE actor = 'supervisor'};
ok(wait_for($node, "SELECT ($ticks) > timestamptz '$begun' + interval '2 s'"), 'a task begins in a transaction that lasts');
my $tick = $node->safe_psql('postgres', $ticks);
wait_for($node, "SELECT ($ticks) > timestamptz '$tick'");
my $goes_on = hold_supervisor($node);
$clock->set_strikes(ahead => -60);
$session->query('COMMIT');
$node->safe_psql('postgres', q{SELECT sas.watch('turns', 'later')});
my $hosted = q{SELECT string_agg(key, ' ' ORDER BY key) FROM sas.watches WHERE watcher = 'turns' AND state = 'processing'};
ok(wait_for($node, $hosted, 'k later'), 'and waits, because the clock is set back: a later one goes on');
$clock->set_strikes(ahead => 0);
$goes_on->();
ok(wait_for($node, $hosted, 'early k later'), 'until its time comes again');
done_testing();
