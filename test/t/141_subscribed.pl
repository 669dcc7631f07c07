# SPDX-License-Identifier: PostgreSQL
#
# Rows that arrive by logical replication submit runs, by a trigger of the
# subscriber: each once, at once, also when the apply worker is killed.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $publisher = new_node('publisher', wal_level => 'logical', max_wal_senders => 5, max_replication_slots => 5, _extension => 0);
my $node = new_node('subscriber', wal_receiver_status_interval => '1 s', wal_retrieve_retry_interval => '200 ms');
$_->safe_psql('postgres', 'CREATE TABLE orders (order_id int PRIMARY KEY, sku text)') foreach $publisher, $node;
$publisher->safe_psql('postgres', 'CREATE PUBLICATION orders FOR TABLE orders');
$node->safe_psql('postgres', q{
	CREATE TABLE done (order_id int);
	CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO public.done VALUES ((input ->> 'order_id')::int) RETURNING '{}'::jsonb $$;
	SELECT sas.create_workflow('order', '{"steps": {"book": {"function": "public.book"}}}');});
# the commands of the page
my ($page) = PostgreSQL::Test::Utils::slurp_file("$SasTest::tree/docs/operating/replication.md") =~ /```sql subscribe\n(.*?)```/s;
my $connection = $publisher->connstr('postgres');
ok($page =~ s/CONNECTION '[^']*'/CONNECTION \$to\$$connection\$to\$/, 'the page subscribes');
$node->safe_psql('postgres', $page);
ok(wait_for($node, q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel}), 'the subscription is in place');

# what only the supervisor's scans would find must not help
my $go_on = hold_supervisor($node);
$publisher->safe_psql('postgres', "INSERT INTO orders VALUES ($_, 'sku')") foreach 1 .. 20;
ok(wait_for($node, 'SELECT count(*) FROM done', '20'), 'a replicated row wakes the workers');
$go_on->();
foreach my $hundred (1 .. 3)
{
	$publisher->safe_psql('postgres', "INSERT INTO orders SELECT n, 'sku' FROM generate_series(100 * $hundred, 100 * $hundred + 99) n");
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'logical replication%worker'});
}
$node->stop('immediate');
$node->start;
ok(wait_for($node, 'SELECT count(*) FROM orders', '320'), 'every row arrives, though the apply worker and the server were killed');
all_ended($node, 'every run ended');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT order_id) FROM done'), '320|320', 'and each order was carried out once');
done_testing();
