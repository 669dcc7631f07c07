# SPDX-License-Identifier: PostgreSQL
#
# What an operator can still do with a run that did not go as it should, over real HTTP: a step that failed for good
# holds up no other branch; the application hears of the pause; a step that was skipped is called later; a remote job
# that is gone is begun again under a new key.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
make_agent($node, 'shop', $service);
sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }
sub call { my ($path, %more) = @_; return { agent => 'shop', call => { method => 'POST', path => $path }, %more } }

# -- a branch that fails beside one that goes on -----------------------------------------------------

define($node, 'two_ways', { steps => {
	left => call('/left', on_failure => 'pause'), behind => call('/behind', after => ['left']),
	right => call('/right'), last => call('/last', after => ['right']) } });
$service->script(left => [ { status => 410 }, { json => 1 } ], right => [ { gate => 1, json => 1 } ], last => [ { json => 1 } ], behind => [ { json => 1 } ]);
my $id = sql(q{SELECT run_id FROM sas.submit('two_ways', key => 'k', reply_to => 'app')});
ok(wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $id AND step = 'left'", 'failed'), 'a step fails for good');
is(sql("SELECT state FROM sas.runs WHERE run_id = $id"), 'running', 'while another branch is on its way, the run is not paused');
$service->release;
ok($service->wait_for_requests('last', 1), 'that branch goes on to its end');
is(run_of($node, $id)->{state}, 'paused', 'then the run is paused');
is(scalar $service->requests('behind'), 0, 'what depends on the failed step has not begun');
is(sql(q{SELECT string_agg(event || ' ' || coalesce(error ->> 'status', 'none'), ', ') FROM sas.read_replies('app', 10)}), 'accepted none, paused 410',
	'the reply queue tells of the pause, with its cause');
sql("SELECT sas.resume($id)");
is(run_of($node, $id)->{result}, 'success', 'resumed it ends');
is(sql(q{SELECT string_agg(event, ', ') FROM sas.read_replies('app', 10)}), 'completed', 'and the reply queue tells of that');
is(join(' ', map { scalar $service->requests($_) } qw(left right behind last)), '2 1 1 1', 'only what had failed was called again');

# -- a skipped step, later ------------------------------------------------------------------------------

define($node, 'mail_later', { steps => { pay => call('/pay'), mail => call('/mail', after => ['pay'], on_failure => 'skip'),
	note => { agent => 'shop', call => { method => 'POST', path => '/note', body => { mail => '{{steps.mail.output.body.id}}' } } },
	parcel => { wait => { signal => 'sent' }, after => ['pay'] } } });
$service->script(pay => [ { json => 1 } ], mail => [ { status => 410 }, { json => { id => 'm1' } } ], note => [ { json => 1 } ]);
$id = submit($node, 'mail_later', {});
ok(wait_for($node, "SELECT string_agg(state, ' ' ORDER BY step) FROM sas.steps WHERE run_id = $id AND step IN ('mail', 'note')", 'skipped skipped'), 'a step is skipped by its rule, with what needs it');
is(sql("SELECT changed FROM sas.retry($id, 'mail')"), 't', 'it is run later');
ok($service->wait_for_requests('note', 1), 'and what needs its output after it');
is(($service->requests('note'))[0]{body}, '{"mail": "m1"}', 'with that output');
sql("SELECT sas.signal($id, 'sent')");
my $run = run_of($node, $id);
is("$run->{result} " . ($run->{error} // 'without error'), 'success without error', 'the run ends as if nothing had been skipped');

# -- a remote job that is gone ------------------------------------------------------------------------------

define($node, 'film', { steps => { render => call('/jobs', on_failure => 'pause',
	poll => { call => { path => '/state/{{started.body.id}}' }, until => '$.output.body.state == "done"', every => '20 ms' },
	undo => { call => { method => 'DELETE', path => '/jobs/{{steps.render.started.body.id}}' } }) } });
$service->script(jobs => [ { json => { id => 1 } }, { json => { id => 2 } } ], state => [ { json => { state => 'works' } }, { status => 404 } ]);
$id = submit($node, 'film', {});
$run = run_of($node, $id);
is("$run->{state} $run->{error}{status}", 'paused 404', 'the service does not know its job any more');
$service->script(state => [ { json => { state => 'done' } } ]);
is(sql("SELECT changed FROM sas.retry($id, 'render', new_key => true)"), 't', 'the job is begun again');
is(run_of($node, $id)->{result}, 'success', 'and ends');
my @jobs = $service->requests('jobs');
is(scalar @jobs, 2, 'there were two jobs');
isnt(header_of($jobs[0], 'idempotency-key'), header_of($jobs[1], 'idempotency-key'), 'under two keys');
is(($service->requests('state'))[-1]{target}, '/state/2', 'the second is the one that is asked about');
done_testing();
