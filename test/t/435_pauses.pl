# SPDX-License-Identifier: PostgreSQL
#
# Pauses written one by one: the attempts of calls and functions, and the windows after them, follow the list.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;

# gaps(script): the pauses between the requests, in s
sub gaps
{
	my @at = map { $_->{at} } $service->requests($_[0]);
	return map { $at[$_] - $at[$_ - 1] } 1 .. $#at;
}

# -- calls -------------------------------------------------------------------------------

make_agent($node, 'listed', $service, retry => '{"pauses": ["10 ms", "400 ms"]}');
$service->script(ends => [ { status => 503 } ]);
my $run = run_call($node, 'listed', { method => 'POST', path => '/ends' });
my @gaps = gaps('ends');
is("$run->{result} " . scalar @gaps, 'error 2', 'the attempts of a call end with the list of its agent');
cmp_ok($gaps[1], '>=', 0.39, 'each pause is that of the list');

$service->script(longer => [ ({ status => 503 }) x 4, { json => 1 } ]);
$run = run_call($node, 'listed', { method => 'POST', path => '/longer' }, { step => { retry => { pauses => [ '300 ms', '20 ms' ], max_attempts => 5 } } });
@gaps = gaps('longer');
is("$run->{result} " . scalar @gaps, 'success 4', 'with max_attempts the last pause is repeated');
cmp_ok($gaps[0], '>=', 0.29, 'the list of the step, not that of the agent');

# a computed pause would be as long as the window
make_agent($node, 'slow', $service, retry => '{"initial": "55 s", "max": "55 s", "jitter": false}');
$service->script(over => [ { status => 503 }, { json => 1 } ]);
$run = run_call($node, 'slow', { method => 'POST', path => '/over' }, { step => { retry => { pauses => ['10 ms'] } } });
is("$run->{result} $run->{steps}{it}{failure_count}", 'success 0', 'the list of a step takes the place of what its agent computes');
make_agent($node, 'long_list', $service, retry => '{"pauses": ["55 s"]}');
$service->script(back => [ { status => 503 }, { json => 1 } ]);
$run = run_call($node, 'long_list', { method => 'POST', path => '/back' }, { step => { retry => { initial => '10 ms' } } });
is("$run->{result} $run->{steps}{it}{failure_count}", 'success 0', 'and what a step computes that of the list');

# -- functions -----------------------------------------------------------------------------

$node->safe_psql('postgres', q{
	CREATE SEQUENCE tried;
	CREATE TABLE tries (n bigint, at timestamptz);
	CREATE FUNCTION public.shaky(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF nextval('tried') <= (input ->> 'fails')::int THEN
			RAISE 'not yet' USING ERRCODE = 'serialization_failure';
		END IF;
		RETURN to_jsonb(currval('tried'));
	END $$});
my $shaky = { function => 'public.shaky', retry => { pauses => [ '10 ms', '300 ms', '20 ms' ] } };
define($node, 'shaky', { steps => { it => $shaky }, output => '{{steps.it.output}}', recovery => { max_failures => 1 } });
$run = run_of($node, submit($node, 'shaky', { fails => 3 }));
is("$run->{result} $run->{output}", 'success 4', 'a function is tried once more than there are pauses');
my @at = @{ $run->{attempts} };
is($node->safe_psql('postgres', "SELECT '$at[2]{started_at}'::timestamptz - '$at[1]{finished_at}'::timestamptz >= '290 ms'"), 't', 'with the pauses of the list between');
$node->safe_psql('postgres', q{SELECT setval('tried', 1, false)});
$run = run_of($node, submit($node, 'shaky', { fails => 9 }));
is("$run->{state} $run->{steps}{it}{attempt} $run->{steps}{it}{failure_count}", 'paused 4 1', 'and its attempts end with it');

# -- windows ---------------------------------------------------------------------------------

make_agent($node, 'once', $service, retry => '{"max_attempts": 1}');
$service->script(windows => [ { status => 503 } ]);
$run = run_call($node, 'once', { method => 'POST', path => '/windows' }, { workflow => { recovery => { pauses => [ '10 ms', '400 ms' ] } } });
@gaps = gaps('windows');
is("$run->{result} $run->{steps}{it}{failure_count}", 'error 3', 'recovery gives as many windows as its list says');
cmp_ok($gaps[1], '>=', 0.39, 'with its pauses between');
done_testing();
