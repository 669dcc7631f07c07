# SPDX-License-Identifier: PostgreSQL
#
# Infinite tasks in a dump: where it is restored they go on at their cursors,
# whether it comes in one transaction or beside workers that are there already.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', max_worker_processes => 40);
my $sql = sub { my ($query, $database) = @_; return $node->safe_psql($database // 'postgres', $query) };
$sql->(q{
	CREATE TABLE tally (key text, n int);
	CREATE FUNCTION count(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.tally VALUES (turn ->> 'key', coalesce((turn ->> 'cursor')::int, 0) + 1) RETURNING to_jsonb(n) $$;
	CREATE TABLE item (key text, item jsonb NOT NULL);
	SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.create_watcher('count', '{"function": "public.count", "every": "10 ms"}');
	SELECT sas.create_watcher('camera', '{"agent": "host", "external": {}, "items": {"table": "public.item"}}');
	SELECT count(*) FROM generate_series(1, 5) n, sas.watch('count', n::text);
	SELECT count(*) FROM unnest('{held,waits,ended}'::text[]) k, sas.watch('camera', k);
	SELECT * FROM sas.unwatch('camera', '{ended}');
	SELECT sas.register_node('gone', 1, '{host}', lease => '1 s', by_connection => false);
	SELECT * FROM sas.claim_watchers((SELECT max(node_id) FROM sas.nodes WHERE name = 'gone'), 1)});
ok(wait_for($node, 'SELECT min(n) > 3 FROM (SELECT key, max(n) AS n FROM tally GROUP BY 1 HAVING count(*) > 0) x'), 'functions are called');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'a dump is taken');

foreach my $way (qw(whole bit_by_bit))
{
	$sql->("CREATE DATABASE $way TEMPLATE template0");
	$node->command_ok([ 'psql', '-XqAt', '-o', '/dev/null', '-v', 'ON_ERROR_STOP=1', $way eq 'whole' ? '--single-transaction' : (), '-d', $way, '-f', $dump ], "$way: it is restored");
	is($sql->('SELECT sas.release()', $way), 't', "$way: it is released");
	my $most = $sql->('SELECT max(n) FROM tally', $way);
	ok(wait_for($node, "SELECT count(*) FROM (SELECT key FROM tally GROUP BY 1 HAVING max(n) > $most + 5) x", 5, dbname => $way), "$way: functions are called from their cursors on");
	is($sql->('SELECT count(*) FROM (SELECT key FROM tally GROUP BY 1 HAVING count(*) <> max(n)) x', $way), '0', "$way: each number once");
	ok(wait_for($node, q{SELECT string_agg(key || ' ' || state, ', ' ORDER BY key) FROM sas.watches WHERE watcher = 'camera'}, 'ended deleted, held created, waits created', dbname => $way),
		"$way: what a program hosted waits for another, what has ended is known");
	is($sql->('SELECT count(*) FROM _sas.watch_ended', $way), '1', "$way: until it is purged");
	is($sql->(q{SELECT count(*) FROM sas.alerts WHERE kind <> 'quarantine'}, $way), '0', "$way: and nobody is alarmed");
}
$node->stop;
done_testing();
