# SPDX-License-Identifier: PostgreSQL
#
# Items that come in while one of three function workers is at the inbox of
# their task wait for no time-out: a burst is delivered at once, not when the
# time of a claim is over. 200 bursts; SAS_LONG=1: 2,000, as was measured.

# Long: only make check-long runs it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $bursts = $ENV{SAS_LONG} ? 2000 : 200;
my $each = 5;
my $node = new_node('main', 'sas.function_workers' => 3, 'sas.agents' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY, item jsonb NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
	CREATE INDEX ON item (item);
	CREATE TABLE burst (n int PRIMARY KEY, committed_at timestamptz NOT NULL, delivered_at timestamptz);
	-- commits a burst item by item, at intervals in which a worker ends its claim, and waits until the last one is delivered
	CREATE PROCEDURE send(bursts int, each int) LANGUAGE plpgsql AS $$
	DECLARE
		committed timestamptz;
	BEGIN
		FOR n IN 1 .. bursts LOOP
			FOR i IN 1 .. each LOOP
				ASSERT sas.append_items(1, 1, jsonb_build_array((n - 1) * each + i)) = 'go';
				COMMIT;
				PERFORM pg_sleep(random() * 0.004);
			END LOOP;
			committed := clock_timestamp();
			WHILE NOT EXISTS (SELECT FROM item WHERE item = to_jsonb(n * each)) AND clock_timestamp() < committed + interval '100 s' LOOP
				PERFORM pg_sleep(0.001);
			END LOOP;
			INSERT INTO burst SELECT n, committed, (SELECT at FROM item WHERE item = to_jsonb(n * each));
			COMMIT;
		END LOOP;
	END $$;
	SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.create_watcher('feed', '{"agent": "host", "external": {}, "items": {"table": "public.item"}}');
	SELECT sas.watch('feed', 'a');
	SELECT sas.claim_watchers(sas.register_node('host', 10, '{host}', lease => '1 day', by_connection => false), 1)});
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, 3), 'three function workers run');

$sql->("CALL send($bursts, $each)");
is($sql->('SELECT count(*) FROM burst WHERE delivered_at IS NOT NULL'), $bursts, "all $bursts bursts are delivered");
is($sql->(q{SELECT count(*) FROM burst WHERE delivered_at > committed_at + interval '30 s'}), 0, 'none of them waited for the time of a claim to be over');
is($sql->('SELECT count(*) FROM (SELECT item, row_number() OVER (ORDER BY id) AS n FROM item) i WHERE item <> to_jsonb(n)'), 0, 'each item came once, in order');
is($sql->('SELECT count(*) FROM item'), $bursts * $each, 'and none is missing');
note($sql->(q{
	SELECT format('delays of %s bursts: median %s ms, 99 of 100 within %s ms, longest %s ms, %s longer than two seconds', count(*),
		round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)), round(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms)), round(max(ms)), count(*) FILTER (WHERE ms > 2000))
	FROM (SELECT greatest(0, extract(epoch FROM delivered_at - committed_at)::float8 * 1000) AS ms FROM burst) b}));
$node->stop;
done_testing();
