# SPDX-License-Identifier: PostgreSQL
#
# Limits of agents hold for all workers together; waiting before a closed door
# costs nothing; and what is changed of an agent holds at once.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

# few slots, so that no worker can take all places by itself
my $node = new_node('main', 'sas.agents' => 2, 'sas.agent_slots' => 4);
my $service = SasService->new;
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, '2');

# a workflow of one call to a script, and many runs of it in one transaction
sub define_call
{
	my ($name, $agent, %more) = @_;
	$service->script($name => delete $more{script}) if $more{script};
	return define($node, $name, {
		steps => { it => { agent => $agent, call => { method => 'POST', path => "/$name/{{input.n}}" } } },
		recovery => { max_failures => 20, initial => '50 ms', max => '50 ms' }, %more });
}

sub submit_many
{
	my ($workflow, $quantity) = @_;
	return $node->safe_psql('postgres',
		"SELECT count(*) FROM sas.submit_batch('$workflow', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, $quantity) n))");
}

# runs of another agent end meanwhile: whatever else could have gone out has gone out
make_agent($node, 'other', $service);
define_call('beside', 'other');
sub let_time_pass
{
	foreach (1 .. 3)
	{
		run_of($node, submit($node, 'beside', { n => $_ }));
	}
	return;
}

# -- max_in_flight -------------------------------------------------------------------

make_agent($node, 'six', $service, max_in_flight => 6);
define_call('places', 'six', script => [ { gate => 1 } ]);
submit_many('places', 30);
$service->wait_for_requests('places', 6);
is($node->safe_psql('postgres', q{SELECT string_agg(in_flight::text, ' ' ORDER BY in_flight) FROM sas.workers WHERE actor = 'agent'}),
	'3 3', 'two workers share the places of one agent');
is($node->safe_psql('postgres', q{SELECT in_flight || ' of ' || max_in_flight || ', ' || waiting || ' wait' FROM sas.agents WHERE name = 'six'}),
	'6 of 6, 24 wait', 'sas.agents shows how many are taken and how many wait');
let_time_pass();
is(scalar $service->requests('places'), 6, 'and no further call goes out while all are taken');
is($node->safe_psql('postgres', q{
		SELECT string_agg(DISTINCT concat_ws(' ', s.state, s.attempt, s.failure_count, s.complete_by), ', ')
		FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'places' AND s.locked_by IS NULL}),
	'ready 0 0', 'a step that waits for a place burns no attempt, counts no failure and opens no window');
$service->script(places => [ { delay => 0.02 } ]);
$service->release;
all_ended($node, 'places that become free are taken by those that wait');
is($service->figures->{most}{places}, 6, 'the service has never seen more calls at once than allowed, and as many');

# -- calls with the same key -----------------------------------------------------------

make_agent($node, 'tenants', $service, request_timeout => '10 min', options => '{"concurrency": {"key": "{{input.tenant}}", "per_key": 2}}');
$service->script("tenant_$_" => [ { gate => 1 } ]) foreach 1 .. 3;
define($node, 'keyed', { steps => { it => { agent => 'tenants', call => { method => 'POST', path => '/{{input.tenant}}/{{input.n}}' }, complete_in => '20 min' } } });
$node->safe_psql('postgres', q{SELECT count(*) FROM sas.submit_batch('keyed', ARRAY(SELECT jsonb_build_object('n', n, 'tenant', 'tenant_' || CASE WHEN n <= 20 THEN 1 ELSE n % 2 + 2 END) FROM generate_series(1, 40) n))});
$service->wait_for_requests("tenant_$_", 2) foreach 1 .. 3;
is($node->safe_psql('postgres', q{SELECT in_flight || ', ' || waiting || ' wait' FROM sas.agents WHERE name = 'tenants'}), '6, 34 wait', 'whoever asks first for much leaves room for others');
let_time_pass();
is(join(' ', map { scalar $service->requests("tenant_$_") } 1 .. 3), '2 2 2', 'and no further call of one key goes out while its places are taken')
  or diag(explain([ map { [ map { "$_->{path} $_->{at}" } $service->requests("tenant_$_") ] } 1 .. 3 ]));
