# SPDX-License-Identifier: PostgreSQL
#
# What a step with many elements costs its tick. Workers and verbs go through maps, children, waits, polls,
# fallbacks, undo and halts of many elements, while auto_explain logs how many rows each statement read only
# to throw them away: no more than a few for each element. A statement that reads all elements of the run for
# each of them is found, whatever time it takes.
# Takes about 50 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasPlans;
use SasService;
use SasSession;
use Test::More;

# elements of each step, and steps of the wide workflow; rows thrown away for each of them
my $n = 60;
my $most = 10;

my $node = new_node('main', plans_logged(), 'sas.supervisor_interval' => '5 s', max_wal_size => '4GB');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

make_agent($node, 'remote', $service);
$service->script(poor => [ { status => 503 } ], fail => [ { status => 400 } ], job => [ { status => 202, json => { id => 7 } } ],
	asked => [ { json => { state => 'done' } } ]);
$sql->(q{
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE FUNCTION bad(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'bad'; END $$;
	CREATE FUNCTION planned(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_build_object('steps', jsonb_object_agg('s' || g, '{"function": "public.echo"}'::jsonb)) FROM generate_series(1, (input ->> 'n')::int) g $$;
	CREATE FUNCTION around(c jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
	SELECT sas.create_agent('outside', kind => 'external');
	SELECT sas.create_queue('keyed', 1000, key => '{{item}}', per_key => 1)});
my $each = '{{input.ids}}';
my %quick = (recovery => { initial => '20 ms', max_failures => 1 }, retry => { max_attempts => 1 });
my %undo = (undo => { function => 'public.echo' });
define($node, 'child', { steps => { x => { function => 'public.echo' } } });
define($node, 'bad_child', { steps => { x => { function => 'public.bad', %quick } } });
define($node, 'repeated', { steps => { x => { function => 'public.echo', repeat => { max => 3, while => '$.index < 3' } } } });
define($node, 'planned', { plan => 'public.planned' });
define($node, 'signal', { steps => { x => { wait => { signal => 'go' } } } });
my %step_of = (
	functions => { function => 'public.echo' },
	keys => { function => 'public.echo', concurrency => { limit => 50, key => '{{item}}', per_key => 1 } },
	queue => { function => 'public.echo', queue => 'keyed' },
	children => { workflow => 'child' },
	timers => { wait => { for => '100 ms' } },
	signals => { wait => { signal => 'go' } },
	signals_or => { wait => { signal => 'go', timeout => '200 ms', on_timeout => 'go_on' } },
	calls => { agent => 'remote', call => { path => '/quick' } },
	retried => { agent => 'remote', call => { path => '/poor' }, retry => { max_attempts => 2, initial => '10 ms' }, on_failure => 'pause_at_end', recovery => { initial => '20 ms', max_failures => 1 } },
	polls => { agent => 'remote', call => { path => '/job' }, poll => { call => { path => '/asked' }, until => '$.output.body.state == "done"', every => '20 ms' } },
	fallbacks => { function => 'public.bad', %quick, fallback => { function => 'public.echo', %undo } },
	unexpected => { agent => 'remote', call => { path => '/quick' }, expect => '$.output.status == 500', %quick },
	middle => { agent => 'remote', call => { path => '/quick' } },
	failures => { function => 'public.bad', %quick, on_failure => 'pause' },
	bad_children => { workflow => 'bad_child' },
	repeats => { workflow => 'repeated' },
	tasks => { agent => 'outside', task => {}, complete_in => '1 h' });
define($node, $_, { steps => { x => { %{ $step_of{$_} }, each => $each } } }) foreach keys %step_of;
# what is undone
foreach my $kind (qw(functions children calls polls fallbacks))
{
	my $undo = $kind eq 'children' ? { undo => { workflow => 'child' } } : \%undo;
	define($node, "undo_$kind", { steps => { x => { %{ $step_of{$kind} }, each => $each, %$undo },
		y => { function => 'public.bad', after => ['x'], %quick } } });
}
# what a failure beside it ends
foreach my $kind (qw(signals children tasks))
{
	define($node, "ended_$kind", { steps => { x => { %{ $kind eq 'children' ? { workflow => 'signal' } : $step_of{$kind} }, each => $each },
		y => { wait => { signal => 'end' } }, z => { function => 'public.bad', after => ['y'], %quick } } });
}
# many steps beside each other, and one after the other's all
define($node, 'wide', { steps => { (map { ("s$_" => { function => 'public.echo', %undo }) } 1 .. $n), last => { function => 'public.bad', after => [ map { "s$_" } 1 .. $n ], %quick } } });

my ($ids) = $sql->("SELECT jsonb_build_object('ids', jsonb_agg(g), 'n', $n) FROM generate_series(1, $n) g");
my %run;
sub begin { my ($workflow) = @_; ($run{$workflow}) = $sql->("SELECT run_id FROM sas.submit('$workflow', '$ids')"); return $run{$workflow} }
sub ends
{
	my ($workflow, $result) = @_;
	ok(wait_for($node, "SELECT concat_ws(' ', state, result) FROM sas.runs WHERE run_id = $run{$workflow}", "stopped $result", limit => 120), "$workflow: ends in $result");
	return;
}
sub suspended
{
	my ($workflow) = @_;
	ok(wait_for($node, "SELECT count(*) FROM _sas.step WHERE run_id = $run{$workflow} AND element > 0 AND state = 'suspended'", $n, limit => 120), "$workflow: all wait");
	return;
}

my $from = -s $node->logfile;
foreach my $kind (qw(functions keys queue children timers signals_or calls polls fallbacks planned))
{
	begin($kind);
	ends($kind, 'success');
}
begin('signals');
suspended('signals');
$sql->("SELECT sas.signal($run{signals}, 'go') FROM generate_series(1, $n)");
ends('signals', 'success');

foreach my $kind (qw(functions children calls polls fallbacks))
{
	begin("undo_$kind");
	ends("undo_$kind", 'compensated');
}
begin('wide');
ends('wide', 'compensated');

begin('unexpected');
ends('unexpected', 'error');
begin('bad_children');
ends('bad_children', 'error');
begin('repeats');
ends('repeats', 'success');
$sql->("SELECT sas.create_middleware('around', 'call', before => 'public.around(jsonb)', after => 'public.around(jsonb)', workflow => 'middle')");
begin('middle');
ends('middle', 'success');

begin('failures');
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run{failures}", 'paused', limit => 120), 'an element has failed');
$sql->("SELECT FROM sas.set_priority($run{failures}, 1); SELECT FROM sas.skip($run{failures}, 'x')");
ends('failures', 'warning');

# what waits, or is ready, ends with a step beside it; a pause may come in time to take that back
foreach my $kind (qw(signals children tasks))
{
	my $run = begin("ended_$kind");
	ok(wait_for($node, "SELECT count(*) FROM _sas.step WHERE run_id = $run AND element > 0 AND state = 'suspended'", $n, limit => 120), "ended_$kind: all wait") if $kind ne 'tasks';
	ok(wait_for($node, "SELECT count(*) FROM _sas.ready WHERE run_id = $run", $n, limit => 120), "ended_$kind: all are ready") if $kind eq 'tasks';
	$sql->("SELECT sas.signal($run, 'end')");
	ok(wait_for($node, "SELECT abandon_as IS NOT NULL FROM _sas.run WHERE run_id = $run", 't', limit => 120), "ended_$kind: it is undone");
	$sql->("SELECT FROM sas.pause($run); SELECT FROM sas.resume($run); SELECT FROM sas.halt($run)");
	ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped', limit => 120), "ended_$kind: halted");
}

begin('retried');
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run{retried}", 'paused', limit => 120), 'all elements have failed');
$service->script(poor => [ { status => 200 } ]);
$sql->("SELECT FROM sas.retry($run{retried})");
ends('retried', 'success');

# tasks of an outside program: claimed, given back, completed
begin('tasks');
my $outside = SasSession->new($node);
my $claimed = 0;
ok(wait_until(sub { $claimed += ($outside->query(q{SELECT count(*) FROM sas.claim('outside', 'me', 1000, lease => '3 s')}) =~ /(\d+)/)[0]; return $claimed >= $n }), 'an outside program claims all');
ok(wait_for($node, "SELECT count(*) FROM _sas.ready WHERE run_id = $run{tasks}", $n, limit => 60), 'and loses them');
$outside->query(q{SELECT count(sas.complete(c.request_id, '1')) FROM sas.claim('outside', 'me', 1000, lease => '1 h') c});
ends('tasks', 'success');

# verbs upon many that wait
foreach my $verb (qw(cancel halt))
{
	foreach my $kind (qw(signals children_wait tasks_wait))
	{
		my $workflow = $kind eq 'children_wait' ? 'signal_children' : $kind eq 'tasks_wait' ? 'tasks' : 'signals';
		define($node, 'signal_children', { steps => { x => { workflow => 'signal', each => $each } } }) if $workflow eq 'signal_children' && !$run{signal_children};
		begin($workflow);
		if ($workflow eq 'tasks') { ok(wait_for($node, "SELECT count(*) FROM _sas.ready WHERE run_id = $run{tasks}", $n, limit => 120), 'tasks: all are ready') }
		else { suspended($workflow) }
		$sql->("SELECT FROM sas.pause($run{$workflow}); SELECT FROM sas.resume($run{$workflow}); SELECT FROM sas.$verb($run{$workflow})");
		ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run{$workflow}", 'stopped', limit => 120), "$workflow: $verb");
	}
}

# -- what the log says ------------------------------------------------------------------------------

my ($actors, $found) = thrown_away($node, $from, $most * $n);
is(join(', ', sort grep { $actors->{$_} > 5 } keys %$actors), 'client backend, sas agent, sas function, sas scheduler, sas supervisor', 'statements of all actors are seen');
is(join("\n", map { "$found->{$_} rows, $_" } sort { $found->{$b} <=> $found->{$a} } keys %$found), '', "no statement throws away more than $most rows for each of $n elements");

done_testing();
