# SPDX-License-Identifier: PostgreSQL
#
# What is sent, and what is kept of what comes back.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use MIME::Base64;
use SasTest;
use SasService;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', _init => [ extra => ['--encoding=UTF8'] ]);
my $service = SasService->new;
make_agent($node, 'remote', $service, headers => '{"X-Agent": "agent", "X-Both": "agent"}', options => '{"query": {"api": "v 1"}}');
my $json = JSON::PP->new->canonical->allow_nonref;
my $n = 0;

# -- what comes back --------------------------------------------------------------------------

sub answer_to
{
	my (%answer) = @_;
	$n++;
	my $type = delete $answer{type};
	$answer{headers} = [ [ 'Content-Type', $type ] ] if defined $type;
	$answer{base64} = encode_base64(delete $answer{bytes}, '') if exists $answer{bytes};
	$service->script("a$n" => [ \%answer ]);
	return run_call($node, 'remote', { path => "/a$n" })->{output};
}
sub body_of { my $output = answer_to(@_); return $json->encode($output->{body}) }

is(body_of(bytes => '{"a": [1, "x", null]}', type => 'application/json'), '{"a":[1,"x",null]}', 'JSON is parsed');
is(body_of(bytes => '{"a": 1}', type => 'Application/JSON; charset=utf-8'), '{"a":1}', 'whatever parameters its type has');
is(body_of(bytes => '{"a": 1}', type => 'application/problem+json'), '{"a":1}', 'so is +json');
is(body_of(bytes => '17', type => 'application/json'), '17', 'a number alone, too');
is(body_of(bytes => 'null', type => 'application/json'), 'null', 'or null');
is(body_of(bytes => '{"a": 1}', type => 'text/plain'), '"{\"a\": 1}"', 'text that looks like JSON stays text');
is(body_of(bytes => '{"a": 1}'), '"{\"a\": 1}"', 'so does what has no type');
is(body_of(bytes => '{"a": ', type => 'application/json'), '"{\"a\": "', 'JSON that is none is text');
is(body_of(bytes => '{"a": "x\u0000y"}', type => 'application/json'), $json->encode('{"a": "x\u0000y"}'), 'JSON that does not fit jsonb is text');
is(body_of(bytes => '[' x 20_000 . ']' x 20_000, type => 'application/json'), $json->encode('[' x 20_000 . ']' x 20_000), 'so is JSON nested too deep');
is(body_of(bytes => "gr\xc3\xbc\xc3\x9fe", type => 'text/plain'), $json->encode("gr\x{fc}\x{df}e"), 'text is kept as it is');
is(body_of(bytes => "\x89PNG\x00\x01\xff", type => 'image/png'), $json->encode({ base64 => encode_base64("\x89PNG\x00\x01\xff", '') }), 'bytes are kept as base64');
is(body_of(bytes => "caf\xe9", type => 'text/plain; charset=iso-8859-1'), $json->encode({ base64 => encode_base64("caf\xe9", '') }), 'so is text that is not UTF-8');
is(body_of(bytes => "{\"a\": \"\xe9\"}", type => 'application/json'), $json->encode({ base64 => encode_base64("{\"a\": \"\xe9\"}", '') }), 'and JSON that is not');
is(body_of(bytes => "a\x00b", type => 'text/plain'), $json->encode({ base64 => encode_base64("a\x00b", '') }), 'and text with a NUL');
my $output = answer_to(status => 204);
is("$output->{status} " . $json->encode($output->{body}), '204 null', 'a 204 has a null body');
is(body_of(status => 200, bytes => '', type => 'application/json'), 'null', 'so has an empty one');
is(answer_to(status => 201, json => {})->{status}, 201, 'the status is kept');
$output = answer_to(headers => [ [ 'X-Request-Id', 'abc' ], [ 'X-Many', 'one' ], [ 'x-many', 'two' ], [ 'ETag', '"v"' ], [ 'X-Empty', '' ], [ 'X-Bad', "\xe9" ] ]);
is($output->{headers}{x_request_id}, 'abc', 'names of headers are lower-case, with _ for -');
is($json->encode($output->{headers}{x_many}), '["one","two"]', 'repeated ones are an array, in order');
is("$output->{headers}{etag}|$output->{headers}{x_empty}", '"v"|', 'values are kept as they are');
$n++;
$service->script("a$n" => [ { json => {}, headers => [ [ 'X-Head', 'yes' ] ] } ]);
$output = run_call($node, 'remote', { method => 'HEAD', path => "/a$n" })->{output};
is("$output->{status} $output->{headers}{x_head} " . $json->encode($output->{body}), '200 yes null', 'HEAD gives headers and no body');

# -- what is sent --------------------------------------------------------------------------------

