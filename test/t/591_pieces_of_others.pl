# SPDX-License-Identifier: PostgreSQL
#
# Answers of one role that come in very many small pieces, quickly, cost an agent worker much processor time. The calls
# of another role begin and end meanwhile: each of them costs the worker few short turns.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
$service->script(pieces => [ { how => 'pieces' } ], quick => [ { json => 'well' } ]);
make_agent($node, 'shared', $service, max_in_flight => 100, breaker => '{"off": true}');
my %path = (heavy => 'pieces', light => 'quick');
foreach my $role (sort keys %path)
{
	$sql->("CREATE ROLE $role; SELECT sas.grant_usage('$role', 'user'), sas.grant_agent('shared', '$role')");
	$as->($role, qq{SELECT sas.create_workflow('$role', '{"steps": {"it": {"agent": "shared",
		"call": {"path": "/$path{$role}", "timeout": "10 min"}, "complete_in": "10 min", "output": "{{output.status}}"}}}')});
}
my ($pid) = worker_pids($node, 'agent');
my $ticks = POSIX::sysconf(POSIX::_SC_CLK_TCK());
my $cpu = sub { my @words = split / /, (split /\) /, PostgreSQL::Test::Utils::slurp_file("/proc/$pid/stat"))[1]; return ($words[11] + $words[12]) / $ticks };
my $light = sub { my $run = $as->('light', q{SELECT run_id FROM sas.submit('light')}); return $sql->("SELECT result FROM sas.wait($run, '100 s')") };
my $open = sub { return $sql->(q{SELECT count(*) FROM sas.runs WHERE workflow = 'heavy' AND state <> 'stopped'}) };

is($light->(), 'success', 'a call');
$as->('heavy', q{SELECT count(*) FROM sas.submit_batch('heavy', array_fill('{}'::jsonb, ARRAY[150]))});
ok(wait_for($node, q{SELECT in_flight >= 80 FROM sas.agents WHERE name = 'shared'}, 't'), 'many calls of another role are in flight');
my @costs;
foreach (1 .. 5)
{
	my $before = $cpu->();
	is($light->(), 'success', 'a call of another role ends meanwhile');
	push @costs, $cpu->() - $before;
}
diag('seconds of the worker, per call: '.join(' ', map { sprintf '%.2f', $_ } @costs).'; open: '.$open->());
cmp_ok($open->(), '>', 0, 'while the first ones are in flight');
cmp_ok((sort { $a <=> $b } @costs)[-1], '<', 1.5, 'the worker does little else during such a call');
ok(wait_until(sub { $open->() eq '0' }), 'the first ones end, too');
is($sql->(q{SELECT count(*) FROM sas.runs WHERE result <> 'success'}), '0', 'and all are well');
done_testing();
