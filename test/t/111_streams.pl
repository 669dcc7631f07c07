# SPDX-License-Identifier: PostgreSQL
#
# What a watch can look at: event streams, lines, long polls, polls. Whatever
# happens to the connection, each item comes once and in order.

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
make_agent($node, 'feed', $streams, headers => '{"X-Tenant": "a"}');
make_table($node);

make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}' } });
make_watcher($node, 'lines',
	{ agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item.n}}' } });
make_watcher($node, 'long',
	{ agent => 'feed', stream => { format => 'long_poll', path => '/long/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item.n}}' } });
make_watcher($node, 'state', { agent => 'feed', poll => { call => { path => '/state/{{key}}' }, every => '50 ms' } });

# -- items as they come, and behind a broken connection

foreach my $way (qw(events lines long))
{
	$streams->feeds($way => { items => 3 });
	watch($node, $way, $way);
	got_items($node, $way, $way, 3, "$way: what is there comes at once");
	$streams->feeds($way => { items => 700 });
	got_items($node, $way, $way, 700, "$way: what is added comes, too");
	is(watch_of($node, $way, $way)->{state}, 'processing', "$way: and it goes on");
}
is($streams->feed($_)->{connections}, 1, "$_: over one connection") foreach qw(events lines);

$streams->feeds(events => { reset => \1, items => 710 }, lines => { reset => \1, items => 710 });
got_items($node, $_, $_, 710, "$_: a connection that breaks is begun again behind the last item") foreach qw(events lines);
is($streams->feed('events')->{asked}[-1], 700, 'events: with Last-Event-ID');

foreach my $how (qw(close reset half))
{
	$streams->feeds("every$how" => { items => 40, per => 7, how => $how });
	watch($node, $_, "every$how") foreach qw(events lines);
	got_items($node, $_, "every$how", 40, "$_: each connection ends after seven items ($how), and none is lost or doubled") foreach qw(events lines);
}

# -- a service that tells a page and ends is no failure as long as it gets on

make_watcher($node, $$_[0],
	{ agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', $$_[1] ? (query => { after => '{{cursor?}}' }) : () }, cursor => { next => '{{item.n}}' },
		retry => { initial => '10 ms', max_failures => 2 } })
  foreach ([ 'pages', 1 ], [ 'deaf', 0 ]);
$streams->feeds(pages => { items => 40, per => 7 }, one => { items => 1, per => 1 });
watch($node, 'pages', 'pages');
watch($node, 'deaf', 'one');
got_items($node, 'pages', 'pages', 40, 'pages: each connection ends at once with the next seven items, and the watch does not fail');
is(watch_of($node, 'pages', 'pages')->{failures}, 0, 'pages: no failure is counted');
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'deaf'}, 'failed'), 'a service that ends at once and tells the same again is a failure');
$node->safe_psql('postgres', q{SELECT sas.unwatch('deaf', '{one}', discard => true)});
$node->safe_psql('postgres', q{DELETE FROM public.item WHERE watcher = 'deaf'});

# -- what is not complete is no item, though it would pass for one

make_watcher($node, 'numbers',
	{ agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item}}' },
		items => { table => 'public.item', item => { n => '{{item}}' } } });
