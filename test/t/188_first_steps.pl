# SPDX-License-Identifier: PostgreSQL
#
# A function worker that has just started: it plans its statements while it has
# nothing to do, not when the first step waits for them; and it claims no steps
# beside the first one, which it calls alone and would give back.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

# each plan is logged, with its statement as the context
my $node = new_node('main', 'sas.function_workers' => 1, 'sas.function_workers_max' => 2, debug_print_plan => 'on', debug_pretty_print => 'off');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
define($node, 'short', { steps => { x => { function => 'public.echo' } } });

# The beginnings of the statements that the function worker has planned since the last look.
my $from = 0;
my $look = sub {
	my %planned;
	open(my $log, '<', $node->logfile) or die $!;
	seek($log, $from, 0);
	while (my $line = <$log>)
	{
		last if substr($line, -1) ne "\n";
		$from += length $line;
		$planned{$1} = 1 if $line =~ /sas function\[\d+\] CONTEXT:  SQL statement "(SELECT count\(_sas\.waited|(?:WITH|DELETE FROM|INSERT INTO|UPDATE) [\w.]+)/;
	}
	close $log;
	return \%planned;
};
my @claim = ('SELECT count(_sas.waited', 'INSERT INTO _sas.lease', 'INSERT INTO _sas.step', 'WITH started');
my @reply = ('WITH moved', 'WITH stopped', 'WITH done', 'WITH e', 'DELETE FROM _sas.lease');
my (%before, %after);

ok(wait_until(sub { %before = (%before, %{ $look->() }); return !grep { !$before{$_} } @claim, @reply }), 'an idle worker plans the statements of claims and replies');
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND state = 'idle'}, '1'), 'and sleeps');
$look->();
$sql->(q{SELECT count(*) FROM sas.submit_batch('short', array_fill('{}'::jsonb, '{20}'))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '20'), 'the first steps end');
%after = %{ $look->() };
is(join(', ', grep { $after{$_} } @claim, @reply), '', 'none of these is planned while they wait');
is($sql->(q{SELECT coalesce(sum(n), 0) FROM _sas.series() WHERE metric = 'step' AND label = 'hand_back'}), '0', 'the worker gives none of them back');
done_testing();
