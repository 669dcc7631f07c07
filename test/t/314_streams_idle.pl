# SPDX-License-Identifier: PostgreSQL
#
# Streams that tell nothing cost nothing: 500 of them wake nobody and write
# nothing, and need little memory; one that is told something goes on at once.
# Takes about 45 s.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main',
	autovacuum => 'off',
	checkpoint_timeout => '1h',
	bgwriter_lru_maxpages => 0,
	'sas.supervisor_interval' => '2 s');
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams);
make_table($node);
make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}', idle_timeout => '1 day' } });
make_watcher($node, 'lines', { agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}' } });
my $agent = (worker_pids($node, 'agent'))[0];

$streams->feeds(one => { items => 1 }, all => { items => 1 });
watch($node, $_, 'one') foreach qw(events lines);
got_items($node, $_, 'one', 1, "$_: a stream is there") foreach qw(events lines);
my $before = own_memory($agent);
my @keys = map { "k$_" } 1 .. 250;
$streams->feeds(map { $_ => { items => 1 } } @keys);
watch($node, $_, @keys) foreach qw(events lines);
ok(wait_for($node, 'SELECT count(*) FROM public.item', 502), 'five hundred more have told an item each');
needs_less((own_memory($agent) - $before) / 500, 32, 'a stream needs less than 32 kB');
$node->safe_psql('postgres', 'VACUUM ANALYZE');
quiet_for($node, 10, '502 idle streams');

$streams->feeds(one => { items => 2 });
got_items($node, $_, 'one', 2, "$_: one that is told something goes on") foreach qw(events lines);
is((worker_pids($node, 'agent'))[0], $agent, 'with the same worker');
$node->stop;
done_testing();
