# SPDX-License-Identifier: PostgreSQL
#
# sas.next_times() agrees with another calendar and another zone library, see
# test/lib/next_times.py. The longer form asks for 100,000 random pairs.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use SasTest;
use Test::More;

my $node = new_node('main');
my $seed = $ENV{SAS_LONG} ? int(rand(1 << 30)) : 20;

IPC::Run::run([ 'python3', "$FindBin::RealBin/../lib/next_times.py", $ENV{SAS_LONG} ? 100_000 : 2000, $seed, $node->connstr('postgres') ],
	'>', \my $out, '2>&1');
is($?, 0, "random patterns happen when croniter and zoneinfo say (seed $seed)") or diag($out);

done_testing();
