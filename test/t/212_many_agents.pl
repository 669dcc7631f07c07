# SPDX-License-Identifier: PostgreSQL
#
# A wake-up that stands for one agent is never used up by a look at another
# one: not in a database with thousands of agents, whose numbers cannot all
# have a place of their own, not by a second worker, not by the items of
# infinite tasks. Each submit comes by itself while everything rests, and the
# supervisor, whose looks wake others, is stopped: nothing else makes a worker look.
# Takes about 50 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

my $soon = 25;					# seconds; what was not rung for is never found
my $node = new_node('main', 'sas.supervisor_interval' => '6 min', 'sas.function_workers' => 2);
my $service = SasService->new;
my $session = SasSession->new($node);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $url = $service->url;

$sql->(qq{
	SELECT count(sas.create_agent('agent_' || n, '$url', breaker => '{"off": true}')) FROM generate_series(1, 3000) n;
	SELECT setval(pg_get_serial_sequence('_sas.agent', 'agent_id'), 4096 + 1022);
	SELECT count(sas.create_agent('late_' || n, '$url', breaker => '{"off": true}')) FROM generate_series(1, 4) n;
	SELECT sas.create_agent('tailer', kind => 'external');
	CREATE TABLE line (n bigint GENERATED ALWAYS AS IDENTITY, key text, item jsonb NOT NULL, came timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_watcher('lines', '{"agent": "tailer", "external": {}, "items": {"table": "public.line"}}')});
my %id = map { split /\|/ } split /\n/, $sql->(q{SELECT name, agent_id FROM _sas.agent WHERE kind = 'http'});
my %name = reverse %id;

# numbers that are alike modulo 1024 or 4096, the last place of such a table, and others
my @numbers = map { my $n = $_; map { $n + $_ } 0, 1024, 2048 } 1, 2, 7, 300, 700;
push @numbers, 1023, 2047, 4096 + 1023, 4096 + 1024, 1024;
srand(14);
push @numbers, map { 1 + int rand 3000 } 1 .. 20;
my %seen;
@numbers = grep { defined $name{$_} && !$seen{$_}++ } @numbers;
cmp_ok(scalar(@numbers), '>=', 30, 'there are agents whose numbers share a place, and others');
define($node, "at_$_", { steps => { it => { agent => $name{$_}, call => { method => 'POST', path => '/x' } } } }) foreach @numbers;
define($node, "beside_$_", { steps => {
			it => { agent => $name{$_}, call => { method => 'POST', path => '/x' } },
			beside => { function => 'public.echo' } } }) foreach 1023, 2047;

# submits each workflow by itself, in transactions of their own, and waits for all of them
sub ends_soon
{
	my (@workflows) = @_;
	my @runs = map { $session->query("SELECT run_id FROM sas.submit('$_')") } @workflows;
	s/\D//g foreach @runs;
	my $end = time() + $soon;
	foreach my $run (@runs)
	{
		my $left = $end - time();
		my $state = $session->query("SELECT result FROM sas.wait($run, '" . ($left > 1 ? int $left : 1) . " s')");
		return "run $run of @workflows did not end: $state" unless $state =~ /success/;
	}
	return '';
}

# the first failure is enough: each costs half a minute
sub all_end_soon
{
	my ($name, @groups) = @_;
	my $wrong = '';
	foreach (@groups)
	{
		$wrong = ends_soon(@$_);
		last if $wrong;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($wrong, '', $name);
	return;
}

ends_soon('at_1');				# the workers have read the agents
foreach my $workers (1, 2)
{
	$sql->("ALTER SYSTEM SET sas.agents = $workers");
	$sql->('SELECT pg_reload_conf()');
	ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, $workers), "agent workers: $workers");
	ends_soon('at_2');
	my $let_go = hold_supervisor($node);
	all_end_soon("with $workers, a single submit to any of 3,000 agents is found by its wake-up", map { ["at_$_"] } @numbers);
	all_end_soon('and so are two, one after the other',
		map { [ "at_$_", 'at_' . $numbers[ rand @numbers ] ] } @numbers);
	all_end_soon('a function beside it takes nothing from an agent', map { [ "beside_$_" ] } (1023, 2047) x 15);
	$let_go->();
}

# -- items ----------------------------------------------------------------------------------------

$session->query("SELECT * FROM sas.watch('lines', 'a')");
my $host = SasSession->new($node);
my ($host_id) = $host->query("SELECT sas.register_node('host', 10, '{tailer}', lease => '1 h')") =~ /(\d+)/;
my $held = '';
ok( wait_until(
		sub {
			($held) = $host->query("SELECT watch_id || ',' || epoch FROM sas.claim_watchers($host_id, 10)") =~ /(\d+,\d+)/;
			return defined $held;
		}),
	'an outside program hosts a task');
my $lost = '';
my $let_go = hold_supervisor($node);
foreach my $n (1 .. 100)
{
	my $call = $n % 2 ? 'at_1023' : 'at_2047';
	$session->start_query("SELECT run_id FROM sas.submit('$call')");
	$host->query("SELECT sas.append_items($held, '[$n]', '$n')");
	my ($run) = $session->answer =~ /(\d+)/;
	$lost = "item $n" unless wait_for($node, "SELECT count(*) FROM line WHERE item = '$n'", '1', limit => $soon);
	$lost ||= "run $run" unless $session->query("SELECT result FROM sas.wait($run, '$soon s')") =~ /success/;
	last if $lost;
}
$let_go->();
is($lost, '', 'items have a wake-up of their own: neither they nor a call that comes with them are missed');
note('longest until a call began: ' . $sql->(q{SELECT max(a.started_at - r.created_at) FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE a.step = 'it'})
	  . ' of ' . $sql->(q{SELECT count(*) FROM sas.runs}) . '; over a second: '
	  . $sql->(q{SELECT count(*) FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE a.step = 'it' AND a.started_at - r.created_at > interval '1 s'}));
done_testing();
