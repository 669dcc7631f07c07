# SPDX-License-Identifier: PostgreSQL
#
# Idle costs nothing: no WAL, no transactions, nobody wakes but the
# supervisor; also after work, and while a timer is far away.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;
use Time::HiRes qw(sleep);

my $node = new_node('main',
	autovacuum => 'off',
	checkpoint_timeout => '1h',
	bgwriter_lru_maxpages => 0,
	'sas.agents' => 2,
	'sas.schedulers' => 2,
	'sas.supervisor_interval' => '2 s');
my $service = start_service('inventory');
$node->safe_psql('postgres', qq{
	CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$ SELECT input \$\$;
	SELECT sas.create_agent('inventory', base_url => '@{[ $service->url ]}');
	SELECT sas.create_workflow('order', '{"steps": {"book": {"function": "public.book"}, "reserve": {"agent": "inventory", "after": ["book"],
		"call": {"method": "POST", "path": "/reservations", "body": {"order": "{{input.n}}", "sku": "sku-1"}}}}}')});

# wake-ups of all workers but supervisors, as the kernel counts them: voluntary
# context switches of each process
sub switches
{
	my ($actor) = @_;
	my %of;
	foreach my $pid (split /\n/, $node->safe_psql('postgres',
			"SELECT pid FROM sas.workers WHERE actor $actor UNION ALL SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas launcher'"))
	{
		($of{$pid}) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	}
	return \%of;
}

sub sorted { my ($of) = @_; return map { [ $_, $of->{$_} ] } sort keys %$of }

# what the server looks like after that many seconds of nothing
sub quiet_for
{
	my ($seconds, $name) = @_;
	my $look = q{SELECT max(last_activity_at) FROM sas.workers WHERE actor <> 'supervisor'};
	# statistics of what was done before are sent up to ten seconds later
	ok( wait_until(
			sub {
				my $was = join ' ', map { "@$_" } sorted(switches("<> 'supervisor'"));
				sleep 10.5;
				return $was eq join ' ', map { "@$_" } sorted(switches("<> 'supervisor'"));
			}),
		"$name: the server comes to rest");
	my $lsn = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	my $active = $node->safe_psql('postgres', $look);
	my $before = switches("<> 'supervisor'");
	my $xid = $node->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())');
	sleep $seconds;
	my $after = switches("<> 'supervisor'");
	my %woken = map { $_ => $after->{$_} - ($before->{$_} // 0) } grep { $after->{$_} != ($before->{$_} // -1) } keys %$after;
	is_deeply([ sort keys %$after ], [ sort keys %$before ], "$name: the same workers are there");
	is_deeply(\%woken, {}, "$name: no process but the supervisor woke up in $seconds s");
	is($node->safe_psql('postgres', $look), $active, "$name: and none was active");
	is($node->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())'), $xid, "$name: nothing was written, not by the supervisor either");
	is($node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()'), $lsn, "$name: no WAL");
	return;
}

ok(wait_for($node, 'SELECT count(*) FROM sas.workers', '6'), 'all workers are there');

$node->safe_psql('postgres', q{SELECT count(*) FROM sas.submit_batch('order', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, 50) i))});
all_ended($node, 'fifty runs end');
quiet_for(5, 'after work');

$node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('order', '{"n": 100}', start_at => now() + interval '1 day')});
quiet_for(5, 'with a timer far ahead');

# the supervisor's transactions, by the database's own count: about one per interval
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'supervisor' AND last_activity_at > now() - interval '3 s'}, '1'),
	'the supervisor looks at its interval');

# asleep, and yet at once there when rung
my $begun = Time::HiRes::time();
my $run = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('order', '{"n": 101}')});
is($node->safe_psql('postgres', "SELECT result FROM sas.wait($run)"), 'success', 'a submit wakes them');
cmp_ok(Time::HiRes::time() - $begun, '<', 5, 'at once');
done_testing();
