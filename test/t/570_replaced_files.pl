# SPDX-License-Identifier: PostgreSQL
#
# Certificates and authorities are replaced in their files: the next request uses what is there then, whatever
# connection is kept.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();

# certificate(name): one that is its own authority
sub certificate
{
	my ($name) = @_;
	my @files = ("$dir/$name.pem", "$dir/$name.key");
	IPC::Run::run([ 'openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', "/CN=$name",
		'-addext', 'subjectAltName=IP:127.0.0.1', '-out', $files[0], '-keyout', $files[1] ], '>', '/dev/null', '2>', '/dev/null') or die 'openssl failed';
	append_to_file("$dir/$name.both", slurp_file($_)) foreach @files;
	return (cert => $files[0], key => $files[1]);
}

# put(file, what): as platforms do it; overwrite(file, what): as a careless hand does it
sub put { my ($file, $what) = @_; append_to_file("$dir/$file.new", slurp_file("$dir/$what")); rename "$dir/$file.new", "$dir/$file" or die $!; return }
sub overwrite { my ($file, $what) = @_; open my $f, '>', "$dir/$file" or die $!; print $f slurp_file("$dir/$what"); close $f; return }

my $node = new_node('main');
my %of_service = certificate('service');
certificate($_) foreach qw(other one two);
append_to_file("$dir/clients.pem", slurp_file("$dir/$_.pem")) foreach qw(one two);
my $service = SasService->new(%of_service, ca => "$dir/clients.pem");
my %once = (retry => '{"max_attempts": 1}');
my $unknown = qr/^error the certificate of the server is (self-signed|from an unknown authority)$/;

# ends(agent, path): the result, and why
sub ends { my ($agent, $path) = @_; my $run = run_call($node, $agent, { path => $path // '/' }); return "$run->{result} " . ($run->{error}{detail} // '') }
sub client { my ($agent) = @_; my $said = ends($agent, '/client'); my ($last) = reverse $service->requests('client'); return $said eq 'success ' ? $last->{client} // 'nobody' : $said }

# -- authorities ------------------------------------------------------------------------------------------------

put('ca.pem', 'service.pem');
make_agent($node, 'keeps', $service, %once, options => qq({"ca_file": "$dir/ca.pem"}));
$service->script(closed => [ { headers => [ [ Connection => 'close' ] ] } ]);
is(ends('keeps'), 'success ', 'an authority is known');
my $connections = $service->figures->{connections};
is(ends('keeps'), 'success ', 'also by the next call');
is($service->figures->{connections}, $connections, 'which has the same connection');
put('ca.pem', 'other.pem');
like(ends('keeps'), $unknown, 'when its file is replaced, a kept connection is not used');
put('ca.pem', 'service.pem');
is(ends('keeps', '/closed'), 'success ', 'with the first one again, it is known');
my $before = scalar $service->requests;
overwrite('ca.pem', 'other.pem');
like(ends('keeps', '/closed'), $unknown, 'when the file is overwritten, a new connection knows only who is in it now');
overwrite('ca.pem', 'service.pem');
is(ends('keeps'), 'success ', 'an authority that is new in the file is known at once');
unlink "$dir/ca.pem";
is(ends('keeps'), 'error the file of certificate authorities cannot be used', 'without the file nobody is');
is(scalar($service->requests) - $before, 1, 'the service has got nothing meanwhile');
put('ca.pem', 'service.pem');

# -- certificates of clients ----------------------------------------------------------------------------------------

put('me.pem', 'one.both');
make_agent($node, 'me', $service, %once, options => qq({"ca_file": "$dir/service.pem", "cert": "$dir/me.pem"}));
is(client('me'), 'one', 'an agent is who its certificate says');
put('me.pem', 'two.both');
is(client('me'), 'two', 'when the file is replaced, the next call is who is in it now');
overwrite('me.pem', 'one.both');
is(client('me'), 'one', 'also when it is overwritten');
done_testing();
