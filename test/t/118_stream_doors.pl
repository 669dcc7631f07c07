# SPDX-License-Identifier: PostgreSQL
#
# The doors of an agent before its streams: a breaker that is open lets one of
# them through as its probe, whatever becomes of the worker that has it, and a
# rate lets them through one after the other; calls go on beside streams.

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
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams, breaker => '{"failures": 3, "window": "30 s", "open_for": "500 ms"}', request_timeout => '60 s');
make_table($node);
make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}' } });
my @keys = map { "k$_" } 1 .. 50;
my $open = sub { my ($of) = @_; my $all = $of->all; return scalar grep { ($all->{$_}{open} // 0) == 1 } @keys };
my $breaker = sub { return $sql->(q{SELECT breaker FROM sas.agents WHERE name = 'feed'}) };
watch($node, 'events', @keys);
ok(wait_until(sub { $open->($streams) == 50 }), 'fifty streams are open');

# -- the service is gone, and comes back ------------------------------------------------------------------

my $port = $streams->{port};
$streams->stop;
ok(wait_until(sub { $breaker->() eq 'open' }), 'the service is gone: connections that are refused open the breaker');
my $failures = sub { return $sql->('SELECT sum(failures) FROM sas.watches') };
my $before = $failures->();
ok(wait_until(sub { $failures->() > $before }), 'one after the other is its probe');
my $pid = kill_worker($node, 'agent');
ok(wait_for($node, "SELECT count(*) FROM sas.workers WHERE pid = $pid", 0), 'meanwhile the server goes down');
$streams = SasStreams->new(port => $port);
ok(wait_until(sub { $open->($streams) == 50 }), 'the service is back: a probe closes the breaker, and all are open again');
is($breaker->(), 'closed', 'the breaker is closed');

# -- the probe hangs, and its worker dies -------------------------------------------------------------------

$streams->feeds(map { $_ => { status => 503, reset => \1 } } @keys);
ok(wait_until(sub { $breaker->() eq 'open' }), 'answers that are no streams open it as well');
$streams->feeds(map { $_ => { status => 200, how => 'mute' } } @keys);
my $muted = sub { my $all = $streams->all; return grep { ($all->{$_}{open} // 0) > 0 } @keys };
ok(wait_until(sub { $breaker->() eq 'half-open' && $muted->() == 1 }), 'one stream is the probe, and is not answered; the others wait for it');
my ($key) = $muted->();
$streams->feeds(map { $_ => { how => 'close' } } @keys);
$sql->("SELECT pg_terminate_backend(n.pid) FROM sas.watches w JOIN sas.nodes n USING (node_id) WHERE w.key = '$key'");
ok(wait_until(sub { $open->($streams) == 50 }), 'its worker dies: another one is the probe, and all are open again');

# -- a rate -------------------------------------------------------------------------------------------------

$sql->(q{SELECT sas.alter_agent('feed', rate_limit => '20/s')});
my $begun = time();
kill_worker($node, 'agent', 'TERM') foreach 1 .. 2;
ok(wait_until(sub { $open->($streams) == 50 }), 'with a rate they are begun one after the other');
diag(sprintf('fifty streams at twenty a second: %.1f s', time() - $begun));
$sql->(q{SELECT sas.alter_agent('feed', reset => '{rate_limit}')});

# -- calls beside streams, by the same worker ------------------------------------------------------------------

$sql->(q{ALTER SYSTEM SET sas.agents = 1; SELECT pg_reload_conf()});
ok(wait_until(sub { worker_pids($node, 'agent') == 1 && $open->($streams) == 50 }), 'one worker has all streams');
my $service = SasService->new;
make_agent($node, 'remote', $service);
$service->script(pay => [ { json => { id => 7 } } ]);
$streams->feeds(map { $_ => { items => 2000 } } @keys);
my $run = run_call($node, 'remote', { path => '/pay' });
is($run->{output}{body}{id}, 7, 'a call is made beside them');
ok(wait_for($node, 'SELECT count(*) FROM public.item', 100_000), 'and all items come');
$node->stop;
done_testing();
