# SPDX-License-Identifier: PostgreSQL
#
# Failures of one role do not open the breaker of an agent while the service does what another role asks of it,
# nor does a single failure of another role beside them. Failures of two roles do, and those of a role that is the
# only one to call. Then a call of another role is the probe, at once: the role that fails keeps it open for no other.
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
foreach my $agent ('shared', 'lonely', 'down', 'path')
{
	my $paths = $agent eq 'path' ? ', "paths": ["/under"]' : '';
	make_agent($node, $agent, $service, retry => '{"max_attempts": 1}', breaker => qq({"failures": 3, "window": "1 h", "open_for": "1 h"$paths}));
	sql("SELECT sas.grant_agent('$agent', r) FROM unnest('{ann,bob}'::regrole[]) r");
	foreach my $name ('good', 'bad', 'late', 'under')
	{
		define($node, "${name}_$agent", { steps => { it => { agent => $agent, on_failure => 'fail', expect => '$.output.status == 200',
					call => { method => 'POST', path => "/$name", timeout => $name eq 'late' ? '200 ms' : '30 s' } } },
				recovery => { max_failures => 1 } });
		sql("SELECT sas.grant_workflow('${name}_$agent', r) FROM unnest('{ann,bob}'::regrole[]) r");
	}
}
$service->script(bad => [ ({ status => 500 }) x 200 ]);
$service->script(under => [ ({ status => 500 }) x 3, { status => 200 } ]);
$service->script(late => [ ({ status => 200, delay => 20 }) x 20 ]);

is(run_of($node, run_as('bob', 'good_shared'))->{result}, 'success', 'a role calls an agent');
my @bad = map { run_as('ann', 'bad_shared') } 1 .. 10;
is(run_of($node, $_)->{result}, 'error', 'each call of another one fails') foreach @bad;
is(breaker('shared'), 'closed', 'its failures in a row do not open the breaker');
@bad = map { run_as('ann', 'late_shared') } 1 .. 4;
is(run_of($node, $_)->{result}, 'error', 'its calls time out') foreach @bad;
is(breaker('shared'), 'closed', 'nor do its own time-outs');
is(run_of($node, run_as('bob', 'good_shared'))->{result}, 'success', 'and the first role is served');
is(run_of($node, run_as('ann', 'bad_shared'))->{result}, 'error', 'more calls of the other one fail') foreach 1 .. 5;
is(run_of($node, run_as('bob', 'bad_shared'))->{result}, 'error', 'and a single one of the first role');
is(breaker('shared'), 'closed', 'that does not open it');
is(run_of($node, run_as('ann', 'bad_shared'))->{result}, 'error', 'a call of the other one fails again');
is(breaker('shared'), 'closed', 'nor does the next failure');
is(run_of($node, run_as('bob', 'good_shared'))->{result}, 'success', 'and the first role is served again');
run_as($_, 'bad_shared') foreach 'ann', 'ann', 'bob', 'bob';
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'shared'}, 'open'), 'if calls of both fail in a row, it opens') or diag(breaker('shared'));

# -- probes --------------------------------------------------------------------------------------------------

sub opens
{
	my ($agent, $why) = @_;
	return ok(wait_for($node, "SELECT breaker FROM sas.agents WHERE name = '$agent'", 'open'), $why) || diag(breaker($agent));
}

run_as('ann', 'bad_lonely') foreach 1 .. 3;
opens('lonely', 'failures of the only role that calls an agent open it');
my $waits = run_as('ann', 'good_lonely');
is(run_of($node, run_as('bob', 'good_lonely'))->{result}, 'success', 'a call of another role is served, although its breaker is open for an hour');
is(run_of($node, $waits)->{result}, 'success', 'its success closes it for the first role, too');
is(breaker('lonely'), 'closed', 'and it is closed');

run_as('ann', 'bad_down') foreach 1 .. 3;
opens('down', 'an agent is down');
my $bad = scalar $service->requests('bad');
run_as('bob', 'bad_down') foreach 1 .. 5;
ok(wait_for($node, q{SELECT count(*) FROM sas.attempts WHERE agent = 'down'}, 4), 'one call of another role tries it');
is(run_of($node, run_as('bob', 'good_lonely'))->{result}, 'success', 'meanwhile calls of another agent come and go') foreach 1 .. 3;
is(scalar($service->requests('bad')), $bad + 1, 'and no more, since that fails');
is(breaker('down'), 'open', 'it stays open');

$waits = run_as('ann', 'bad_shared');
sql(q{SELECT sas.reset_agent('shared')});
is(run_of($node, $waits)->{result}, 'error', 'the probe of a breaker that is half-open is a call of the role whose calls fail');
opens('shared', 'it fails');
is(run_of($node, run_as('bob', 'good_shared'))->{result}, 'success', 'that does not keep it open for another role');

my @under = map { run_as('ann', 'under_path') } 1 .. 3;
is(run_of($node, $_)->{result}, 'error', 'calls below a path fail') foreach @under;
ok(wait_for($node, q{SELECT path_breakers FROM sas.agents WHERE name = 'path'}, '{"/under": "open"}'), 'its breaker opens');
is(run_of($node, run_as('bob', 'under_path'))->{result}, 'success', 'a call of another role below it is served');

done_testing();
