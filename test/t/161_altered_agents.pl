# SPDX-License-Identifier: PostgreSQL
#
# What was altered of an agent holds for the next claim of every worker, what
# was not committed never does, and a worker reads again only what has
# changed: with 600 agents, 1 and 2 workers.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $n = 600;
my $node = new_node('main', 'max_prepared_transactions' => 5);
my ($here, $there) = (SasService->new, SasService->new);
my ($here_url, $there_url) = ($here->url, $there->url);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $session = SasSession->new($node);
$sql->(qq{SELECT count(sas.create_agent('agent_' || g, '$here_url', breaker => '{"off": true}')) FROM generate_series(1, $n) g});
define($node, "at_$_", { steps => { it => { agent => "agent_$_", call => { path => '/it/{{input.n}}' } } } }) foreach 1 .. 12;

# the services that got the call of this number, in order
my $calls = 0;
sub called
{
	my ($workflow) = @_;
	my $path = '/it/' . ++$calls;
	my $run = $session->query("SELECT run_id FROM sas.submit('$workflow', '{\"n\": $calls}')");
	$run =~ s/\D//g;
	my $result = $session->query("SELECT result FROM sas.wait($run, '60 s')");
	return "run $run: $result" unless $result =~ /success/;
	return join ',', (map { $_->{target} eq $path ? 'here' : () } $here->requests), (map { $_->{target} eq $path ? 'there' : () } $there->requests);
}

# -- what is read ----------------------------------------------------------------------------------

# of all agents as they are known before some statements, those that are read after them
sub read_again
{
	my ($statements) = @_;
	$sql->('DROP TABLE IF EXISTS known; CREATE TABLE known AS SELECT * FROM _sas.agent_versions()');
	$sql->($statements);
	return $sql->(q{SELECT coalesce(string_agg(coalesce(w.name, 'gone'), ' ' ORDER BY w.agent_id), 'none')
		FROM _sas.agents_for_workers(ARRAY(SELECT agent_id FROM known ORDER BY agent_id), ARRAY(SELECT version FROM known ORDER BY agent_id)) w});
}

is($sql->(q{SELECT count(*) FROM _sas.agents_for_workers('{}', '{}')}), $n, 'a worker that knows none reads all agents');
is(read_again(''), 'none', 'one that knows all reads none');
is(read_again(q{SELECT sas.alter_agent('agent_300', max_in_flight => 7)}), 'agent_300', 'and the one that was altered');
is(read_again(q{SELECT sas.alter_agent('agent_301', enabled => false); SELECT sas.alter_agent('agent_3', reset => '{breaker}')}), 'agent_3 agent_301', 'or those');
is(read_again(qq{SELECT sas.create_agent('new', '$here_url'); SELECT sas.drop_agent('agent_302')}), 'gone new', 'or those that are new or gone');
is(read_again(q{SELECT sas.set_secret('key', 'one')}), 'none', 'a secret that no agent names changes none');
is(read_again(q{SELECT sas.alter_agent('agent_12', headers => '{"X-Key": "{{secret.key}}"}')}), 'agent_12', 'an agent that names it');
is(read_again(q{SELECT sas.set_secret('key', 'two')}), 'agent_12', 'changes when the secret does');
is(read_again(q{BEGIN; SELECT sas.alter_agent('agent_5', max_in_flight => 7); SELECT sas.set_secret('key', 'no'); ROLLBACK}), 'none', 'what was rolled back changes none');

# -- what the workers do ---------------------------------------------------------------------------

