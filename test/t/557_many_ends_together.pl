# SPDX-License-Identifier: PostgreSQL
#
# What ends at one moment, and what begins at one, may change thousands of steps each time: those that wait for
# it. No turn of a worker changes all of them in one transaction, so that others are served in between.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

our ($runs, $wide) = (20, 1000);
our $most = 5 * $wide;
my $node = new_node('main', 'sas.schedulers' => 1, 'sas.agents' => 1, 'sas.function_workers' => 1);
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my @runs;

make_agent($node, 'remote', $service, max_in_flight => 100);
$sql->(q{
	CREATE SCHEMA t;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE FUNCTION t.refuse(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
	SELECT sas.create_workflow('nothing', '{"steps": {}}')});

# for its step "first" many others wait, which do not begin
sub define_wide
{
	my ($name, $first, %more) = @_;
	my %steps = map { ("s$_" => { function => 't.echo', after => [ 'first', 'never' ] }) } 1 .. $wide;
	define($node, $name, { steps => { %steps, first => $first, never => { wait => { signal => 'never' } } }, %more });
	return;
}

sub submit_all
{
	my ($name, $more) = @_;
	$more //= '';
	@runs = split /\n/, $sql->(qq{SELECT run_id FROM sas.submit_batch('$name', array_fill('{"go": false}'::jsonb, ARRAY[$runs])$more)});
	return;
}

# the steps of these runs in that state: all are there, but no transaction has written too many
sub check
{
	my ($what, $table, $condition) = @_;
	my $of = "FROM $table WHERE run_id IN (" . join(',', @runs) . ") AND $condition";
	ok(wait_for($node, "SELECT count(*) $of", $runs * $wide), "$what: $runs, of which each changes $wide steps");
	cmp_ok($sql->("SELECT max(n) FROM (SELECT count(*) AS n $of GROUP BY xmin::text) x"), '<=', $most, 'some at a time');
	is($sql->("SELECT string_agg(message, '; ') FROM sas.alerts WHERE kind = 'stuck'"), '', 'and nothing is stuck');
	$sql->('DELETE FROM _sas.ready; DELETE FROM _sas.message WHERE run_id IN (' . join(',', @runs) . ')');
	return;
}

define_wide('timers', { wait => { until => '2000-01-01' } });
submit_all('timers');
check('waits that end', '_sas.step', q{state = 'waiting'});

# each of these is too many by itself
{
	local ($runs, $wide, $most) = (4, 6000, 6000);
	define_wide('wider', { wait => { until => '2000-01-01' } });
	submit_all('wider');
	check('waits that change very much', '_sas.step', q{state = 'waiting'});
}

define_wide('children', { workflow => 'nothing' });
submit_all('children');
check('child runs that end', '_sas.step', q{state = 'waiting'});

define_wide('skipped', { function => 't.echo', when => '$.input.go == true' });
submit_all('skipped');
check('steps that are skipped', '_sas.step', q{state = 'waiting'});

# failures that are skipped: the supervisor decides on all of them at once
define_wide('failed', { function => 't.refuse', on_failure => 'skip' });
my $resume = hold_supervisor($node);
submit_all('failed');
ok(wait_for($node, q{SELECT count(*) FROM _sas.message WHERE kind = 'failed'}, $runs), 'steps fail while no supervisor turns');
$resume->();
check('failures that are skipped', '_sas.step', q{state = 'waiting'});

# replies that arrive together
$service->script(slow => [ { gate => 1, json => {} } ]);
define_wide('calls', { agent => 'remote', complete_in => '10 min', call => { path => '/slow', timeout => '9 min' } });
submit_all('calls');
$service->wait_for_requests('slow', $runs);
my @agents = worker_pids($node, 'agent');
kill('STOP', @agents);
$service->release;
ok(wait_until(sub { (grep { $_->{done} // 1 } $service->requests('slow')) == $runs }), 'all are answered while the worker stands still');
kill('CONT', @agents);
check('calls that are answered', '_sas.step', q{state = 'waiting'});

# replies to runs that a session holds: a scheduler writes them when it lets go
my $session = SasSession->new($node);
$service->script(slow => [ { gate => 1, json => {} } ]);
submit_all('calls');
$service->wait_for_requests('slow', 2 * $runs);
$session->query('BEGIN; SELECT FROM _sas.run WHERE run_id IN (' . join(',', @runs) . ') FOR UPDATE');
$service->release;
ok(wait_for($node, 'SELECT count(*) FROM _sas.answer', $runs), 'their answers are stored');
$session->query('COMMIT');
check('calls whose runs were held', '_sas.step', q{state = 'waiting'});
$session->quit;

# runs that begin: nobody claims what is ready then
$sql->(q{ALTER SYSTEM SET sas.function_workers = 0; SELECT pg_reload_conf()});
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, 0), 'no function worker is left');
define($node, 'many', { steps => { map { ("s$_" => { function => 't.echo' }) } 1 .. $wide } });
submit_all('many', q{, start_at => clock_timestamp() + interval '1 s'});
check('runs that begin later', '_sas.ready', 'true');

define($node, 'parents', { steps => { all => { each => '{{input.list}}', workflow => 'many', input => {} } } });
my $parent = submit($node, 'parents', { list => [ 1 .. $runs ] });
ok(wait_for($node, "SELECT count(*) FROM _sas.run WHERE parent_run_id = $parent", $runs), 'child runs begin');
@runs = split /\n/, $sql->("SELECT run_id FROM _sas.run WHERE parent_run_id = $parent");
check('child runs that begin', '_sas.ready', 'true');

# maps: their elements are written when they begin
define($node, 'maps', { steps => { all => { each => '{{input.list}}', function => 't.echo', concurrency => 1 } } });
my $list = '[' . join(',', 1 .. $wide) . ']';
@runs = split /\n/, $sql->("SELECT run_id FROM sas.submit_batch('maps', array_fill('{\"list\": $list}'::jsonb, ARRAY[$runs]))");
check('maps that begin', '_sas.item', 'true');
$node->stop;
done_testing();
