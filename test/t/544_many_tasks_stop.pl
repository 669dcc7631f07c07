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
$sql->(q{
	CREATE TABLE public.given_back (n bigint);
	CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.given_back SELECT count(*) FROM gone; RETURN NULL; END';
	CREATE TRIGGER note AFTER DELETE ON _sas.watch_held REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.note()});
$sql->(q{SELECT count(*) FROM sas.unwatch('resting', ARRAY(SELECT n::text FROM generate_series(1, 3000) n))});
ok(wait_for($node, q{SELECT count(*) FROM _sas.watch WHERE state <> 'deleted'}, '0'), 'all of them stop, without a look of the supervisor');
is($sql->(q{SELECT sum(n) FROM public.given_back}), '3000', 'the worker gives all of them back');
cmp_ok($sql->(q{SELECT max(n) FROM public.given_back}), '<=', 500, 'at most 500 at once');
is($sql->(q{SELECT coalesce(sum(value), 0) FROM sas.metrics() WHERE name LIKE 'sas_found_late%'}), '0', 'each was told, none was found late');
done_testing();
