# SPDX-License-Identifier: PostgreSQL
#
# The life of a WebSocket watch: handshake with the agent's headers, TLS, the
# border, pings of our own, the end of worker and server, and a service that
# does not read.

# Long: only make check-long runs it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use MIME::Base64;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my ($cert, $key) = ("$dir/mine.pem", "$dir/mine.key");
IPC::Run::run([ 'openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=mine', '-addext', 'subjectAltName=IP:127.0.0.1',
	'-out', $cert, '-keyout', $key ], '>', '/dev/null', '2>', '/dev/null') or die 'openssl failed';

my $node = new_node('main');
my $service = SasService->new(program => 'websockets.py');
my $secure = SasService->new(program => 'websockets.py', cert => $cert, key => $key);
my $streams = SasStreams->new;
my $safe = SasStreams->new(cert => $cert, key => $key);
my $result = sub { my ($of, $name) = @_; return SasTest::http_get("http://127.0.0.1:$of->{control}/")->{results}{$name} // {} };
my $error = sub { my $watch = watch_of($node, @_); return "$watch->{last_error}{title} " . ($watch->{last_error}{detail} // '') };

$node->safe_psql('postgres', q{SELECT sas.set_secret('token', 'geheim-4711')});
make_agent($node, 'ws', $service, headers => '{"Authorization": "Bearer {{secret.token}}", "Sec-WebSocket-Protocol": "chat, feed"}', options => '{"max_response": "200 kB"}');
make_agent($node, 'wss', $secure, options => qq({"ca_file": "$cert"}));
make_agent($node, 'unknown', $secure);
make_agent($node, 'feed', $streams);
make_agent($node, 'safe', $safe, options => qq({"ca_file": "$cert"}));
make_table($node);
my %cursor = (cursor => { start => 0, next => '{{item.n}}' });
my %feed = (stream => { format => 'ws', path => '/ws/{{key}}', body => { after => '{{cursor}}' } }, %cursor);
make_watcher($node, 'plain', { agent => 'ws', stream => { format => 'ws', path => '/{{key}}', query => { a => 'x y' }, text => 'hello {{key}}' } });
make_watcher($node, 'pinged', { agent => 'ws', stream => { format => 'ws', path => '/{{key}}', idle_timeout => '600 ms' } });
make_watcher($node, 'tls', { agent => 'wss', stream => { format => 'ws', path => '/{{key}}' } });
make_watcher($node, 'stranger', { agent => 'unknown', stream => { format => 'ws', path => '/{{key}}' } });
make_watcher($node, 'feed', { agent => 'feed', %feed });
make_watcher($node, 'safe', { agent => 'safe', %feed });

# -- handshake

watch($node, 'plain', 'quiet');
ok(wait_until(sub { my $r = $result->($service, 'quiet'); $r->{last_said} && @{ $r->{last_said} } == 1 }), 'a first message is sent');
my $quiet = $result->($service, 'quiet');
is_deeply($quiet->{said}, [ [ 1, 'hello quiet' ] ], 'as the definition has it');
ok($quiet->{masked}, 'with a mask');
is($quiet->{request}, 'GET /quiet?a=x%20y HTTP/1.1', 'the handshake asks for path and query');
is($quiet->{headers}{authorization}, 'Bearer geheim-4711', 'with the headers of the agent and its secrets');
is($quiet->{headers}{upgrade}, 'websocket', 'and asks for a WebSocket');
is($quiet->{headers}{'sec-websocket-protocol'}, 'chat, feed', 'subprotocols are offered');
is($quiet->{headers}{host}, "127.0.0.1:$service->{port}", 'it names the host');
is(length(decode_base64($quiet->{headers}{'sec-websocket-key'})), 16, 'and a key of 16 bytes');

# -- what a service says when it closes, and other answers to the handshake

my $closing = sub { my ($reason) = @_; return encode_base64("\x88" . chr(2 + length $reason) . "\x0f\xa1" . $reason, '') };
my $accepted = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n";
my %says = (
	told => { sent => $closing->('was geheim-4711, and ' . encode_base64('geheim-4711', '')), problem => 'close code 4001: was ' . '*' x 11 . ', and ' },
	cut => { sent => $closing->("nothing\0geheim-4711"), problem => 'close code 4001' },
	begun => { sent => encode_base64("\x01\x0bgeheim-4711\x01", ''), ends => 'eof', problem => 'the connection ended without a close frame' },
	moved => { answer => "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:$secure->{port}/moved?geheim-4711\r\nContent-Length: 0\r\n\r\n", ends => 'eof', problem => 'the service answered 302' },
	told_length => { answer => "HTTP/1.1 101 Go\r\n${accepted}Content-Length: 5\r\n\r\n", sent => encode_base64('hello', ''), problem => 'a frame is not valid' },
	told_chunks => { answer => "HTTP/1.1 101 Go\r\n${accepted}Transfer-Encoding: chunked\r\n\r\n", sent => encode_base64("5\r\nhello\r\n0\r\n\r\n", ''), problem => 'a frame has a reserved bit set' });
SasTest::http_post("http://127.0.0.1:$service->{control}/", { map { my %case = %{ $says{$_} }; delete $case{problem}; $_ => \%case } keys %says });
watch($node, 'plain', sort keys %says);
foreach my $name (sort keys %says)
{
	ok(wait_until(sub { $error->('plain', $name) =~ /\Q$says{$name}{problem}/ }), "service that has $name: $says{$name}{problem}") or diag($error->('plain', $name));
}
unlike(join("\n", map { $node->safe_psql('postgres', "SELECT t::text FROM sas.$_ t") } qw(watches agents alerts history attempts)), qr/geheim|Z2VoZWlt/, 'no view has the secret');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/(?<!')geheim-4711|Z2VoZWlt/, 'nor has the server log');
$node->safe_psql('postgres', q{CREATE ROLE monitor LOGIN; SELECT sas.grant_usage('monitor', 'monitor')});
unlike(join("\n", map { $node->safe_psql('postgres', "SET ROLE monitor; SELECT t::text FROM sas.$_ t") } qw(watches agents alerts history)), qr/was \*|close code/, 'a monitor sees no reason at all');
is($result->($secure, 'moved')->{connections}, undef, 'no redirect is followed');
$node->safe_psql('postgres', q{SELECT FROM sas.unwatch('plain', ARRAY(SELECT key FROM sas.watches WHERE watcher = 'plain' AND key <> 'quiet'))});

# -- pings of our own

SasTest::http_post("http://127.0.0.1:$service->{control}/", { deaf => { deaf => 1 } });
watch($node, 'pinged', 'deaf');
# on a busy machine an answer to a ping may come too late
my ($n, $stays, $said) = (0, 0);
until ($stays || ++$n > 10)
{
	watch($node, 'pinged', "awake$n");
	ok(wait_until(sub { $said = $result->($service, "awake$n")->{said} // []; return @$said >= 5 && !grep { $_->[0] != 9 } @$said }), "a service that says nothing is asked with pings, $n");
	$stays = $result->($service, "awake$n")->{connections} == 1;
}
ok($stays, 'and while it answers, the connection stays');
ok(wait_until(sub { $error->('pinged', 'deaf') =~ /no data arrived within idle_timeout/ }), 'one that does not answer is given up');

# -- stopped

$node->safe_psql('postgres', q{SELECT sas.unwatch('plain', '{quiet}')});
ok(wait_until(sub { ($result->($service, 'quiet')->{ended} // '') ne '' }), 'a watch that is stopped closes its connection');
is_deeply($result->($service, 'quiet')->{said}[-1], [ 8, '1001' ], 'and says so');

# -- TLS

watch($node, 'tls', '1.1.7', '5.20', '6.2.1', '7.7.1');
ok(wait_until(sub { my $r = SasTest::http_get("http://127.0.0.1:$secure->{control}/")->{results}; return !grep { !$r->{$_}{ended} } '1.1.7', '5.20', '6.2.1', '7.7.1' }), 'over TLS connections begin and end');
ok(wait_for($node, q{SELECT count(*) FROM public.item WHERE watcher = 'tls'}, 3), 'and messages come');
watch($node, 'stranger', 'x');
ok(wait_until(sub { $error->('stranger', 'x') =~ /certificate of the server is self-signed/ }), 'a certificate of an unknown authority is refused');
$safe->feeds(t => { items => 2000, pad => 500 });
watch($node, 'safe', 't');
got_items($node, 'safe', 't', 2000, 'a megabyte over TLS comes, in order');

# -- more than can be stored at once, and the ends of worker and server

$streams->feeds(map { $_ => { items => 3000, pad => 300, per => 700 } } qw(a b c));
watch($node, 'feed', qw(a b c));
ok(wait_for($node, q{SELECT count(*) > 500 FROM public.item WHERE watcher = 'feed'}), 'items come');
kill_worker($node, 'agent', 'KILL');
ok(wait_for($node, q{SELECT count(*) > 2000 FROM public.item WHERE watcher = 'feed'}), 'and after the worker was killed');
$node->stop('immediate');
$node->start;
got_items($node, 'feed', $_, 3000, "feed $_: after the ends of worker and server each item is there once") foreach qw(a b c);
kill_worker($node, 'agent', 'TERM');
$streams->feeds(map { $_ => { items => 3100 } } qw(a b c));
got_items($node, 'feed', $_, 3100, "feed $_: and after a worker that ended in good order") foreach qw(a b c);

# -- the border

$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.deny_networks = '127.0.0.0/8'});
$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
ok(wait_until(sub { $streams->feed('a')->{open} == 0 }), 'connections to where nobody may be end');
ok(wait_until(sub { $error->('feed', 'a') =~ /sas.deny_networks forbids/ }), 'and say why');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET sas.deny_networks');
$node->safe_psql('postgres', 'SELECT pg_reload_conf()');

# -- a flood of pings of a service that does not read, and one of empty fragments

my $pings = encode_base64(("\x89\x7d" . 'p' x 125) x 20000, '');
my $empty = encode_base64("\x01\x00" . "\x00\x00" x 500000, '');
my ($agent) = worker_pids($node, 'agent');
SasTest::http_post("http://127.0.0.1:$service->{control}/", { pings => { sent => $pings }, empty => { sent => $empty } });
watch($node, 'plain', 'pings', 'empty');
ok(wait_until(sub { @{ $result->($service, 'pings')->{said} // [] } == 20001 || $error->('plain', 'pings') =~ /does not read what is sent/ }), 'a flood of pings is answered or ended');
ok(wait_until(sub { my $r = $result->($service, 'empty'); return @{ $r->{said} // [] } == 1 }), 'one of empty fragments is read');
is((worker_pids($node, 'agent'))[0], $agent, 'by the same worker');
needs_less(own_memory($agent), 100000, 'that has not grown');
$node->stop;
done_testing();
