# SPDX-License-Identifier: PostgreSQL
#
# The worker library for Python: a server, or a network, that takes a connection and then says nothing
# does not hold the worker. No statement may wait without a limit, LISTEN neither.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

delete $ENV{$_} foreach grep { /^PG/ } keys %ENV;
local $ENV{PATH} = "/usr/local/bin:/usr/bin:/bin:$ENV{PATH}";
local $ENV{PYTHONPATH} = "$SasTest::tree/clients/python";
local $ENV{PYTHONDONTWRITEBYTECODE} = 1;
plan skip_all => 'needs psycopg 3' if system('python3 -c "import psycopg" 2>/dev/null') != 0;

foreach my $when ([ listen => 'LISTEN is not answered' ], [ query => 'a claim is not answered' ])
{
	my ($mode, $what) = @$when;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'python3', "$SasTest::tree/test/lib/clients/stalled.py", $mode, $SasTest::limit ], '>', \$out, '2>', \$err, IPC::Run::timeout(3 * $SasTest::limit));
	is($out, "connects again\nends\n", "$what: the worker connects again, and ends when told to") or diag($err);
}
done_testing();
