# SPDX-License-Identifier: PostgreSQL
#
# What plpgsql_check, which plans every statement of a function without running it, says of our functions: it finds no
# error in any, no variable that nobody uses, and builds no statement from text but where it is named below.
#
# It needs postgresql-N-plpgsql-check.
#
# Takes about 15 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main');
plan skip_all => 'there is no plpgsql_check' if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'plpgsql_check'}) eq '0';

$node->safe_psql('postgres', q{
	CREATE EXTENSION plpgsql_check;
	CREATE TABLE public.said AS
	SELECT p.oid AS function, p.proname, c.*
	FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
	CROSS JOIN LATERAL (SELECT x.lineno, x.level, x.message, x.query FROM plpgsql_check_function_tb(p.oid, security_warnings => true, fatal_errors => false) x
		UNION ALL SELECT NULL, 'checked', NULL, NULL) c
	WHERE l.lanname = 'plpgsql' AND p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)});

sub said
{
	my ($where) = @_;
	return $node->safe_psql('postgres', "SELECT concat_ws(' ', function::regprocedure, lineno, message, left(query, 100)) FROM public.said WHERE $where ORDER BY 1");
}
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM public.said WHERE level = 'checked'}), '>', 500, 'functions are checked');
is(said(q{level = 'error'}), '', 'none has an error');
is(said(q{message LIKE 'unused variable%'}), '', 'none has a variable that nobody uses');
# the text of both is of our own functions: names of parts of a tick, and of columns and views that levels may read
is(said(q{level = 'security' AND proname NOT IN ('apart', 'grant_usage_as')}), '', 'no other function runs a text that a caller gives');
done_testing();
