# SPDX-License-Identifier: PostgreSQL
#
# Deadlines of runs that have got no timer when they were submitted, with real
# workers and the clock moved by a setting: they hold whatever becomes of the
# server before the supervisor writes the timer, and after.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $primary = new_node('primary', _init => [ allows_streaming => 1 ], max_prepared_transactions => 10);
$primary->safe_psql('postgres', q{
	CREATE SCHEMA t;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('waits', '{"deadline": "20 min", "steps": {"a": {"function": "t.echo"}, "b": {"wait": {"signal": "go"}, "after": ["a"]}}}');
	-- the first submit of a role, which reads its limits, is one of SQL: that writes the timer at once
	SELECT _sas.open_more_runs(current_user::regrole::oid, 0, false, 0)});
my $start;

# All workers take that for now: so many seconds after the start.
sub set_clock
{
	my ($node, $seconds) = @_;
	my $now = $node->safe_psql('postgres', "SELECT timestamp '$start' + $seconds * interval '1 s'");
	$node->safe_psql('postgres', "ALTER SYSTEM SET sas.clock = '$now+00'");
	$node->reload;
	return;
}

# Submits such a run, as the last statement of this.
sub submit
{
	my ($node, $how) = @_;
	$node->safe_psql('postgres', "SET sas.clock = ''; BEGIN; SELECT FROM sas.submit('waits'); $how");
	return;
}

my $timers = q{SELECT string_agg(r.run_id::text, ' ' ORDER BY r.run_id) FROM _sas.run r JOIN _sas.message d ON d.run_id = r.run_id AND d.actor = 'v' AND d.kind = 'deadline' AND d.due_at = r.deadline};
my $open = q{SELECT string_agg(run_id::text, ' ' ORDER BY run_id) FROM sas.runs WHERE state <> 'stopped'};

submit($primary, 'COMMIT');
submit($primary, q{PREPARE TRANSACTION 'p'});
submit($primary, 'COMMIT');
ok(wait_for($primary, q{SELECT count(*) FROM sas.steps WHERE step = 'b' AND state = 'suspended'}, '2'), 'two runs wait for a signal, a third is prepared');
is($primary->safe_psql('postgres', $timers), '', 'none has a timer');
is($primary->safe_psql('postgres', 'SELECT runs_open FROM sas.health()'), '2', 'but those that wait are counted');

$start = $primary->safe_psql('postgres', q{SELECT date_trunc('second', now() AT TIME ZONE 'UTC')});
set_clock($primary, 130);
ok(wait_for($primary, $timers, '1 3'), 'after two minutes they have one');

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

$primary->stop('immediate');
$primary->start;
submit($primary, 'COMMIT');
$primary->safe_psql('postgres', q{COMMIT PREPARED 'p'});
ok(wait_for($primary, $open, '1 2 3 4'), 'after a crash the prepared one is committed, and a fourth submitted');
set_clock($primary, 300);
ok(wait_for($primary, $timers, '1 2 3 4'), 'all have their timer, the one with the older number, too');

$primary->safe_psql('postgres', 'ALTER SYSTEM RESET sas.clock');
$primary->reload;
submit($primary, 'COMMIT');
ok(wait_for($primary, q{SELECT count(*) FROM sas.steps WHERE step = 'b' AND state = 'suspended'}, '5'), 'a fifth waits');
is($primary->safe_psql('postgres', $timers), '1 2 3 4', 'and has none yet');
$primary->wait_for_catchup($standby);
$primary->stop('immediate');
$standby->promote;
ok(wait_for($standby, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), 'the standby is promoted');
set_clock($standby, 500);
ok(wait_for($standby, $timers, '1 2 3 4 5'), 'there it gets its timer');
set_clock($standby, 3600);
ok(wait_for($standby, q{SELECT count(*) FROM sas.runs WHERE state = 'stopped' AND error ->> 'type' = 'urn:sas:deadline'}, '5'), 'and all end at their deadline');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM _sas.message}), '0', 'no timer is left');
done_testing();
