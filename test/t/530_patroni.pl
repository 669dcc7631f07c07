# SPDX-License-Identifier: PostgreSQL
#
# Three servers under Patroni and etcd, with the configuration of examples/patroni, in the middle of orders: the leader
# is killed, hangs, hangs in its Patroni only, is cut off from the others, and hands over. Each time another member takes
# over, every order ends there, the books of the services equal the database, and the old leader comes back as a standby.
#
# It needs patroni and etcd-server.
#
# Takes about 300 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasPatroni;
use SasShop;
use SasTest;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'there is no ' . SasPatroni::missing() if SasPatroni::missing();

$ENV{PGUSER} = getpwuid($<);
my $cluster = SasPatroni->start;
END { my $status = $?; $cluster->stop if $cluster; $? = $status }
my $node = $cluster->{node};
my $shop = start_shop();
create_extension($node);
define_orders($node, $shop);
my $orders = 0;

# something is due at every moment, on an old leader, too
$node->safe_psql('postgres', q{
	CREATE FUNCTION shop.note(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('later', '{"steps": {"t": {"wait": {"for": "{{input.after}}"}}, "f": {"function": "shop.note", "after": ["t"]}}}')});

# Orders are submitted until the client knows that they were; what was committed without an answer is found by its key.
sub order
{
	my ($quantity) = @_;
	my ($from, $to) = ($orders + 1, $orders + $quantity);
	$orders = $to;
	return wait_until(
		sub {
			my $leader = $cluster->leader or return 0;
			return defined $cluster->ask($leader, qq{
				SET statement_timeout = '15 s';
				BEGIN;
				INSERT INTO shop.orders (order_id, customer, sku, amount, card)
				SELECT n, 'customer ' || n % 50, 'sku-' || n % 20, 1 + n % 100, CASE WHEN n % 10 = 0 THEN 'declined' ELSE 'card-' || n END
				FROM generate_series($from, $to) n ON CONFLICT DO NOTHING;
				SELECT count(*) FROM shop.orders o, LATERAL sas.submit('order', to_jsonb(o), key => o.order_id::text) s WHERE o.order_id BETWEEN $from AND $to;
				COMMIT});
		});
}

# Orders are on their way when it strikes; its answer says what is done after the next leader is there.
sub scene
{
	my ($name, $strike, $after, $end) = @_;
	my $old = $cluster->leader;
	my $done = $node->safe_psql('postgres', 'SELECT count(*) FROM shop.ledger');
	$_->faults({ unavailable => 0.03, drop_after => 0.03 }) foreach values %$shop;
	ok(order(200), "$name: orders are submitted");
	$node->safe_psql('postgres', q{SELECT count(*) FROM sas.submit_batch('later', ARRAY(SELECT jsonb_build_object('after', n || ' s') FROM generate_series(1, 90) n))});
	wait_for($node, "SELECT count(*) >= $done + 30 FROM shop.ledger");
	my $begin = time();
	$strike->($old);
	my $new = $cluster->other_leader($old);
	ok($new, "$name: another member leads") or return;
	ok(wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), "$name: every kind of worker runs there");
	note(sprintf 'figure: %s: %.1f s to the next leader with its workers', $name, time() - $begin);
	$after->($old, $new) if $after;
	ok(order(50), "$name: it takes orders");
	$end->($old) if $end;
	all_ended($node, "$name: every order ends");
	ok(wait_until(sub { $cluster->is_whole }), "$name: the old leader is a standby of the new one") or diag(explain($cluster->members_seen));
	is($cluster->ask($old, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %'}), '0', "$name: and nothing of sas runs there");
	is($node->safe_psql('postgres', q{SELECT quarantined FROM sas.health()}), 'f', "$name: the next leader is no copy");
	$_->faults({}) foreach values %$shop;
	books_equal($node, $shop, "$name: the books of the services equal the database");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'order'}), $orders, "$name: no run was lost and none was added");
	return;
}

# An old leader that still runs commits nothing, since its synchronous standby does not follow it any more: so it claims
# nothing, and what is not claimed is not called.
sub is_fenced
{
	my ($name, $old) = @_;
	my $claimed = q{SELECT count(*) || ' ' || coalesce(max(lease_id), 0) FROM _sas.lease};
	my $state = $cluster->ask($old, 'SELECT pg_is_in_recovery()');
	note('the old leader is ' . (!defined $state ? 'down' : $state eq 't' ? 'a standby' : 'still a primary'));
	return pass("$name: the old leader is no primary any more") if ($state // 't') eq 't';
	ok( wait_until(sub { ($cluster->ask($old, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND wait_event = 'SyncRep'}) // 'gone') ne 'f' }),
		"$name: the workers of the old leader wait for a standby that does not come");
	my $before = $cluster->ask($old, $claimed);
	sleep 3;
	is($cluster->ask($old, $claimed) // 'gone', $before // 'gone', "$name: it claims nothing");
	return;
}

scene('killed', sub { $cluster->kill_all($_[0]) }, undef, sub { $cluster->come_back($_[0]) });
scene('hung', sub { $cluster->freeze($_[0], 1) }, undef, sub { $cluster->thaw($_[0]) });
scene('Patroni hung', sub { $cluster->freeze($_[0]) }, sub { is_fenced('Patroni hung', $_[0]) }, sub { $cluster->thaw($_[0]) });
scene('cut off', sub { $cluster->cut($_[0]) }, sub { is_fenced('cut off', $_[0]) }, sub { $cluster->heal($_[0]) });
scene('switched over', sub { ok($cluster->switch_over($_[0]), 'a switchover is asked for') });
note("figure: $orders orders");
done_testing();
