# SPDX-License-Identifier: PostgreSQL
#
# The models of test/model, checked by spin: each claim holds in every order of events, and a model in which one rule
# is broken fails. What the model of a run does is compared with sas.transitions, so that neither changes alone.
#
#   SAS_LONG=1    the larger forms, and every broken rule: about ten minutes of a processor. A form that is not done after
#                 55 minutes is named as not run
#   PART=2/4      of the larger forms only the second quarter: four such runs together do all
#
# Takes about 30 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use PostgreSQL::Test::Utils;
use Test::More;
use List::Util qw(max);

my $models = "$FindBin::RealBin/../model";
my $long = $ENV{SAS_LONG};
my $dir = PostgreSQL::Test::Utils::tempdir();
my %reached;
my $enough = time() + 55 * 60;	# tools/check gives a file an hour

# What spin says of a model with these definitions: its errors, its states, the changes of state that it reached. until:
# when it has no more time.
sub verify
{
	my ($model, $defines, $until) = @_;
	my @defines = map { "-D$_" } split ' ', $defines;
	my $here = "$dir/" . join('_', $model, map { s/\W/-/gr } @defines);
	mkdir $here;
	# most are compiled longer than they run, and the optimizer takes ten times as long; the large ones need their states small
	my $flags = $long && $defines !~ /NO_|LATE_|_AFTER|_FIRST|_SILENTLY|KEEP_/ ? '-O0 -DCOLLAPSE' : '-O0';
	my $limit = $until ? max(1, $until - time()) : 0;
	my $out = `cd $here && spin -a @defines $models/$model.pml 2>&1 && cc -w $flags -DSAFETY -DMEMLIM=8000 -o pan pan.c 2>&1 && timeout $limit ./pan -m200000 -w22 -n 2>&1`;
	my $in_time = $? >> 8 != 124;
	unlink glob("$here/pan*");
	my ($errors) = $out =~ /errors: (\d+)/;
	my ($states) = $out =~ /(\d+) states, stored/;
	my $complete = $out !~ /max search depth too small|out of memory|Search not completed/;
	return { errors => $errors, states => $states, complete => $complete, in_time => $in_time, out => $out, moves => [ $out =~ /^move (\w+ \w+ \w+)$/mg ] };
}

sub holds
{
	my ($model, $defines, $name, $until) = @_;
	my $result = $until && time() >= $until ? { in_time => 0 } : verify($model, $defines, $until);
  SKIP:
	{
		skip("no time was left for $defines; PART=1/4 to PART=4/4 do all", 1) unless $result->{in_time};
		judge($result, $defines, $name);
	}
	return;
}

sub judge
{
	my ($result, $defines, $name) = @_;
	ok(defined $result->{errors} && $result->{errors} == 0 && $result->{complete}, "$name ($defines)") or diag(substr($result->{out}, 0, 2000));
	$reached{$_} = 1 foreach @{ $result->{moves} };
	note("figure: $name: $result->{states} states") if defined $result->{states};
	return;
}

sub breaks
{
	my ($model, $defines) = @_;
	my $result = verify($model, $defines);
	like($result->{out}, qr/assertion violated/, "a rule is broken and $model.pml fails: $defines");
	return;
}

# -- a run ----------------------------------------------------------------------------------------

holds('run', 'SHAPE=0 KINDS=1 CRASHES=1 LOCKS=0 CANCELS=0', 'a call, then a function; a crash');
holds('run', 'SHAPE=0 KINDS=3 READS=1 CRASHES=0 LOCKS=0 CANCELS=1 WINDOWS=1', 'two calls, settled before they are undone; a cancel');
holds('run', 'SHAPE=0 KINDS=1 CRASHES=1 LOCKS=1 CANCELS=1 WINDOWS=1', 'a call, then a function; a crash, a session that holds the run, a cancel');
holds('run', 'SHAPE=1 KINDS=0 CRASHES=0 LOCKS=0 CANCELS=0', 'two functions beside each other');
holds('run', 'SHAPE=1 KINDS=0 CRASHES=0 LOCKS=1 CANCELS=1 WINDOWS=1', 'two functions beside each other; a session that holds the run, a cancel');
holds('run', 'SHAPE=0 KINDS=1 CRASHES=0 LOCKS=0 CANCELS=1', 'a call, then a function; a cancel');

my %broken = (
	NO_FENCE => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=1',
	NO_ARRIVED => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=0',
	NO_COMPLETE_BY => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=0',
	NO_UNWRITTEN => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=0',
	LATE_UNWRITTEN => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=0',
	NO_LEASE_LOCK => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=1',
	NO_ANSWER_CHECK => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=1',
	NO_DOUBT => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=0',
	NO_OPEN_COUNT => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=1',
	NO_UNDO_ORDER => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=1',
	NO_STOP_WAIT => 'KINDS=1 CRASHES=0 LOCKS=0 CANCELS=1');
breaks('run', "$_ $broken{$_}") foreach $long ? sort keys %broken : qw(NO_FENCE NO_ANSWER_CHECK NO_STOP_WAIT);

