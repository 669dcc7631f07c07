# SPDX-License-Identifier: PostgreSQL
#
# A function worker starts few plans for a plain run, however it comes: not one
# for each table that might have something to say about it. auto_explain logs
# each plan that it starts.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

$ENV{PGOPTIONS} = '-c auto_explain.log_min_duration=-1';
my $node = new_node('main', shared_preload_libraries => 'sas,auto_explain', 'sas.function_workers' => 1, 'sas.function_workers_max' => 1,
	'auto_explain.log_min_duration' => 0, 'auto_explain.log_nested_statements' => 'on');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RETURN input; END'});
define($node, 'plain', { steps => { x => { function => 'public.echo' } } });

# The plans that the function worker has started since the last look: the beginnings of their texts.
my $from = 0;
my $look = sub {
	my @plans;
	open(my $log, '<', $node->logfile) or die $!;
	seek($log, $from, 0);
	my $is_next = 0;
	while (my $line = <$log>)
	{
		push @plans, $1 if $is_next && $line =~ /^\s*Query Text: (.{0,60})/;
		$is_next = $line =~ /sas function\[\d+\] LOG:  duration: .* plan:/;
	}
	$from = tell $log;
	close $log;
	return @plans;
};

my $run = sub {
	my ($n) = @_;
	my ($first) = $sql->('SELECT coalesce(max(run_id), 0) FROM _sas.run');
	$sql->("SELECT count(*) FROM sas.submit_batch('plain', array_fill('{}'::jsonb, '{$n}'))");
	wait_for($node, "SELECT count(*) FROM _sas.run WHERE run_id > $first AND result = 'success'", $n) or die "$n runs do not end";
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND state = 'idle'}, '1') or die 'the worker does not sleep';
	return;
};

# it knows the function then
$run->($_) for 1, 1, 20;
$look->();
$run->(1);
my @plans = $look->();
cmp_ok(scalar(@plans), '>=', 8, 'the plans of a run are logged');
cmp_ok(scalar(@plans), '<=', 20, 'a run by itself starts few plans') or diag(join("\n", @plans));
$run->(20);
@plans = $look->();
cmp_ok(scalar(@plans), '<=', 40, 'and so do many runs together') or diag(join("\n", @plans));
is($sql->('SELECT count(*) FROM _sas.lease'), '0', 'no claim is left');
done_testing();
