# SPDX-License-Identifier: PostgreSQL
#
# A connection that was kept is closed by the service when it has the next request, before a byte of the answer.  libcurl
# would send the request again by itself.  Only what asks (GET, HEAD, OPTIONS) is sent so; each other request belongs to
# an attempt that is counted.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new(program => 'faults.py');
my @methods = qw(GET HEAD OPTIONS PUT DELETE POST PATCH);
my %asks = map { ($_ => 1) } qw(GET HEAD OPTIONS);

make_agent($node, 'service', $service, max_in_flight => 1, retry => '{"initial": "20 ms", "max_attempts": 3}');
foreach my $method (@methods)
{
	define($node, lc $method, { steps => {
		before => { agent => 'service', call => { method => 'POST', path => '/well/{{run.id}}' } },
		it => { agent => 'service', call => { method => $method, path => '/nothing/{{run.id}}', $method =~ /^(PUT|POST|PATCH)$/ ? (body => {}) : () }, after => ['before'] } } });
}
foreach my $method (@methods)
{
	my $id = submit($node, lc $method, {});
	is(run_of($node, $id)->{result}, 'success', "$method: the run ends well");
	my $attempts = $node->safe_psql('postgres', "SELECT count(*) || ' ' || coalesce(string_agg(DISTINCT error ->> 'detail', ', '), '') FROM sas.attempts WHERE run_id = $id AND step = 'it' AND status = 'failed'");
	is(http_get($service->url("/asked/nothing/$id")), 2, "$method: it is sent twice");
	is($attempts, $asks{$method} ? '0 ' : '1 the connection broke before an answer came', $asks{$method} ? "$method: by libcurl" : "$method: by two attempts, of which the first is in doubt");
}
$node->stop;
done_testing();
