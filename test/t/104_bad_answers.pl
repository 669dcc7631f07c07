# SPDX-License-Identifier: PostgreSQL
#
# What a service does wrong costs that attempt only; and calls go nowhere but
# to the origin that the agent names.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use SasTest;
use SasService;
use Test::More;
use Time::HiRes qw(time);

# nothing listens there: a proxy from the environment is not used, or nothing would work
local $ENV{http_proxy} = 'http://127.0.0.1:9';
local $ENV{https_proxy} = $ENV{http_proxy};
local $ENV{ALL_PROXY} = $ENV{http_proxy};
my $node = new_node('main');
delete @ENV{qw(http_proxy https_proxy ALL_PROXY)};
my $service = SasService->new;
my $elsewhere = SasService->new;
make_agent($node, 'remote', $service, request_timeout => '10 s');
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, '1');
my ($worker) = worker_pids($node, 'agent');

# -- broken answers --------------------------------------------------------------------

my %what = (
	garbage => ['is garbage', qr/not valid HTTP/],
	headers => ['has a megabyte of headers', qr/headers of the answer are too large|too large/],
	endless => ['has an endless body', qr/larger than max_response/],
	nothing => ['is nothing', qr/connection broke before an answer came/],
	half => ['ends in the middle', qr/connection broke in the middle of the answer/],
	reset => ['is a dropped connection', qr/connection broke before an answer came/],
	silent => ['never comes', qr/no answer in time/]);
