# SPDX-License-Identifier: PostgreSQL
#
# Roles that alter their agents all the time hold nobody back: agent workers read what has changed, and claim
# in the same turn, however soon the next change comes. Yet a call is made as its agent was when the run was
# submitted, or later. Workers of other databases read nothing at all.
# Takes about 40 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2, track_functions => 'all');
my $service = SasService->new;
my $url = $service->url;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

make_agent($node, 'remote', $service);
define($node, 'versions', { steps => { it => { agent => 'remote', call => { path => '/versions', headers => { 'X-Wanted' => '{{input.n}}' } } } } });
define($node, 'calls', { steps => { it => { agent => 'remote', call => { path => '/x' } } } });
$sql->(qq{
	SELECT sas.set_secret('token', 'hidden');
	SELECT count(sas.create_agent('agent_' || n, '$url', headers => '{"X-Token": "{{secret.token}}"}')) FROM generate_series(1, 700) n;
	CREATE TABLE public.enough (n int);
	CREATE ROLE light;
	SELECT sas.grant_usage('light', 'user'), sas.grant_workflow('calls', 'light'), sas.grant_agent('remote', 'light');
	CREATE TABLE public.altered (n bigint GENERATED ALWAYS AS IDENTITY)});
ok(wait_for($node, q{SELECT result FROM sas.runs WHERE run_id = } . $sql->(q{SELECT run_id FROM sas.submit('calls')}), 'success'), 'the agents are known');
my @sessions = map { SasSession->new($node) } 1 .. 3;
foreach my $i (0 .. $#sessions)
{
	$sessions[$i]->start_query(qq{DO \$\$ BEGIN
		WHILE NOT EXISTS (SELECT FROM public.enough) LOOP
			PERFORM sas.alter_agent('agent_' || $i + 1, max_in_flight => 1 + (random() * 9)::int);
			INSERT INTO public.altered DEFAULT VALUES;
			COMMIT;
		END LOOP;
	END \$\$});
}
my $light = SasSession->new($node);
foreach my $n (1 .. 5)
{
	my ($before) = $light->query(q{RESET ROLE; SELECT last_value FROM public.altered_n_seq; SET ROLE light}) =~ /(\d+)/;
	my ($run) = $light->query(q{SELECT run_id FROM sas.submit('calls')}) =~ /(\d+)/;
	is($light->query("SELECT result FROM sas.wait($run, '300 s')"), 'success', "agents are altered all the time: call $n of another role ends");
	my ($after) = $light->query(q{RESET ROLE; SELECT last_value FROM public.altered_n_seq}) =~ /(\d+)/;
	note($after - $before, ' changes meanwhile');
	cmp_ok($after - $before, '<', 1000, 'not after thousands of changes');
}
$light->quit;

my $own = SasSession->new($node);
foreach my $n (1 .. 25)
{
	$own->query(qq{SELECT sas.alter_agent('remote', headers => '{"X-Is": "$n"}')});
	my ($run) = $own->query(qq{SELECT run_id FROM sas.submit('versions', '{"n": "$n"}')}) =~ /(\d+)/;
	$own->query("SELECT result FROM sas.wait($run, '300 s')");
}
my @ended = grep
{
	$own->query(q{SELECT sas.pause_agent('remote')});
	my ($run) = $own->query(q{SELECT run_id FROM sas.submit('calls')}) =~ /(\d+)/;
	$own->query(q{SELECT sas.resume_agent('remote')});
	$own->query("SELECT result FROM sas.wait($run, '300 s')") eq 'success'
} 1 .. 25;
$own->quit;
my @headers = map { [ SasService::header_of($_, 'X-Is'), SasService::header_of($_, 'X-Wanted') ] } $service->requests('versions');
is(scalar(@headers), 25, 'a role alters its agent, and submits, again and again');
is(scalar(grep { $_->[0] ne $_->[1] } @headers), 0, 'each call is made as its agent was when its run was submitted');
is(scalar(@ended), 25, 'and calls of an agent that was paused as they were submitted are made when it is resumed');

# -- of another database ---------------------------------------------------------------------

my $other = sub { return $node->safe_psql('other', $_[0]) };
my $readings = q{SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = 'agents_for_workers'};
$node->safe_psql('postgres', 'CREATE DATABASE other');
create_extension($node, 'other');
$other->(qq{SELECT sas.create_agent('remote', '$url');
	SELECT sas.create_workflow('calls', '{"steps": {"it": {"agent": "remote", "call": {"path": "/x"}}}}')});
my $ends = sub { my $run = $other->(q{SELECT run_id FROM sas.submit('calls')}); return wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success', dbname => 'other') };
is(scalar(grep { $ends->() } 1 .. 30), 30, 'in another database, calls go on');
my $before = $other->($readings);
$other->(q{SELECT sas.alter_agent('remote', max_in_flight => 7)});
ok(wait_for($node, "SELECT x > $before FROM ($readings) x (x)", 't', dbname => 'other'), 'its workers read its agents when these are altered');
cmp_ok($other->($readings), '<', 20, 'and for no change of the first database');

$sql->('INSERT INTO public.enough VALUES (1)');
foreach my $session (@sessions)
{
	is($session->answer(100), '', 'the other role could go on');
	$session->quit;
}
done_testing();
