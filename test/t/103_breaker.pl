# SPDX-License-Identifier: PostgreSQL
#
# The circuit breaker: closed, open, half-open with one probe.
# Takes about 140 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
my $once = '{"max_attempts": 1}';

make_agent($node, 'other', $service);
define($node, 'beside', { steps => { it => { agent => 'other', call => { path => '/beside' } } } });
sub let_time_pass { run_of($node, submit($node, 'beside', {})) foreach 1 .. 3; return }

sub define_call
{
	my ($name, $agent) = @_;
	return define($node, $name, { steps => { it => { agent => $agent, call => { method => 'POST', path => "/$name" } } },
		recovery => { max_failures => 100, initial => '20 ms', max => '20 ms' } });
}

sub submit_many
{
	my ($workflow, $quantity) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM sas.submit_batch('$workflow', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, $quantity)))");
}

sub breaker { my ($agent) = @_; return $node->safe_psql('postgres', "SELECT breaker FROM sas.agents WHERE name = '$agent'") }
sub counts
{
	my ($workflow) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT sum(s.attempt) || ' ' || sum(s.failure_count) FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = '$workflow'});
}

my $listener = SasSession->new($node);
$listener->query('LISTEN sas_alert');

# -- closed to open --------------------------------------------------------------------

make_agent($node, 'fuse', $service, max_in_flight => 1, retry => $once, breaker => '{"failures": 5, "window": "1 min", "open_for": "30 s"}');
define_call('down', 'fuse');
$service->script(down => [ ({ status => 500 }) x 5, ({ gate => 1, status => 500 }), { gate => 1 }, {} ]);
is(breaker('fuse'), 'closed', 'a breaker is closed at first');
submit_many('down', 8);
ok(wait_for($node, q{SELECT breaker || ' ' || (open_until > now()) FROM sas.agents WHERE name = 'fuse'}, 'open true'),
	'failures in a row open it, and sas.agents shows until when');
is(scalar $service->requests('down'), 5, 'exactly as many as its setting says');
is($node->safe_psql('postgres', q{SELECT (last_error ->> 'status') FROM sas.agents WHERE name = 'fuse'}), '500', 'sas.agents shows the last error');
let_time_pass();
is(scalar $service->requests('down'), 5, 'no call goes out while it is open');
is(counts('down'), '5 5', 'and those that wait before it have no attempt and no failure');
is($node->safe_psql('postgres', q{SELECT kind || ' ' || agent || ' ' || occurrences FROM sas.alerts}), 'breaker-open fuse 1', 'there is one alert');
my $heard = '';
ok(wait_until(sub { ($heard .= $listener->query('SELECT')) =~ /notification "sas_alert".*"breaker-open"/ }), 'and NOTIFY sas_alert tells of it');
is($node->safe_psql('postgres', 'SELECT breakers_open FROM sas.health()'), '1', 'and sas.health counts it');

# -- half-open -----------------------------------------------------------------------

$node->safe_psql('postgres', q{SELECT sas.alter_agent('fuse', max_in_flight => 10)});
ok($service->wait_for_requests('down', 6), 'when its time is over a call goes out');
is(breaker('fuse'), 'half-open', 'it is half-open then');
let_time_pass();
is(scalar $service->requests('down'), 6, 'with exactly one probe, though there are places and workers for more');
$service->release;
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'fuse'}, 'open'), 'a probe that fails opens it again');
let_time_pass();
is(scalar $service->requests('down'), 6, 'and again no call goes out');
is(counts('down'), '6 6', 'only the probe has counted');
is($node->safe_psql('postgres', q{SELECT kind || ' ' || agent || ' ' || occurrences FROM sas.alerts}), 'breaker-open fuse 2',
	'the alert of the same cause counts on instead of coming twice');
$service->wait_for_requests('down', 7);
is(breaker('fuse'), 'half-open', 'the next probe');
$service->release;
all_ended($node, 'succeeds, and with it all that waited are served');
is(breaker('fuse'), 'closed', 'and the breaker is closed');
is(scalar $service->requests('down'), 6 + 8, 'each run was served once beside the six failures');

# -- what counts ---------------------------------------------------------------------

make_agent($node, 'row', $service, max_in_flight => 1, retry => $once, breaker => '{"failures": 3, "window": "10 min", "open_for": "1 h"}');
define_call('in_a_row', 'row');
$service->script(in_a_row => [ map { ({ status => 500 }, { status => 502 }, {}) } 1 .. 6 ]);
submit_many('in_a_row', 6);
all_ended($node, 'twelve failures with successes between them');
is(breaker('row'), 'closed', 'do not open a breaker of three: only failures in a row do');
foreach my $status (404, 400, 429)
{
	$service->script("said_$status" => [ { status => $status } ]);
	run_call($node, 'row', { path => "/said_$status" }) foreach 1 .. 4;
}
is(breaker('row'), 'closed', 'an answer that refuses is an answer: 400, 404 and 429 do not open it');
$service->script(silent => [ { how => 'silent' } ]);
define($node, 'silent', { steps => { it => { agent => 'row', call => { path => '/silent' }, complete_in => '300 ms' } },
	recovery => { max_failures => 100, initial => '20 ms', max => '20 ms' } });
my $silent = submit($node, 'silent', {});
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'row'}, 'open'), 'a service that never answers within complete-by does open it');
ok(wait_for($node, "SELECT failure_count FROM sas.steps WHERE run_id = $silent", '3'), 'after three windows');
$node->safe_psql('postgres', "SELECT sas.cancel($silent, 'enough')");
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $silent", 'stopped cancelled'),
	'a run that waits before an open breaker can be cancelled');

