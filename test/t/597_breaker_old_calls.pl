# SPDX-License-Identifier: PostgreSQL
#
# A call began before the breaker of its agent opened, and fails later. That is no news: it neither opens the breaker
# again once the probe has closed it, nor takes its turn from the probe while it is half-open.
# Takes about 10 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasService;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
make_agent($node, 'fuse', $service, retry => '{"max_attempts": 1}', breaker => '{"failures": 1, "open_for": "100 ms"}');
my $breaker = q{SELECT breaker FROM sas.agents WHERE name = 'fuse'};
my %script = (
	opens => [ { status => 500 }, {} ],
	gated => [ { gate => 1, status => 500 }, { gate => 1 } ],
	again => [ { status => 500 }, { gate => 1 }, {} ],
	late => [ { delay => 5, status => 500 }, {} ]);
$service->script(%script);
define($node, $_, { steps => { it => { agent => 'fuse', call => { method => 'POST', path => "/$_" } } },
		recovery => { max_failures => 100, initial => '20 ms', max => '20 ms' } }) foreach keys %script;
sub failed { my ($name) = @_; return "SELECT count(*) FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE r.workflow = '$name' AND a.status = 'failed'" }

submit($node, 'gated', {});
ok($service->wait_for_requests('gated', 1), 'a call waits for its answer');
my $opens = submit($node, 'opens', {});
is(run_of($node, $opens)->{result}, 'success', 'another one opens the breaker, and is the probe that closes it');
is($node->safe_psql('postgres', failed('opens')), '1', 'it had failed once');
is($node->safe_psql('postgres', $breaker), 'closed', 'the breaker is closed');
$service->release;
ok(wait_for($node, failed('gated'), '1'), 'the first one fails');
ok($service->wait_for_requests('gated', 2), 'it is made again');
is($node->safe_psql('postgres', $breaker), 'closed', 'not as the probe: the breaker stayed closed');
$service->release;
all_ended($node, 'they end');

submit($node, 'late', {});
ok($service->wait_for_requests('late', 1), 'again a call waits for its answer');
my $again = submit($node, 'again', {});
ok($service->wait_for_requests('again', 2), 'another one opens the breaker, and is the probe');
ok(wait_for($node, failed('late'), '1'), 'the first one fails');
is($node->safe_psql('postgres', $breaker), 'half-open', 'the breaker waits for its probe');
$service->release;
is(run_of($node, $again)->{result}, 'success', 'that is answered');
is($node->safe_psql('postgres', $breaker), 'closed', 'and closes it');
all_ended($node, 'all end');
$node->stop;
done_testing();
