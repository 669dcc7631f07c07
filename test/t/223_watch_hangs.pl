# SPDX-License-Identifier: PostgreSQL
#
# Functions that are called for ever and do not come back: each turn has an
# end, counts as a failure, and holds up no other task for long.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main', 'sas.function_workers' => 2, 'sas.function_workers_max' => 2, 'sas.complete_in' => '3 s', 'sas.supervisor_interval' => '500 ms');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE TABLE tally (key text, n int);
	CREATE FUNCTION count(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.tally VALUES (turn ->> 'key', coalesce((turn ->> 'cursor')::int, 0) + 1) RETURNING to_jsonb(n) $$;
	CREATE FUNCTION hang(turn jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.tally VALUES (turn ->> 'key', 1);
		PERFORM pg_sleep(3600);
		RETURN '1';
	END $$;
	-- it does not listen when it is cancelled
	CREATE FUNCTION deaf(turn jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.tally VALUES (turn ->> 'key', 1);
		LOOP
			BEGIN
				PERFORM pg_sleep(3600);
			EXCEPTION WHEN query_canceled THEN
				NULL;
			END;
		END LOOP;
	END $$;
	SELECT sas.create_watcher('count', '{"function": "public.count", "every": "10 ms"}');
	SELECT sas.create_watcher('hang', '{"function": "public.hang", "every": "10 ms", "retry": {"max_failures": 2, "initial": "100 ms", "reset_after": "1 h"}}');
	SELECT sas.create_watcher('deaf', '{"function": "public.deaf", "every": "10 ms", "retry": {"max_failures": 2, "initial": "100 ms", "reset_after": "1 h"}}');
	SELECT sas.create_watcher('deaf_for_ever', '{"function": "public.deaf", "every": "10 ms", "retry": {"initial": "1 h", "jitter": false}}');
	SELECT count(*) FROM generate_series(1, 10) n, sas.watch('count', n::text)});

sub go_on
{
	my ($name) = @_;
	my $most = $sql->(q{SELECT coalesce(max(n), 0) FROM tally WHERE key ~ '^[0-9]+$'});
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_for($node, "SELECT count(*) FROM (SELECT key FROM tally WHERE key ~ '^[0-9]+\$' GROUP BY 1 HAVING max(n) > $most + 5) x", 10), $name);
	return;
}
my $failed = sub { return $sql->("SELECT state || ', ' || failures || ' failures: ' || (last_error ->> 'title') FROM sas.watches WHERE watcher = '$_[0]'") };
my $alerts = sub { return $sql->(qq{SELECT string_agg(message, '; ') FROM sas.alerts WHERE kind = 'watch-failed' AND message LIKE '%"$_[0]"%'}) };

go_on('functions are called');

# -- one that hangs is cancelled --------------------------------------------------------------------------

$sql->(q{SELECT sas.watch('hang', 'h')});
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'hang'}, 'failed'), 'a function that hangs is cancelled when its time is over, and called again, as its retry policy says');
is($failed->('hang'), 'failed, 2 failures: canceling statement due to statement timeout', 'each turn is a failure');
is($alerts->('hang'), 'watch "h" of watcher "hang" failed: canceling statement due to statement timeout (SQL statement "SELECT pg_sleep(3600)")', 'with an alert when it has failed');
go_on('the others go on');

# -- one that does not listen is ended, with its worker ---------------------------------------------------

my @pids = worker_pids($node, 'function');
$sql->(q{SELECT sas.watch('deaf', 'd')});
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'deaf'}, 'failed'), 'one that does not listen when it is cancelled comes to its end as well');
is($failed->('deaf'), 'failed, 2 failures: the function did not end in time, and its worker was ended', 'each turn is a failure');
is($alerts->('deaf'), 'watch "d" of watcher "deaf" failed: the function did not end in time, and its worker was ended', 'with an alert when it has failed');
# a worker that was there for a moment, while others were busy, is gone as well
is($sql->(q{SELECT count(*) FROM sas.nodes WHERE kind = 'function' AND is_deleted AND ended_for = 'a function did not end in time'}), '2', 'sas.nodes tells why its workers have ended');
ok(wait_until(sub { my %now = map { $_ => 1 } worker_pids($node, 'function'); return keys %now == 2 && grep { !$now{$_} } @pids }), 'in the place of the worker there is another');
go_on('the others go on');
is($sql->(q{SELECT sum(failures) FROM sas.watches WHERE watcher = 'count'}), '0', 'and have not failed');
is($sql->(q{SELECT count(*) FROM tally WHERE key IN ('h', 'd')}), '0', 'nothing of what was given up is kept');

# -- and waits for its pause, as after any failure ----------------------------------------------------------

$sql->(q{SELECT sas.watch('deaf_for_ever', 'e')});
ok(wait_for($node, q{SELECT state || ' ' || failures FROM sas.watches WHERE watcher = 'deaf_for_ever'}, 'created 1'), 'without a limit it waits for its pause');
go_on('meanwhile the others go on');
$sql->(q{SELECT * FROM sas.unwatch('deaf_for_ever', '{e}')});
is($sql->(q{SELECT state FROM sas.watches WHERE watcher = 'deaf_for_ever'}), 'deleted', 'and can be stopped');
$node->stop;
done_testing();
