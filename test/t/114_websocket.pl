# SPDX-License-Identifier: PostgreSQL
#
# WebSocket: messages as they come, the end of a connection in good order and torn, and the cursor.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main');
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams);
make_table($node);
my $definition = q({"agent": "feed", "stream": {"format": "ws", "path": "/ws/{{key}}", "body": {"after": "{{cursor}}"}},
	"cursor": {"start": 0, "next": "{{item.n}}"}, "items": {"table": "public.item"}, "retry": {"initial": "20 ms", "max": "100 ms"}});

$node->safe_psql('postgres', "SELECT sas.create_watcher('socket', '$definition')");
$streams->feeds(a => { items => 300 }, closed => { items => 40, per => 7, how => 'close' }, torn => { items => 40, per => 7, how => 'reset' });
watch($node, 'socket', qw(a closed torn));
got_items($node, 'socket', 'a', 300, 'messages come, whole and in parts, with pings between them');
$streams->feeds(a => { items => 310 });
got_items($node, 'socket', 'a', 310, 'and those that are sent later');
is($streams->feed('a')->{asked}[-1], 0, 'the first message is sent');
got_items($node, 'socket', $_, 40, "each connection ends after seven messages ($_), and none is lost or doubled") foreach qw(closed torn);
ok(wait_until(sub { (watch_of($node, 'socket', 'torn')->{last_error}{title} // '') ne '' }), 'a connection that is torn is a failure that is told');
$node->safe_psql('postgres', q{SELECT sas.unwatch('socket', '{a}')});
ok(wait_until(sub { $streams->feed('a')->{open} == 0 }), 'a watch that is stopped closes its connection');
$node->stop;
done_testing();