# -- wake-ups -------------------------------------------------------------------------------------

my $events = $long ? 'LEAVES=1 CRASHES=1' : 'LEAVES=0 CRASHES=0';
holds('wake', "PART=0 $events", 'no step waits for a worker that sleeps');
holds('wake', 'PART=1', 'nothing that is due waits for a supervisor that sleeps');
holds('wake', 'PART=2', 'no message waits when its run is free');
holds('wake', 'PART=3', 'nobody waits for a run that has ended');
holds('wake', "PART=4 QUANTITY=$_ STEPS=1 LEAVES=" . ($long ? 1 : 0), 'no step that was handed over to one worker, which may freeze, waits while another one sleeps')
  foreach 1, 2;
breaks('wake', $_) foreach (
	'PART=0 NO_COUNT CRASHES=0', 'PART=4 STEPS=1 TRUST LEAVES=0',
	$long ? ('PART=0 COUNT_AFTER CRASHES=0', 'PART=0 WAKE_FIRST CRASHES=0', 'PART=0 LEAVE_SILENTLY CRASHES=0', 'PART=0 KEEP_SEEN CRASHES=0',
		'PART=1 NO_NOEND', 'PART=2 NO_ASK_AGAIN', 'PART=3 LOOK_FIRST', 'PART=4 STEPS=1 QUANTITY=2 SLEEP_WELL LEAVES=0', 'PART=4 STEPS=1 QUANTITY=2 SETTLE_LATE LEAVES=0') : ());

# -- every order of events ------------------------------------------------------------------------

my @larger;
foreach my $shape (0, 1)
{
	foreach my $kinds (0 .. 3)
	{
		foreach my $reads ($kinds ? (0, 1) : 0)
		{
			push @larger, map { "SHAPE=$shape KINDS=$kinds READS=$reads $_ WINDOWS=1" }
			  'CRASHES=1 LOCKS=0 CANCELS=0', 'CRASHES=0 LOCKS=1 CANCELS=1', 'CRASHES=1 LOCKS=0 CANCELS=1';
		}
	}
}
if ($ENV{PART})
{
	my ($part, $parts) = $ENV{PART} =~ m{^([1-9]\d*)/([1-9]\d*)$} or die "PART is like 2/4, not $ENV{PART}";
	@larger = @larger[ grep { $_ % $parts == $part - 1 } 0 .. $#larger ];
}
holds('run', $_, 'every order of events', $enough) foreach $long ? @larger : ();

# -- the table ------------------------------------------------------------------------------------

# What the model leaves out, each with the reason; everything else in sas.transitions it must reach.
my %left_out = (
	'delayed starts, lines and concurrency keys' => [
		'run none scheduled', 'run scheduled pending', 'run scheduled compensating', 'run scheduled paused', 'run scheduled stopped', 'run paused scheduled' ],
	'resume, halt, and an undo after the end' => [
		'run paused pending', 'run paused running', 'run pending stopped', 'run paused stopped', 'run stopped compensating', 'step compensating skipped' ],
	'operators who skip, complete or retry' => [ 'step ready succeeded', 'step failed succeeded', 'step suspended skipped', 'step ready waiting', 'step skipped waiting' ],
	'a step that waits for several' => [ 'step none waiting', 'step waiting ready', 'step waiting waiting', 'step waiting skipped', 'step waiting cancelled' ],
	'waits, polls, maps and children' => [
		'step none suspended', 'step none succeeded', 'step ready suspended', 'step running suspended', 'step suspended succeeded', 'step failed waiting', 'step waiting failed' ],
	'conditions, and failures that are skipped' => [ 'step none skipped', 'step none failed', 'step ready skipped', 'step failed skipped', 'step skipped compensating', 'step skipped ready' ],
	'work that is given back, and batches that a crash has ended' => [ 'step running ready' ],
	'fallbacks' => [ 'step compensated suspended' ],
	'a pause before anything is undone' => [ 'step cancelled waiting', 'step cancelled ready', 'step cancelled suspended', 'step compensating succeeded', 'step compensating failed' ]);
my %left = map { $_ => 1 } map { @$_ } values %left_out;

my $node = new_node('main');
my %legal = map { $_ => 1 } split /\n/,
  $node->safe_psql('postgres', q{SELECT concat_ws(' ', subject, from_state, to_state) FROM sas.transitions WHERE subject <> 'watch'});
is_deeply([ sort grep { !$legal{$_} } keys %reached ], [], 'the model makes no change of state that sas.transitions lacks');
is_deeply([ sort grep { !$reached{$_} && !$left{$_} } keys %legal ], [], 'each row of sas.transitions is reached by the model, or left out for a reason');
is_deeply([ sort grep { !$legal{$_} || $reached{$_} } keys %left ], [], 'nothing is left out that is not there, or is reached');
note('figure: of ' . keys(%legal) . ' changes of state the model reaches ' . keys %reached);
$node->stop;
done_testing();
