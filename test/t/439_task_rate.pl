# SPDX-License-Identifier: PostgreSQL
#
# The rate of an external agent: over all programs no more tasks are claimed than it allows, and all are in the end.
# Takes about 10 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = new_node('main', 'sas.agents' => 1);
my $rate = 20;
$node->safe_psql('postgres', "SELECT sas.create_agent('packer', kind => 'external', rate_limit => '$rate/s')");
define($node, 'pack', { steps => { it => { agent => 'packer', task => {}, each => '{{input.items}}' } } });
my $id = submit($node, 'pack', { items => [ 1 .. 100 ] });
ok(wait_for($node, q{SELECT waiting FROM sas.agents WHERE name = 'packer'}, '100'), 'a hundred tasks wait');

# two programs that ask again at once
my ($done, $most) = (0, 0);
my $before = time;
my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
while ($done < 100)
{
	foreach my $session (@sessions)
	{
		my $got = $session->query_safe(q{SELECT count(*) FILTER (WHERE sas.complete(c.request_id, '1')) FROM sas.claim('packer', 'w', 50) c});
		$done += $got;
		my $passed = time - $before;
		my $above = $done - $rate * $passed;
		$most = $above if $above > $most;
	}
	last if time - $before > 120;
	sleep 0.05;
}
is($done, 100, 'all are claimed and done');
# what an agent may do at once: the tokens of a second
cmp_ok($most, '<=', $rate + 2, 'never more than the rate allows, and what was saved up');
is(run_of($node, $id)->{result}, 'success', 'the run ends');
$_->quit foreach @sessions;

$node->safe_psql('postgres', q{SELECT sas.alter_agent('packer', reset => '{rate_limit}')});
$id = submit($node, 'pack', { items => [ 1 .. 100 ] });
ok(wait_for($node, q{SELECT waiting FROM sas.agents WHERE name = 'packer'}, '100'), 'another hundred');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.claim('packer', 'w', 100)}), '100', 'without a rate a claim gets all of them');

# so seldom that nothing comes while the test runs
$node->safe_psql('postgres', q{SELECT sas.create_agent('seldom', kind => 'external', rate_limit => '1/day')});
define($node, 'rare', { steps => { map { ($_ => { agent => 'seldom', task => {} }) } qw(a b) } });
submit($node, 'rare', {});
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.claim('seldom', 'w', 10)}), '1', 'a claim gets as many tasks as there are tokens');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.claim('seldom', 'w', 10)}), '0', 'and none when there are none');
is($node->safe_psql('postgres', q{SELECT waiting_kind || ' ' || waiting_on || ' ' || (waiting_until > now() + '23 h') FROM sas.steps WHERE agent = 'seldom' AND state = 'ready'}), 'rate seldom true',
	'sas.steps says what the others wait for, and until when');
done_testing();