sub sent
{
	my ($call, $input) = @_;
	$n++;
	my $path = delete $call->{path};
	my $run = run_call($node, 'remote', { path => "/s$n" . ($path // ''), %$call }, { input => $input // {} });
	my @came = $service->requests("s$n");
	diag($json->encode($run->{error})) if !@came && $run->{error};
	return @came ? $came[0] : {};
}
sub target { my $asked = sent(@_); return ($asked->{target} // '') =~ s{^/s\d+}{}r }

is(sent({})->{method}, 'GET', 'the method is GET when nothing is sent');
is(sent({ body => {} })->{method}, 'POST', 'and POST when something is');
is(join(' ', map { sent({ method => $_ })->{method} } qw(PUT PATCH DELETE OPTIONS)), 'PUT PATCH DELETE OPTIONS', 'or what the call says');
is(target({ path => '/x' }), '/x?api=v%201', 'the parameters of the agent are in the query');
is(target({ path => '/x?a=1' }), '/x?a=1&api=v%201', 'behind those of the path');
is(target({ query => { a => 1, b => undef, c => 'x y&z', d => '{{input.missing?}}', e => [ 1, undef, 'two' ], f => JSON::PP::true() } }),
	'?api=v%201&a=1&c=x%20y%26z&e=1&e=two&f=true', 'in query, null leaves a parameter out, an array repeats it, and values are percent-encoded');
is(target({ path => '/{{input.a}}/b' }, { a => "x/y?z#\x{fc} .%" }), '/x%2Fy%3Fz%23%C3%BC%20.%25/b?api=v%201', 'a reference in a path is percent-encoded, as one segment');
is(target({ path => '/{{input.a}}' }, { a => 17.50 }), '/17.5?api=v%201', 'numbers too');
my $asked = sent({ body => { a => '{{input.a}}', text => 'is {{input.a}}' } }, { a => { deep => [1] } });
is($asked->{body}, '{"a": {"deep": [1]}, "text": "is {\"deep\": [1]}"}', 'a body is JSON, and a whole reference keeps its type');
is(header_of($asked, 'content-type'), 'application/json', 'with its type');
is(sent({ body => '{{input.a}}' }, { a => 'word' })->{body}, '"word"', 'a body that is one string is JSON as well');
$asked = sent({ form => { a => 'x y', b => undef, c => [ 1, 2 ], 'd&' => "\x{fc}=" } });
is("$asked->{body} " . header_of($asked, 'content-type'), 'a=x%20y&c=1&c=2&d%26=%C3%BC%3D application/x-www-form-urlencoded', 'a form is encoded as forms are');
$asked = sent({ text => 'hello {{input.a}}' }, { a => 'world' });
is("$asked->{body} " . header_of($asked, 'content-type'), 'hello world text/plain; charset=utf-8', 'a text is sent as text');
$asked = sent({ body => {}, headers => { 'X-Both' => 'step', 'content-type' => 'application/vnd.api+json', 'X-Value' => '{{input.v}}' } }, { v => 'value' });
is(header_of($asked, 'x-both'), 'step', 'a header of the step stands over that of the agent');
is(header_of($asked, 'x-agent'), 'agent', 'others of the agent are sent besides');
is(header_of($asked, 'content-type'), 'application/vnd.api+json', 'the type can be set');
is(header_of($asked, 'x-value'), 'value', 'and values filled in');
is(header_of($asked, 'host'), "127.0.0.1:$service->{port}", 'Host is the agent\'s');
is(header_of($asked, 'user-agent'), 'sas', 'it says who asks');
is(header_of(sent({ path => '/quiet' }), 'content-type') . header_of($asked, 'expect'), '', 'nothing is said of a body that is not there');

foreach my $bad ("a\r\nX-Injected: 1", "a\nb", "a\rb", "a\x{1}b")
{
	my $before = $service->requests;
	my $run = run_call($node, 'remote', { path => '/bad', headers => { 'X-Value' => '{{input.v}}' } }, { input => { v => $bad } });
	is("$run->{state} $run->{result} $run->{steps}{it}{attempt} " . ($service->requests - $before), 'stopped error 1 0',
		'a control character from input in a header fails the step for good, and nothing is sent: ' . $json->ascii->encode($bad));
}
my $run = run_call($node, 'remote', { path => '/{{input.nothing}}' });
is("$run->{result} $run->{steps}{it}{attempt}", 'error 1', 'a reference that finds nothing fails the step for good');
like($run->{error}{detail}, qr/path|nothing/, 'and says which');

$service->script(slow => [ { gate => 1 } ]);
my $before = time();
$run = run_call($node, 'remote', { path => '/slow', timeout => '300 ms' }, { step => { retry => { max_attempts => 1 } } });
is("$run->{result} $run->{error}{detail}", 'error no answer in time', 'the timeout of a call ends an attempt');
cmp_ok(time() - $before, '<', 20, 'long before that of the agent');
$service->release;

# -- connections ------------------------------------------------------------------------------------

my $fresh = SasService->new;
make_agent($node, 'kept', $fresh, max_in_flight => 4);
define($node, 'kept', { steps => { it => { agent => 'kept', call => { path => '/kept/{{input.n}}' } } } });
$node->safe_psql('postgres', q{SELECT count(*) FROM sas.submit_batch('kept', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 100) n))});
all_ended($node, 'a hundred calls end');
my $figures = $fresh->figures;
is($figures->{requests}, 100, 'the service was asked a hundred times');
cmp_ok($figures->{connections}, '<=', 8, 'over a few connections, which are used again');
done_testing();
