# SPDX-License-Identifier: PostgreSQL
#
# Answers of outside programs that came while their run was held are applied by a scheduler. Where those of one role cost
# it much, one of another role does not wait until all of them are applied.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm;
	SELECT sas.create_agent('of_' || r, kind => 'external'), sas.grant_usage(r, 'user'), sas.grant_usage(r, 'worker', 'of_' || r), sas.grant_agent('of_' || r, r)
		FROM unnest('{eager,calm}'::regrole[]) r});
$as->('calm', q{SELECT sas.create_workflow('calm', '{"steps": {"a": {"agent": "of_calm", "task": {}}}}')});
my $output = '{{output.list[*] ? (exists($.output.list[*] ? ($.output.s < $.output.s)))}}';
$as->('eager', qq{SELECT sas.create_workflow('dear', '{"steps": {"a": {"agent": "of_eager", "task": {}, "output": {"x": "$output"}}}}')});

# holds these runs, completes their tasks, and lets them go
my $answers = sub {
	my ($role, $runs, $value) = @_;
	my ($holder, $program) = map { SasSession->new($node) } 1 .. 2;
	$_->query("SET ROLE $role") foreach $holder, $program;
	my $n = $runs =~ tr/,// + 1;
	is($program->query("CREATE TEMP TABLE claimed AS SELECT * FROM sas.claim('of_$role', 'p', $n); SELECT count(*) FROM claimed"), $n, "$role: tasks are claimed");
	is($holder->query("BEGIN; SELECT count(*) FROM sas.set_priority_runs('{$runs}', 2)"), $n, "$role: their runs are held");
	is($program->query("SELECT count(sas.complete(request_id, value)) FROM claimed, (SELECT $value AS value OFFSET 0) v"), $n, "$role: they are completed");
	return $holder;
};
my $runs = $as->('eager', q{SELECT string_agg(run_id::text, ',') FROM sas.submit_batch('dear', array_fill('{}'::jsonb, ARRAY[60]))});
my $dear = $answers->('eager', $runs, "(SELECT jsonb_build_object('s', repeat('x', 100000), 'list', jsonb_agg(i)) FROM generate_series(1, 120) i)");
my $run = $as->('calm', q{SELECT run_id FROM sas.submit('calm')});
my $cheap = $answers->('calm', $run, "'1'::jsonb");
is($sql->('SELECT count(*) FROM _sas.answer'), '61', 'the answers wait for the runs');
$_->query('COMMIT') foreach $dear, $cheap;
is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', 'the run of the other role ends');
cmp_ok($sql->('SELECT count(*) FROM _sas.answer'), '>', 20, 'while many of the dear answers are not applied yet');
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id IN ($runs) AND result = 'success'", '60'), 'all are, in the end');
done_testing();
