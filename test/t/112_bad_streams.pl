# SPDX-License-Identifier: PostgreSQL
#
# Services that behave badly cost the watch that looks at them, and nothing
# else: beside them a stream goes on, calls are made, and the worker stays
# the same, with its memory bounded.

# Long: only make check-long runs it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main', _init => [ extra => ['--encoding=UTF8'] ]);
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams, request_timeout => '3 s', options => '{"max_response": "200 kB"}');
make_table($node);
my $agent = (worker_pids($node, 'agent'))[0];

make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}', idle_timeout => '4 s' } });
make_watcher($node, 'lines', { agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}' } });
make_watcher($node, 'once', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}' }, retry => { initial => '10 ms', max_failures => 3 } });

my %bad = (
	garbage => qr/not valid HTTP/,
	html => qr{not of type text/event-stream},
	mute => qr/no answer in time/,
	endless => qr/larger than max_response/,
	silent => qr/no data arrived within idle_timeout/,
	at_once => qr/the stream ended at once/);

$streams->feeds(good => { items => 10 }, map { $_ => { how => $_, items => 5 } } keys %bad);
$streams->feeds(busy => { status => 503 }, drip => { how => 'drip' });
watch($node, 'events', 'good', 'busy', 'drip', sort keys %bad);
got_items($node, 'events', 'good', 10, 'a good stream beside bad ones is told');

foreach my $how (sort keys %bad)
{
	ok(wait_until(
			sub {
				my $watch = watch_of($node, 'events', $how);
				return $watch->{failures} >= 2 && "$watch->{last_error}{title} " . ($watch->{last_error}{detail} // '') =~ $bad{$how};
			}),
		"$how: is a failure of that watch, which says why")
	  or diag(explain(watch_of($node, 'events', $how)));
}
ok(wait_until(sub { my $watch = watch_of($node, 'events', 'busy'); $watch->{failures} >= 2 && ($watch->{last_error}{status} // 0) == 503 }),
	'busy: an answer that is no stream is a failure with its status');
ok(wait_for($node, q{SELECT count(*) >= 2 FROM public.item WHERE key = 'drip'}), 'drip: items that come byte by byte come');
is(watch_of($node, 'events', 'drip')->{failures}, 0, 'and are no failure');

# -- a line of a gigabyte, many times over, in events and in lines

my $before = own_memory($agent);
watch($node, 'lines', 'endless');
my $tries = watch_of($node, 'lines', 'endless')->{failures} // 0;
ok(wait_until(sub { watch_of($node, 'lines', 'endless')->{failures} >= $tries + 10 }), 'a line without end is given up again and again');
needs_less(own_memory($agent) - $before, 20 * 1024, 'and needs no memory beyond its limit');
$streams->feeds(good => { items => 20 });
got_items($node, 'events', 'good', 20, 'the good stream still is told');

# -- limits of patience

$streams->feeds(lost => { how => 'reset', items => 100, per => 0, status => 500 });
watch($node, 'once', 'lost');
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'once'}, 'failed'), 'a watch with a limit has failed when it is reached');
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'watch-failed'}, 1), 'with an alert');
my $asked = $streams->feed('lost')->{connections};
is($asked, 3, 'after as many tries as it says');
$streams->feeds(lost => { status => 200, items => 4, how => 'close' });
$node->safe_psql('postgres', q{SELECT sas.resume_watch('once', '{lost}')});
got_items($node, 'once', 'lost', 4, 'resumed it starts anew');

# -- items that yield no cursor

make_watcher($node, 'numbered',
	{ agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item.n}}' } });
make_watcher($node, 'numbered_once',
	{ agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item.n?}}' },
		retry => { initial => '10 ms', max_failures => 3 } });
make_watcher($node, 'numbered_long',
	{ agent => 'feed', stream => { format => 'long_poll', path => '/long/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item.n}}' } });
