# SPDX-License-Identifier: PostgreSQL
#
# Programs outside the server report while the time of their claim ends, or while an operator cancels the run. The
# session is stopped (SIGSTOP) at each point of the report (test/modules/crash_points.c) until complete-by is long past;
# or the session of the operator is, in the middle of its cancel. The run is free, or another session holds it. A report
# that was accepted counts, one that was not changes nothing, and of each task exactly one result is accepted.
# Takes about 180 s.
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

my $dir = PostgreSQL::Test::Utils::tempdir();
chmod(0755, $dir);
my ($includes) = split /\n/, `pg_config --includedir-server`;
system('cc', '-shared', '-fPIC', "-I$includes", '-o', "$dir/crash_points.so", "$FindBin::RealBin/../modules/crash_points.c") == 0 or die 'no module';
my $node = new_node('main', shared_preload_libraries => "sas, $dir/crash_points", 'sas.supervisor_interval' => '10 s');
sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }
sql(qq{
	CREATE FUNCTION crash_arm_stop(text, int) RETURNS void LANGUAGE c AS '$dir/crash_points';
	CREATE FUNCTION crash_armed() RETURNS boolean LANGUAGE c AS '$dir/crash_points';
	CREATE TABLE public.undone (run_id bigint);
	CREATE FUNCTION public.undo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'INSERT INTO public.undone VALUES ((input ->> ''run'')::bigint) RETURNING ''null''::jsonb';
	SELECT sas.create_agent('outside', kind => 'external', max_in_flight => 500, retry => '{"initial": "20 ms", "max": "20 ms", "max_attempts": 5}')});
define($node, 'task', { recovery => { initial => '20 ms', max => '100 ms', max_failures => 1000 },
	steps => { it => { agent => 'outside', task => {}, undo => { function => 'public.undo', input => { run => '{{run.id}}' } } } }, output => '{{steps.it.output}}' });

my $program = SasSession->new($node);
$program->query(q{SET application_name = 'points'});
my $program_pid = $program->query('SELECT pg_backend_pid()');
my $other = SasSession->new($node);
my $other_pid = $other->query('SELECT pg_backend_pid()');
my @cases;

# A task of a new run, claimed for a second.
sub claim
{
	my ($lease) = @_;
	my $run = submit($node, 'task', {});
	my $request;
	wait_until(sub { $request = sql("SELECT request_id FROM sas.claim('outside', 'first', 1, lease => '$lease')") }) or die 'nothing to claim';
	return ($run, $request);
}

# The session is at the point, and stands; false: it never came there.
sub stands_at
{
	my ($session) = @_;
	my $armed = 't';
	wait_until(sub { $armed = sql('SELECT crash_armed()'); return $armed eq 'f' || $session->answered }) or die 'nothing happens';
	sql(q{SELECT crash_arm_stop('', 0)});
	return $armed eq 'f';
}

