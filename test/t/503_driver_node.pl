# SPDX-License-Identifier: PostgreSQL
#
# Every public function can be called from node-postgres without casts: with each number of arguments that it takes, and
# by their names. It sends no type for any value.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasClients;
use Test::More;

my $home = node_home();
plan skip_all => 'there is no Node.js with package pg, and npm cannot install it' unless defined $home;
my $node = new_node('main');
prepare_clients($node);
is(prepared('node', "$home/prepare.mjs"), "done\n", 'node-postgres prepares each call');
done_testing();