foreach my $workers (1, 2)
{
	$sql->("ALTER SYSTEM SET sas.agents = $workers");
	$sql->('SELECT pg_reload_conf()');
	ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, $workers), "agent workers: $workers");
	is(called('at_1'), 'here', 'an agent is called at its address');

	my $wrong = '';
	foreach my $i (1 .. 40)
	{
		my $to = $i % 2 ? 'there' : 'here';
		my $agent = 1 + $i % 10;
		$session->query("SELECT sas.alter_agent('agent_$agent', base_url => '" . ($i % 2 ? $there_url : $here_url) . "')");
		my $at = called("at_$agent");
		$wrong ||= "$agent: $at, not $to" if $at ne $to;
		$session->query("SELECT sas.alter_agent('agent_$agent', base_url => '$here_url')") if $i % 2;
	}
	is($wrong, '', 'the next call goes to the new address');
	is(called("at_$_"), 'here', "and back, agent $_") foreach 1, 2;

	$session->query('BEGIN');
	$session->query("SELECT sas.alter_agent('agent_2', base_url => '$there_url')");
	$session->query('ROLLBACK');
	is(called('at_2'), 'here', 'an aborted alter changes nothing');
	$session->query('BEGIN');
	$session->query('SAVEPOINT s');
	$session->query("SELECT sas.alter_agent('agent_2', base_url => '$there_url')");
	$session->query('ROLLBACK TO s');
	$session->query("SELECT sas.alter_agent('agent_3', base_url => '$there_url')");
	$session->query('COMMIT');
	is(called('at_2'), 'here', 'nor does an aborted savepoint');
	is(called('at_3'), 'there', 'beside which another one is altered');
	$session->query('BEGIN');
	$session->query("SELECT sas.alter_agent('agent_3', base_url => '$here_url')");
	$session->query("PREPARE TRANSACTION 'alter'");
	is(called('at_2'), 'here', 'others go on beside a prepared alter');
	$session->query("COMMIT PREPARED 'alter'");
	is(called('at_3'), 'here', 'which holds once it is committed');

	$session->query("SELECT sas.set_secret('key', 'secret-$workers')");
	is(called('at_12'), 'here', 'an agent with a secret is called');
	is(header_of((grep { $_->{target} eq "/it/$calls" } $here->requests)[0], 'x-key'), "secret-$workers", 'with its new value');

	# a limit
	$here->script(it => [ { how => 'silent' } ]);
	$session->query(q{SELECT sas.alter_agent('agent_4', max_in_flight => 1)});
	$session->query(q{SELECT count(s.run_id) FROM generate_series(1, 5) g, sas.submit('at_4', jsonb_build_object('n', 'slow', 'g', g)) s});
	ok(wait_for($node, q{SELECT in_flight FROM sas.agents WHERE name = 'agent_4'}, '1'), 'an altered limit holds');
	$session->query(q{SELECT sas.alter_agent('agent_4', max_in_flight => 4)});
	ok(wait_for($node, q{SELECT in_flight FROM sas.agents WHERE name = 'agent_4'}, '4'), 'until it is altered again, for what waits');
	$here->script(it => [ {} ]);
	$session->query(q{SELECT count(*) FROM sas.halt_runs(ARRAY(SELECT run_id FROM sas.runs WHERE workflow = 'at_4' AND state <> 'stopped'))});
	ok(wait_for($node, q{SELECT in_flight FROM sas.agents WHERE name = 'agent_4'}, '0'), 'calls of halted runs end');

	# one that is off, and one that is dropped and made again
	$session->query(q{SELECT sas.alter_agent('agent_5', enabled => false)});
	my $run = submit($node, 'at_5', { n => 'off' });
	is(called('at_6'), 'here', 'an agent that is off keeps no other');
	is($sql->("SELECT state FROM sas.runs WHERE run_id = $run"), 'pending', 'and is not called');
	$session->query(q{SELECT sas.alter_agent('agent_5', enabled => true)});
	ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'until it is on again');
	$session->query(qq{SELECT sas.drop_workflow('at_11')});
	$session->query(qq{SELECT sas.drop_agent('agent_11')});
	is($sql->(q{SELECT count(*) FROM sas.agents WHERE name = 'agent_11'}), '0', 'an agent is dropped');
	$session->query(qq{SELECT sas.create_agent('agent_11', '$there_url')});
	define($node, 'at_11', { steps => { it => { agent => 'agent_11', call => { path => '/it/{{input.n}}' } } } });
	is(called('at_11'), 'there', 'and another one of its name is called at its own address');
}
done_testing();