$service->script("tenant_$_" => [ { delay => 0.02 }, { status => 503 }, {} ]) foreach 1 .. 3;
$service->release;
wait_for($node, q{SELECT count(*) > 5 FROM sas.runs WHERE workflow = 'keyed' AND result = 'success'});
my $boot = $node->safe_psql('postgres', 'SELECT _sas.current_boot()');
kill_worker($node, 'agent', 'KILL');
ok(wait_for($node, "SELECT _sas.current_boot() <> $boot"), 'the server restarts after kill -9 of an agent worker');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('tenants', options => '{"concurrency": {"key": "{{input.tenant}}", "per_key": 1}}')});
all_ended($node, 'those that wait for a place under their key get it');
is(join(' ', map { $service->figures->{most}{"tenant_$_"} } 1 .. 3), '2 2 2', 'the service has never seen more calls of one key at once than allowed, and as many');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM _sas.queue_slot) + (SELECT count(*) FROM _sas.parked_step)'), '0', 'all places were given back');

# -- rate_limit ----------------------------------------------------------------------

make_agent($node, 'paced', $service, rate_limit => '20/s', max_in_flight => 2, retry => '{"initial": "1 ms", "max_attempts": 20}');
define_call('rate', 'paced', script => [ map { ({ status => 503 }, {}, {}) } 1 .. 40 ]);
submit_many('rate', 40);
all_ended($node, 'runs of an agent with a rate end');
my @at = sort { $a <=> $b } map { $_->{at} } $service->requests('rate');
cmp_ok(scalar @at, '>', 40, 'some calls were retried');
my ($worst, $where) = (0, '');
foreach my $from (0 .. $#at)
{
	foreach my $to ($from + 10 .. $#at)
	{
		# two may go at once, and two may have been on their way already, however long that took
		my $over = $to - $from + 1 - (2 + 2 + 20 * ($at[$to] - $at[$from]));
		($worst, $where) = ($over, "$from to $to") if $over > $worst;
	}
}
cmp_ok($worst, '<=', 0, 'the service has at no time seen more calls than the rate allows, retries included') or diag($where);
is($node->safe_psql('postgres', q{SELECT max(failure_count) FROM sas.steps JOIN sas.runs USING (run_id) WHERE workflow = 'rate'}),
	'0', 'and waiting for the rate was no failure');

# -- urgent work ---------------------------------------------------------------------

make_agent($node, 'single', $service, max_in_flight => 1);
define_call('urgent', 'single', script => [ { gate => 1 }, {} ]);
submit($node, 'urgent', { n => 'first' });
$service->wait_for_requests('urgent', 1);
submit($node, 'urgent', { n => "normal_$_" }) foreach 1 .. 3;
submit($node, 'urgent', { n => 'low' }, priority => -1);
submit($node, 'urgent', { n => 'later' });
submit($node, 'urgent', { n => 'urgent' }, priority => 2);
submit($node, 'urgent', { n => 'raised' }, priority => 1);
$service->release;
all_ended($node, 'all are served');
is(join(' ', map { $_->{target} =~ s{.*/}{}r } $service->requests('urgent')),
	'first urgent raised normal_1 normal_2 normal_3 later low', 'urgent work overtakes, and equals are served in order of submission');

# -- a rest does not cost the place in the line ---------------------------------------

make_agent($node, 'resting', $service, max_in_flight => 1, retry => '{"initial": "1200 ms", "jitter": false, "max_attempts": 2}');
define($node, 'rested', { steps => { it => { agent => 'resting', call => { method => 'POST', path => '/rested' } } },
	recovery => { max_failures => 1 }, on_failure => 'fail' });
$service->script(rested => [ { status => 503 }, {} ]);
define_call('crowd', 'resting', script => [ { delay => 0.05 } ]);
my $rested = submit($node, 'rested', {});
$service->wait_for_requests('rested', 1);
submit_many('crowd', 150);
my $run = run_of($node, $rested);
is("$run->{result} $run->{steps}{it}{failure_count}", 'success 0', 'a call that rested before its retry is made');
all_ended($node, 'and so are a hundred and fifty that have come meanwhile');
cmp_ok(($service->requests('rested'))[1]{at}, '<', ($service->requests('crowd'))[-1]{at}, 'it is not kept out by steps that have not begun');

# -- alter_agent ---------------------------------------------------------------------

my @workers = worker_pids($node, 'agent');
my $second = SasService->new;
make_agent($node, 'changing', $service, max_in_flight => 1, headers => '{"X-Version": "one"}');
define_call('change', 'changing', script => [ { gate => 1 } ]);
submit_many('change', 8);
$service->wait_for_requests('change', 1);
$node->safe_psql('postgres', q{SELECT sas.alter_agent('changing', max_in_flight => 5)});
ok($service->wait_for_requests('change', 5), 'a raised max_in_flight holds at once, without a reply that would wake anybody');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('changing', max_in_flight => 2, headers => '{"X-Version": "two"}')});
$service->script(change => [ { delay => 0.1 } ]);
$service->release;
all_ended($node, 'and a lowered one does not disturb what is on its way');
is(join(' ', map { header_of($_, 'x-version') } $service->requests('change')), 'one one one one one two two two', 'changed headers are sent from then on');
my @last = ($service->requests('change'))[ 5 .. 7 ];
ok($last[2]{at} >= $last[0]{ended} || $last[2]{at} >= $last[1]{ended}, 'and no more calls at once than the lowered limit');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('changing', base_url => '} . $second->url('/moved/') . q{')});
run_of($node, submit($node, 'change', { n => 'x' }));
is(($second->requests)[0]{target}, '/moved/change/x', 'a changed base_url is called from then on, its path before that of the step');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('changing', request_timeout => '200 ms', retry => '{"max_attempts": 1}')});
$second->script(moved => [ { gate => 1 } ]);
$run = run_of($node, submit($node, define_call('brief', 'changing', recovery => { max_failures => 1 }, on_failure => 'fail'), { n => 1 }));
is("$run->{result} $run->{error}{detail}", 'error no answer in time', 'so does a changed request_timeout');
$second->release;

