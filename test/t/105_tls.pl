# SPDX-License-Identifier: PostgreSQL
#
# Certificates are verified, always, also those of streams, token services and hooks.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use MIME::Base64;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();

# make_certificate(name, alternative name): one that is its own authority
sub make_certificate
{
	my ($name, $for) = @_;
	my @files = ("$dir/$name.pem", "$dir/$name.key");
	IPC::Run::run([ 'openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', "/CN=$name",
		'-addext', "subjectAltName=$for", '-out', $files[0], '-keyout', $files[1] ], '>', '/dev/null', '2>', '/dev/null') or die 'openssl failed';
	return (cert => $files[0], key => $files[1]);
}

my $node = new_node('main');
my %mine = make_certificate('mine', 'IP:127.0.0.1');
my %other = make_certificate('other', 'DNS:example.com');
my $service = SasService->new(%mine);
my $wrong_host = SasService->new(%other);
my $plain = SasService->new;

sub call_with
{
	my ($agent, $url, $options) = @_;
	make_agent($node, $agent, $url, retry => '{"max_attempts": 1}', options => $options // '{}');
	return run_call($node, $agent, { path => '/' });
}

my $run = call_with('unknown', $service);
is("$run->{result} $run->{error}{detail}", 'error the certificate of the server is self-signed', 'a self-signed certificate is refused');
ok(!$run->{steps}{it}{in_doubt}, 'and the call is known not to have been made');
is(scalar $service->requests, 0, 'the service has seen no request');

$run = call_with('known', $service, qq({"ca_file": "$mine{cert}"}));
is("$run->{result} $run->{output}{status}", 'success 200', 'with ca_file it is accepted');
$run = call_with('another', $service, qq({"ca_file": "$other{cert}"}));
like("$run->{result} $run->{error}{detail}", qr/^error the certificate of the server is (self-signed|from an unknown authority)/, 'but not with that of another authority');
$run = call_with('missing', $service, qq({"ca_file": "$dir/none.pem"}));
is("$run->{result} $run->{error}{detail}", 'error the file of certificate authorities cannot be used', 'a ca_file that is not there refuses everything');
$run = call_with('wrong', $wrong_host, qq({"ca_file": "$other{cert}"}));
like("$run->{result} $run->{error}{detail}", qr/^error the certificate of the server is for another host|^error .*not accepted/, 'a certificate for another host is refused, though its authority is known');
is(scalar $wrong_host->requests, 0, 'and that service has seen no request');
$run = call_with('not_tls', 'https://127.0.0.1:' . $plain->{port}, '{"connect_timeout": "500 ms"}');
like("$run->{result} $run->{error}{detail}", qr/^error (the TLS handshake failed|could not connect in time)/, 'a service that does not speak TLS is not spoken to without it');
is(scalar $plain->requests, 0, 'nor sent anything');
my $off = $node->psql('postgres', q{SELECT sas.create_agent('off', base_url => 'https://127.0.0.1', options => '{"verify": false}')});
isnt($off, 0, 'there is no option that turns verification off');
is(scalar(grep { $_->{target} eq '/' } $service->requests), 1, 'all in all one request was made');

# -- streams ------------------------------------------------------------------------------------------------

my $streams = SasStreams->new(%mine);
make_table($node);
make_agent($node, 'streams', $streams, options => qq({"ca_file": "$mine{cert}"}));
make_agent($node, 'stranger', $streams);
make_watcher($node, $_, { agent => $_, stream => { format => 'sse', path => '/sse/{{key}}' } }) foreach qw(streams stranger);
$streams->feeds(one => { items => 500, per => 200, how => 'close' }, two => { items => 5 });
watch($node, 'streams', 'one');
watch($node, 'stranger', 'two');
got_items($node, 'streams', 'one', 500, 'a stream comes over TLS, and goes on where it was when it is begun again');
ok(wait_until(sub { (watch_of($node, 'stranger', 'two')->{last_error}{detail} // '') eq 'the certificate of the server is self-signed' }), 'one whose certificate is not known is a failure, which says so');
is($streams->feed('two')->{connections} // 0, 0, 'and the service has seen no request');

# -- token services and hooks -----------------------------------------------------------------------------

my $oauth = sub { my ($more) = @_; return sprintf '{"oauth2": {"token_url": "%s", "client_id": "me", "client_secret": "{{secret.of_me}}"}%s}', $service->url('/token'), $more // '' };
$service->script(token => [ { base64 => encode_base64('{"access_token": "token-4711", "token_type": "Bearer"}', ''), headers => [ [ 'Content-Type', 'application/json' ] ] } ]);
$node->safe_psql('postgres', q{SELECT sas.set_secret('of_me', 'hunter2')});
$run = call_with('asks', $plain, $oauth->());
like("$run->{result} $run->{error}{detail}", qr/^error .*the certificate of the server is self-signed/, 'a token service whose certificate is not known is not asked');
is(scalar($service->requests('token')) . ' ' . scalar($plain->requests), '0 0', 'it has seen no request, nor has the service');
$run = call_with('asks_known', $plain, $oauth->(qq(, "ca_file": "$mine{cert}")));
is("$run->{result} " . header_of(($plain->requests)[-1], 'authorization'), 'success Bearer token-4711', 'with ca_file it is');

make_agent($node, 'hooked', $service, retry => '{"max_attempts": 1}');
make_agent($node, 'hooked_known', $service, options => qq({"ca_file": "$mine{cert}"}));
define($node, "calls_$_", { steps => {}, hooks => [ { on => 'success', agent => $_, retry => { max_attempts => 1 }, recovery => { max_failures => 1 }, call => { method => 'POST', path => "/$_", body => {} } } ] })
  foreach qw(hooked hooked_known);
submit($node, "calls_$_") foreach qw(hooked hooked_known);
ok(wait_for($node, q{SELECT string_agg(result, ' ' ORDER BY workflow) FROM sas.hook_runs WHERE state = 'stopped'}, 'error success'), 'a hook calls over TLS, too');
like($node->safe_psql('postgres', q{SELECT error::text FROM sas.hook_runs WHERE result = 'error'}), qr/the certificate of the server is self-signed/, 'not a service whose certificate is not known');
is(scalar($service->requests('hooked')) . ' ' . scalar($service->requests('hooked_known')), '0 1', 'which has seen no request');
done_testing();
