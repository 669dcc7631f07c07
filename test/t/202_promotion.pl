# SPDX-License-Identifier: PostgreSQL
#
# The primary is gone in the middle of 500 orders; its synchronous standby
# goes on.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;

my $primary = new_node('primary', _init => [ allows_streaming => 1 ]);
my $shop = start_shop();
define_orders($primary, $shop);

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$primary->reload;
ok(wait_for($primary, q{SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'}, '1'),
	'the standby is synchronous');

$_->faults({ unavailable => 0.03, drop_after => 0.03 }) foreach values %$shop;
submit_orders($primary, 500);
wait_for($primary, 'SELECT count(*) >= 100 FROM shop.ledger');

is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %'}),
	'0', 'on the standby nothing runs');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM sas.workers'), '0', 'and its view of workers is empty');
like($standby->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}),
	qr/^[1-9]/, 'the runs can be looked at there');

# an outside program claims a task; its session commits carelessly
my $claim = $primary->safe_psql('postgres', q{
	SET synchronous_commit = off;
	SELECT sas.create_agent('packer', kind => 'external');
	SELECT sas.create_workflow('pack', '{"steps": {"a": {"agent": "packer", "task": {}}}}');
	SELECT count(*) FROM sas.submit('pack');
	SELECT request_id FROM sas.claim('packer', 'outside', lease => '10 min')});
$claim =~ s/^.*\n//s;
my (undef, undef, $refused) = $standby->psql('postgres', 'SELECT sas.heartbeat(gen_random_uuid())');
like($refused, qr/cannot execute sas[.]heartbeat in a read-only transaction.*This server is a standby/s, 'a standby does not tell an outside program that its task is lost');
$primary->stop('immediate');
$standby->promote;
ok(wait_for($standby, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), 'after the promotion every kind of worker runs');
isnt($standby->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}),
	'0', 'the promotion was in the middle of the orders');
is($standby->safe_psql('postgres', "SELECT sas.heartbeat('$claim'), sas.complete('$claim', '1')"), 'go|t', 'the claim of an outside program holds on the promoted standby');
all_ended($standby, 'every one of 500 orders ends on the promoted standby');
books_equal($standby, $shop, 'and the books of the services equal the database');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'order'}), '500', 'no run was lost and none was added');
done_testing();
