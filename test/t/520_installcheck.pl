# SPDX-License-Identifier: PostgreSQL
#
# make installcheck: its test passes on a server that runs, beside a database
# in which sas is at work.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 2);
my $out = PostgreSQL::Test::Utils::tempdir();
symlink("$SasTest::tree/expected", "$out/expected") or die $!;
foreach my $time ('once', 'and again')
{
	my $passed = system($ENV{PG_REGRESS}, "--inputdir=$SasTest::tree/test", "--outputdir=$out", '--host=' . $node->host, '--port=' . $node->port,
		'--dbname=sas_installcheck', '--bindir=' . $node->config_data('--bindir'), 'installed') == 0;
	ok($passed, "installcheck, $time") or diag(PostgreSQL::Test::Utils::slurp_file("$out/regression.diffs"));
}
ok(wait_for($node, q{SELECT count(DISTINCT actor) FROM sas.workers}, '4'), 'the workers of the other database are there');
done_testing();
