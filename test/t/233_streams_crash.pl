# SPDX-License-Identifier: PostgreSQL
#
# Streams go on when their worker, or the whole server, goes down without a
# word: others take them over, and each item is processed once. A stop that
# meets such a move is not lost.

# Long: only make check-long runs it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main', 'sas.agents' => 2);
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams);
make_table($node);
make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}' } });
make_watcher($node, 'lines', { agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } },
		cursor => { next => '{{item.n}}' } });

# -- the worker of a hundred streams is terminated

ok(wait_for($node, q{SELECT count(*) FROM sas.nodes WHERE kind = 'agent' AND NOT is_deleted}, 2), 'each worker is a node');
my @keys = map { "k$_" } 1 .. 100;
$streams->feeds(map { $_ => { items => 1 } } @keys);
watch($node, 'events', @keys);
my $open = sub { my $all = $streams->all; return scalar grep { ($all->{$_}{open} // 0) == 1 } @keys };
ok(wait_until(sub { $open->() == 100 }), 'a hundred streams are open');
is($node->safe_psql('postgres', q{SELECT string_agg(watches::text, ' ') FROM sas.nodes WHERE kind = 'agent' AND NOT is_deleted}), '50 50', 'spread evenly over two workers');

my @nodes = split /\n/, $node->safe_psql('postgres', q{SELECT node_id FROM sas.nodes WHERE kind = 'agent' AND NOT is_deleted ORDER BY 1});
my $victim = $node->safe_psql('postgres', "SELECT pid FROM sas.nodes WHERE node_id = $nodes[0]");
my $killed = time();
$node->safe_psql('postgres', "SELECT pg_terminate_backend($victim)");
my $again = wait_until(
	sub {
		return $node->safe_psql('postgres', "SELECT count(*) FROM sas.watches WHERE watcher = 'events' AND state = 'processing' AND node_id <> $nodes[0]") == 100
		  && $open->() == 100;
	});
ok($again, 'a worker that is terminated gives its streams to others, and all are open again');
diag(sprintf('fifty of a hundred streams moved %.2f s after their worker was terminated', time() - $killed));
$streams->feeds(map { $_ => { items => 3 } } @keys);
ok(wait_for($node, q{SELECT count(*) = 300 AND count(DISTINCT (key, item)) = 300 FROM public.item}), 'and each item of each is processed once');

# -- some are stopped at that moment ------------------------------------------------------------------

my @late = map { "late$_" } 1 .. 40;
$streams->feeds(map { $_ => { items => 1 } } @late);
watch($node, 'events', @late);
my $open_late = sub { my $all = $streams->all; return scalar grep { ($all->{$_}{open} // 0) == 1 } @late };
ok(wait_until(sub { $open_late->() == 40 }), 'forty more are open');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM sas.workers WHERE actor = 'agent' ORDER BY pid LIMIT 1});
$node->safe_psql('postgres', q{SELECT sas.unwatch('events', ARRAY(SELECT key FROM sas.watches WHERE key LIKE 'late%'))});
ok(wait_for($node, q{SELECT string_agg(DISTINCT state, ' ') FROM sas.watches WHERE key LIKE 'late%'}, 'deleted'), 'a stop that meets the move is not lost: all of them end');
ok(wait_until(sub { $open_late->() == 0 }), 'and their connections are closed');
ok(wait_until(sub { $open->() == 100 }), 'the others are open');

# -- all workers are away, and back; all are restarted --------------------------------------------------

$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.agents = 0});
$node->reload;
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'created' AND node IS NULL}, 100), 'without a worker all wait');
ok(wait_until(sub { $open->() == 0 }), 'and are closed');
$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.agents = 2});
$node->reload;
ok(wait_until(sub { $open->() == 100 }), 'with workers again all are open');
my %was = map { $_ => 1 } worker_pids($node, 'agent');
my $asked = time();
$node->safe_psql('postgres', 'SELECT sas.worker_restart()');
ok( wait_until(
		sub {
			my @pids = split /\n/, $node->safe_psql('postgres', q{SELECT n.pid FROM sas.watches w JOIN sas.nodes n USING (node_id) WHERE w.state = 'processing'});
			return @pids == 100 && !(grep { $was{$_} } @pids) && $open->() == 100;
		}),
	'workers that are restarted give theirs back at once: all are open with the new ones');
diag(sprintf('a hundred streams moved %.2f s after sas.worker_restart()', time() - $asked));

# -- all of it goes down in the middle, three times, with streams that end all the time besides

my @long = qw(a b c d);
my $all = 3000;
$streams->feeds(map { $_ => { items => $all, per => 150, how => $_ eq 'a' ? 'half' : $_ eq 'b' ? 'reset' : 'close' } } @long);
watch($node, $_, @long) foreach qw(events lines);
my $count = sub { $node->safe_psql('postgres', q{SELECT count(*) FROM public.item WHERE key IN ('a', 'b', 'c', 'd')}) };
foreach my $part (2000, 6000, 12000)
{
	wait_until(sub { $count->() >= $part });
	$node->stop('immediate');
	$node->start;
	isnt($count->(), 8 * $all, "the server went down in the middle, with at least $part items processed");
}
kill_worker($node, 'agent');
foreach my $watcher (qw(events lines))
{
	got_items($node, $watcher, $_, $all, "$watcher $_: each item is processed once, and in order") foreach @long;
}

# -- and nothing is left behind

ok(wait_until(sub { $open->() == 100 }), 'the hundred are open as well');
$node->safe_psql('postgres', q{SELECT sas.unwatch('events', ARRAY(SELECT key FROM sas.watches WHERE watcher = 'events'))});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE watcher = 'events' AND state <> 'deleted'}, 0), 'all are stopped');
ok(wait_until(sub { $open->() == 0 }), 'and their connections closed');
ok(wait_for($node, q{SELECT count(*) FROM _sas.watch_batch}, 0), 'no inbox has anything left');
$node->stop;
done_testing();