make_watcher($node, 'numbered_poll', { agent => 'feed', poll => { call => { path => '/state/{{key}}' }, every => '50 ms' }, cursor => { next => '{{item.body.n}}' } });
make_watcher($node, 'unnumbered', { agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}' } });
$streams->feeds(
	tail => { items => 40, per => 7, tail => '{"bye": true}' },
	middle => { items => 0, greet => '{"hello": true}' },
	nulls => { greet => '{"n": null}' },
	bare => { bare => \1, items => 5 },
	same => { state => { no => 'n' } },
	free => { greet => '{"hello": true}', items => 3, per => 3, tail => '{"bye": true}' });
watch($node, 'numbered', qw(tail middle));
watch($node, 'numbered_once', 'nulls');
watch($node, 'numbered_long', 'bare');
watch($node, 'numbered_poll', 'same');
watch($node, 'unnumbered', 'free');
got_items($node, 'numbered', 'tail', 40, 'items up to the last one that yields a cursor are taken in with it, once each');
foreach (([ 'numbered', 'middle' ], [ 'numbered_long', 'bare' ], [ 'numbered_poll', 'same' ]))
{
	my ($watcher, $key) = @$_;
	ok(wait_until(sub { watch_of($node, $watcher, $key)->{failures} >= 3 }), "$watcher: items none of which yields a cursor are a failure, again and again");
	like(watch_of($node, $watcher, $key)->{last_error}{title}, qr/items yield no cursor/, "$watcher: which says why");
	is(watch_of($node, $watcher, $key)->{items}, 0, "$watcher: none of them is taken in");
}
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'numbered_once'}, 'failed'), 'with a limit the watch has failed when it is reached; null is no cursor');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.alerts WHERE kind = 'watch-failed' AND message LIKE '%numbered_once%'}), 1, 'with an alert');
is($node->safe_psql('postgres', q{SELECT items FROM sas.watches WHERE watcher = 'numbered_once'}), 0, 'and nothing was taken in');
$streams->feeds(same => { state => { n => 5 } });
ok(wait_for($node, q{SELECT item #>> '{body,n}' FROM public.item WHERE watcher = 'numbered_poll'}, 5), 'numbered_poll: goes on when there is a cursor again');
ok(wait_for($node, q{SELECT count(*) >= 5 FROM public.item WHERE watcher = 'unnumbered'}), 'a watch without a cursor takes everything in');
is(watch_of($node, 'unnumbered', 'free')->{state}, 'processing', 'and goes on');
$node->safe_psql('postgres', q{SELECT sas.unwatch(watcher, ARRAY[key]) FROM sas.watches WHERE watcher ~ 'numbered'});

# -- a request that cannot be made, and a service that is not there

make_agent($node, 'nobody', 'http://127.0.0.1:' . free_port());
make_watcher($node, 'nobody', { agent => 'nobody', stream => { format => 'sse', path => '/' } });
make_watcher($node, 'crooked', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{input.missing}}' } });
watch($node, $_, 'a') foreach qw(nobody crooked);
ok(wait_until(sub { (watch_of($node, 'nobody', 'a')->{last_error}{detail} // '') =~ /connection refused/ }), 'a service that is not there is a failure');
ok(wait_until(sub { (watch_of($node, 'crooked', 'a')->{last_error}{title} // '') =~ /could not build/ }), 'a request that cannot be made is one, too');

# -- what is not JSON, and secrets

$node->safe_psql('postgres', q{SELECT sas.set_secret('token', 'hush-hush')});
$node->safe_psql('postgres', q{SELECT sas.alter_agent('feed', headers => '{"Authorization": "Bearer {{secret.token}}"}')});
make_watcher($node, 'echo', { agent => 'feed', stream => { format => 'ndjson', path => '/text/echo' } });
watch($node, 'echo', 'a');
ok(wait_for($node, q{SELECT count(*) FROM public.item WHERE watcher = 'echo'}, 4), 'lines that are no JSON come');
is($node->safe_psql('postgres', q{SELECT string_agg(item::text, ' ' ORDER BY nth) FROM public.item WHERE watcher = 'echo'}),
	q{"no JSON" {"base64": "//4="} {"token": "*********"} "Bearer *********"}, 'as text or as bytes, and without the secrets of the agent');

is((worker_pids($node, 'agent'))[0], $agent, 'all that time the worker was the same');
$node->stop;
done_testing();
