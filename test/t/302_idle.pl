# SPDX-License-Identifier: PostgreSQL
#
# Idle costs nothing: no WAL, no transactions, nobody wakes but the
# supervisor; also after work, and while a timer is far away.
# Takes about 50 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;
use Time::HiRes;

my $node = new_node('main',
	autovacuum => 'off',
	checkpoint_timeout => '1h',
	bgwriter_lru_maxpages => 0,
	'sas.agents' => 2,
	'sas.schedulers' => 2,
	'sas.supervisor_interval' => '12 s');
my $service = start_service('inventory');
$node->safe_psql('postgres', qq{
	CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$ SELECT input \$\$;
	SELECT sas.create_agent('inventory', base_url => '@{[ $service->url ]}');
	SELECT sas.create_workflow('order', '{"steps": {"book": {"function": "public.book"}, "reserve": {"agent": "inventory", "after": ["book"],
		"call": {"method": "POST", "path": "/reservations", "body": {"order": "{{input.n}}", "sku": "sku-1"}}}}}')});

ok(wait_for($node, 'SELECT count(*) FROM sas.workers', '6'), 'all workers are there');

$node->safe_psql('postgres', q{SELECT count(*) FROM sas.submit_batch('order', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, 50) i))});
all_ended($node, 'fifty runs end');
quiet_for($node, 5, 'after work');

$node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('order', '{"n": 100}', start_at => now() + interval '1 day')});
quiet_for($node, 5, 'with a timer far ahead');

ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'supervisor' AND last_activity_at < now() - interval '7 s'}, '1'),
	'while nothing is open the supervisor sleeps for most of the interval');

# asleep, and yet at once there when rung
my $let_go = hold_supervisor($node);
my $begun = Time::HiRes::time();
my $run = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('order', '{"n": 101}')});
is($node->safe_psql('postgres', "SELECT result FROM sas.wait($run)"), 'success', 'a submit wakes them');
cmp_ok(Time::HiRes::time() - $begun, '<', 30, 'at once');
$let_go->();

# an open alert: two more looks come within less than one interval
$node->safe_psql('postgres', q{
	SELECT sas.create_workflow('broken', '{"on_failure": "pause", "steps": {"a": {"function": "public.book", "expect": "output.n == 1"}}}');
	SELECT run_id FROM sas.submit('broken', '{"n": 2}')});
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts}, '1'), 'a run that is paused raises an alert');
my @looks;
my $look = q{SELECT extract(epoch FROM last_activity_at) FROM sas.workers WHERE actor = 'supervisor'};
for (1 .. 4)
{
	my $last = $looks[-1] // 0;
	wait_until(sub { $node->safe_psql('postgres', $look) > $last });
	push @looks, $node->safe_psql('postgres', $look);
}
cmp_ok($looks[3] - $looks[1], '<', 12, 'while something is open the supervisor looks more often');
done_testing();
