# SPDX-License-Identifier: PostgreSQL
#
# A stream that has ended before the worker looks at it is a stream: what was
# said is read, and the watch tells how it ended. The worker is stopped
# (SIGSTOP) while the service answers and closes the connection.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MIME::Base64;
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main');
my $streams = SasStreams->new;
my $sockets = SasService->new(program => 'websockets.py');
my $result = sub { return SasTest::http_get("http://127.0.0.1:$sockets->{control}/")->{results}{ $_[0] } // {} };

make_agent($node, 'feed', $streams);
make_agent($node, 'ws', $sockets);
make_table($node);
make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}' } });
make_watcher($node, 'lines', { agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item.n}}' } });
make_watcher($node, 'sockets', { agent => 'ws', stream => { format => 'ws', path => '/{{key}}' } });

my @ends = ('close', 'reset');
my $broken = 'the connection broke in the middle of the answer';

$streams->feeds(map { $_ => { held => JSON::PP::true, items => 3, per => 3, how => $_ } } @ends);
SasTest::http_post("http://127.0.0.1:$sockets->{control}/",
	{ map { $_ => { held => 1, sent => encode_base64("\x81\x07{\"n\":1}", ''), ends => $_ } } 'eof', 'reset' });
watch($node, 'events', @ends);
watch($node, 'lines', @ends);
watch($node, 'sockets', 'eof', 'reset');
ok(wait_until(sub { return !grep { ($streams->feed($_)->{connections} // 0) < 2 } @ends }), 'the streams are asked for');
ok(wait_until(sub { return !grep { !$result->($_)->{connections} } 'eof', 'reset' }), 'and the WebSockets');

my @workers = worker_pids($node, 'agent');
kill 'STOP', @workers;
$streams->feeds(map { $_ => { held => JSON::PP::false } } @ends);
SasTest::http_post("http://127.0.0.1:$sockets->{control}/", { map { $_ => { go => 1 } } 'eof', 'reset' });
ok(wait_until(sub { return !grep { $streams->feed($_)->{told} < 6 || $streams->feed($_)->{open} > ($_ eq 'close' ? 2 : 0) } @ends }), 'each answer is told');
ok(wait_until(sub { return !grep { !$result->($_)->{ended} } 'eof', 'reset' }), 'on both kinds, and the connections are closed');
kill 'CONT', @workers;

foreach my $watcher ('events', 'lines')
{
	foreach my $how (@ends)
	{
		got_items($node, $watcher, $how, 3, "$watcher, $how: the items of the answer are items");
		ok(wait_until(sub { return scalar(grep { $_ eq '3' } @{ $streams->feed($how)->{asked} }) >= 2 }), "$watcher, $how: the next connection goes on behind them");
	}
	ok(wait_until(sub { return (watch_of($node, $watcher, 'reset')->{last_error}{detail} // '') eq $broken }), "$watcher: the watch tells how the connection ended")
	  or diag(explain(watch_of($node, $watcher, 'reset')));
}
foreach my $how ('eof', 'reset')
{
	ok(wait_for($node, "SELECT count(*) FROM public.item WHERE watcher = 'sockets' AND key = '$how'", 1), "sockets, $how: the message is an item");
	my $why = $how eq 'eof' ? 'the connection ended without a close frame' : $broken;
	ok(wait_until(sub { my $error = watch_of($node, 'sockets', $how)->{last_error}; return join(' ', $error->{title} // '', $error->{detail} // '') =~ /\Q$why\E/ }),
		"sockets, $how: the watch tells how the connection ended") or diag(explain(watch_of($node, 'sockets', $how)));
}
is_deeply([ worker_pids($node, 'agent') ], \@workers, 'the worker is the same');
$node->stop;
done_testing();
