# SPDX-License-Identifier: PostgreSQL
#
# Calls of an agent with the option "sign" bear a signature, made anew for each
# attempt, over the bytes that are sent. A service that checks signatures and
# times takes them, and takes no other message (test/lib/webhook_service.py).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Digest::SHA qw(hmac_sha256 hmac_sha256_hex hmac_sha256_base64);
use MIME::Base64 qw(encode_base64 decode_base64);
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;
my $old = encode_base64('the first secret of 32 bytes ...', '');
my $new = encode_base64('and the second of as many bytes.', '');
$node->safe_psql('postgres', "SELECT sas.set_secret('hook', 'whsec_$old'), sas.set_secret('bare', '$new'), sas.set_secret('plain', 'se cret')");

sub agent
{
	my ($name, $sign) = @_;
	make_agent($node, $name, $service, options => qq({"sign": $sign}));
	return;
}

sub body_of { my ($request) = @_; return $request->{body} // '' }

# what a service computes that follows the specification
sub webhook_signature
{
	my ($request, $secret) = @_;
	my $signed = join('.', header_of($request, 'webhook-id'), header_of($request, 'webhook-timestamp'), body_of($request));
	return 'v1,' . encode_base64(hmac_sha256($signed, decode_base64($secret)), '');
}

# -- Standard Webhooks --------------------------------------------------------------------

agent('hooks', '{"scheme": "standard-webhooks", "secret": "{{secret.hook}}"}');
$service->script(pay => [ { status => 503, headers => [ [ 'Retry-After', '2' ] ] }, {} ]);
my $begun = time();
my $run = run_call($node, 'hooks', { path => '/pay', body => { amount => 7 }, headers => { 'Webhook-Signature' => 'forged' } });
is($run->{result}, 'success', 'a signed call succeeds');
my @requests = $service->requests('pay');
is(scalar @requests, 2, 'at its second attempt');
foreach my $request (@requests)
{
	is(header_of($request, 'webhook-signature'), webhook_signature($request, $old), 'the signature fits the bytes of the body, and the call cannot set another');
	cmp_ok(abs(header_of($request, 'webhook-timestamp') - $begun), '<', 3600, 'the timestamp is in seconds since 1970');
}
is(header_of($requests[0], 'webhook-id'), header_of($requests[1], 'webhook-id'), 'the message is the same in both attempts');
is(header_of($requests[0], 'webhook-id'), header_of($requests[0], 'idempotency-key'), 'and named as the key is');
cmp_ok(header_of($requests[1], 'webhook-timestamp'), '>', header_of($requests[0], 'webhook-timestamp'), 'the timestamp is that of the attempt');
isnt(header_of($requests[1], 'webhook-signature'), header_of($requests[0], 'webhook-signature'), 'and so is the signature');

agent('both', '{"scheme": "standard-webhooks", "secret": ["{{secret.bare}}", "{{ secret.hook }}"]}');
$service->script(two => [ {} ]);
is(run_call($node, 'both', { method => 'GET', path => '/two' })->{result}, 'success', 'a call without a body is signed, too');
my ($request) = $service->requests('two');
is(header_of($request, 'webhook-signature'), join(' ', map { webhook_signature($request, $_) } $new, $old), 'by each of two secrets, so that a service can change its own');

# -- one header ---------------------------------------------------------------------------

agent('plain', '{"scheme": "hmac-sha256", "secret": "{{secret.plain}}"}');
agent('github', '{"scheme": "hmac-sha256", "secret": "{{secret.plain}}", "header": "X-Hub-Signature-256", "prefix": "sha256="}');
agent('timed', '{"scheme": "hmac-sha256", "secret": "{{secret.plain}}", "timestamp_header": "X-Time", "encoding": "base64"}');
foreach my $agent (qw(plain github timed))
{
	$service->script($agent => [ {} ]);
	is(run_call($node, $agent, { path => "/$agent", text => 'some text' })->{result}, 'success', "$agent: the call succeeds");
}
($request) = $service->requests('plain');
is(header_of($request, 'x-signature'), hmac_sha256_hex('some text', 'se cret'), 'without more it is X-Signature, in hexadecimal digits');
($request) = $service->requests('github');
is(header_of($request, 'x-hub-signature-256'), 'sha256=' . hmac_sha256_hex('some text', 'se cret'), 'header and prefix are those of the agent');
($request) = $service->requests('timed');
is(header_of($request, 'x-signature'), hmac_sha256_base64(header_of($request, 'x-time') . '.some text', 'se cret') . '=',
	'with a header for the time, the time is signed, too, here in base64');

# -- a service that checks ----------------------------------------------------------------

my $port = SasTest::free_port();
my $log = PostgreSQL::Test::Utils::tempdir() . '/webhook_service.log';
SasTest::start_program($log, 'python3', "$FindBin::RealBin/../lib/webhook_service.py", '--port', $port);
ok(wait_until(sub { -s $log && PostgreSQL::Test::Utils::slurp_file($log) =~ /^listening on/m }), 'a service that takes signed messages only');
my $url = "http://127.0.0.1:$port";
sub verdicts { my ($path) = @_; return join(', ', map { $_->{verdict} } grep { $_->{path} eq $path } @{ http_get("$url/books") }) }
# sends a message again, as whoever has heard it could
sub replay
{
	my ($message, %other) = @_;
	my %headers = map { $_ => $message->{headers}{$_} } grep { /^webhook-|^content-type$/ } keys %{ $message->{headers} };
	return HTTP::Tiny->new->post($url . $message->{path}, { headers => { %headers, %{ $other{headers} // {} } }, content => $other{body} // $message->{body} });
}

http_post("$url/control", { secrets => [$old] });
make_agent($node, 'strict', $url, options => '{"sign": {"scheme": "standard-webhooks", "secret": "{{secret.hook}}"}}');
make_agent($node, 'stranger', $url, options => '{"sign": {"scheme": "standard-webhooks", "secret": "{{secret.bare}}"}}');
make_agent($node, 'unsigned', $url);
is(run_call($node, 'strict', { path => '/pay', body => { amount => 7, of => '"it"' } })->{result}, 'success', 'takes what is signed');
is(run_call($node, 'strict', { path => '/form', form => { a => 'b c' } })->{result}, 'success', 'a form, too');
$run = run_call($node, $_, { path => "/$_", body => {} }) and is("$run->{result} $run->{error}{status}", 'error 401', "nothing of an agent that is $_") foreach qw(stranger unsigned);
is(run_call($node, 'strict', { path => '/busy', body => { amount => 8 } })->{result}, 'success', 'a second attempt is no replay of the first');
is(verdicts('/busy'), 'good, good', 'both were good');
my ($message) = grep { $_->{path} eq '/pay' } @{ http_get("$url/books") };
is(replay($message)->{status}, 409, 'it refuses a message that comes again');
is(replay($message, body => '{"amount": 700}')->{status}, 401, 'or with another body');
is(replay($message, headers => { 'webhook-timestamp' => $message->{headers}{'webhook-timestamp'} + 60 })->{status}, 401, 'or with another time');
http_post("$url/control", { ahead => 400 });
is(replay($message)->{status}, 400, 'later it is too old');
$run = run_call($node, 'strict', { path => '/late', body => {} });
is("$run->{result} $run->{error}{status} " . verdicts('/late'), 'error 400 an old timestamp', 'where the clocks differ the run fails, and says why');
http_post("$url/control", { ahead => 0, secrets => [$new] });
make_agent($node, 'between', $url, options => '{"sign": {"scheme": "standard-webhooks", "secret": ["{{secret.hook}}", "{{secret.bare}}"]}}');
is(run_call($node, 'between', { path => '/changed', body => {} })->{result}, 'success', 'an agent with both secrets is taken before and after the service has changed its own');

# -- a secret that cannot sign ------------------------------------------------------------

$node->safe_psql('postgres', q{SELECT sas.set_secret('bare', 'not base64 at all!')});
$run = run_call($node, 'both', { path => '/two' });
isnt($run->{result}, 'success', 'with a secret that is not base64 a call fails');
like($run->{error}{detail} // '', qr/the secret of its signature is not base64/, 'and says so');
unlike($node->safe_psql('postgres', 'SELECT error FROM sas.runs'), qr/not base64 at all/, 'but not the secret');
is(scalar $service->requests('two'), 1, 'nothing is sent then');

# -- watchers -----------------------------------------------------------------------------

$service->script(feed => [ ({ json => [] }) x 50 ]);
$node->safe_psql('postgres', q{
	CREATE FUNCTION take(items jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
	SELECT sas.create_watcher('feed', '{"agent": "hooks", "poll": {"call": {"path": "/feed"}, "every": "1 s"}, "items": {"function": "public.take"}}');
	SELECT sas.watch('feed', 'k')});
ok($service->wait_for_requests('feed', 2), 'a watcher polls through the agent');
my @polls = $service->requests('feed');
is(header_of($polls[0], 'webhook-signature'), webhook_signature($polls[0], $old), 'its requests are signed');
isnt(header_of($polls[0], 'webhook-id'), header_of($polls[1], 'webhook-id'), 'each of them as a message of its own');
done_testing();
