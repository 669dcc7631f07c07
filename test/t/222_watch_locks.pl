# SPDX-License-Identifier: PostgreSQL
#
# Sessions that keep transactions open: no worker waits for them, other tasks
# go on, and what they asked for happens when they commit.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE TABLE tally (key text, n int);
	CREATE FUNCTION count(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.tally VALUES (turn ->> 'key', coalesce((turn ->> 'cursor')::int, 0) + 1) RETURNING to_jsonb(n) $$;
	CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY, key text, item jsonb NOT NULL);
	SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.create_watcher('count', '{"function": "public.count", "every": "10 ms"}');
	SELECT sas.create_watcher('camera', '{"agent": "host", "external": {}, "items": {"table": "public.item"}}');
	SELECT count(*) FROM generate_series(1, 5) n, sas.watch('count', n::text);
	SELECT count(*) FROM generate_series(1, 4) n, sas.watch('camera', n::text)});

sub go_on
{
	my ($keys, $name) = @_;
	my $most = $sql->('SELECT coalesce(max(n), 0) FROM tally');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_for($node, "SELECT count(*) FROM (SELECT key FROM tally GROUP BY 1 HAVING max(n) > $most + 5) x", $keys), $name);
	return;
}

go_on(5, 'functions are called');
my $verb = SasSession->new($node);
$verb->query(q{BEGIN; SELECT count(*) FROM sas.unwatch('count', '{1,2,3}'); SELECT count(*) FROM sas.pause_watch('camera', '{4}')});
go_on(5, 'while a session that stops some has not committed, all go on');
my $host = SasSession->new($node);
my $id = $host->query(q{SELECT sas.register_node('one', 10, '{host}', lease => '1 h')});
is($host->query("SELECT string_agg(key, ' ' ORDER BY key) FROM sas.claim_watchers($id, 10)"), '1 2 3', 'a task that a session holds is passed by');
$sql->(q{SELECT pg_terminate_backend(pid) FROM sas.workers WHERE actor = 'function'});
go_on(2, 'their worker dies: those that nobody holds go on');
$verb->query('ROLLBACK');
go_on(5, 'and the others once the session has changed its mind');
is($sql->(q{SELECT count(*) FROM sas.watches WHERE watcher = 'count' AND restarts = 1 AND state = 'processing'}), '5', 'each has moved once');

# -- a host with an open transaction -------------------------------------------------------------------

my %of = map { split /\|/ } split /\n/, $sql->(q{SELECT key, watch_id FROM sas.watches WHERE watcher = 'camera'});
my $slow = SasSession->new($node);
is($slow->query("BEGIN; SELECT sas.append_items($of{1}, 1, '[1]', '1')"), "go", 'a host appends, and does not commit');
is($host->query("SELECT sas.append_items($of{2}, 1, '[2]')"), 'go', 'others do');
ok(wait_for($node, 'SELECT count(*) FROM item', '1'), 'and their items come');
$sql->(q{SELECT count(*) FROM sas.unwatch('camera', '{1,2,3}')});
$host->kill;
ok(wait_for($node, q{SELECT string_agg(state, ' ' ORDER BY key) FROM sas.watches WHERE watcher = 'camera' AND key <> '4'}, 'on_deleting deleted deleted'), 'the node is gone: what nobody writes for is taken back, what somebody does is not');
$slow->query('COMMIT');
ok(wait_for($node, q{SELECT string_agg(state, ' ' ORDER BY key) FROM sas.watches WHERE watcher = 'camera' AND key <> '4'}, 'deleted deleted deleted'), 'until that has committed');
ok(wait_for($node, q{SELECT string_agg(key || ' ' || item, ', ' ORDER BY key) FROM item}, '1 1, 2 2'), 'and its item is there');
$slow->quit;

# -- what programs that listen are told ------------------------------------------------------------------

$sql->(q{SELECT count(*) FROM sas.resume_watch('camera', '{4}')});
my $listener = SasSession->new($node);
$listener->query('LISTEN sas_watch_host');
my $told = sub { my ($what) = @_; return wait_until(sub { $listener->query('SELECT 1') =~ /Asynchronous notification "sas_watch_host" with payload "$what"/ }) };
$sql->(q{SELECT count(*) FROM sas.watch('camera', 'new')});
ok($told->('start'), 'a program that listens is told of a task that waits');
$host = SasSession->new($node);
$id = $host->query(q{SELECT sas.register_node('two', 10, '{host}', lease => '1 h')});
my $watch = $host->query("SELECT watch_id FROM sas.claim_watchers($id, 10) WHERE key = 'new'");
$sql->(q{SELECT count(*) FROM sas.unwatch('camera', '{new}')});
ok($told->('news'), 'and of one that is to stop');
is($host->query("SELECT watch_id, news FROM sas.heartbeat_node($id)"), "$watch|stop", 'its heartbeat says which');
is($host->query("SELECT sas.release_watches($id, '{$watch}')"), '1', 'it gives it back');
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE key = 'new'}, 'deleted'), 'and that ends it');
$_->quit foreach $listener, $host;

# -- two-phase and rolled back ---------------------------------------------------------------------------

$verb->query(q{BEGIN; SELECT count(*) FROM sas.unwatch('count', '{1}')});
$verb->kill;
go_on(5, 'a session that dies has asked for nothing');
is($sql->(q{SELECT count(*) FROM sas.alerts}), '0', 'nobody was alarmed');
done_testing();
