# SPDX-License-Identifier: PostgreSQL
#
# Hundreds of calls are answered at one moment, and a few steps wait for each of them. Together these are too many
# for one transaction. The agent worker writes the replies in a few parts: not one at a time, with an attempt to
# write all others after each.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my ($runs, $wide) = (300, 40);
my $node = new_node('main', 'sas.schedulers' => 1, 'sas.agents' => 1, 'sas.function_workers' => 0);
my $service = SasService->new;

make_agent($node, 'remote', $service, max_in_flight => $runs);
$node->safe_psql('postgres', q{
	CREATE SCHEMA t;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
define($node, 'calls', { steps => {
	first => { agent => 'remote', complete_in => '10 min', call => { path => '/slow', timeout => '9 min' } },
	never => { wait => { signal => 'never' } },
	map { ("s$_" => { function => 't.echo', after => [ 'first', 'never' ] }) } 1 .. $wide } });
$service->script(slow => [ { gate => 1, json => {} } ]);
$node->safe_psql('postgres', "SELECT count(*) FROM sas.submit_batch('calls', array_fill('{}'::jsonb, ARRAY[$runs]))");
$service->wait_for_requests('slow', $runs);
my @agents = worker_pids($node, 'agent');
kill('STOP', @agents);
$service->release;
ok(wait_until(sub { (grep { $_->{done} // 1 } $service->requests('slow')) == $runs }), 'all are answered while the worker stands still');
kill('CONT', @agents);
ok(wait_for($node, q{SELECT count(*) FROM _sas.step WHERE state = 'waiting'}, $runs * $wide), "$runs replies are written, of which each changes $wide steps");
my $given_up = () = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /one batch of steps costs too much/g;
cmp_ok($given_up, '<', 10, 'few transactions have tried to write too many');
cmp_ok($node->safe_psql('postgres', q{SELECT max(n) FROM (SELECT count(*) AS n FROM _sas.step WHERE state = 'waiting' GROUP BY xmin::text) x}), '<=', 5000,
	'none has changed more than 5,000 steps');
$node->stop;
done_testing();
