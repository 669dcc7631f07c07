# SPDX-License-Identifier: PostgreSQL
#
# A worker that is stopped (SIGSTOP) until the time of its calls is over finds both: their answers, and that it is late.
# A whole answer counts: to calls, to requests for tokens, to long polls of which the service tells each item once.
# Half an answer does not.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
my $limit_s = 12;
my @gate = (gate => JSON::PP::true);
my $well = { json => { is => 'well' } };
my @once = ({ @gate, json => [ { n => 1 } ] }, { how => 'silent' });

$service->script(
	whole => [ { @gate, %$well }, $well ], half => [ { @gate, how => 'half' }, $well ], reset => [ { @gate, how => 'reset' }, $well ],
	moved => [ map { { @$_, status => 303, headers => [ [ Location => "/target" ] ] } } \@gate, [] ], target => [$well],
	token => [ { @gate, json => { access_token => 'abc', token_type => 'Bearer', expires_in => 3600 } } ], bearing => [$well],
	long => \@once);
make_agent($node, 'remote', $service, request_timeout => "$limit_s s", options => '{"follow_redirects": true}');
$node->safe_psql('postgres', q{SELECT sas.set_secret('shop', 'word')});
make_agent($node, 'guarded', $service, request_timeout => "$limit_s s",
	options => sprintf '{"oauth2": {"token_url": "%s", "client_id": "shop", "client_secret": "{{secret.shop}}"}}', $service->url('/token'));
make_table($node);
make_watcher($node, 'long', { agent => 'remote', stream => { format => 'long_poll', path => '/long', idle_timeout => "$limit_s s" } });
my @calls = qw(whole half reset moved bearing);
define($node, $_, { steps => { it => { agent => $_ eq 'bearing' ? 'guarded' : 'remote', complete_in => '10 min', call => { method => 'PUT', path => "/$_", body => {} } } } }) foreach @calls;

watch($node, 'long', 'it');
my %run = map { $_ => submit($node, $_, {}) } @calls;
ok($service->wait_for_requests($_, 1), "$_ is asked") foreach qw(whole half reset moved token long);
my @workers = worker_pids($node, 'agent');
kill 'STOP', @workers;
my $stopped = time();
$service->release;
ok(wait_until(sub { return time() > $stopped + $limit_s + 1 }), 'their time is over');
is(scalar $service->requests('target'), 0, 'nobody has followed the redirect');
kill 'CONT', @workers;

sub attempts { my ($name) = @_; return join ', ', map { $_->{status} . ($_->{error} ? " $_->{error}{detail}" : '') } @{ run_of($node, $run{$name})->{attempts} } }
my $broken = 'the connection broke';
is(attempts('whole'), 'succeeded', 'a whole answer counts');
is(attempts('half'), "failed $broken in the middle of the answer, succeeded", 'half an answer does not');
is(attempts('reset'), "failed $broken before an answer came, succeeded", 'nor does none');
is(attempts('bearing'), 'succeeded', 'the token is used that came meanwhile');
is(scalar $service->requests('token'), 1, 'and no other is asked for');
is(run_of($node, $run{moved})->{result}, 'success', 'a call that is sent elsewhere gets there');
ok(wait_for($node, q{SELECT count(*) FROM public.item WHERE watcher = 'long'}, '1'), 'what a long poll was told once is an item');
is_deeply([ worker_pids($node, 'agent') ], \@workers, 'the worker is the same');
$node->stop;
done_testing();
