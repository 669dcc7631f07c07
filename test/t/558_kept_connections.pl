# SPDX-License-Identifier: PostgreSQL
#
# A connection that a worker keeps is used only by calls that would have made the same one: with the same client
# certificate, the same authorities, and the same credentials of the proxy. So no agent calls as another one.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils qw(slurp_file);
use SasTest;
use SasService;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('main', 'sas.agents' => 1);
my %once = (retry => '{"max_attempts": 1}');

# certificate(name): its file, and one with its key behind it; each is its own authority
sub certificate
{
	my ($name) = @_;
	my ($cert, $key) = ("$dir/$name.pem", "$dir/$name.key");
	IPC::Run::run([ 'openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', "/CN=$name", '-addext', 'subjectAltName=IP:127.0.0.1',
		'-out', $cert, '-keyout', $key ], '>', '/dev/null', '2>', '/dev/null') or die 'openssl failed';
	return ($cert, $key);
}
sub joined
{
	my ($name, @files) = @_;
	open my $f, '>', "$dir/$name" or die $!;
	print $f slurp_file($_) foreach @files;
	close $f;
	return "$dir/$name";
}
my %cert = map { $_ => [ certificate($_) ] } qw(service ann bob stranger);
my %both = map { $_ => joined("$_.both", @{ $cert{$_} }) } qw(ann bob);
my $service = SasService->new(cert => $cert{service}[0], key => $cert{service}[1], ca => joined('clients', $cert{ann}[0], $cert{bob}[0]));
sub outcome { my ($agent) = @_; my $run = run_call($node, $agent, { path => '/it' }); return "$run->{result} " . ($run->{error}{detail} // '') }
sub last_request { return (reverse $service->requests('it'))[0] }

# -- certificates -------------------------------------------------------------------------------------------------

my %more = (ann => qq(, "cert": "$both{ann}"), bob => qq(, "cert": "$both{bob}"), nobody => '');
make_agent($node, $_, $service, %once, options => qq({"ca_file": "$cert{service}[0]"$more{$_}})) foreach sort keys %more;
my %connection;
foreach my $round (1 .. 2)
{
	foreach my $who (qw(ann bob nobody))
	{
		is(outcome($who), 'success ', "round $round: a call of agent $who");
		is(last_request()->{client}, $who eq 'nobody' ? undef : $who, 'is one of ' . $who);
		push @{ $connection{$who} }, last_request()->{connection};
	}
}
is($connection{$_}[0], $connection{$_}[1], "the connection of $_ was kept") foreach sort keys %connection;
make_agent($node, 'stranger', $service, %once, options => qq({"ca_file": "$cert{stranger}[0]"}));
like(outcome('stranger'), qr/^error the certificate of the server is/, 'an agent that knows other authorities does not use a connection that is kept');
my $asked = scalar $service->requests('it');
$node->safe_psql('postgres', qq{SELECT sas.alter_agent('ann', options => '{"ca_file": "$cert{stranger}[0]", "cert": "$both{ann}"}')});
like(outcome('ann'), qr/^error the certificate of the server is/, 'nor does an agent whose authorities were changed');
is(scalar $service->requests('it'), $asked, 'the service was asked nothing');

# -- credentials of a proxy ---------------------------------------------------------------------------------------

my $tunnel = SasService->new(program => 'tunnel.py');
my $plain = SasService->new;
sub figures { return SasTest::http_get("http://127.0.0.1:$tunnel->{control}/") }
$node->safe_psql('postgres', q{SET log_statement = 'none'; SELECT sas.set_secret('of_carl', 'carl:one'), sas.set_secret('of_dora', 'dora:two')});
foreach my $who (qw(carl dora))
{
	my $proxy = qq("proxy": "http://{{secret.of_$who}}\@127.0.0.1:$tunnel->{port}");
	make_agent($node, $who, $service, %once, options => qq({"ca_file": "$cert{service}[0]", $proxy}));
	make_agent($node, "plain_$who", $plain, %once, options => qq({$proxy}));
}
foreach my $kind ('', 'plain_')
{
	my $before = @{ figures()->{credentials} };
	foreach my $who (qw(carl dora carl dora)) { is(outcome($kind . $who), 'success ', "$who calls through a proxy ($kind)") }
	my @given = @{ figures()->{credentials} };
	my %given = map { $_ => 1 } @given[ $before .. $#given ];
	is_deeply(\%given, { 'carl:one' => 1, 'dora:two' => 1 }, 'each with credentials of its own');
}
unlike($node->safe_psql('postgres', q{SELECT string_agg(concat(output, error), '') FROM sas.steps}), qr/carl:one|dora:two|Y2FybDpvbmU|ZG9yYTp0d28/, 'nothing of them is stored');
done_testing();
