# SPDX-License-Identifier: PostgreSQL
#
# Slow calls of one role, and slow polls of its watchers, leave slots of an agent to the others. A role that uses an
# agent alone has all slots.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
my @roles = qw(eager calm steady);
$sql->("CREATE ROLE $_; SELECT sas.grant_usage('$_', 'user')") foreach @roles;

sub agent_for
{
	my ($name, $slots, @granted) = @_;
	make_agent($node, $name, $service, max_in_flight => $slots);
	foreach my $role (@granted)
	{
		$sql->("SELECT sas.grant_agent('$name', '$role')");
		$as->($role, qq{SELECT sas.create_workflow('${role}_${name}_$_', '{"steps": {"a": {"agent": "$name", "call": {"path": "/$_", "timeout": "10 min"}, "complete_in": "10 min"}}}')}) foreach qw(slow quick);
	}
	return;
}
my $in_flight = sub { return wait_for($node, "SELECT in_flight FROM sas.agents WHERE name = '$_[0]'", $_[1]) };
my $fills = sub { my ($role, $agent, $n) = @_; $as->($role, "SELECT count(*) FROM sas.submit_batch('${role}_${agent}_slow', array_fill('{}'::jsonb, ARRAY[$n]))"); return };
my $ends = sub {
	my ($role, $agent, $name) = @_;
	my $run = $as->($role, "SELECT run_id FROM sas.submit('${role}_${agent}_quick')");
	is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', $name);
	return;
};
my $opens = sub {
	$service->script(slow => [ {} ]);
	wait_until(sub { $service->release; return $sql->("SELECT count(*) FROM sas.runs WHERE state <> 'stopped'") eq '0' });
	is($sql->("SELECT count(*) FROM sas.runs WHERE state <> 'stopped' OR result <> 'success'"), '0', 'all end');
	$service->script(slow => [ { gate => 600 } ]);
	return;
};
$service->script(slow => [ { gate => 600 } ]);

# -- one role alone ---------------------------------------------------------------------

agent_for('own', 10, 'eager');
$fills->('eager', 'own', 30);
ok($in_flight->('own', 10), 'a role that uses an agent alone has all slots');
$opens->();

# -- several ---------------------------------------------------------------------------

agent_for('two', 2, @roles);
$fills->('eager', 'two', 20);
ok($in_flight->('two', 1), 'of two slots a role has one while the agent is granted to several');
$ends->('calm', 'two', 'a call of another role ends meanwhile') foreach 1 .. 3;
ok($in_flight->('two', 1), 'and the slow one is still in flight');
like($sql->(q{SELECT text FROM sas.explain() WHERE waiting_kind = 'role_slots'}), qr/agent "two" keeps free places for other roles that use it, too: 1 of 2 are taken/, 'sas.explain says what the others of its calls wait for');
$opens->();

agent_for('many', 40, @roles);
$fills->('eager', 'many', 100);
ok($in_flight->('many', 35), 'of many slots a role leaves an eighth');
$fills->('calm', 'many', 100);
ok($in_flight->('many', 39), 'another one leaves an eighth of what was left, and the last slot');
$ends->('steady', 'many', 'a call of a third role ends, though both have slow ones') foreach 1 .. 3;
ok($in_flight->('many', 39), 'which are still in flight');
$opens->();

# -- not granted to several: who has used it lately counts ---------------------------------------------------

agent_for('group', 4, 'eager');
$sql->(q{SELECT sas.create_workflow('quick', '{"steps": {"a": {"agent": "group", "call": {"path": "/quick"}}}}')});
my $run = $sql->(q{SELECT run_id FROM sas.submit('quick')});
is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', 'a superuser uses the agent');
$fills->('eager', 'group', 20);
ok($in_flight->('group', 3), 'and a role leaves it a slot, then');
$run = $sql->(q{SELECT run_id FROM sas.submit('quick')});
is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', 'which a superuser has');

# -- polls of watchers take slots, too ---------------------------------------------------------------------

agent_for('polled', 8, @roles);
$sql->('CREATE TABLE item (item jsonb); GRANT ALL ON item TO eager');
$as->('eager', q{SELECT sas.create_watcher('slow_polls', '{"agent": "polled", "poll": {"call": {"path": "/slow", "timeout": "10 min"}, "every": "1 h"}, "items": {"table": "public.item"}}')});
$as->('eager', q{SELECT count(*) FROM generate_series(1, 30) n, sas.watch('slow_polls', n::text)});
ok($in_flight->('polled', 7), 'slow polls of a role leave slots to the others');
$ends->('calm', 'polled', 'a call of another role ends meanwhile') foreach 1 .. 3;
ok($in_flight->('polled', 7), 'and the slow polls are still in flight');
$fills->('eager', 'polled', 20);
$ends->('steady', 'polled', 'their owner has no further slot for its slow calls');
ok($in_flight->('polled', 7), 'which wait');
$as->('eager', q{SELECT count(*) FROM sas.unwatch('slow_polls', ARRAY(SELECT n::text FROM generate_series(1, 30) n))});
$opens->();
ok($in_flight->('polled', 0), 'no slot is lost when polls end');

# -- the worker that made the calls ends ------------------------------------------------------------------

my $pids = $sql->(q{SELECT string_agg(pid::text, ' ') FROM sas.workers WHERE actor = 'agent'});
kill 'TERM', split / /, $pids;
ok(wait_until(sub { $sql->(qq{SELECT count(*) FROM sas.workers WHERE actor = 'agent' AND pid NOT IN (0}.join('', map { ", $_" } split / /, $pids).')') ne '0' }), 'other workers take over');
$opens->();
ok($in_flight->('group', 0), 'no slot is lost');
$fills->('eager', 'group', 20);
ok($in_flight->('group', 3), 'and the role has as many as before');
$opens->();
is($sql->(q{SELECT count(*) FROM sas.alerts}), '0', 'nothing was amiss');
done_testing();
