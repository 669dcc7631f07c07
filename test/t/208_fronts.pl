# SPDX-License-Identifier: PostgreSQL
#
# A storm over the marks of fronts: rows come to stand before them all the
# time, from transactions that were open for long, are prepared, roll back in
# part or as a whole, or die; claims die, too. What is lost behind a mark
# would be found after minutes only, by the supervisor; here it never is.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;
use Time::HiRes qw(sleep);

my $node = new_node('main', 'sas.function_workers' => 2, max_prepared_transactions => 10, log_checkpoints => 'off');
$node->safe_psql('postgres', <<'SQL');
CREATE SCHEMA t;
CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
CREATE FUNCTION t.moody(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF random() < 0.03 THEN
		RAISE EXCEPTION 'not now' USING ERRCODE = 'serialization_failure';
	END IF;
	RETURN input;
END $$;
CREATE TABLE t.sent (run_id bigint PRIMARY KEY);
SELECT sas.create_workflow('two', '{"recovery": {"max_failures": 1000, "initial": "20 ms", "max": "100 ms"},
	"steps": {"a": {"function": "t.echo"}, "b": {"function": "t.moody", "after": ["a"], "retry": {"max_attempts": 1}}}}');
SELECT sas.create_workflow('each', '{"steps": {"e": {"function": "t.echo", "each": "{{input.items}}", "input": {"n": "{{item}}"}}}}');
CREATE FUNCTION t.send() RETURNS void LANGUAGE sql AS $$
	INSERT INTO t.sent
	SELECT s.run_id FROM (SELECT CASE WHEN random() < 0.9 THEN 'two' ELSE 'each' END AS workflow, (random() * 40)::int - 20 AS priority) x
	CROSS JOIN LATERAL sas.submit(x.workflow, '{"items": [1, 2, 3]}', priority => x.priority) s
$$;
CREATE PROCEDURE t.storm(n int) LANGUAGE plpgsql AS $$
DECLARE
	mood float8;
BEGIN
	FOR i IN 1..n LOOP
		mood := random();
		PERFORM t.send();
		IF mood < 0.15 THEN
			ROLLBACK;
		ELSIF mood < 0.3 THEN
			BEGIN
				PERFORM t.send();
				RAISE EXCEPTION 'no';
			EXCEPTION WHEN raise_exception THEN
				PERFORM t.send() WHERE mood < 0.2;
			END;
		ELSIF mood < 0.35 THEN
			PERFORM pg_sleep(random() * 0.3);
		ELSIF mood < 0.45 THEN
			PERFORM FROM sas.set_priority_runs(ARRAY(SELECT run_id FROM _sas.run WHERE state = 'pending' ORDER BY run_id DESC LIMIT 3), (random() * 40)::int - 20);
		END IF;
		COMMIT;
		-- now and then the lane is empty
		PERFORM pg_sleep(0.3) WHERE mood > 0.99;
	END LOOP;
END $$;
SQL

my $pin = SasSession->new($node);
$pin->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()');

# sessions that send, while that is done to the server
sub storm
{
	my ($each, $meanwhile) = @_;
	my @sessions = map { SasSession->new($node) } 1 .. 5;
	$_->start_query("CALL t.storm($each)") foreach @sessions;
	my $rounds = 0;
	while (grep { !$_->answered } @sessions)
	{
		$meanwhile->($rounds++);
		sleep 0.1;
	}
	return $rounds;
}

sub all_done
{
	my ($what) = @_;
	# with the work done a session may still be on its way out
	ok(wait_for($node, q{SELECT count(*) FROM _sas.run WHERE state <> 'stopped'}, '0'), "$what: every run ends");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM _sas.ready}), '0', "$what: nothing is left in the queue");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM t.sent s FULL JOIN _sas.run r USING (run_id) WHERE r.result IS DISTINCT FROM 'success' OR s.run_id IS NULL}),
		'0', "$what: there is a successful run for each that was committed, and no other");
	note($node->safe_psql('postgres', q{SELECT w.name, r.result, r.error, s.run_id IS NOT NULL AS sent, count(*) FROM _sas.run r JOIN _sas.workflow_version v USING (version_id) JOIN _sas.workflow w USING (workflow_id) FULL JOIN t.sent s USING (run_id) GROUP BY 1, 2, 3, 4}));
	return;
}

my $prepared = 0;
storm(300,
	sub {
		my ($round) = @_;
		$node->psql('postgres', "BEGIN; SELECT t.send(); PREPARE TRANSACTION 'p$round'");
		$node->psql('postgres', ($round % 3 ? 'COMMIT' : 'ROLLBACK') . " PREPARED 'p" . ($round - 3) . q{'}) if $round >= 3;
		$prepared = $round;
	});
$node->psql('postgres', "COMMIT PREPARED 'p$_'") foreach $prepared - 2 .. $prepared;
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'), '0', 'no transaction is left prepared');
all_done('beside prepared transactions');

storm(300,
	sub {
		my ($round) = @_;
		# a worker in the middle of its claims, a sender in the middle of its transaction
		$node->psql('postgres', q{SELECT pg_terminate_backend(pid) FROM sas.workers WHERE actor IN ('function', 'scheduler') ORDER BY random() LIMIT 1}) if $round % 5 == 1;
		$node->psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL t.storm%' ORDER BY random() LIMIT 1}) if $round % 20 == 10;
		$node->psql('postgres', q{SELECT pg_cancel_backend(pid) FROM sas.workers WHERE actor = 'function'}) if $round % 7 == 3;
	});
all_done('with workers and senders terminated');

my $boot = $node->safe_psql('postgres', 'SELECT _sas.current_boot()');
storm(300,
	sub {
		my ($round) = @_;
		if ($round == 10)
		{
			my $pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE query LIKE 'CALL t.storm%' LIMIT 1});
			kill('KILL', $pid) if $pid;
		}
	});
ok(wait_for($node, "SELECT _sas.current_boot() <> $boot"), 'the server has begun anew after kill -9 of a sender');
storm(100, sub { });
all_done('after a crash');
eval { $pin->kill };
done_testing();
