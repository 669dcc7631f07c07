# SPDX-License-Identifier: PostgreSQL
#
# A name has several addresses, and one of them is denied: nothing connects to that one, wherever it stands among them,
# however it is written, and whatever becomes of the others.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
# names are looked up by the module
system('cc', '-O2', '-shared', '-fPIC', '-o', "$dir/names.so", "$FindBin::RealBin/../modules/names.c", '-ldl') == 0 or die 'no module';
$ENV{SAS_NAMES} = "$dir/names";
sub named { open my $f, '>', $ENV{SAS_NAMES} or die $!; print $f "$_\n" foreach @_; close $f; return }
named('127.0.0.1');
my $node = do { local $ENV{LD_PRELOAD} = "$dir/names.so"; new_node('main', 'sas.agents' => 1, 'sas.deny_networks' => '127.0.0.2') };
my $service = SasService->new;
# at the denied address and the same port, one would answer
my $denied = SasService->new(address => '127.0.0.2', port => $service->{port});
my %once = (retry => '{"max_attempts": 1}');
make_table($node);

my @cases = (
	[ [qw(127.0.0.1 127.0.0.2)], 'success', 'the first one is allowed' ],
	[ [qw(127.0.0.2 127.0.0.1)], 'success', 'the second one is allowed' ],
	[ [qw(127.0.0.2 127.0.0.3 127.0.0.1 127.0.0.2)], 'success', 'one in the middle is allowed' ],
	[ [qw(::ffff:127.0.0.2 127.0.0.1)], 'success', 'the denied one is written as IPv6 has it' ],
	[ [qw(127.0.0.3 127.0.0.2)], 'error', 'nobody answers at the allowed one' ],
	[ [qw(127.0.0.2 127.0.0.3)], 'error', 'nobody answers at the second one, which is allowed' ],
	[ [qw(127.0.0.2)], 'error', 'the denied one is the only one' ],
	[ [ '::ffff:127.0.0.2', '64:ff9b::7f00:2', '127.0.0.2' ], 'error', 'all of them are the denied one' ]);
my $n = 0;
foreach my $case (@cases)
{
	my ($addresses, $result, $what) = @$case;
	named(@$addresses);
	# libcurl remembers names: each case is one of a new worker
	kill_worker($node, 'agent', 'TERM');
	foreach my $via ('call', 'proxy')
	{
		my $name = $via . ++$n;
		make_agent($node, $name, $via eq 'call' ? "http://moves.invalid:$service->{port}" : "http://elsewhere.invalid", %once,
			options => $via eq 'call' ? '{}' : qq({"proxy": "http://moves.invalid:$service->{port}"}));
		is(run_call($node, $name, { path => '/it' })->{result}, $result, ($via eq 'call' ? 'a call' : 'and one by a proxy') . ": $what");
	}
}
named(qw(127.0.0.2));
kill_worker($node, 'agent', 'TERM');
make_agent($node, 'feed', "http://moves.invalid:$service->{port}", %once);
make_watcher($node, 'feed', { agent => 'feed', stream => { format => 'sse', path => '/feed' } });
make_watcher($node, 'socket', { agent => 'feed', stream => { format => 'ws', path => '/socket' } });
watch($node, $_, 'a') foreach qw(feed socket);
ok(wait_until(sub { return (watch_of($node, $_, 'a')->{last_error}{detail} // '') =~ /^sas\.deny_networks/ }), "nor does $_ connect") foreach qw(feed socket);
is($denied->figures->{connections}, 0, 'nobody has connected to the denied address');
cmp_ok(scalar($service->requests('it')), '>=', 8, 'and to the others somebody has');
done_testing();
