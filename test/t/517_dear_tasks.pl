# SPDX-License-Identifier: PostgreSQL
#
# Tasks of one role whose input costs much to build keep an outside program from no task of another role, and take
# little of its time: what would cost too much in one claim is left for the next ones.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm; CREATE ROLE packers;
	SELECT sas.create_agent('packer', kind => 'external', max_in_flight => 10000);
	SELECT sas.grant_usage(r, 'user'), sas.grant_agent('packer', r) FROM unnest('{eager,calm}'::regrole[]) r;
	SELECT sas.grant_usage('packers', 'worker', agent => 'packer');
	SET ROLE eager;
	SELECT sas.create_workflow('dear', '{"steps": {"a": {"agent": "packer", "task": {}, "input": {"x": "{{input.n ? ($.input.l == $.input.m)}}"}}}}');
	SELECT count(s.run_id) FROM (SELECT jsonb_agg(g) AS l, jsonb_agg(-g) AS m FROM generate_series(1, 2000) g) v, generate_series(1, 60) n,
		sas.submit('dear', jsonb_build_object('n', n, 'l', v.l, 'm', v.m)) s;
	SET ROLE calm;
	SELECT sas.create_workflow('cheap', '{"steps": {"a": {"agent": "packer", "task": {}, "input": {"n": "{{input.n}}"}}}}');
	SELECT count(s.run_id) FROM generate_series(1, 20) n, sas.submit('cheap', jsonb_build_object('n', n)) s});
my $claim = sub {
	my ($quantity) = @_;
	return $sql->(qq{SET ROLE packers;
		WITH claimed AS MATERIALIZED (SELECT * FROM sas.claim('packer', 'w', $quantity)),
		done AS MATERIALIZED (SELECT c.request ? 'n' AS cheap, sas.complete(c.request_id, c.request) AS kept FROM claimed c)
		SELECT count(*) FILTER (WHERE cheap AND kept), count(*) FILTER (WHERE NOT cheap AND kept), count(*) FILTER (WHERE NOT kept) FROM done});
};
my ($cheap, $dear, $lost) = split /\|/, $claim->(100);
is($cheap, '20', 'one claim has all tasks of the other role');
cmp_ok($dear, '<', 40, 'and not all of those that cost much');
cmp_ok($dear, '>', 0, 'but some');
my $all = $dear;
while ($dear > 0)
{
	(undef, $dear, my $gone) = split /\|/, $claim->(10);
	$all += $dear;
	$lost += $gone;
}
is($all, '60', 'further claims have the others');
is($lost, '0', 'and no claim is lost');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '80'), 'all runs succeed');
is($sql->(q{SELECT count(*) FROM sas.attempts WHERE status <> 'succeeded' OR attempt > 1}), '0', 'nothing was counted');
is($sql->(q{SELECT in_flight FROM sas.agents}), '0', 'no slot is left in use');
done_testing();
