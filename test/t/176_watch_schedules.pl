# SPDX-License-Identifier: PostgreSQL
#
# Polls and functions of infinite tasks that name a schedule: each look is made
# once, at its instant; what was missed is made once; until the next instant
# nothing is asked of the service.
# Takes about 30 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '1 s');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
make_agent($node, 'feed', $service);
$sql->(q{
	CREATE TABLE item (item jsonb);
	CREATE TABLE call (key text, second timestamptz DEFAULT date_trunc('second', clock_timestamp()));
	CREATE FUNCTION look(turn jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.call (key) VALUES (turn ->> 'key'); RETURN NULL; END $$;
	SELECT sas.create_watcher('poll', '{"agent": "feed", "poll": {"call": {"path": "/poll"}, "schedule": {"spec": "*/2 * * * * *"}}, "items": {"table": "public.item"}}');
	SELECT sas.create_watcher('far', '{"agent": "feed", "poll": {"call": {"path": "/far"}, "schedule": {"spec": "0 0 1 1 *"}}, "items": {"table": "public.item"}}');
	SELECT sas.create_watcher('function', '{"function": "public.look", "schedule": {"spec": "*/2 * * * * *"}}');
	SELECT sas.create_watcher('seldom', '{"function": "public.look", "schedule": {"spec": "0 0 1 1 *"}}')});
$service->script(poll => [ { json => { n => 1 } }, { json => { n => 1 } }, { status => 503 }, { json => { n => 2 } }, { json => { n => 2 } } ]);
my $began = time;
$sql->(q{SELECT sas.watch(w, 'one') FROM unnest('{poll,far,function,seldom}'::text[]) w});
$service->wait_for_requests('poll', 6);
my $ended = time;
cmp_ok(scalar($service->requests('poll')), '<=', ($ended - $began) / 2 + 3, 'a poll asks at its instants, and once more after one that failed');
ok(wait_for($node, q{SELECT string_agg(item #>> '{body,n}', ',' ORDER BY item #>> '{body,n}') FROM item}, '1,2'), 'what is new is passed on, once each');
is($sql->(q{SELECT count(*) FROM sas.watches WHERE state = 'processing' AND next_at > now() - interval '3 s'}), '4', 'the view says when each looks next');
ok(wait_for($node, q{SELECT count(*) > 3 FROM call WHERE key = 'one'}), 'a function is called at its instants');
is($sql->(q{SELECT count(*) = count(DISTINCT second), bool_and(extract(second FROM second)::int % 2 = 0) FROM call}), 't|t', 'once each');

# -- the host ends; the server ends ---------------------------------------------------------------
foreach my $actor (qw(agent function))
{
	my $polls = $service->requests('poll');
	my $calls = $sql->('SELECT count(*) FROM call');
	kill_worker($node, $actor, 'TERM');
	ok(wait_until(sub { $service->requests('poll') > $polls + 2 && $sql->('SELECT count(*) FROM call') > $calls + 2 }), "the $actor worker is ended: they go on");
}
$node->stop('immediate');
$node->start;
my $calls = $sql->('SELECT count(*) FROM call');
ok(wait_for($node, "SELECT count(*) > $calls + 2 FROM call"), 'after a crash they go on');
is($sql->(q{SELECT count(*) = count(DISTINCT second) FROM call}), 't', 'and no instant has two calls');
is(scalar($service->requests('far')), 0, 'what looks at New Year has not looked');

# -- what was missed is made once, whatever the schedule says ----------------------------------------
$sql->(q{SELECT sas.unwatch(w, '{one}') FROM unnest('{poll,function}'::text[]) w; DELETE FROM call;
	UPDATE _sas.watch_flow f SET next_at = now() - interval '3 h' FROM _sas.watch w JOIN _sas.watcher d USING (watcher_id) WHERE f.watch_id = w.watch_id AND d.name IN ('far', 'seldom')});
$node->restart;
ok($service->wait_for_requests('far', 1), 'a look that was missed is made when the server is back');
ok(wait_for($node, q{SELECT count(*) FROM call}, '1'), 'and so is the call of a function');
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE watcher IN ('far', 'seldom') AND next_at > now() + interval '1 s'}, '2'), 'then they wait for the next one');
$node->restart;
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE watcher IN ('far', 'seldom') AND node IS NOT NULL}, '2'), 'after another restart they are hosted again');
is(scalar($service->requests('far')) . ',' . $sql->('SELECT count(*) FROM call'), '1,1', 'and look no second time');

# -- another schedule holds at once ------------------------------------------------------------------
$sql->(q{SELECT sas.create_watcher('far', '{"agent": "feed", "poll": {"call": {"path": "/far"}, "schedule": {"spec": "every 1 s"}}, "items": {"table": "public.item"}}');
	SELECT sas.create_watcher('seldom', '{"function": "public.look", "schedule": {"spec": "every 1 s"}}')});
ok($service->wait_for_requests('far', 4), 'a poll takes up another schedule at once');
ok(wait_for($node, 'SELECT count(*) > 3 FROM call'), 'and so does a function');
$sql->(q{SELECT sas.pause_watch(w, '{one}') FROM unnest('{far,seldom}'::text[]) w});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state = 'paused' AND node IS NULL}, '2'), 'both are paused');
$sql->(q{SELECT sas.resume_watch(w, '{one}') FROM unnest('{far,seldom}'::text[]) w});
$calls = $sql->('SELECT count(*) FROM call');
ok(wait_for($node, "SELECT count(*) > $calls FROM call"), 'and go on when they are resumed');
done_testing();
