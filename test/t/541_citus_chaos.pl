# SPDX-License-Identifier: PostgreSQL
#
# A Citus cluster under load: clients place orders through whichever node
# answers, while the host of a node fails, that of the coordinator fails, shards
# move, the node they moved to fails, and a node is lost and its standby takes
# over. An order is placed again if its client knows of no answer. No order is
# lost, none has two runs, every run ends, and the books of the services equal
# the database.
# Takes about 130 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use SasCitus;
use SasShop;
use SasTest;
use Test::More;

# a two-phase commit that was cut off is finished soon
my ($c, @w) = citus_cluster(2, 'citus.recover_2pc_interval' => '1s', 'citus.node_connection_timeout' => '2s',
	'sas.complete_in' => '4 s', 'sas.supervisor_interval' => '10 s');
my %node = (0 => $c, 1 => $w[0], 2 => $w[1]);
my $shop = start_shop();
define_orders($c, $shop);
# Citus has no plan for parameters of functions in SQL, so those of the shop are in PL/pgSQL here.
$c->safe_psql('postgres', $_) foreach split /\n;;\n/, <<'SQL';
SELECT create_distributed_table('shop.orders', 'order_id', shard_count => 8)
;;
SELECT create_distributed_table('shop.ledger', 'order_id', colocate_with => 'shop.orders')
;;
CREATE FUNCTION shop.place(id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shop.orders (order_id, customer, sku, amount, card)
    VALUES (id, 'customer ' || id % 50, 'sku-' || id % 20, 1 + id % 100,
            CASE WHEN id % 10 = 0 THEN 'declined' ELSE 'card-' || id END)
    ON CONFLICT DO NOTHING;
    -- also when it is placed already: the key has one run in the cluster
    PERFORM FROM sas.submit('order', (SELECT to_jsonb(o) - 'done' FROM shop.orders o WHERE o.order_id = id), key => id::text);
END $$
;;
SELECT create_distributed_function('shop.place(int)', 'id', colocate_with => 'shop.orders')
;;
CREATE OR REPLACE FUNCTION shop.book_order(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shop.ledger (order_id, charge, amount)
    VALUES ((input ->> 'order_id')::int, input ->> 'charge', (input ->> 'amount')::numeric);
    RETURN '{}';
END $$
;;
CREATE OR REPLACE FUNCTION shop.unbook_order(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM shop.ledger WHERE order_id = (input ->> 'order_id')::int;
    RETURN '{}';
END $$
;;
CREATE OR REPLACE FUNCTION shop.order_done(context jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    UPDATE shop.orders SET done = true WHERE order_id = (context -> 'input' ->> 'order_id')::int;
    RETURN '{}';
END $$
SQL

$c->safe_psql('postgres', q{SELECT sas.distribute_keys('order', 'shop.orders')});

# an instant a second, through all that follows
$c->safe_psql('postgres', q{SELECT sas.create_workflow('tick', '{"steps": {}}'); SELECT sas.schedule('tick', 'every 1 s', 'tick')});

# -- the load ---------------------------------------------------------------------------------------

# A client: an order a statement. One that is not known to be placed is tried again later, through another node.
my $work = PostgreSQL::Test::Utils::tempdir();
my @ports = map { $_->port } $c, @w;
my $client = <<'SH';
new=$1; step=$2; shift 2
late=()
while [ ! -e "$WORK/stop" ]; do
	if [ ${#late[@]} -gt 0 ] && [ $((tries++ % 2)) = 0 ]; then
		order=${late[0]}; late=("${late[@]:1}")
	else
		order=$new; new=$((new + step))
	fi
	if PGCONNECT_TIMEOUT=5 timeout 30 psql -XqAt -v ON_ERROR_STOP=1 -p "$1" -d postgres -c "SELECT shop.place($order)" >/dev/null; then
		echo "$order" >>"$WORK/placed"
	else
		late+=("$order")
	fi
	set -- "${@:2}" "$1"
	sleep 0.1
done
SH
my @clients;
{
	local @ENV{qw(WORK PGHOST)} = ($work, $c->host);
	@clients = map { SasTest::start_program("$work/client$_.log", 'bash', '-c', $client, 'client', $_, 2, @ports) } 1, 2;
}

sub placed { return -e "$work/placed" ? scalar(split /\n/, PostgreSQL::Test::Utils::slurp_file("$work/placed")) : 0 }

# orders are placed while it is so
sub goes_on
{
	my ($name, $quantity) = @_;
	my $before = placed();
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(wait_until(sub { placed() >= $before + $quantity }), $name);
}

sub runs { my ($node, $where) = @_; return $node->safe_psql('postgres', "SELECT count(*) FROM sas.runs WHERE $where") }

# what is open on a node: there is always something
sub busy { my ($id) = @_; return wait_for($node{$id}, q{SELECT count(*) >= 3 FROM sas.runs WHERE state = 'running'}) }

goes_on('orders are placed through all nodes', 40);
cmp_ok(runs($w[$_], q{workflow = 'order'}), '>', 5, 'and have their runs on node ' . ($_ + 1)) foreach 0, 1;
$_->faults({ unavailable => 0.03, drop_after => 0.03 }) foreach values %$shop;

# -- the host of a node fails -------------------------------------------------------------------------

busy(2);
my $ended = runs($w[0], q{state = 'stopped'});
kill_citus_node($w[1]);
ok(wait_for($w[0], "SELECT count(*) > $ended + 5 FROM sas.runs WHERE state = 'stopped'"), 'a node is killed: runs of another node end meanwhile');
start_citus_node($w[1]);
goes_on('it is back: orders are placed', 20);

# -- that of the coordinator fails ---------------------------------------------------------------------

busy(1);
($ended, my $far) = map { runs($_, q{state = 'stopped'}) } @w;
kill_citus_node($c);
goes_on('the coordinator is killed: orders are placed through other nodes', 20);
ok(wait_for($w[0], "SELECT count(*) > $ended + 5 FROM sas.runs WHERE state = 'stopped'"), 'and runs of one end');
ok(wait_for($w[1], "SELECT count(*) > $far + 5 FROM sas.runs WHERE state = 'stopped'"), 'and of the other');
start_citus_node($c);

# -- definitions are on all nodes or on none, whenever a node is killed ----------------------------------

# A commit of this session takes 100 ms on the coordinator, which is when the other nodes must wait for it.
foreach my $i (0 .. 5)
{
	my $killed = $node{ $i % 3 };
	my $session = SasSession->new($c);
	$session->start_query(join ';', 'SET commit_delay = 100000; SET commit_siblings = 0', map { "SELECT sas.create_queue('q${i}_$_', 1)" } 1 .. 200);
	wait_for($c, "SELECT count(*) > 2 FROM sas.queues WHERE name LIKE 'q${i}_%'");
	kill_citus_node($killed);
	$session->kill;
	start_citus_node($killed);
}
ok(wait_for($_, 'SELECT count(*) FROM pg_prepared_xacts', '0'), 'no transaction stays prepared on ' . $_->name) foreach $c, @w;
my $queues = 'SELECT count(*), md5(string_agg(name, $$,$$ ORDER BY name)) FROM sas.queues';
my $all = $c->safe_psql('postgres', $queues);
note("figure: queues $all");
is($_->safe_psql('postgres', $queues), $all, 'a definition is on all nodes or on none: ' . $_->name) foreach @w;

# -- shards move under load, and the node that they have moved to fails ------------------------------------

sub move
{
	my ($from, $to, $mode) = @_;
	my @shards = split /\n/, $c->safe_psql('postgres', sprintf q{SELECT s.shardid FROM citus_shards s
		WHERE s.table_name = 'shop.orders'::regclass AND s.nodename = '%s' AND s.nodeport = %d ORDER BY 1 LIMIT 2}, $from->host, $from->port);
	foreach my $shard (@shards)
	{
		# beside orders that hold locks, a move may have to try again
		my ($moved, $err) = (0);
		wait_until(
			sub {
				$moved = $c->psql('postgres', sprintf(q{SELECT citus_move_shard_placement(%d, '%s', %d, '%s', %d, '%s')},
						$shard, $from->host, $from->port, $to->host, $to->port, $mode), stderr => \$err) == 0;
				return $moved;
			});
		ok($moved, "shard $shard moves from " . $from->name . " ($mode)") or diag($err);
	}
	return scalar @shards;
}

is(move($w[0], $w[1], 'force_logical'), 2, 'shards move while orders are placed and runs use them');
my $again = $c->safe_psql('postgres', q{SELECT string_agg(format('SELECT shop.place(%s);', key), ' ') FROM sas.cluster_runs WHERE workflow = 'order' AND key::int % 3 = 0});
# a node may take longer than 2 s to accept a connection: then all of them again
my ($status, $said);
wait_until(sub { $status = $c->psql('postgres', $again, stderr => \$said); return $status == 0 || $said !~ /could not establish (?:any )?connection/ });
is($status, 0, 'orders that are placed already are placed again') or diag($said);
busy(2);
goes_on('orders are placed there', 20);
is(move($w[1], $w[0], 'block_writes'), 2, 'others move the other way');
kill_citus_node($w[0]);
start_citus_node($w[0]);
goes_on('the node that they have moved to was killed: orders are placed', 20);

# -- a node is lost, and its standby takes over ------------------------------------------------------------

$w[1]->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($w[1], 'copy', has_streaming => 1);
chmod 0600, $standby->data_dir . '/server.key';
$standby->start;
$w[1]->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()});
ok(wait_for($w[1], q{SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'}, '1'), 'a node has a synchronous standby');
goes_on('orders are placed', 20);
busy(2);
my $open = $w[1]->safe_psql('postgres', q{SELECT string_agg(run_id::text, ',') FROM sas.runs WHERE state <> 'stopped'});
kill_citus_node($w[1]);
$standby->promote;
$c->safe_psql('postgres', sprintf q{SELECT citus_update_node(nodeid, '%s', %d, force => true) FROM pg_dist_node WHERE groupid = 2}, $standby->host, $standby->port);
$node{2} = $standby;
ok(wait_for($standby, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), 'the node is lost: the workers run on its promoted standby');
is($standby->safe_psql('postgres', q{SELECT quarantined FROM sas.health()}), 'f', 'which is no copy');
ok(wait_for($c, "SELECT count(*) FROM sas.cluster_runs WHERE run_id IN ($open) AND state <> 'stopped' AND state <> 'paused'", '0'), 'runs that were open there come to their end');
my $newest = $standby->safe_psql('postgres', 'SELECT max(run_id) FROM sas.runs');
ok(wait_for($standby, "SELECT count(*) > 5 AND min(run_id >> 41) = 2 FROM sas.runs WHERE run_id > $newest"), 'new runs get ids of the same node');
is($c->safe_psql('postgres', 'SELECT bool_and(answers) FROM sas.cluster_health'), 't', 'and all nodes answer');

# -- the end ---------------------------------------------------------------------------------------------

PostgreSQL::Test::Utils::append_to_file("$work/stop", '');
$c->safe_psql('postgres', q{SELECT sas.unschedule('tick')});
waitpid($_, 0) foreach @clients;
$_->faults({}) foreach values %$shop;
my @all = @node{ 0 .. 2 };
wait_until(
	sub {
		$_->psql('postgres', q{SELECT count(*) FROM sas.resume_runs(ARRAY(SELECT run_id FROM sas.runs WHERE state = 'paused'))}) foreach @all;
		return $c->safe_psql('postgres', q{SELECT count(*) FROM sas.cluster_runs WHERE state <> 'stopped'}) eq '0';
	}, 240);
all_ended($node{$_}, "every run of node $_ ends") foreach 0 .. 2;
is($c->safe_psql('postgres', q{SELECT count(*) > 30, count(*) = count(DISTINCT scheduled_at), count(DISTINCT node_id) FROM sas.cluster_runs WHERE schedule = 'tick'}),
	't|t|1', 'no instant of the schedule has two runs in the cluster');
my $orders = placed();
note("figure: $orders orders, " . $c->safe_psql('postgres', q{SELECT string_agg(n || ' ' || result, ', ') FROM (SELECT count(*) AS n, result FROM sas.cluster_runs WHERE workflow = 'order' GROUP BY 2) x}));
is($c->safe_psql('postgres', q{SELECT count(*), count(DISTINCT key), count(DISTINCT run_id) FROM sas.cluster_runs WHERE workflow = 'order'}),
	$c->safe_psql('postgres', q{SELECT count(*) || '|' || count(*) || '|' || count(*) FROM shop.orders}), 'each order has one run in the cluster');
cmp_ok($c->safe_psql('postgres', 'SELECT count(*) FROM shop.orders'), '>=', $orders, 'and no order is lost that a client knows to be placed');
ok(wait_for($_, 'SELECT count(*) FROM pg_prepared_xacts', '0'), 'no transaction stays prepared on ' . $_->name) foreach @all;

# the comparison reads one database, so it gets the rows of all nodes
$c->safe_psql('postgres', 'CREATE DATABASE books');
$c->safe_psql('books', q{CREATE SCHEMA shop; CREATE SCHEMA sas});
foreach my $rows (
	[ 'shop.orders', 'order_id int, customer text, sku text, amount numeric, card text, done boolean', 'SELECT * FROM shop.orders' ],
	[ 'shop.ledger', 'order_id int, charge text, amount numeric, booked_at timestamptz', 'SELECT * FROM shop.ledger' ],
	[ 'sas.runs', 'workflow text, key text, state text, result text, output jsonb', 'SELECT workflow, key, state, result, output FROM sas.cluster_runs' ])
{
	my ($table, $columns, $query) = @$rows;
	$c->safe_psql('postgres', "\\copy ($query) TO '$work/rows'");
	$c->safe_psql('books', "CREATE TABLE $table ($columns);\n\\copy $table FROM '$work/rows'");
}
books_equal($c, $shop, 'the books of the services equal the rows of all nodes', 'books');
done_testing();