foreach my $how (qw(half unended cut))
{
	$streams->feeds("bare$how" => { bare => \1, items => 40, per => 7, how => $how });
	watch($node, 'numbers', "bare$how");
	got_items($node, 'numbers', "bare$how", 40, "numbers: a line without its end ($how) is no item, and comes whole later");
}
like(watch_of($node, 'numbers', "bare$_")->{last_error}{detail} // '', qr/ended in the middle of an item/, "numbers: that is a failure, which says why ($_)")
  foreach qw(unended cut);
$streams->feeds(unended => { items => 40, per => 7, how => 'unended' });
watch($node, 'events', 'unended');
got_items($node, 'events', 'unended', 40, 'events: an event without the empty line behind it is none, and comes whole later');
is(watch_of($node, 'events', 'unended')->{last_error}{detail}, undef, 'events: that is an end in good order: the standard has it so');

# -- an id that is taken back

$streams->feeds(taken => { items => 7 });
watch($node, 'events', 'taken');
got_items($node, 'events', 'taken', 7, 'events: items with ids come');
$streams->feeds(taken => { items => 8, per => 8, tail => "id\ndata: \"no id\"" });
ok(wait_until(sub { $streams->feed('taken')->{connections} >= 2 }), 'events: a service takes the last id back');
is($streams->feed('taken')->{asked}[1], '', 'events: then it is not asked for what is behind an id');
$node->safe_psql('postgres', q{SELECT sas.unwatch('events', '{taken}')});

is($node->safe_psql('postgres', q{SELECT item::text FROM public.item WHERE watcher = 'events' AND key = 'events' ORDER BY nth LIMIT 1}),
	'{"id": "1", "data": {"n": 1}, "event": "message"}', 'an event is an object with id, event and data');

# -- polls: an answer that is cut is none, and what is whole needs no line end

make_watcher($node, 'whole',
	{ agent => 'feed', stream => { format => 'long_poll', path => '/long/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item}}' },
		items => { table => 'public.item', item => { n => '{{item}}' } } });
$streams->feeds(cut => { bare => \1, items => 15, per => 1, cuts => 4 });
watch($node, 'whole', 'cut');
got_items($node, 'whole', 'cut', 15, 'long poll: answers that are cut off are asked for again');
cmp_ok(watch_of($node, 'whole', 'cut')->{failures}, '>=', 4, 'long poll: each of them is a failure');
$streams->feeds(cutstate => { state => 123, cuts => 4 });
watch($node, 'state', 'cutstate');
ok(wait_for($node, q{SELECT string_agg(item ->> 'body', ' ') FROM public.item WHERE watcher = 'state' AND key = 'cutstate'}, '123'),
	'poll: an answer that is cut off is none, and the whole one comes');
cmp_ok(watch_of($node, 'state', 'cutstate')->{failures}, '>=', 4, 'poll: each of them is a failure');
$node->safe_psql('postgres', q{SELECT sas.unwatch('state', '{cutstate}')});
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'state' AND key = 'cutstate'}, 'deleted'), 'poll: it is stopped');
$node->safe_psql('postgres', q{DELETE FROM public.item WHERE watcher = 'state'});

# -- polls: only changes

$streams->feeds(state => { state => { version => 1 } });
watch($node, 'state', 'state');
ok(wait_until(sub { $streams->feed('state')->{told} > 5 }), 'a poll asks again and again');
$streams->feeds(state => { state => { version => 2 } });
ok(wait_for($node, q{SELECT count(*) FROM public.item WHERE watcher = 'state'}, 2), 'and passes a change on');
my $told = $streams->feed('state')->{told};
ok(wait_until(sub { $streams->feed('state')->{told} > $told + 5 }), 'it goes on asking');
is($node->safe_psql('postgres', q{SELECT string_agg(item #>> '{body,version}', ' ' ORDER BY nth) FROM public.item WHERE watcher = 'state'}), '1 2', 'only changes were passed on');

# a service without ETag, and a worker that knows of none
$streams->feeds(state => { how => 'no_etag' });
kill_worker($node, 'agent', 'TERM');
$told = $streams->feed('state')->{told};
ok(wait_until(sub { $streams->feed('state')->{told} > $told + 10 }), 'another worker asks');
is($node->safe_psql('postgres', q{SELECT count(*) FROM public.item WHERE watcher = 'state'}), 2, 'and knows by its digest that nothing has changed');

# -- a definition that changes, pause, resume and stop

ok(wait_until(sub { $streams->feed('events')->{open} == 1 }), 'the stream is open');
my $before = $streams->feed('events')->{connections};
make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/sse/{{key}}', query => { v => 2 } } });
ok(wait_until(sub { $streams->feed('events')->{connections} == $before + 1 && $streams->feed('events')->{open} == 1 }), 'a definition that is written anew reaches a stream that is open');
$node->safe_psql('postgres', q{SELECT sas.pause_watch('events', '{events}')});
ok(wait_until(sub { $streams->feed('events')->{open} == 0 }), 'a watch that is paused closes its connection');
$streams->feeds(events => { items => 720 });
$node->safe_psql('postgres', q{SELECT sas.resume_watch('events', '{events}')});
got_items($node, 'events', 'events', 720, 'resumed it goes on where it was');
$node->safe_psql('postgres', q{SELECT sas.unwatch('events', '{events}')});
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'events' AND key = 'events'}, 'deleted'), 'a watch that is stopped is deleted once its host has confirmed');
ok(wait_until(sub { $streams->feed('events')->{open} == 0 }), 'and its connection is closed');

# -- an agent that is disabled

$node->safe_psql('postgres', q{SELECT sas.alter_agent('feed', enabled => false)});
ok(wait_until(sub { $streams->feed('lines')->{open} == 0 }), 'streams of an agent that is disabled are closed');
$streams->feeds(lines => { items => 720 });
$node->safe_psql('postgres', q{SELECT sas.alter_agent('feed', enabled => true)});
got_items($node, 'lines', 'lines', 720, 'and begun again when it is enabled');

is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.watches WHERE state NOT IN ('processing', 'deleted')}), 0, 'every other watch is processed');
$node->stop;
done_testing();
