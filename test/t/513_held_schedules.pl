# SPDX-License-Identifier: PostgreSQL
#
# A role holds a key that many schedules of its own need: it submits, and leaves the transaction open. The tick of
# schedules waits for that key three times, not once for each of them, so schedules, timers and children of others
# go on. Those of its schedules that need another key are submitted.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

$sql->(q{
	CREATE ROLE mallory LOGIN;
	CREATE ROLE ann;
	SELECT sas.grant_usage(r, 'user') FROM unnest('{mallory,ann}'::regrole[]) r;
	SET ROLE mallory;
	SELECT sas.create_workflow('keyed', '{"steps": {}, "concurrency": {"key": "{{input.key}}", "overlap": "return"}}');
	SELECT sas.schedule('held_' || n, 'every 1 s', 'keyed', '{"key": "held"}', labels => jsonb_build_object('n', n % 25), start_at => '2999-01-01') FROM generate_series(1, 50) n;
	SELECT sas.schedule('free_' || n, 'every 1 s', 'keyed', jsonb_build_object('key', n), start_at => '2999-01-01') FROM generate_series(1, 20) n;
	SET ROLE ann;
	SELECT sas.create_workflow('plain', '{"steps": {}}');
	SELECT sas.schedule('of_ann', 'every 1 s', 'plain', start_at => '2999-01-01')});
# the outcomes of one tick, with the number of each
my $tick = sub {
	my ($names) = @_;
	return $sql->(qq{
		SELECT string_agg(n || ' ' || outcome, ', ' ORDER BY outcome, n)
		FROM (SELECT outcome || CASE WHEN error ->> 'title' LIKE 'other instants%' THEN ', not tried' ELSE '' END AS outcome, count(*) AS n
			FROM unnest(_sas.submit_decided(ARRAY(
				SELECT _sas.make_instant(s.schedule_id, clock_timestamp()) FROM _sas.schedule s WHERE s.name ~ '$names' ORDER BY s.name DESC))) GROUP BY 1) x});
};

my $mallory = SasSession->new($node, undef, user => 'mallory');
$mallory->query(q{BEGIN; SELECT FROM sas.submit('keyed', '{"key": "held"}')});
is($tick->('^held|^of_ann'), '2 later, 48 later, not tried, 1 run', 'few of many schedules wait for a key that a session holds; that of another role has its run');
is($tick->('^held_1$|^free'), '1 later, 20 run', 'one that must wait holds up no other');
$mallory->query('ROLLBACK');
is($tick->('^held'), '1 run, 49 skipped', 'and when the key is free, they go on');
done_testing();
