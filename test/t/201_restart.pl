# SPDX-License-Identifier: PostgreSQL
#
# The whole server goes down without a word in the middle of 500 orders.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 2);
my $shop = start_shop();
define_orders($node, $shop);
$_->faults({ unavailable => 0.03, drop_after => 0.03, timeout => 0.01, timeout_s => 3 }) foreach values %$shop;

submit_orders($node, 500);
foreach my $booked (60, 150, 250)
{
	wait_for($node, "SELECT count(*) >= $booked FROM shop.ledger");
	$node->stop('immediate');
	$node->start;
	isnt($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}),
		'0', "the server went down in the middle, with $booked of 500 orders booked");
}
all_ended($node, 'every one of 500 orders ends though the server went down three times');
books_equal($node, $shop, 'and the books of the services equal the database');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.runs'), '500', 'no run was lost and none was added');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE result = 'success' AND key::int % 10 = 0}),
	'0', 'no order with a declined card was done');
done_testing();
