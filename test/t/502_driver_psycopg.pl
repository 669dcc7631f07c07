# SPDX-License-Identifier: PostgreSQL
#
# Every public function can be called from psycopg without casts: with each number of arguments that it takes, and by
# their names. psycopg sends types of its own for some values: a small int is smallint.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasClients;
use Test::More;

my $node = new_node('main');
prepare_clients($node);
is( $node->safe_psql('postgres', qq{
	WITH f AS ($SasClients::functions)
	SELECT string_agg(DISTINCT a.proname, ' ') FROM f a JOIN f b ON b.proname = a.proname AND b.oid <> a.oid AND b.least <= a.most AND a.least <= b.most}),
	'', 'no two functions of one name take the same number of arguments');
cmp_ok(scalar(() = driver_calls() =~ /SELECT/g), '>', 300, 'there are calls to prepare');
is(prepared('python3', "$SasTest::tree/test/lib/clients/prepare.py"), "done\n", 'psycopg prepares each call');
done_testing();
