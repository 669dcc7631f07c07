# SPDX-License-Identifier: PostgreSQL
#
# The worker library for Python: installed from its folder, killed, stopped, cut off; nothing is lost or doubled.
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

my $site = PostgreSQL::Test::Utils::tempdir();
my @pip = qw(python3 -m pip install -q --no-index --no-deps --no-build-isolation --disable-pip-version-check --target);
{
	local $ENV{PATH} = "/usr/local/bin:/usr/bin:/bin:$ENV{PATH}";
	command_ok([ @pip, $site, "$SasTest::tree/clients/python" ], 'pip installs from the folder');
}
$ENV{PYTHONPATH} = $site;

my $node = new_node('main');
prepare_clients($node, 'python3', "$SasTest::tree/test/lib/clients/worker.py");
check_worker();
done_testing();