foreach my $how (sort keys %what)
{
	my ($is, $error) = @{ $what{$how} };
	$service->script($how => [ { how => $how }, { json => 'well' } ]);
	my $run = run_call($node, 'remote', { method => 'POST', path => "/$how", body => {} });
	is("$run->{result} " . ($run->{output}{body} // ''), 'success well', "an answer that $is costs that attempt only");
	is(join(' ', map { $_->{status} } @{ $run->{attempts} }), 'failed succeeded', 'which sas.attempts shows');
	like($run->{attempts}[0]{error}{detail}, $error, 'with what was wrong');
}
$service->release;
is((worker_pids($node, 'agent'))[0], $worker, 'the worker lives on: it is the same process');

# the first header begins with a space, as if it went on: libcurl before 8.1.1 appended it to the freed header of the answer before
my @folded = ({ headers => [ [ ' X-First', 'y' x 3000 ], [ 'X-Second', 'z' ] ] }, { headers => [ [ 'X-Long', 'x' x 100 ] ], json => 'well' });
$service->script(map { ("folded$_" => \@folded, "to$_" => \@folded, "moved$_" => [ { status => 302, headers => [ [ 'Location', "/to$_" ], [ 'X-Long', 'x' x 100 ] ] } ]) } 1 .. 10);
make_agent($node, 'following', $service, options => '{"follow_redirects": true}');
define($node, 'folded', { steps => { map { ("folded$_" => { agent => 'remote', call => { path => "/folded$_" }, retry => { initial => '10 ms' } },
	"moved$_" => { agent => 'following', call => { path => "/moved$_" }, retry => { initial => '10 ms' } }) } 1 .. 10 } });
my $folded = submit($node, 'folded', {});
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $folded", 'stopped success'), 'an answer that begins with half a header costs that attempt at most, also behind a redirect');
is((worker_pids($node, 'agent'))[0], $worker, 'the worker lives on');

# this database has no encoding
$service->script(beyond => [ { json => { name => "gr\x{fc}n \x{20ac}" } } ]);
my $answer = run_call($node, 'remote', { path => '/beyond' });
is("$answer->{result} " . ($answer->{output}{body} // ''), 'success {"name": "gr\u00fcn \u20ac"}', 'JSON with characters that the database cannot hold is kept as text');

# five of each at once, among calls that go well
my %scripts = map { $_ => [ { how => $_ } ] } grep { $_ ne 'silent' } keys %what;
$service->script(%scripts);
define($node, 'bad', { steps => { it => { agent => 'remote', call => { method => 'POST', path => '/{{input.how}}' } } },
	recovery => { max_failures => 1 }, on_failure => 'fail' });
$node->safe_psql('postgres', q{
	SELECT count(*) FROM sas.submit_batch('bad', ARRAY(
		SELECT jsonb_build_object('how', how) FROM unnest('{garbage,headers,endless,nothing,half,reset,good}'::text[]) how, generate_series(1, 5)))});
all_ended($node, 'many bad answers at once end as well');
is($node->safe_psql('postgres', q{
		SELECT string_agg(DISTINCT (input ->> 'how' = 'good')::text || ' ' || result, ', ') FROM sas.runs WHERE workflow = 'bad'}),
	'false error, true success', 'the calls that go well between them are not disturbed');
is((worker_pids($node, 'agent'))[0], $worker, 'still the same worker');

# -- size ------------------------------------------------------------------------------

make_agent($node, 'small', $service, retry => '{"max_attempts": 1}', options => '{"max_response": "10 kB"}');
$service->script(fits => [ { body => 'x' x 10_240 } ], too_big => [ { body => 'x' x 10_241 } ]);
my $run = run_call($node, 'small', { path => '/fits' });
is(length $run->{output}{body}, 10_240, 'an answer of just max_response is taken');
$run = run_call($node, 'small', { path => '/too_big' });
is("$run->{result} $run->{error}{detail}", 'error the answer is larger than max_response', 'a byte more is refused');

# -- redirects -------------------------------------------------------------------------

sub redirect { my ($status, $to) = @_; return [ { status => $status, headers => [ [ Location => $to ] ] } ] }

$service->script(moved => redirect(302, '/target'));
$run = run_call($node, 'remote', { path => '/moved' });
is("$run->{result} $run->{error}{status}", 'error 302', 'a redirect is not followed');
is(scalar $service->requests('target'), 0, 'its target is not called');

make_agent($node, 'follower', $service, options => '{"follow_redirects": true}', headers => '{"Authorization": "mine"}');
$run = run_call($node, 'follower', { path => '/moved' });
is("$run->{result} $run->{output}{status}", 'success 200', 'with follow_redirects it is');
is(scalar $service->requests('target'), 1, 'once');
$service->script(absolute => redirect(307, $service->url('/kept')));
run_call($node, 'follower', { method => 'POST', path => '/absolute', body => { n => 1 } });
is(join(' ', map { "$_->{method} $_->{body}" } $service->requests('kept')), 'POST {"n": 1}', '307 to the same origin keeps method and body');
$service->script(see => redirect(303, '/other'));
run_call($node, 'follower', { method => 'POST', path => '/see', body => { n => 1 } });
is(join(' ', map { "$_->{method} $_->{body}" } $service->requests('other')), 'GET ', '303 becomes a GET without one');
my @foreign = ($elsewhere->url('/stolen'), "http://localhost:$service->{port}/stolen", "https://127.0.0.1:$service->{port}/stolen",
	"//127.0.0.1:$elsewhere->{port}/stolen", "http://127.0.0.1:$service->{port}\@127.0.0.1:$elsewhere->{port}/stolen");
foreach my $n (0 .. $#foreign)
{
	$service->script("foreign_$n" => redirect(302, $foreign[$n]));
	$run = run_call($node, 'follower', { path => "/foreign_$n" });
	is("$run->{result} $run->{error}{status}", 'error 302', 'a redirect to another origin is never followed: ' . $foreign[$n] =~ s/\d{5}/PORT/gr);
}
$service->script(loop => redirect(302, '/loop'));
$run = run_call($node, 'follower', { path => '/loop' });
is("$run->{result} $run->{error}{status}", 'error 302', 'redirects in a circle end');
cmp_ok(scalar $service->requests('loop'), '<=', 6, 'soon');

# -- the path ---------------------------------------------------------------------------

define($node, 'whole', { steps => { it => { agent => 'remote', call => { path => '{{input.path}}' } } },
	output => '{{steps.it.output.body.target}}', recovery => { max_failures => 1 }, on_failure => 'fail' });
sub run_path { my ($path) = @_; return run_of($node, submit($node, 'whole', { path => $path })) }

is(run_path($service->url('/own/address?a=1'))->{output}, '/own/address?a=1', 'a path from input may be a full address of the agent\'s own origin');
is(run_path('/plain')->{output}, '/plain', 'or a path');

# an agent whose base_url has a path: it is a border
make_agent($node, 'below', $service, base_url => $service->url('/v1/shop'));
define($node, 'kept', { steps => { it => { agent => 'below', call => { path => '{{input.path}}' } } },
	output => '{{steps.it.output.body.target}}', recovery => { max_failures => 1 }, on_failure => 'fail' });
sub kept_path { my ($path) = @_; return run_of($node, submit($node, 'kept', { path => $path })) }
is(kept_path($service->url($_))->{output}, $_, "a full address at or below the path of base_url is called: $_")
	foreach '/v1/shop', '/v1/shop/', '/v1/shop/a?b=1', '/v1/shop?b=1';
is(kept_path('/admin')->{output}, '/v1/shop/admin', 'a path is below it');
my $asked = $service->requests;
foreach my $path ('', '/', '/admin', '/v1', '/v1/', '/v1/shopping', '/v1/shop%2fa', '/v1/sho%70/a', '/V1/shop/a', '//v1/shop/a', '/v1//shop/a', '/v1/shop;x/a',
	'?a=/v1/shop/', '/v1/shop/../admin', '/v1/shop/%2e%2e/admin', '/v1/shop/%2e%2E%2fadmin', '/v1/shop/..%2fadmin', '/v1/shop/..%5cadmin', '/v1/shop/x/../../admin')
{
	my $url = $service->url('') . $path;
	is(join(' ', @{ kept_path($url) }{qw(state result)}), 'stopped error', "a full address beside the path of base_url is refused: $path");
}
is(scalar $service->requests, $asked, 'and nothing was sent');

# nor does a redirect of the service lead out of it
make_agent($node, 'inside', $service, base_url => $service->url('/v1/shop'), options => '{"follow_redirects": true}');
my @within = ('/v1/shop', '/v1/shop/', '/v1/shop/a', '/v1/shop?b=1', $service->url('/v1/shop/a'), 'b/c');
my @beside = ('/', '/admin', '/v1', '/v1/shopping', $service->url('/admin'), '../../../admin', '/v1/shop/../admin', '/v1/shop/%2e%2e/admin', '/v1/shop/..%2fadmin', '/v1/shop/..;/admin',
	'/v1//shop/a', '/V1/shop/a', '/v1/shop%2fa', '/v1/sho%70/a');
foreach my $to (@within, @beside)
{
	my $good = grep { $_ eq $to } @within;
	$service->script(v1 => [ @{ redirect(307, $to) }, { json => 'there' } ]);
	my $before = $service->requests;
	my $run = run_call($node, 'inside', { path => '/go/on' });
	is(join(' ', $run->{result}, $run->{output}{status} // $run->{error}{status}, scalar($service->requests) - $before), $good ? 'success 200 2' : 'error 307 1',
		($good ? 'a redirect within the path of base_url is followed: ' : 'one that leads out of it is not: ') . $to =~ s/\d{5}/PORT/gr);
}

my $before = $service->requests;
foreach my $path (@foreign[ 0, 1, 2 ], "http://127.0.0.1:$service->{port}\@127.0.0.1:$elsewhere->{port}/stolen", 'ftp://127.0.0.1/stolen', 'file:///etc/passwd',
	"http://127.0.0.1:$service->{port}.example.com/stolen", "\@127.0.0.1:$elsewhere->{port}/stolen", ":$elsewhere->{port}/stolen", '.example.com/', 'stolen',
	'/a/../b', '/a/%2e%2e/b', '/a/..', '/./a', "/a\r\nX-Injected: 1", "/a b", '/a#b')
{
	$run = run_path($path);
	is("$run->{state} $run->{result}", 'stopped error', 'a path from input is refused: ' . JSON::PP->new->allow_nonref->encode($path) =~ s/\d{5}/PORT/gr);
	is(scalar @{ $run->{attempts} }, 1, 'for good') if $run->{attempts};
}
is(scalar $service->requests, $before, 'nothing of that was sent to the service');
is(scalar $elsewhere->requests, 0, 'and nothing at all elsewhere');
is(scalar(grep { header_of($_, 'x-injected') } $service->requests), 0, 'no header was smuggled in');
is((worker_pids($node, 'agent'))[0], $worker, 'and it is still the same worker');
done_testing();
