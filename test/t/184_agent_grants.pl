# SPDX-License-Identifier: PostgreSQL
#
# What a role may ask of an agent ends with sas.revoke_agent: what has not begun is not sent, and its run ends;
# what has begun is carried to its end. Tasks of outside agents and infinite tasks, too.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;
make_agent($node, 'remote', $service, max_in_flight => 1);
make_agent($node, 'wide', $service);
$node->safe_psql('postgres', q{
	CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE packing LOGIN;
	CREATE TABLE public.item (item jsonb); GRANT INSERT ON public.item TO ann;
	SELECT sas.grant_usage('ann', 'user'), sas.grant_usage('bob', 'user');
	SELECT sas.create_agent('packer', kind => 'external'), sas.grant_usage('packing', 'worker', agent => 'packer')});

sub grant { my ($agent, $limits) = @_; $node->safe_psql('postgres', "SELECT sas.grant_agent('$agent', 'ann'" . ($limits // '') . ')'); return }
sub revoke { my ($agent) = @_; $node->safe_psql('postgres', "SELECT sas.revoke_agent('$agent', 'ann')"); return }
sub as_ann { my ($sql) = @_; return $node->safe_psql('postgres', $sql, extra_params => [ '-U', 'ann' ]) }
sub begin { my ($workflow) = @_; return as_ann("SELECT run_id FROM sas.submit('$workflow')") }
my $refused = 'urn:sas:sqlstate:42501: permission denied for agent';
sub why { my ($run, $step) = @_; my $e = $run->{steps}{$step}{error}; return $e ? "$e->{type}: $e->{title}" : 'none' }

# -- calls that wait -------------------------------------------------------------------------------

grant($_) foreach qw(remote wide packer);
define($node, 'slow', { steps => { a => { agent => 'remote', call => { path => '/slow' } } } });
$service->script(slow => [ { gate => JSON::PP::true(), json => {} }, { json => {} } ]);
my @runs = map { begin('slow') } 1 .. 4;
ok($service->wait_for_requests('slow', 1), 'one call is on its way, others wait for its slot');
revoke('remote');
$service->release;
my @ends = map { run_of($node, $_) } @runs;
is(scalar(grep { $_->{result} eq 'success' } @ends), 1, 'the call that was on its way counts');
my @others = grep { $_->{result} ne 'success' } @ends;
is(join(' ', map { $_->{result} } @others), 'error error error', 'the others end');
like(why($others[0], 'a'), qr/^\Q$refused\E "remote"$/, 'with the reason');
like($others[0]{steps}{a}{error}{hint}, qr/SELECT sas.grant_agent\('remote', 'ann'\)/, 'and what to do');
like(as_ann("SELECT text FROM sas.explain($others[0]{run_id}) LIMIT 1"), qr/permission denied for agent "remote"/, 'sas.explain says it');
is(scalar($service->requests('slow')), 1, 'nothing of them was sent');
my ($status, undef, $error) = $node->psql('postgres', "SELECT sas.submit('slow')", extra_params => [ '-U', 'ann' ]);
like($error, qr/permission denied for agent "remote"/, 'a submit is refused');
grant('remote');
is(run_of($node, begin('slow'))->{result}, 'success', 'until it is granted again');

# -- what has begun --------------------------------------------------------------------------------

define($node, 'undone', { steps => {
	a => { agent => 'wide', call => { path => '/a', body => {} }, undo => { call => { path => '/undo_a', body => {} } } },
	w => { wait => { signal => 'go' }, after => ['a'] },
	b => { agent => 'wide', call => { path => '/b' }, after => ['w'] } } });
my $id = begin('undone');
wait_for($node, "SELECT state = 'suspended' FROM sas.steps WHERE run_id = $id AND step = 'w'");
revoke('wide');
as_ann("SELECT sas.signal($id, 'go')");
my $run = run_of($node, $id);
is($run->{result}, 'compensated', 'a run that may not go on is undone');
like(why($run, 'b'), qr/^\Q$refused\E "wide"$/, 'since its next call was refused');
is(join(' ', map { scalar $service->requests($_) } qw(a undo_a b)), '1 1 0', 'the undo is sent');

grant('wide');
define($node, 'polled', { steps => { a => { agent => 'wide', call => { path => '/start', body => {} },
	poll => { call => { path => '/ask' }, every => '20 ms', until => '$.output.body.done == true' } } } });
$service->script(ask => [ { json => { done => JSON::PP::false() } } ]);
$id = begin('polled');
ok($service->wait_for_requests('ask', 2), 'a poll asks');
revoke('wide');
my $asked = $service->requests('ask');
ok($service->wait_for_requests('ask', $asked + 3), 'it goes on when the agent is taken away');
$service->script(ask => [ { json => { done => JSON::PP::true() } } ]);
is(run_of($node, $id)->{result}, 'success', 'to its end');

grant('wide');
define($node, 'doubt', { steps => { a => { agent => 'wide', call => { path => '/doubt', body => {} }, retry => { max_attempts => 1 },
	recovery => { initial => '1 h', max => '1 h' } } } });
$service->script(doubt => [ { how => 'reset' }, { json => {} } ]);
$id = begin('doubt');
wait_for($node, "SELECT in_doubt AND waiting_kind = 'cool_off' FROM sas.steps WHERE run_id = $id");
revoke('wide');
$node->safe_psql('postgres', q{SELECT sas.reset_agent('wide')});
is(run_of($node, $id)->{result}, 'success', 'a call in doubt is settled');
is(scalar($service->requests('doubt')), 2, 'by a second call');

grant('wide');
define($node, 'failed', { steps => { a => { agent => 'wide', call => { path => '/failed' }, retry => { max_attempts => 1 },
	recovery => { initial => '1 h', max => '1 h' } } } });
$service->script(failed => [ { status => 503 } ]);
$id = begin('failed');
wait_for($node, "SELECT NOT in_doubt AND waiting_kind = 'cool_off' FROM sas.steps WHERE run_id = $id");
revoke('wide');
$node->safe_psql('postgres', q{SELECT sas.reset_agent('wide')});
like(why(run_of($node, $id), 'a'), qr/^\Q$refused\E "wide"$/, 'one that is known to have failed is not repeated');

# -- methods and paths -----------------------------------------------------------------------------

grant('wide', q{, '{GET}', '{/mine}'});
define($node, 'any', { steps => { a => { agent => 'wide', call => { path => '{{input.path}}' } } } });
foreach my $path ('/mine', '/mine/1?x=y', '/mine_too', '/theirs', $service->url('/mine/2'), $service->url('/theirs/2'))
{
	my $text = as_ann("SELECT run_id FROM sas.submit('any', '{\"path\": \"$path\"}')");
	my $good = $path =~ m{/mine(/|$)} ? 1 : 0;
	$run = run_of($node, $text);
	(my $shown = $path) =~ s/:\d+//;
	is($run->{result}, $good ? 'success' : 'error', ($good ? 'sent: ' : 'refused: ') . $shown);
}
is(scalar(grep { $_->{path} !~ m{^/mine(/|\?|$)} } grep { $_->{path} =~ /mine|theirs/ } $service->requests), 0, 'nothing else was asked');

# -- hooks -------------------------------------------------------------------------------------------

grant('wide');
define($node, 'told', { steps => { w => { wait => { signal => 'go' } } }, hooks => [ { on => 'success', agent => 'wide', call => { path => '/hook' } } ] });
$id = begin('told');
revoke('wide');
as_ann("SELECT sas.signal($id, 'go')");
is(run_of($node, $id)->{result}, 'success', 'a run is not kept by a hook that is refused');
ok(wait_for($node, "SELECT count(*) FROM sas.hook_runs WHERE run_id = $id AND state = 'stopped' AND result = 'error'", '1'), 'the hook has failed');
is(scalar($service->requests('hook')), 0, 'and was not sent');

# -- outside agents ----------------------------------------------------------------------------------

define($node, 'packed', { steps => { a => { agent => 'packer', task => {}, undo => { task => {} } },
	w => { wait => { signal => 'go' }, after => ['a'] }, b => { agent => 'packer', task => {}, after => ['w'] } } });
sub claim { return $node->safe_psql('postgres', q{SELECT request_id || ' ' || undo FROM sas.claim('packer', 'p', 10)}, extra_params => [ '-U', 'packing' ]) }
my @id = map { begin('packed') } 1 .. 2;
wait_for($node, q{SELECT count(*) FROM sas.steps WHERE step = 'a' AND agent = 'packer' AND state = 'ready'}, '2');
my ($request) = split / /, $node->safe_psql('postgres', q{SELECT request_id FROM sas.claim('packer', 'p', 1)}, extra_params => [ '-U', 'packing' ]);
revoke('packer');
is(claim(), '', 'a task that has not begun is not given to anyone');
is(join(' ', map { $_->{result} // 'null' } grep { $_->{state} eq 'stopped' } map { run_of($node, $_) } grep { $node->safe_psql('postgres', "SELECT state FROM sas.runs WHERE run_id = $_") eq 'stopped' } @id), 'error', 'its run ends');
is($node->safe_psql('postgres', qq{SELECT sas.complete('$request', '{}')}, extra_params => [ '-U', 'packing' ]), 't', 'one that was claimed is completed');
my ($open) = split /\n/, $node->safe_psql('postgres', q{SELECT run_id FROM sas.runs WHERE workflow = 'packed' AND state <> 'stopped'});
wait_for($node, "SELECT state = 'suspended' FROM sas.steps WHERE run_id = $open AND step = 'w'");
as_ann("SELECT sas.signal($open, 'go')");
my $task = '';
wait_until(sub { $task ||= claim(); return $task ne '' });
like($task, qr/ true$/, 'the next one is refused, and the undo is given out');
($request) = split / /, $task;
$node->safe_psql('postgres', qq{SELECT sas.complete('$request', '{}')}, extra_params => [ '-U', 'packing' ]);
is(run_of($node, $open)->{result}, 'compensated', 'so the run is undone');

# -- infinite tasks ------------------------------------------------------------------------------------

grant('wide', q{, '{GET}', '{/state}'});
my $watcher = q{{"agent": "wide", "poll": {"call": {"path": "/%s"}, "every": "20 ms"}, "items": {"table": "public.item"}, "retry": {"initial": "20 ms", "max_failures": 2}}};
($status, undef, $error) = $node->psql('postgres', sprintf("SELECT sas.create_watcher('no', '$watcher')", 'theirs'), extra_params => [ '-U', 'ann' ]);
like($error, qr{permission denied for path "/theirs" of agent "wide"\nDETAIL:  At /poll/call[.]}, 'a watcher asks what is granted');
as_ann(sprintf("SELECT sas.create_watcher('state', '$watcher')", 'state'));
($status, undef, $error) = $node->psql('postgres', sprintf("SELECT sas.create_watcher('admins', '$watcher')", 'theirs'));
($status, undef, $error) = $node->psql('postgres', q{SELECT sas.watch('admins', 'k')}, extra_params => [ '-U', 'ann' ]);
like($error, qr/permission denied for path/, 'so does a task of a watcher that a superuser wrote');
as_ann(q{SELECT FROM sas.watch('state', 'k')});
ok($service->wait_for_requests('state', 2), 'a task polls');
revoke('wide');
ok(wait_for($node, q{SELECT state = 'failed' AND last_error ->> 'type' = 'urn:sas:sqlstate:42501' FROM sas.watches WHERE watcher = 'state'}), 'it fails when the agent is taken away')
  or diag($node->safe_psql('postgres', q{SELECT w::text FROM sas.watches w}));
grant('wide');
as_ann(q{SELECT FROM sas.resume_watch('state', '{k}')});
$asked = $service->requests('state');
ok($service->wait_for_requests('state', $asked + 2), 'and goes on when it is resumed after a grant');

# -- by a membership, or a level, that is taken away -----------------------------------------------------

$node->safe_psql('postgres', q{CREATE ROLE shop; CREATE ROLE cleo LOGIN IN ROLE shop; CREATE ROLE dan LOGIN; GRANT INSERT ON public.item TO cleo, dan;
	SELECT sas.grant_usage('cleo', 'user'), sas.grant_usage('dan', 'user'), sas.grant_usage('dan', 'admin')});
$node->safe_psql('postgres', q{SELECT sas.grant_agent('wide', 'shop', '{GET}', '{/by_role,/by_key,/both}'), sas.grant_agent('wide', 'cleo', '{GET}', '{/own}')});
foreach ([ cleo => 'by_role' ], [ cleo => 'by_key', '{{key}}' ], [ cleo => 'own', '{{key}}' ], [ dan => 'by_level' ], [ ann => 'both' ])
{
	my ($role, $path, $asks) = @$_;
	$node->safe_psql('postgres', sprintf("SELECT sas.create_watcher('$path', '$watcher'); SELECT sas.watch('$path', '$path')", $asks // $path), extra_params => [ '-U', $role ]);
	ok($service->wait_for_requests($path, 2), "a task of $role polls");
}
$node->safe_psql('postgres', q{REVOKE shop FROM cleo; SELECT sas.revoke_usage('dan', 'admin')});
foreach my $path (qw(by_role by_key by_level))
{
	ok(wait_for($node, "SELECT state = 'failed' AND last_error ->> 'type' = 'urn:sas:sqlstate:42501' FROM sas.watches WHERE watcher = '$path'"), "it fails soon when its owner has lost the right: $path")
	  or diag($node->safe_psql('postgres', q{SELECT w::text FROM sas.watches w}));
}
foreach my $path (qw(both own))
{
	$asked = $service->requests($path);
	ok($service->wait_for_requests($path, $asked + 2), "a task whose owner has kept its right goes on: $path");
}

done_testing();