my $dead = SasService->new;
my $port = $dead->{port};
$dead->stop;
make_agent($node, 'nobody', "http://127.0.0.1:$port", max_in_flight => 1, retry => '{"max_attempts": 50, "initial": "10 ms", "max": "10 ms"}',
	breaker => '{"failures": 4, "open_for": "30 s"}');
define_call('gone', 'nobody');
submit_many('gone', 1);
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'nobody'}, 'open'), 'no connection opens it, in the middle of a window\'s retries');
ok(wait_for($node, q{SELECT s.state || ' ' || s.attempt || ' ' || s.failure_count FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'gone'},
		'ready 4 0'), 'and the step goes back before the door, its window uncounted');
my $back = SasService->new(port => $port);
ok(wait_for($node, q{SELECT state || ' ' || result FROM sas.runs WHERE workflow = 'gone'}, 'stopped success'), 'when the service is back the step is served');

# -- restarts ------------------------------------------------------------------------

submit_many('in_a_row', 3);
kill_worker($node, 'agent', 'TERM') foreach 1 .. 2;
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, '2');
my $before = $service->requests('in_a_row');
let_time_pass();
is(breaker('row'), 'open', 'an open breaker outlives the workers');
$node->restart;
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, '2');
let_time_pass();
is(breaker('row'), 'open', 'and the server');
is(scalar $service->requests('in_a_row'), $before, 'no call has gone out');
$service->script(in_a_row => [ { gate => 1 }, {} ]);
my $operator = SasSession->new($node);
$operator->query(q{BEGIN; SELECT sas.reset_agent('row')});
is(breaker('row'), 'open', 'sas.reset_agent counts when it commits, which is when the workers are told');
$operator->query('ROLLBACK');
$operator->query(q{BEGIN; SAVEPOINT s; SELECT sas.reset_agent('row'); ROLLBACK TO s; COMMIT});
is(breaker('row'), 'open', 'and not when it is rolled back, alone or with its transaction');
$operator->quit;
$node->safe_psql('postgres', q{SELECT sas.reset_agent('row')});
ok($service->wait_for_requests('in_a_row', $before + 1), 'sas.reset_agent lets a probe out at once');
let_time_pass();
is(breaker('row'), 'half-open', 'half-open');
is(scalar $service->requests('in_a_row'), $before + 1, 'and just one');
$service->release;
all_ended($node, 'which closes it for all');
is(breaker('row'), 'closed', 'as sas.agents says');

# -- mended while a probe hangs ------------------------------------------------------

make_agent($node, 'hangs', $service, max_in_flight => 10, request_timeout => '40 s', retry => '{"max_attempts": 2, "initial": "1 ms"}', breaker => '{"failures": 1, "open_for": "100 ms"}');
$service->script(hung => [ { status => 500 }, { how => 'silent' }, {} ]);
define_call('hung', 'hangs');
submit_many('hung', 1);
ok($service->wait_for_requests('hung', 2), 'a probe goes out to a service that takes it and says nothing');
submit_many('hung', 5);
let_time_pass();
is(breaker('hangs') . ' ' . $service->requests('hung'), 'half-open 2', 'nobody else gets through meanwhile');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('hangs', breaker => '{"failures": 1, "open_for": "1 h"}')});
$node->safe_psql('postgres', q{SELECT sas.reset_agent('hangs')});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'hung' AND result = 'success'}, '5'), 'sas.reset_agent does not wait for it: a new probe goes out, and closes the breaker for all');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'hung' AND state <> 'stopped'}), '1', 'but the one that hangs');
all_ended($node, 'its time-out, of a call from before, opens the breaker for nobody, itself included');
is(breaker('hangs'), 'closed', 'it is closed');

make_agent($node, 'without', $service, retry => $once, breaker => '{"off": true}');
$service->script(without => [ ({ status => 500 }) x 30, {} ]);
define_call('without', 'without');
submit_many('without', 1);
all_ended($node, 'a breaker that is off never opens: the thirty-first call is made');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.alerts WHERE agent = 'without'}), '0', 'without an alert');

# the owner that opened it is the one that no probe lets in
make_agent($node, 'freed', $service, retry => $once, breaker => '{"failures": 1, "open_for": "10 min"}');
$service->script(freed => [ { status => 500 }, {} ]);
define_call('freed', 'freed');
submit_many('freed', 1);
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'freed'}, 'open'), 'a breaker that is open');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('freed', breaker => '{"off": true}')});
submit_many('freed', 1);
all_ended($node, 'is closed when it is switched off');

# -- held by somebody ------------------------------------------------------------------

make_agent($node, 'noted', $service, retry => $once, breaker => '{"failures": 2, "open_for": "10 min"}');
define_call('noted', 'noted');
$service->script(noted => [ { status => 500 } ]);
my $holder = SasSession->new($node);
$holder->query(q{BEGIN; SELECT FROM _sas.agent_health JOIN _sas.agent USING (agent_id) WHERE name = 'noted' FOR UPDATE OF agent_health});
submit_many('noted', 2);
$service->wait_for_requests('noted', 2);
let_time_pass();
$holder->query('COMMIT');
ok(wait_for($node, q{SELECT h.breaker || ' ' || (h.last_error ->> 'status') FROM _sas.agent_health h JOIN _sas.agent USING (agent_id) WHERE name = 'noted'}, 'open 500'),
	'what a worker has to note of an agent is not forgotten when somebody else is at it');
done_testing();
