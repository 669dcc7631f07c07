# SPDX-License-Identifier: PostgreSQL
#
# The worker library for TypeScript: installed from its folder, killed, stopped, cut off; nothing is lost or doubled.
# Takes about 60 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasClients;
use PostgreSQL::Test::Utils;
use Test::More;

my $home = node_home();
plan skip_all => 'there is no Node.js with package pg, and npm cannot install it' unless defined $home;
my $node = new_node('main');
prepare_clients($node, 'node', "$home/worker.mjs");
check_worker();
done_testing();
