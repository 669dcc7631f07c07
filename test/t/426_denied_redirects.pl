# SPDX-License-Identifier: PostgreSQL
#
# A service leads nobody to an address that is denied: not by a redirect, of a call, hook, stream, poll or token
# service; nor by a name that has another address at the next connect; nor by a connection that was made before the
# address was denied. And by default the addresses at which clouds give out credentials are denied, every one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Socket::IP;
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main');
my $default = $node->safe_psql('postgres', 'SHOW sas.deny_networks');
my $service = SasService->new;
# the address that is denied, and on which a service would answer
my $denied = SasService->new(address => '127.0.0.2');
my %once = (retry => '{"max_attempts": 1}');
my $following = '{"follow_redirects": true}';

sub sql { return $node->safe_psql('postgres', $_[0]) }

sub deny
{
	my ($list) = @_;
	sql("ALTER SYSTEM SET sas.deny_networks = $list; SELECT pg_reload_conf()");
	wait_for($node, q{SELECT replace(setting, '"', '') FROM pg_settings WHERE name = 'sas.deny_networks'}, $list =~ tr/'//dr);
	return;
}
sub redirect { my ($to, $status) = @_; return [ { status => $status // 302, headers => [ [ Location => $to ] ] } ] }
sub ends { my ($agent, $path) = @_; my $run = run_call($node, $agent, { path => $path }); return "$run->{result} " . ($run->{error}{status} // $run->{error}{detail} // '') }

# -- by default ---------------------------------------------------------------------------------------------------

my %clouds = (
	'169.254.169.254' => 'Amazon, Google, Azure, Oracle and most others', '169.254.170.2' => 'Amazon, of a container', '169.254.170.23' => 'Amazon, of a pod', '[fd00:ec2::254]' => 'Amazon', '[fd00:ec2::23]' => 'Amazon, of a pod',
	'[fd20:ce::254]' => 'Google', '[fe80::a9fe:a9fe]' => 'OpenStack', '168.63.129.16' => 'Azure, the agent of the machine', '100.100.100.200' => 'Alibaba', '192.0.0.192' => 'Oracle, the older cloud', '169.254.42.42' => 'Scaleway', '[fd00:42::42]' => 'Scaleway',
	'[fd00:a9fe:a9fe::1]' => 'Akamai', '[::ffff:168.63.129.16]' => 'Azure, as IPv6 has it', '[64:ff9b::6464:64c8]' => 'Alibaba, as a gateway translates it');
my $forbidden = 'error sas.deny_networks forbids the address of the service';
foreach my $address (sort keys %clouds)
{
	make_agent($node, 'cloud', "http://$address", %once);
	is(ends('cloud', '/'), $forbidden, "by default nothing connects to $address ($clouds{$address})");
}
make_agent($node, 'follower', $service, %once, options => $following);
is(ends('follower', '/quick'), 'success ', 'but to others');

# -- redirects to another address -----------------------------------------------------------------------------------

deny(q{'127.0.0.2', '169.254.0.0/16'});
my $stolen = "http://127.0.0.2:$denied->{port}/stolen";
my @targets = ($stolen, $stolen =~ s{^http:}{}r, 'http://169.254.169.254/latest/meta-data/', "http://[::ffff:7f00:2]:$denied->{port}/stolen", "http://0x7f000002:$denied->{port}/stolen", "http://2130706434:$denied->{port}/stolen");
foreach my $n (0 .. $#targets)
{
	foreach my $status (301, 302, 303, 307, 308)
	{
		$service->script("call_${n}_$status" => redirect($targets[$n], $status));
		is(ends('follower', "/call_${n}_$status"), "error $status", "a call is not redirected by $status to " . $targets[$n] =~ s/\d{5}/PORT/r);
	}
}
$service->script(hooked => redirect($stolen), streamed => redirect($stolen), polled => redirect($stolen), asked => redirect($stolen), token => redirect($stolen));
define($node, 'told', { steps => {}, hooks => [ { on => 'success', agent => 'follower', retry => { max_attempts => 1 }, recovery => { max_failures => 1 }, call => { method => 'POST', path => '/hooked', body => {} } } ] });
submit($node, 'told');
ok(wait_for($node, q{SELECT state || ' ' || result || ' ' || (error ->> 'status') FROM sas.hook_runs WHERE workflow = 'told'}, 'stopped error 302'), 'nor is a hook');
make_table($node);
make_watcher($node, 'streams', { agent => 'follower', stream => { format => 'sse', path => '/streamed' } });
make_watcher($node, 'polls', { agent => 'follower', poll => { call => { path => '/polled' }, every => '1 s' } });
foreach my $watcher ('streams', 'polls')
{
	watch($node, $watcher, 'a');
	ok(wait_until(sub { return (watch_of($node, $watcher, 'a')->{last_error}{status} // 0) == 302 }), "nor are $watcher")
	  or diag(explain(watch_of($node, $watcher, 'a')));
	sql("SELECT FROM sas.unwatch('$watcher', '{a}')");
}
my $run = run_call($node, 'follower', { method => 'POST', path => '/begun', body => {} }, { step => { poll => { call => { path => '/asked' }, every => '20 ms', until => '$.output.body.done == true', timeout => '2 s' } } });
is($run->{result}, 'error', 'nor is what asks for the end of a job');
sql(q{SELECT sas.set_secret('of_me', 'hunter2')});
make_agent($node, 'token', $service, %once, options => '{"oauth2": {"token_url": "' . $service->url('/token') . '", "client_id": "me", "client_secret": "{{secret.of_me}}"}}');
like(ends('token', '/quick'), qr/^error .*302/, 'nor is a token asked for');
cmp_ok(scalar($service->requests('token')), '>', 0, 'which the token service had been asked for');
is($denied->figures->{connections}, 0, 'nobody has connected to the denied address');

# -- the address itself: not even a connection, in which TLS would tell a name and a certificate ------------------------

my $there = "http://127.0.0.2:$denied->{port}";
make_agent($node, 'direct', $there, %once);
is(ends('direct', '/quick'), $forbidden, 'a call to a denied address ends');
make_agent($node, 'token', $service, %once, options => '{"oauth2": {"token_url": "' . $there . '/token", "client_id": "me", "client_secret": "{{secret.of_me}}"}}');
like(ends('token', '/quick'), qr/^error .*sas\.deny_networks forbids/, 'and one whose token service is there');
make_watcher($node, 'direct', { agent => 'direct', stream => { format => 'sse', path => '/feed' } });
watch($node, 'direct', 'a');
ok(wait_until(sub { return (watch_of($node, 'direct', 'a')->{last_error}{detail} // '') =~ /^sas\.deny_networks/ }), 'and a stream')
  or diag(explain(watch_of($node, 'direct', 'a')));
sql(q{SELECT FROM sas.unwatch('direct', '{a}')});
is($denied->figures->{connections}, 0, 'none of them has connected to it');

# -- the same name, with another address at the next connect ----------------------------------------------------------

# localhost is ::1 and then 127.0.0.1: the first answers, and is not there for the redirect to itself
SKIP:
{
	my $first = sub { IO::Socket::IP->new(LocalHost => '::1', LocalPort => $service->{port}, Listen => 8, ReuseAddr => 1, Type => Socket::SOCK_STREAM(), Timeout => 120) };
	my $probe = $first->();
	skip 'there is no ::1 here', 8 unless $probe;
	close $probe;
	deny(q{'127.0.0.0/8'});
	my $name = "http://localhost:$service->{port}";
	my $before = scalar $service->requests;
	# whichever address is tried last: the one that is gone, or the one that is denied and would answer
	my $nowhere = qr/^(connection refused|sas\.deny_networks forbids the address of the service)$/;
	# lead(what, begin): the first one's listener answers once, and is closed before; what the worker then does is told by the test
	my $lead = sub {
		my ($what, $begin) = @_;
		my $listener = $first->() or die "listen: $!";
		$begin->();
		my $socket = $listener->accept or die "accept: $!";
		my $request = '';
		sysread($socket, $request, 4096, length $request) or die 'no request' until $request =~ /\r\n\r\n/;
		close $listener;
		syswrite $socket, "HTTP/1.1 307 Temporary Redirect\r\nLocation: /target\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
		close $socket;
		like($request, qr/^(GET|POST) \/\w* HTTP\/1\.1\r\n/, "$what reaches the allowed address of a name");
		return;
	};
	make_agent($node, 'named', $name, %once, options => $following);
	my $id;
	define($node, 'redirected', { steps => { it => { agent => 'named', call => { path => '/moved' } } }, recovery => { max_failures => 1 } });
	$lead->('a call', sub { $id = submit($node, 'redirected') });
	like(run_of($node, $id)->{error}{detail}, $nowhere, 'and its redirect connects to no denied one');
	define($node, 'hooked', { steps => {}, hooks => [ { on => 'success', agent => 'named', retry => { max_attempts => 1 }, recovery => { max_failures => 1 }, call => { path => '/hook' } } ] });
	$lead->('a hook', sub { submit($node, 'hooked') });
	my $of_hook = q{SELECT error ->> 'detail' FROM sas.hook_runs WHERE workflow = 'hooked'};
	ok(wait_until(sub { return sql($of_hook) =~ $nowhere }), 'nor does its redirect');
	make_watcher($node, 'named', { agent => 'named', stream => { format => 'sse', path => '/feed' } });
	$lead->('a stream', sub { watch($node, 'named', 'a') });
	ok(wait_until(sub { return (watch_of($node, 'named', 'a')->{last_error}{detail} // '') =~ $nowhere }), 'nor does its redirect')
	  or diag(explain(watch_of($node, 'named', 'a')));
	sql(q{SELECT FROM sas.unwatch('named', '{a}')});
	make_agent($node, 'token', "http://[::1]:$service->{port}", %once, options => '{"oauth2": {"token_url": "' . $name . '/token", "client_id": "me", "client_secret": "{{secret.of_me}}"}}');
	define($node, 'tokens', { steps => { it => { agent => 'token', call => { path => '/quick' } } }, recovery => { max_failures => 1 } });
	$lead->('a token request', sub { $id = submit($node, 'tokens') });
	like(run_of($node, $id)->{error}{detail}, qr/307/, 'and follows no redirect');
	is(scalar($service->requests) - $before, 0, 'the service at the denied address of that name has got nothing');
}

# -- connections that were made before --------------------------------------------------------------------------------

deny(q{'127.0.0.2'});
make_agent($node, 'kept', $service, %once, options => $following);
make_agent($node, 'token', $service, %once, options => '{"oauth2": {"token_url": "' . $service->url('/tokens') . '", "client_id": "me", "client_secret": "{{secret.of_me}}"}}');
define($node, 'kept_hook', { steps => {}, hooks => [ { on => 'success', agent => 'kept', retry => { max_attempts => 1 }, recovery => { max_failures => 1 }, call => { path => '/hook' } } ] });
$service->script(tokens => [ { json => { access_token => 'token-of-the-test', token_type => 'Bearer', expires_in => 1 } } ]);
is(ends($_, '/quick'), 'success ', "agent $_ has a connection") foreach 'kept', 'token';
submit($node, 'kept_hook');
ok(wait_for($node, q{SELECT state || ' ' || result FROM sas.hook_runs WHERE workflow = 'kept_hook'}, 'stopped success'), 'and a hook');
# a request that waits for its redirect
$service->script(gated => [ { gate => JSON::PP::true(), status => 302, headers => [ [ Location => '/never' ] ] } ]);
define($node, 'gated', { steps => { it => { agent => 'kept', call => { path => '/gated' } } }, recovery => { max_failures => 1 } });
my $gated = submit($node, 'gated');
ok($service->wait_for_requests('gated', 1), 'a request waits for its answer');
deny(q{'127.0.0.0/8', '::1'});
$run = run_of($node, $gated);
is("error $run->{error}{detail}", $forbidden, 'when its address is denied it ends');
$service->release;
my $before = scalar grep { $_->{script} !~ /gated/ } $service->requests;
is(ends('kept', '/quick'), $forbidden, 'a kept connection is not used');
like(ends('token', '/quick'), qr/^error .*sas\.deny_networks forbids/, 'neither to the service nor to its token service');
submit($node, 'kept_hook');
ok(wait_for($node, q{SELECT string_agg(result || ' ' || coalesce(error ->> 'detail', ''), ',' ORDER BY run_id) FROM sas.hook_runs WHERE workflow = 'kept_hook'}, "success ,$forbidden"), 'nor by a hook');
is(scalar(grep { $_->{script} !~ /gated/ } $service->requests), $before, 'the service has got nothing more');
is(scalar($service->requests('never')), 0, 'nor was the redirect followed');

# -- and the default is whole again -----------------------------------------------------------------------------------

sql('ALTER SYSTEM RESET sas.deny_networks; SELECT pg_reload_conf()');
ok(wait_for($node, 'SHOW sas.deny_networks', $default), 'without a setting the default holds again');
done_testing();
