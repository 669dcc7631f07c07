# SPDX-License-Identifier: PostgreSQL
#
# An agent says which parts of answers are stored: nothing else of them is written anywhere, not in outputs, errors,
# logs or the files of the server.
use strict;
use warnings;
use File::Find;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1, log_min_messages => 'debug1');
my $service = SasService->new;
my $answer = { id => 7, card => 'canary-card', nothing => undef, items => [ { id => 1, pin => 'canary-item' }, { id => 2, deep => [ { id => 3 } ] }, 'canary-scalar' ] };
make_agent($node, 'bank', $service, options => '{"keep": ["headers.etag", "body.id", "body.items.id", "body.items.deep", "body.absent.x"]}', retry => '{"max_attempts": 2, "initial": "10 ms"}');
make_agent($node, 'none', $service, options => '{"keep": []}');
make_agent($node, 'whole', $service, options => '{"keep": ["body"]}');
define($node, 'kept', { steps => { it => { agent => 'bank', call => { path => '/it' } } } });
$service->script(it => [ { headers => [ [ 'ETag', '"e1"' ], [ 'X-Token', 'canary-header' ] ], json => $answer } ]);
my $id = submit($node, 'kept', {});
is(run_of($node, $id)->{result}, 'success', 'a call succeeds');
is($node->safe_psql('postgres', "SELECT output FROM sas.steps WHERE run_id = $id"),
	'{"body": {"id": 7, "items": [{"id": 1}, {"id": 2, "deep": [{"id": 3}]}, null]}, "status": 200, "headers": {"etag": "\"e1\""}}',
	'of its answer the parts are there that the agent names, and the status');

# -- failures ----------------------------------------------------------------------------------

define($node, 'failed', { steps => { it => { agent => 'bank', call => { path => '/bad' }, on_failure => 'fail' } } });
$service->script(bad => [ { status => 503, body => 'canary-text' }, { status => 422, json => { id => 9, message => 'canary-message' } } ]);
$id = submit($node, 'failed', {});
is(run_of($node, $id)->{result}, 'error', 'a call fails');
is($node->safe_psql('postgres', "SELECT http_status || ' ' || coalesce(error ->> 'detail', 'none') FROM sas.attempts WHERE run_id = $id ORDER BY attempt"),
	qq(503 none\n422 {"id": 9}), 'its errors tell no more than may be stored');

# -- nothing, and the whole body ---------------------------------------------------------------

define($node, 'status', { steps => { it => { agent => 'none', call => { path => '/it2' } } } });
$service->script(it2 => [ { headers => [ [ 'X-Token', 'canary-header' ] ], json => $answer } ]);
$id = submit($node, 'status', {});
run_of($node, $id);
is($node->safe_psql('postgres', "SELECT output FROM sas.steps WHERE run_id = $id"), '{"status": 200}', 'an agent may keep the status alone');
define($node, 'body', { steps => { it => { agent => 'whole', call => { path => '/it3' }, expect => '$.output.body == "plain"' } } });
$service->script(it3 => [ { headers => [ [ 'X-Token', 'canary-header' ] ], body => 'plain' } ]);
$id = submit($node, 'body', {});
run_of($node, $id);
is($node->safe_psql('postgres', "SELECT output FROM sas.steps WHERE run_id = $id"), '{"body": "plain", "status": 200}', 'or the body as it is');

# -- what templates and polls see --------------------------------------------------------------

define($node, 'asks', { steps => { it => { agent => 'bank', call => { path => '/begin' }, poll => { call => { path => '/ask' }, every => '50 ms', until => '$.output.body.id == 2' } },
	next => { agent => 'bank', call => { path => '/next', query => { n => '{{steps.it.output.body.id}}' } } } } });
$service->script(begin => [ { json => { id => 0, card => 'canary-card' } } ], ask => [ { json => { id => 1, card => 'canary-card' } }, { json => { id => 2, card => 'canary-card' } } ], next => [ { json => {} } ]);
$id = submit($node, 'asks', {});
is(run_of($node, $id)->{result}, 'success', 'polls and templates see what is kept');
define($node, 'lacks', { steps => { it => { agent => 'bank', call => { path => '/it4' } }, next => { agent => 'bank', call => { path => '/next', body => '{{steps.it.output.body.card}}' }, on_failure => 'fail' } } });
$service->script(it4 => [ { json => $answer } ]);
$id = submit($node, 'lacks', {});
like(run_of($node, $id)->{error}{detail} // '', qr/card/, 'what is not kept is not found');

# -- anywhere ----------------------------------------------------------------------------------

$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop;
my @found;
find({ no_chdir => 1, wanted => sub {
	return unless -f $_;
	open my $in, '<:raw', $_ or return;
	local $/;
	push @found, "$File::Find::name: $1" if <$in> =~ /(canary-\w+)/;
} }, $node->data_dir, $node->logfile);
is("@found", '', 'no file of the server has what is not kept');
done_testing();
