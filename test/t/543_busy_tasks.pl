# SPDX-License-Identifier: PostgreSQL
#
# A task whose function is slow, or was not called here yet, has its turn beside tasks of the same owner that are due
# again as soon as they have been called: a worker calls what it hosts in the order in which it comes to be due.
# Takes about 10 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 1, 'sas.function_workers_max' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE TABLE called (key text, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION busy(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(coalesce((turn ->> 'cursor')::int, 0) + 1) $$;
	CREATE FUNCTION note(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.called SELECT turn ->> 'key' FROM pg_sleep(0.1); SELECT NULL::jsonb $$;
	SELECT sas.create_watcher('busy', '{"function": "public.busy", "every": "0 s"}');
	SELECT sas.create_watcher('slow', '{"function": "public.note", "every": "0 s"}');
	SELECT sas.watch('busy', '1')});
my $turns = q{SELECT coalesce(min((cursor #>> '{}')::int), 0) FROM sas.watches WHERE watcher = 'busy'};
ok(wait_for($node, "SELECT ($turns) > 20"), 'a task is due again as soon as it was called');

$sql->(q{SELECT sas.watch('slow', 's')});
ok(wait_for($node, q{SELECT count(*) > 0 FROM called}), 'a task that comes to the same worker is called for the first time');
ok(wait_for($node, q{SELECT count(*) > 3 FROM called}), 'and again, though it is slow');
my $before = $sql->($turns);
ok(wait_for($node, "SELECT ($turns) > $before + 3"), 'the other one is called meanwhile');
$sql->(q{SELECT count(*) FROM generate_series(2, 5) n, sas.watch('busy', n::text)});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE watcher = 'busy' AND (cursor #>> '{}')::int > 3}, '5'), 'and so are those that come to it');
is($sql->(q{SELECT count(DISTINCT node) || ' ' || sum(failures) FROM sas.watches}), '1 0', 'all by one worker, without a failure');
done_testing();
