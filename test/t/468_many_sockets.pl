# SPDX-License-Identifier: PostgreSQL
#
# Ten thousand WebSockets in one agent worker: at rest they wake nobody, write nothing and need little memory; each is
# told what is said to all, once; and all are open again when the worker was killed. Takes about 100 s.
# Long: only make check-long runs it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use POSIX ();
use Test::More;

my $quantity = 10_000;
my ($files) = PostgreSQL::Test::Utils::slurp_file("/proc/$$/limits") =~ /^Max open files +\d+ +(\d+)/m;
plan skip_all => "a process may open $files files, and this needs 12,000" if $files < 12_000;
# of the server and the service
system('prlimit', '--pid', $$, "--nofile=$files:$files") == 0 or die 'prlimit failed';

my $node = new_node('main', autovacuum => 'off', checkpoint_timeout => '1h', bgwriter_lru_maxpages => 0,
	'sas.supervisor_interval' => '2 s', 'sas.watch_slots' => $quantity + 10);
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams, options => '{"max_streams": 20000}');
make_table($node);
make_watcher($node, 'socket', { agent => 'feed', stream => { format => 'ws', path => '/ws/all', body => { after => '{{cursor}}' }, idle_timeout => '1 day' },
	cursor => { start => 0, next => '{{item.n}}' } });
my $agent = (worker_pids($node, 'agent'))[0];
# on a busy machine the service takes minutes to let ten thousand in
my $open = sub { my ($n) = @_; return wait_until(sub { $streams->feed('all')->{open} == $n }, 600) };
# each item of each socket, once and in order
my $told = sub {
	my ($n, $name) = @_;
	ok(wait_for($node, 'SELECT count(*) FROM public.item', $quantity * $n, limit => 600), $name);
	is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT told, ' and ') FROM (SELECT string_agg(item ->> 'n', ' ' ORDER BY nth) AS told FROM public.item GROUP BY key) x}),
		join(' ', 1 .. $n), 'each item once and in order');
};

$streams->feeds(all => { items => 0 });
watch($node, 'socket', 1);
ok($open->(1), 'a socket is open');
my $before = own_memory($agent);
$node->safe_psql('postgres', "SELECT count(*) FROM generate_series(2, $quantity) n, sas.watch('socket', n::text)");
ok($open->($quantity), 'ten thousand are open');
is($node->safe_psql('postgres', q{SELECT count(*) || ' in ' || count(DISTINCT node) FROM sas.watches WHERE state = 'processing'}), "$quantity in 1", 'in one worker');
my $each = (own_memory($agent) - $before) / $quantity;
note(sprintf('figure: %d idle WebSockets: %.1f kB each', $quantity, $each));
needs_less($each, 32, 'each needs less than 32 kB');
$node->safe_psql('postgres', 'VACUUM ANALYZE');
quiet_for($node, 10, 'ten thousand idle WebSockets');

$streams->feeds(all => { items => 1 });
$told->(1, 'an item is told to all of them');
is((worker_pids($node, 'agent'))[0], $agent, 'by the same worker');

kill_worker($node, 'agent', 'KILL');
ok(wait_for($node, "SELECT pid <> $agent FROM sas.workers WHERE actor = 'agent'", 't'), 'the worker is killed, the server starts again, and another one follows');
ok($open->($quantity), 'all are open again');
is($node->safe_psql('postgres', q{SELECT count(*) || ' moved ' || string_agg(DISTINCT restarts::text, ', ') FROM sas.watches WHERE state = 'processing'}), "$quantity moved 1", 'each has moved once');
$streams->feeds(all => { items => 2 });
$told->(2, 'and told the next item');
$node->stop;
done_testing();
