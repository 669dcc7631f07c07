# SPDX-License-Identifier: PostgreSQL
#
# A cancelled run repeats a call in doubt until its outcome is known, where the undo needs its output. The cancel of
# another run does not stop this repeated call, and a Retry-After of the service is waited for.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

# one worker: when it has stopped the call of one run, it has looked up those of all
my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
sub ended { my ($run, $state, $what) = @_; return ok(wait_for($node, "SELECT r.result || ' ' || s.state FROM sas.runs r JOIN sas.steps s USING (run_id) WHERE r.run_id = $run", $state), $what) }

sub one
{
	my ($name, $undo, %more) = @_;
	define($node, $name, { steps => { it => { agent => 'remote', complete_in => '5 min', call => { method => 'POST', path => "/$name" },
					undo => { call => { method => 'DELETE', path => "/undo/$undo" } }, %more } } });
	my $run = submit($node, $name, {});
	$service->wait_for_requests($name, 1);
	return $run;
}

make_agent($node, 'remote', $service, request_timeout => '100 s');

# -- another run is cancelled ---------------------------------------------------------------------------------

$service->script(asked => [ { how => 'watch' }, { gate => JSON::PP::true, json => { id => 7 } } ], other => [ { how => 'watch' } ]);
my $run = one('asked', '{{steps.it.output.body.id}}');
my $other = one('other', '{{steps.it.key}}');
sql("SELECT sas.cancel($run)");
ok($service->wait_for_requests('asked', 2), 'a cancelled run repeats a call, because its undo needs the output');
sql("SELECT sas.cancel($other)");
ended($other, 'cancelled compensated', 'another run is cancelled meanwhile');
is(sql("SELECT state FROM sas.steps WHERE run_id = $run"), 'running', 'the repeated call goes on');
$service->release;
ended($run, 'cancelled compensated', 'until it is answered');
is(scalar $service->requests('asked'), 2, 'it was sent once');

# -- the service wants it later ---------------------------------------------------------------------------------

$service->script(later => [ { how => 'watch' }, { status => 503, headers => [ [ 'Retry-After', '1000' ] ] }, { json => { id => 8 } } ]);
$run = one('later', '{{steps.it.output.body.id}}');
sql("SELECT sas.cancel($run)");
ok(wait_for($node, "SELECT state || ' ' || (waiting_until > now() + interval '5 min')::text FROM sas.steps WHERE run_id = $run", 'suspended true'), 'a Retry-After beyond the window is waited for');
is(scalar $service->requests('later'), 2, 'nothing is sent meanwhile');
sql("SELECT sas.reset_agent('remote')");
ended($run, 'cancelled compensated', 'then its outcome is asked for again');
is(scalar $service->requests('later'), 3, 'once');
$node->stop;
done_testing();
