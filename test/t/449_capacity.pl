# SPDX-License-Identifier: PostgreSQL
#
# How many infinite tasks a worker hosts follows from the machine where nobody sets it: from its memory, shared by the
# agent workers of a database, and from the files that the server may open.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2);
sub capacities { return split /\n/, $node->safe_psql('postgres', q{SELECT capacity FROM sas.nodes WHERE kind = 'agent' AND ended_at IS NULL ORDER BY 1}) }
sub nodes { my ($n) = @_; return wait_for($node, q{SELECT count(*) FROM sas.nodes WHERE kind = 'agent' AND ended_at IS NULL}, $n) }

my ($kb) = PostgreSQL::Test::Utils::slurp_file('/proc/meminfo') =~ /^MemTotal: +(\d+) kB/m;
ok(nodes(2), 'two workers');
my @two = capacities();
is($two[0], $two[1], 'have the same room');
cmp_ok($two[0], '>=', 100, 'for some tasks');
cmp_ok(2 * $two[0] * 128, '<=', $kb / 8, 'and no more than an eighth of the memory holds');

$node->append_conf('postgresql.conf', 'sas.agents = 8');
$node->restart;
ok(nodes(8), 'eight workers');
my @eight = capacities();
cmp_ok($eight[0], '<=', $two[0] / 2, 'share what two had');

$node->append_conf('postgresql.conf', "sas.agents = 1\nsas.watch_slots = 7");
$node->restart;
ok(nodes(1), 'one worker');
is((capacities())[0], 7, 'has the room that is set');

$node->append_conf('postgresql.conf', "sas.watch_slots = -1\nsas.agent_slots = 100");
$node->stop;
is(system('prlimit', '--pid', $$, '--nofile=2000:2000'), 0, 'few files may be open');
$node->start;
ok(nodes(1), 'the worker');
cmp_ok((capacities())[0], '<', 2000, 'hosts no more than it may open sockets for');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/this sas agent worker makes/, 'and complains of nothing that nobody has asked for');
done_testing();
