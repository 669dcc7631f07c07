# SPDX-License-Identifier: PostgreSQL
#
# A role stops all of its infinite tasks at once. The worker that hosts them gives them back a few hundred at a
# time, and functions of other roles are called in between.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 1, 'sas.function_workers_max' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE FUNCTION public.rest(turn jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
	SELECT sas.create_watcher('resting', '{"function": "public.rest", "every": "1 h"}');
	SELECT count(sas.watch('resting', n::text)) FROM generate_series(1, 3000) n});
ok(wait_for($node, q{SELECT count(*) FROM _sas.watch_held}, '3000'), 'one worker hosts 3,000 tasks');
$sql->(q{SELECT count(*) FROM sas.unwatch('resting', ARRAY(SELECT n::text FROM generate_series(1, 3000) n))});
ok(wait_for($node, q{SELECT count(*) FROM _sas.watch WHERE state <> 'deleted'}, '0'), 'all of them stop, without a look of the supervisor');
cmp_ok($sql->(q{SELECT max(n) FROM (SELECT count(*) AS n FROM _sas.watch GROUP BY xmin::text) x}), '<=', 500, 'no transaction gives back more than 500');
is($sql->(q{SELECT coalesce(sum(value), 0) FROM sas.metrics() WHERE name LIKE 'sas_found_late%'}), '0', 'each was told, none was found late');
done_testing();
