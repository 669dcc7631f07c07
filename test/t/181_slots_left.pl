# SPDX-License-Identifier: PostgreSQL
#
# Agents whose services do not answer never take all slots of a worker: others are called meanwhile, and their
# own calls go on when slots are free again.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1, 'sas.agent_slots' => 40);
my $service = SasService->new;
my @silent = map { "silent_$_" } 1 .. 3;

foreach my $name (@silent, 'beside')
{
	make_agent($node, $name, $service, max_in_flight => 1000);
	define($node, $name, {
		steps => { it => { agent => $name, call => { method => 'POST', path => "/$name/{{input.n}}", timeout => '1 h' }, complete_in => '1 h' } } });
}
$service->script($_ => [ { gate => 1 } ]) foreach @silent;

# The calls that all silent agents have in flight, the most first.
sub in_flight
{
	return $node->safe_psql('postgres',
		q{SELECT string_agg(in_flight::text, ' ' ORDER BY in_flight DESC) FROM sas.agents WHERE name LIKE 'silent%'});
}

foreach my $name (@silent)
{
	$node->safe_psql('postgres',
		"SELECT count(*) FROM sas.submit_batch('$name', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 100) n))");
	my $expected = $name eq 'silent_1' ? 30 : $name eq 'silent_2' ? 37 : 39;
	ok(wait_for($node, 'SELECT in_flight FROM sas.workers WHERE actor = \'agent\'', $expected), "$expected calls are in flight, and no more");
	is(run_of($node, submit($node, 'beside', { n => $expected }))->{result}, 'success', "another agent is called beside $name");
}
is(in_flight(), '30 7 2', 'each agent has at most three times of what is left');

$service->script($_ => [ {} ]) foreach @silent;
$service->release;
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow LIKE 'silent%' AND result = 'success'}, '300'), 'all calls are made in the end');

done_testing();
