# SPDX-License-Identifier: PostgreSQL
#
# Polls over real HTTP: a job on a service is begun once, and asked about until it is over,
# whatever happens to the workers and the server meanwhile.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
make_agent($node, 'remote', $service);

sub define_job
{
	my ($name, %poll) = @_;
	return define($node, $name, { steps => {
		job => { agent => 'remote', call => { method => 'POST', path => "/${name}_jobs" },
			poll => { call => { path => "/${name}/{{started.body.id}}" }, until => '$.output.body.state == "done"', %poll },
			undo => { call => { method => 'DELETE', path => "/${name}_undo/{{steps.job.started.body.id}}" } } } },
		output => '{{steps.job.output.body}}', recovery => { max_failures => 100, initial => '50 ms', max => '50 ms' } });
}

my $begun = { status => 202, json => { id => 7 } };
my $busy = { json => { state => 'busy', done => 0.4 } };
my $done = { json => { state => 'done', url => '/report' } };

# -- one that goes well ----------------------------------------------------------------

define_job('plain', every => '200 ms', progress => '{{output.body.done}}');
$service->script(plain_jobs => [$begun], plain => [ $busy, $busy, { gate => 1, %$done } ]);
my $id = submit($node, 'plain', {});
ok($service->wait_for_requests('plain', 3), 'a job that was begun is asked about');
is($node->safe_psql('postgres', "SELECT progress FROM sas.steps WHERE run_id = $id"), '0.4', 'what it says of its progress is shown');
$service->release;
my $run = run_of($node, $id);
is("$run->{result} $run->{output}{url}", 'success /report', 'until it is over');
my @begun = $service->requests('plain_jobs');
my @asked = $service->requests('plain');
is(scalar @begun, 1, 'it was begun once');
is(header_of($begun[0], 'idempotency-key'), $run->{steps}{job}{idempotency_key}, 'under the key of the step');
is(join(' ', map { "$_->{method} $_->{target}" } @asked), join(' ', ('GET /plain/7') x 3), 'and asked about as its reply said');
is(join('', map { header_of($_, 'idempotency-key') // '' } @asked), '', 'without a key');
my @pauses = map { $asked[$_]{at} - ($_ ? $asked[ $_ - 1 ]{ended} : $begun[0]{ended}) } 0 .. 2;
ok($pauses[0] >= 0.2 && $pauses[1] >= 0.4 && $pauses[2] >= 0.8, 'in pauses that double') or diag("@pauses");
note("pauses of @pauses s, asked for: 0.2 0.4 0.8");

# -- asks that fail, workers and servers that die ----------------------------------------

define_job('rough', every => '20 ms', max_every => '50 ms');
$service->script(rough_jobs => [$begun], rough => [ { status => 503 }, { how => 'half' }, $busy, { how => 'reset' }, { gate => 1, %$busy }, $busy, $done ]);
$id = submit($node, 'rough', {});
$service->wait_for_requests('rough', 5);
kill_server($node, 'agent');
$service->release;
$run = run_of($node, $id);
is("$run->{result} $run->{output}{url}", 'success /report', 'asks that fail, and a server that falls with a worker while it asks, cost nothing');
is(scalar $service->requests('rough_jobs'), 1, 'it was begun once all the same');
is($run->{steps}{job}{in_doubt}, 0, 'and nothing is in doubt');

define_job('long', every => '6 s', timeout => '1 hour');
$service->script(long_jobs => [$begun], long => [$done]);
$id = submit($node, 'long', {});
ok(wait_for($node, "SELECT state || ' ' || waiting_kind FROM sas.steps WHERE run_id = $id", 'suspended poll'), 'between two asks it is suspended');
$node->stop('immediate');
$node->start;
$run = run_of($node, $id);
is("$run->{result} " . scalar($service->requests('long_jobs')) . ' ' . scalar($service->requests('long')), 'success 1 1', 'a crash between two asks does not lose it');

# -- what cannot go on ----------------------------------------------------------------

define_job('endless', every => '100 ms', max_every => '100 ms', timeout => '1 s');
$service->script(endless_jobs => [$begun], endless => [$busy]);
my $before = time;
$run = run_of($node, submit($node, 'endless', {}));
my $took = time - $before;
is("$run->{result} $run->{error}{title}", 'compensated it did not finish in time', 'a poll that is not over in time has failed, and is undone');
ok($took > 1 && $took < 60, 'when its time is over') or diag($took);
is(join(' ', map { $_->{target} } $service->requests('endless_undo')), '/endless_undo/7', 'with what its call has begun');

define_job('stopped', every => '1 h');
$service->script(stopped_jobs => [$begun]);
$id = submit($node, 'stopped', {});
wait_for($node, "SELECT coalesce(waiting_kind, '') FROM sas.steps WHERE run_id = $id", 'poll');
$node->safe_psql('postgres', "SELECT sas.cancel($id, 'enough')");
$run = run_of($node, $id);
is("$run->{result} $run->{steps}{job}{state}", 'cancelled compensated', 'one that is cancelled is undone');
is(scalar $service->requests('stopped_undo'), 1, 'once');

# -- undos that poll ----------------------------------------------------------------

define($node, 'machine', { steps => {
	make => { agent => 'remote', call => { method => 'POST', path => '/machine' },
		undo => { call => { method => 'DELETE', path => '/machine_undo/{{steps.make.output.body.id}}' },
			poll => { call => { path => '/{{started.body.ask}}/{{steps.make.output.body.id}}' }, every => '20 ms', max_every => '50 ms', until => '$.output.status == 404 || $.output.body.state == "done"' } } },
	use => { agent => 'remote', call => { path => '/machine_use' }, after => ['make'] } },
	recovery => { max_failures => 100, initial => '50 ms', max => '50 ms' } });
my $removing = sub { return (machine => [$begun], machine_use => [ { status => 400 } ], machine_undo => [ { status => 202, json => { ask => $_[0] } } ]) };
$service->script($removing->('gone'), gone => [ $busy, { status => 503 }, { how => 'half' }, { gate => 1, %$busy }, $busy, { status => 404 } ]);
$id = submit($node, 'machine', {});
ok($service->wait_for_requests('gone', 4), 'an undo that was begun is asked about');
kill_server($node, 'agent');
$service->release;
$run = run_of($node, $id);
is("$run->{result} $run->{steps}{make}{state}", 'compensated compensated', 'until what it removes is gone, whatever happens to the worker');
is(join(' ', map { "$_->{method} $_->{target}" } $service->requests('machine_undo')), 'DELETE /machine_undo/7', 'it was begun once');
@asked = $service->requests('gone');
is(join(' ', map { header_of($_, 'idempotency-key') // '' } @asked) =~ /\S/ ? 'keys' : 'no key', 'no key', 'and asked about without a key');
is($node->safe_psql('postgres', "SELECT string_agg(concat_ws(' ', step, undo, status, http_status), ', ' ORDER BY undo, started_at, attempt) FILTER (WHERE status = 'succeeded') FROM sas.attempts WHERE run_id = $id"),
	'make f succeeded 202, make t succeeded 202', 'the books have its call once');

$node->safe_psql('postgres', q{CREATE FUNCTION around(c jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb'; SELECT sas.create_middleware('around', 'call', 'around(jsonb)', 'around(jsonb)')});
$service->script($removing->('wrapped'), wrapped => [ $busy, $done ]);
$run = run_of($node, submit($node, 'machine', {}));
is("$run->{result} " . scalar $service->requests('wrapped'), 'compensated 2', 'middleware stands around its call, and around no status request');
done_testing();
