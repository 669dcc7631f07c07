# SPDX-License-Identifier: PostgreSQL
#
# Who looks at a standby sees what the primary stores: sas.wait sees the end of
# a run soon, though nothing can wake it there, and the numbers for monitoring
# can be read.  Without looks of its own a wait would see an end only 10 s
# after it began: five of them are given less than that takes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

my $primary = new_node('primary', _init => [ allows_streaming => 1 ]);
$primary->safe_psql('postgres', q{SELECT sas.create_workflow('ask', '{"steps": {"a": {"wait": {"signal": "go"}}}}')});
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

my $session = SasSession->new($standby);
my $begun = time;
foreach my $n (1 .. 5)
{
	my $run = $primary->safe_psql('postgres', q{SELECT run_id FROM sas.submit('ask')});
	wait_for($standby, "SELECT count(*) FROM sas.steps WHERE run_id = $run AND state = 'suspended'", '1');
	$session->start_query("SELECT state, result FROM sas.wait($run, '1 hour')");
	wait_for($standby, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query ~ 'sas.wait.$run,'", '1');
	$primary->safe_psql('postgres', "SELECT sas.signal($run, 'go')");
	is($session->answer, 'stopped|success', "a wait on the standby sees the end of run $run");
}
cmp_ok(time - $begun, '<', 45, 'and soon: it looks by itself');

# -- what monitoring reads -----------------------------------------------------------

foreach my $node ($primary, $standby)
{
	my $name = $node->name;
	is($node->safe_psql('postgres', q{BEGIN READ ONLY; SELECT value FROM sas.metrics() WHERE name = 'sas_build_info'}),
		'1', "$name: metrics can be read in a read-only transaction");
	like($node->safe_psql('postgres', 'BEGIN READ ONLY; SELECT sas.metrics_text()'),
		qr/^sas_open_runs\{state="paused"\} 0$/m, "$name: and their text");
}
is($primary->safe_psql('postgres', q{SELECT labels ->> 'actor', sum(value) FROM sas.metrics('{sas_found_late}') GROUP BY 1 ORDER BY 1}),
	"agent|0\nfunction|0\nscheduler|0\nsupervisor|0", 'what has not been counted yet is zero');
is($standby->safe_psql('postgres', q{SELECT value FROM sas.metrics() WHERE name = 'sas_ok'}), '0', 'the standby says that nothing works there');
done_testing();
