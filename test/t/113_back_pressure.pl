# SPDX-License-Identifier: PostgreSQL
#
# A target that takes nothing closes the window of its stream: the service
# feels it, neither inbox nor worker grows, and nothing is lost or doubled.

# Long: only make check-long runs it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use SasStreams;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 2, 'sas.watch_window' => 2000);
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams);
make_table($node);
$node->safe_psql('postgres', 'CREATE TABLE public.slow (LIKE public.item INCLUDING DEFAULTS)');
my $agent = (worker_pids($node, 'agent'))[0];

make_watcher($node, 'slow', { agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } },
		cursor => { next => '{{item.n}}' }, items => { table => 'public.slow' } });
make_watcher($node, 'quick', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}' } });
watch($node, 'quick', 'quick');
ok(wait_until(sub { ($streams->feed('quick')->{open} // 0) == 1 }), 'a stream is there');
my $before = own_memory($agent);

my $holder = SasSession->new($node);
$holder->query('BEGIN');
$holder->query('LOCK TABLE public.slow');
my $all = 60_000;
$streams->feeds(slow => { items => $all, pad => 1000 });
watch($node, 'slow', 'slow');
ok(wait_for($node, q{SELECT waiting >= 2000 FROM sas.watches WHERE watcher = 'slow'}), 'a target that is held fills the inbox of its watch');
my $told = 0;
ok(wait_until(sub { my $was = $told; $told = $streams->feed('slow')->{told}; sleep 1; return $told == $was }), 'then its stream is not read any more');
cmp_ok($told, '<', $all, 'and the service could not tell all');
cmp_ok($node->safe_psql('postgres', q{SELECT waiting FROM sas.watches WHERE watcher = 'slow'}), '<', 5000, 'the inbox stays near its window');
needs_less(own_memory($agent) - $before, 8 * 1024, 'the worker keeps nothing of what it cannot pass on');
$streams->feeds(quick => { items => 3000 });
got_items($node, 'quick', 'quick', 3000, 'another stream goes on');

$holder->query('ROLLBACK');
ok(wait_for($node, 'SELECT count(*) FROM public.slow', $all), 'as soon as the target takes items again all come');
is($node->safe_psql('postgres', q{SELECT bool_and(n = nth) FROM (SELECT (item ->> 'n')::int AS n, row_number() OVER (ORDER BY nth) AS nth FROM public.slow) x}), 't', 'each once and in order');
is($streams->feed('slow')->{connections}, 1, 'over the same connection');
is((worker_pids($node, 'agent'))[0], $agent, 'by the same worker');
$node->stop;
done_testing();
