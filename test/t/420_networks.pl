# SPDX-License-Identifier: PostgreSQL
#
# Workers connect to the addresses that sas.deny_networks and
# sas.allow_networks leave, whatever name leads to another one.  Connections
# that were made before are asked about, too.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;
my $streams = SasStreams->new;
my ($port) = $service->url =~ /:(\d+)$/;
my %once = (retry => '{"max_attempts": 1}');

make_agent($node, 'address', $service, %once);
make_agent($node, 'name', "http://localhost:$port", %once);
make_agent($node, 'link_local', 'http://169.254.169.254', %once);
make_agent($node, 'mapped', "http://[::ffff:169.254.169.254]", %once);
make_agent($node, 'feed', $streams);
make_table($node);

# set(name => value, ...): in force in all workers
sub set
{
	my (%setting) = @_;
	$node->safe_psql('postgres', join ';', (map { "ALTER SYSTEM SET sas.$_ = $setting{$_}" } sort keys %setting), 'SELECT pg_reload_conf()');
	foreach my $name (sort keys %setting)
	{
		(my $plain = $setting{$name}) =~ tr/'//d;
		$plain = $node->safe_psql('postgres', "SELECT boot_val FROM pg_settings WHERE name = 'sas.$name'") if $plain eq 'DEFAULT';
		wait_for($node, "SELECT replace(setting, '\"', '') FROM pg_settings WHERE name = 'sas.$name'", $plain);
	}
	return;
}

# how a call ends
sub ends
{
	my ($agent) = @_;
	my $run = run_call($node, $agent, { path => '/quick' });
	return "$run->{result} " . ($run->{error}{detail} // '');
}

my $denied = 'error sas.deny_networks forbids the address of the service';
my $left_out = 'error sas.allow_networks does not have the address of the service';

is(ends('address'), 'success ', 'a loopback address is called');
is(ends('link_local'), $denied, 'the address at which clouds give out credentials is not');
is(ends('mapped'), $denied, 'nor the same address as IPv6 has it');
# NAT64, also with prefixes of one's own, 6to4, IPv4-compatible, IPv4-translated, Teredo, ISATAP
foreach my $form ('64:ff9b::a9fe:a9fe', '64:ff9b:1::a9fe:a9fe', '64:ff9b:1:a9fe:a9:fe00::', '64:ff9b:1:aaa9:fe:a9fe::', '64:ff9b:1:aa:a9:fea9:fe00:0', '2002:a9fe:a9fe::1',
	'::169.254.169.254', '::ffff:0:169.254.169.254', '2001:0:102:304:0:ffff:5601:5601', '2001:db8::5efe:169.254.169.254', '2001:db8::200:5efe:169.254.169.254')
{
	make_agent($node, 'form', "http://[$form]", %once);
	is(ends('form'), $denied, "nor in the form $form");
}
is($node->safe_psql('postgres', q{SELECT bool_or(in_doubt) FROM _sas.step WHERE state = 'failed'}), 'f', 'and nothing is in doubt: nothing was sent');

# -- token services and hooks ---------------------------------------------------------------------------
$node->safe_psql('postgres', q{SELECT sas.set_secret('of_me', 'hunter2')});
make_agent($node, 'token', $service, %once, options => '{"oauth2": {"token_url": "http://169.254.169.254/token", "client_id": "me", "client_secret": "{{secret.of_me}}"}}');
like(ends('token'), qr/^error .*sas\.deny_networks forbids the address/, 'a token service at that address is not asked');
define($node, 'told', { steps => {}, hooks => [ { on => 'success', agent => 'link_local', retry => { max_attempts => 1 }, recovery => { max_failures => 1 }, call => { method => 'POST', path => '/', body => {} } } ] });
submit($node, 'told');
ok(wait_for($node, q{SELECT state || ' ' || result || ' ' || (error ->> 'detail') FROM sas.hook_runs WHERE workflow = 'told'}, 'stopped error sas.deny_networks forbids the address of the service'), 'nor is a hook told there')
  or diag($node->safe_psql('postgres', q{SELECT h::text FROM sas.hook_runs h}));

# -- a change reaches connections that are kept, and streams that are open -------------------------
make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}' } });
$streams->feeds(good => { items => 3 });
watch($node, 'events', 'good');
got_items($node, 'events', 'good', 3, 'a stream is open');
my $before = $service->requests('quick');
set(deny_networks => q{'10.0.0.0/8', '127.0.0.0/8', '::1'});
ok(wait_until(sub { ($streams->feed('good')->{open} // 0) == 0 }), 'an open stream ends when its address is denied');
ok(wait_until(sub { my $watch = watch_of($node, 'events', 'good'); return ($watch->{last_error}{detail} // '') =~ /^sas.deny_networks/ }), 'and its task says why')
  or diag(explain(watch_of($node, 'events', 'good')));
my $connections = $service->figures->{connections};
is(ends('address'), $denied, 'a kept connection is not used either');
is(ends('name'), $denied, 'nor is the address by its name');
make_agent($node, 'unspecified', "http://0.0.0.0:$port", %once);
is(ends('unspecified'), $denied, 'nor by the address that stands for none');
is(scalar($service->requests('quick')), $before, 'the service has got nothing');
is($service->figures->{connections}, $connections, 'not even a connection');
set(deny_networks => q{'0.0.0.0/8'});
is(ends('unspecified'), $denied, 'the address that stands for none has a network of its own, too');
is(ends('address'), 'success ', 'which is not that of this machine');
make_agent($node, 'six', 'http://[::1]:1', %once);
is(ends('six'), 'error connection refused', 'nor ::1, though it begins with zeros');
set(deny_networks => q{'::ffff:127.0.0.0/104', '::1'});
is(ends('address'), $denied, 'an IPv4 network may be written as IPv6 has it');
set(deny_networks => 'DEFAULT');
is(ends('name'), 'success ', 'then it is called again');
ok(wait_until(sub { ($streams->feed('good')->{open} // 0) == 1 }), 'and the stream is open again');

# -- the other way round -------------------------------------------------------------------------
set(allow_networks => q{'10.0.0.0/8'});
is(ends('address'), $left_out, 'what is not in allow_networks is not called');
set(allow_networks => q{'10.0.0.0/8', '127.0.0.1', '::1'});
is(ends('address'), 'success ', 'what is there is called');
set(deny_networks => q{'127.0.0.1'});
is(ends('address'), $denied, 'but not what both have');
set(deny_networks => q{''}, allow_networks => q{''});
is(ends('address'), 'success ', 'without lists all is allowed');

# -- what is no network --------------------------------------------------------------------------
foreach my $bad ('10.0.0.0/33', '10.0.0', 'localhost', '::1/129', '10.0.0.0/', '10.0.0.0/-1', '10.0.0.0/8x')
{
	my (undef, undef, $problem) = $node->psql('postgres', "ALTER SYSTEM SET sas.deny_networks = '127.0.0.1', '$bad'");
	like($problem, qr/invalid value for parameter "sas.deny_networks".*"\Q$bad\E" is not a network.*HINT/s, "\"$bad\" is refused");
}
done_testing();
