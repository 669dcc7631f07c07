# SPDX-License-Identifier: PostgreSQL
#
# Failures of one role do not open the breaker of an agent while the service does what another role asks of it.
# Failures of two roles do, and those of a role that is the only one to call.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
sub breaker { my ($agent) = @_; return sql("SELECT breaker FROM sas.agents WHERE name = '$agent'") }

sub run_as
{
	my ($role, $workflow) = @_;
	return sql("SET ROLE $role; SELECT run_id FROM sas.submit('$workflow')");
}
sql(q{CREATE ROLE ann; CREATE ROLE bob; SELECT sas.grant_usage(r, 'user') FROM unnest('{ann,bob}'::regrole[]) r});
foreach my $agent ('shared', 'lonely')
{
	make_agent($node, $agent, $service, retry => '{"max_attempts": 1}', breaker => '{"failures": 3, "window": "1 h", "open_for": "1 h"}');
	sql("SELECT sas.grant_agent('$agent', r) FROM unnest('{ann,bob}'::regrole[]) r");
	foreach my $name ('good', 'bad', 'late')
	{
		define($node, "${name}_$agent", { steps => { it => { agent => $agent, on_failure => 'fail', expect => '$.output.status == 200',
					call => { method => 'POST', path => "/$name", timeout => $name eq 'late' ? '200 ms' : '30 s' } } },
				recovery => { max_failures => 1 } });
		sql("SELECT sas.grant_workflow('${name}_$agent', r) FROM unnest('{ann,bob}'::regrole[]) r");
	}
}
$service->script(bad => [ ({ status => 500 }) x 200 ]);
$service->script(late => [ ({ status => 200, delay => 20 }) x 20 ]);

is(run_of($node, run_as('bob', 'good_shared'))->{result}, 'success', 'a role calls an agent');
my @bad = map { run_as('ann', 'bad_shared') } 1 .. 10;
is(run_of($node, $_)->{result}, 'error', 'each call of another one fails') foreach @bad;
is(breaker('shared'), 'closed', 'its failures in a row do not open the breaker');
@bad = map { run_as('ann', 'late_shared') } 1 .. 4;
is(run_of($node, $_)->{result}, 'error', 'its calls time out') foreach @bad;
is(breaker('shared'), 'closed', 'nor do its own time-outs');
is(run_of($node, run_as('bob', 'good_shared'))->{result}, 'success', 'and the first role is served');
run_as($_, 'bad_shared') foreach 'ann', 'ann', 'bob';
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'shared'}, 'open'), 'if calls of both fail in a row, it opens') or diag(breaker('shared'));

run_as('ann', 'bad_lonely') foreach 1 .. 3;
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'lonely'}, 'open'), 'failures of the only role that calls an agent open it')
  or diag(breaker('lonely'));

done_testing();