# What a run may have come to, given what each program was told.
sub ended
{
	my ($name, $run, $told, $given) = @_;
	my ($state, $result, $output) = split /\|/, sql("SELECT state, result, output #>> '{}' FROM sas.runs WHERE run_id = $run");
	push @cases, { name => $name, run => $run, told => $told, given => $given, is => join '|', map { $_ // '' } $state, $result, $output };
	return;
}

# A second program takes what is there and completes it; how often it was told that its result counts.
sub second
{
	my ($run) = @_;
	my $counted = 0;
	wait_until(
		sub {
			$counted += () = sql(q{SELECT sas.complete(c.request_id, '"second"') FROM sas.claim('outside', 'second', 100, lease => '1 min') c}) =~ /^t$/mg;
			return sql("SELECT state FROM sas.runs WHERE run_id = $run") eq 'stopped';
		}) or diag(sql("SELECT to_jsonb(s) FROM sas.steps s WHERE run_id = $run"));
	return $counted;
}

my %report = (
	complete => q{SELECT sas.complete('%s', '"first"')},
	fail => q{SELECT sas.fail('%s', 'broken')},
	hand_back => q{SELECT sas.hand_back('%s')},
	heartbeat => q{SELECT sas.heartbeat('%s', 0.5)});
my @points = ('begin lock_claims', 'begin lock_runs_of_claims', 'end lock_runs_of_claims', 'end lock_claims', 'begin end_claims', 'begin leave_answers',
	'end leave_answers', 'begin extend_place', 'end extend_place', 'commits', 'committed');
my %reached;

# -- stopped until the time is over -------------------------------------------------------------

# Claims a task, and stops the program at this point of its report: the run, the claim, and when its time is over. On a
# slow machine that may be before it comes there: then the next claim is a longer one.
sub stop_in_time
{
	my ($name, $verb, $held, $point) = @_;
	foreach my $lease (1, 4, 16)
	{
		my ($run, $request) = claim("$lease s");
		my $until = time() + $lease + 0.3;
		$other->query("BEGIN; SELECT FROM _sas.run WHERE run_id = $run FOR UPDATE") if $held;
		sql("SELECT crash_arm_stop('session $point', 1)");
		$program->start_query(sprintf $report{$verb}, $request);
		return ($run, $request, $until) if stands_at($program);
		my $told = $program->answer;
		$other->query('COMMIT') if $held;
		ended("$name, too late", $run, $told, second($run));
		last unless $told =~ /^(f|lost)$/;
	}
	return;
}

foreach my $verb (sort keys %report)
{
	foreach my $held (0, 1)
	{
		foreach my $point (@points)
		{
			next if $point =~ /leave_answers|end_claims/ && $verb eq 'heartbeat' || $point =~ /extend_place/ && $verb ne 'heartbeat';
			next if $point =~ /extend_place|leave_answers/ && !$held || $point =~ /end_claims/ && $held;
			my $name = "$verb, " . ($held ? 'held' : 'free') . ", stopped at: $point";
			my ($run, $request, $until) = stop_in_time($name, $verb, $held, $point);
			$reached{$point}++ if defined $request;
			ok(defined $request, "$name: the point is reached") or next;
			wait_until(sub { time() > $until });
			$other->query('COMMIT') if $held && $point =~ /leave|extend/;
			kill('CONT', $program_pid);
			my $told = $program->answer;
			$other->query('COMMIT') if $held;
			$told .= ' ' . $program->query(sprintf $report{complete}, $request) if $verb eq 'heartbeat';
			my $given = second($run);
			ended($name, $run, $told, $given);
		}
	}
}
is(scalar keys %reached, scalar @points, 'every point was reached');

# exactly one result of each is accepted, and it is the run's
sub wrong
{
	my ($claim) = @_;
	return join "\n", map { "$_->{name}: run $_->{run} told $_->{told}, second $_->{given}, is $_->{is}" } grep { !$claim->() } @cases;
}
is(wrong(sub {
	my $first = $_->{told} =~ /t$/ && $_->{name} =~ /^(complete|heartbeat)/;
	return $_->{is} eq ($first ? 'stopped|success|first' : 'stopped|success|second') && $_->{given} == ($first ? 0 : 1);
}), '', 'of each task one result is accepted, and stands');
is(wrong(sub { return $_->{told} !~ /ERROR/ }), '', 'no report is answered with an error');
is(wrong(sub { return $_->{name} !~ /(begin lock_claims|free, stopped at: begin lock_runs_of_claims)$/ || $_->{told} =~ /^(f|lost f)$/ }), '',
	'a report that begins to be judged after complete-by is late');
is(sql(q{SELECT count(*) FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE a.status = 'failed' AND a.error ->> 'title' = 'the task failed'}),
	scalar(grep { $_->{name} =~ /^fail/ && $_->{told} eq 't' } @cases), 'each failure that was accepted is an attempt');

# -- cancelled meanwhile ----------------------------------------------------------------------------

my $first_cancel = @cases;
my $operator = SasSession->new($node);
$operator->query(q{SET application_name = 'points'});
my $operator_pid = $operator->query('SELECT pg_backend_pid()');
foreach my $case (
	(map { [ program => complete => $_ ] } 'end lock_claims', 'begin end_claims', 'commits', 'committed'),
	(map { [ program => heartbeat => $_ ] } 'end lock_claims', 'commits'),
	(map { [ program => fail => $_ ] } 'end lock_claims', 'commits'),
	(map { [ operator => complete => $_ ] } 'begin cancel_runs_as', 'end cancel_runs_as', 'commits', 'committed'),
	(map { [ operator => fail => $_ ] } 'end cancel_runs_as', 'commits'),
	[ operator => heartbeat => 'end cancel_runs_as' ])
{
	my ($stopped, $verb, $point) = @$case;
	my ($run, $request) = claim('30 s');
	my $name = "$verb and cancel, the $stopped stopped at: $point";
	my ($one, $pid, $two) = $stopped eq 'program' ? ($program, $program_pid, $operator) : ($operator, $operator_pid, $program);
	my %does = (program => sprintf($report{$verb}, $request), operator => "SELECT coalesce(refused, 'cancelled') FROM sas.cancel($run)");
	sql("SELECT crash_arm_stop('session $point', 1)");
	$one->start_query($does{$stopped});
	ok(stands_at($one), "$name: the point is reached");
	$two->start_query($does{ $stopped eq 'program' ? 'operator' : 'program' });
	wait_until(sub { $two->answered }, 0.5);
	kill('CONT', $pid);
	my %told = ($stopped => $one->answer, $stopped eq 'program' ? 'operator' : 'program' => $two->answer);
	my $now = $verb eq 'heartbeat' ? $program->query(sprintf $report{complete}, $request) : '';
	my $given = second($run);
	ended($name, $run, "$told{program} $now $told{operator}", $given);
	$cases[-1]{undone} = sql("SELECT count(*) FROM public.undone WHERE run_id = $run");
	$cases[-1]{is} .= "|undone $cases[-1]{undone}";
}
splice @cases, 0, $first_cancel;
is(wrong(sub { return $_->{told} !~ /ERROR/ }), '', 'no report and no cancel is answered with an error');
is(wrong(sub { return $_->{is} =~ /^stopped\|cancelled\|/ || $_->{told} !~ /cancelled$/ }), '', 'a cancel that was accepted cancels');
is(wrong(sub { return $_->{is} =~ /^stopped\|success\|first\|undone 0$/ || $_->{is} =~ /^stopped\|cancelled\|/ }), '', 'a run ends cancelled, or well with nothing undone');
is(wrong(sub { return $_->{is} !~ /cancelled/ || $_->{told} !~ /^t/ || $_->{name} =~ /^fail/ || $_->{undone} == 1 }), '', 'a result that was accepted is undone, once');
is(wrong(sub { return $_->{undone} <= 1 && $_->{given} == 0 }), '', 'nothing is undone twice, and nobody is given a task of a cancelled run');

# -- nothing is left -------------------------------------------------------------------------------

all_ended($node, 'every run ends');
ok(wait_for($node, "SELECT count(*) FROM _sas.$_", '0'), "nothing is left in $_") foreach qw(lease answer deferred_run);
is(sql(q{SELECT count(*) FROM _sas.external_slot WHERE request_id IS NOT NULL}), '0', 'no place is held');
note('figure: ' . (@cases + $first_cancel) . ' reports');
$node->stop;
done_testing();
