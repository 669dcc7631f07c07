# SPDX-License-Identifier: PostgreSQL
#
# A worker is stopped (SIGSTOP) until the time is over in which hundreds of streams had to answer, and all have answered
# meanwhile. It cannot read them in one tick. None of them is taken for one that gives no answer.
# Takes about 60 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $streams = SasStreams->new;
my ($quantity, $limit_s) = (900, 40);

make_agent($node, 'feed', $streams, request_timeout => "$limit_s s", options => qq({"max_streams": $quantity}));
make_table($node);
make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/it' } });
$streams->feeds(it => { held => JSON::PP::true, items => 1 });
$node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, $quantity) g, sas.watch('events', g::text)");
ok(wait_until(sub { return ($streams->feed('it')->{connections} // 0) >= $quantity }), 'the streams are asked for');
my @workers = worker_pids($node, 'agent');
kill 'STOP', @workers;
my $stopped = time();
is($streams->feed('it')->{connections}, $quantity, 'each once');
$streams->feeds(it => { held => JSON::PP::false });
ok(wait_until(sub { return time() > $stopped + $limit_s + 1 && $streams->feed('it')->{told} >= $quantity }), 'their time is over, and all have answered');
kill 'CONT', @workers;
ok(wait_for($node, q{SELECT count(DISTINCT key) FROM public.item}, $quantity), 'each item is there');
is($streams->feed('it')->{connections}, $quantity, 'and no stream was asked for again');
is($node->safe_psql('postgres', q{SELECT coalesce(sum(failures), 0) FROM sas.watches}), '0', 'nor has any failed');
is_deeply([ worker_pids($node, 'agent') ], \@workers, 'the worker is the same');
$node->stop;
done_testing();