# -- enabled -------------------------------------------------------------------------

$node->safe_psql('postgres', q{SELECT sas.alter_agent('single', enabled => false)});
define_call('disabled', 'single', script => [ {} ]);
submit_many('disabled', 5);
let_time_pass();
is(scalar $service->requests('disabled'), 0, 'a disabled agent is not called');
is($node->safe_psql('postgres', q{
		SELECT string_agg(DISTINCT concat_ws(' ', s.state, s.attempt, s.failure_count), ', ') FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'disabled'}),
	'ready 0 0', 'and its steps wait without an attempt or a failure');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('single', enabled => true)});
all_ended($node, 'enabled again, it releases them');
is(scalar $service->requests('disabled'), 5, 'each once');
is(join(' ', worker_pids($node, 'agent')), "@workers", 'all this without a restart of a worker');

# -- drop_agent ----------------------------------------------------------------------

my ($status, $out, $err) = $node->psql('postgres', q{\set VERBOSITY verbose
	SELECT sas.drop_agent('single')});
like($err, qr/2BP01: agent "single" is in use/, 'an agent that a workflow uses is not dropped');
$service->script(urgent => [ { gate => 1 } ]);
my $open = submit($node, 'urgent', { n => 'open' });
$service->wait_for_requests('urgent', 9);
$node->safe_psql('postgres', q{SELECT sas.drop_workflow('disabled')});
define($node, 'urgent', { steps => {} });
($status, $out, $err) = $node->psql('postgres', q{SELECT sas.drop_agent('single')});
like($err, qr/agent "single" is in use/, 'nor one that an open run uses');
$service->release;
is(run_of($node, $open)->{result}, 'success', 'which ends');
$node->safe_psql('postgres', q{SELECT sas.drop_agent('single')});
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.agents WHERE name = 'single'}), '0', 'then it is dropped');
make_agent($node, 'single', $second);
is(run_call($node, 'single', { path => '/again' })->{result}, 'success', 'and another can have its name');
is(scalar $second->requests('again'), 1, 'which is called at its own address');
done_testing();
