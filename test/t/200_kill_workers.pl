# SPDX-License-Identifier: PostgreSQL
#
# Every kind of worker dies in the middle of work, in the two ways it can.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;

my $node = new_node('main', log_checkpoints => 'off');
my $shop = start_shop();
define_orders($node, $shop);
# a call that its service holds is under way until its worker is killed, however long that takes
$node->safe_psql('postgres', q{SELECT sas.alter_agent('shipping', request_timeout => '1 min', breaker => '{"off": true}')});

# some of everything, so that scheduler and supervisor have work as well
my %faults = (unavailable => 0.03, drop_after => 0.03, half => 0.02);
$shop->{$_}->faults({%faults}) foreach keys %$shop;

my $first = 1;

# So many orders that the middle of them is easy to meet.
sub submit_and_wait_for_the_middle
{
	my ($quantity) = @_;
	submit_orders($node, $quantity, first => $first);
	my $from = $first;
	$first += $quantity;
	wait_for($node, "SELECT count(*) > 5 FROM shop.ledger WHERE order_id >= $from");
	return;
}

foreach my $actor (qw(scheduler agent function supervisor))
{
	submit_and_wait_for_the_middle(60);
	my $pid = kill_worker($node, $actor, 'TERM');
	ok(wait_until(sub { !kill(0, $pid) }), "a terminated $actor worker ends");
	ok(wait_for($node, "SELECT count(*) FROM sas.workers WHERE actor = '$actor' AND pid <> $pid", '1'),
		"and another $actor worker takes its place");
}
all_ended($node, 'every order ends though a worker of each kind was terminated in the middle of work');

# the server takes a killed worker for a crash: everything starts anew
foreach my $actor (qw(scheduler agent function supervisor launcher))
{
	# calls are surely under way: their service does not answer
	$shop->{shipping}->hold if $actor eq 'agent';
	submit_and_wait_for_the_middle(60);
	wait_for($node, q{SELECT count(*) > 0 FROM sas.steps WHERE agent = 'shipping' AND state = 'running'}) if $actor eq 'agent';
	my $boot = $node->safe_psql('postgres', 'SELECT _sas.current_boot()');
	kill_worker($node, $actor, 'KILL');
	$shop->{shipping}->release if $actor eq 'agent';
	ok(wait_for($node, "SELECT _sas.current_boot() <> $boot"), "the server restarts after kill -9 of a $actor worker");
	ok(wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), 'and all its workers are back');
}
all_ended($node, 'every order ends though a worker of each kind was killed in the middle of work');
books_equal($node, $shop, 'and the books of the services equal the database');

is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM sas.attempts WHERE status = 'lost'}) > 0 ? 'some' : 'none',
	'some', 'it was in the middle of work: attempts were lost with their workers');
done_testing();
