# SPDX-License-Identifier: PostgreSQL
#
# Where a session forbids nested loops or indexes, a plan that needs one seems so dear that it is compiled, which takes
# longer than all of the verb. So verbs allow these, and compile nothing, even in a session where all that is compiled
# seems cheap. auto_explain logs the plans of what verbs do inside. No worker runs.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', _extension => 0, _start => 0, autovacuum => 'off', max_worker_processes => 0);
plan skip_all => 'this server has no auto_explain' unless -e $node->config_data('--pkglibdir') . '/auto_explain.so';
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'sas, auto_explain'\n");
$node->start;
plan skip_all => 'this server compiles nothing' unless $node->safe_psql('postgres', 'SELECT pg_jit_available()') eq 't';

my $work = q{
	SELECT sas.create_agent('remote', 'http://127.0.0.1:9'), sas.create_agent('outside', kind => 'external');
	SELECT sas.create_workflow('calls', '{"steps": {"a": {"agent": "remote", "call": {"path": "/"}},
		"t": {"agent": "outside", "task": {}, "after": ["a"]}}, "output": "{{steps.t.output}}"}');
	SELECT sas.create_workflow('waits', '{"steps": {"w": {"wait": {"signal": "go", "timeout": "1 h"}},
		"m": {"wait": {"for": "1 ms"}, "each": "{{input.list}}", "after": ["w"]}}}');
	BEGIN;
	SELECT sas.stub('remote', '{"status": 200}'), sas.stub('outside', '{"output": 1}');
	SELECT result FROM sas.run_inline('calls', '{}');
	ROLLBACK;
	SELECT sas.submit('waits', '{"list": [1, 2]}', key => n::text) FROM generate_series(1, 3) n;
	SELECT sas.pause(r.run_id) FROM sas.find_runs('{"key": "1"}') r;
	SELECT sas.resume(r.run_id) FROM sas.find_runs('{"key": "1"}') r;
	SELECT sas.cancel(r.run_id) FROM sas.find_runs('{"key": "2"}') r;
	SELECT sas.schedule('yearly', '0 3 1 1 *', 'waits', '{"list": []}');
	SELECT created FROM sas.trigger_schedule('yearly');
	SELECT count(*) FROM sas.claim('outside', 'me');
	SELECT ok FROM sas.health()};

# of each statement inside a function: its text, with its plan; what was compiled says so. The only statement of sas.pause
# and its like, which calls the verb, is planned as the user's own.
sub plans
{
	my ($database, @settings) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION sas');
	my $from = -s $node->logfile;
	my $out = $node->safe_psql($database, join(';', map { "SET $_" } 'auto_explain.log_nested_statements = on', 'auto_explain.log_min_duration = 0', @settings) . ";$work");
	like($out, qr/^success$/m, "the work is done in database $database");
	my %plans;
	my @lines = split /\n(?=\d{4}-)/, substr(PostgreSQL::Test::Utils::slurp_file($node->logfile), $from);
	foreach my $i (0 .. $#lines - 1)
	{
		next unless $lines[ $i + 1 ] =~ /CONTEXT: / && $lines[$i] !~ /plan:\n\tQuery Text: \n(?:\tQuery Parameters: .*\n)?\tFunction Scan on \w+_runs/;
		$plans{ $1 =~ s/ +\(cost=.*?\)//gr =~ s/\b\d{4,}\b/N/gr } = 1 if $lines[$i] =~ /duration: \S+ ms  plan:\n\tQuery Text: (.*)/s;
	}
	return \%plans;
}

my %session = (
	forbidden => [ map { "enable_$_ = off" } qw(nestloop indexscan indexonlyscan bitmapscan sort hashagg material) ],
	compiles => ['jit_above_cost = 0'],
	dear => [ map { "$_ = 1000" } qw(seq_page_cost random_page_cost cpu_tuple_cost cpu_index_tuple_cost cpu_operator_cost) ]);
foreach my $name (sort keys %session)
{
	my $plans = plans($name, 'jit = on', @{ $session{$name} });
	cmp_ok(scalar keys %$plans, '>', 100, "plans of statements are seen in database $name");
	is(join("\n", grep { /^\tJIT:/m } sort keys %$plans), '', 'nothing that a verb does is compiled where a session sets ' . join(', ', @{ $session{$name} }));
}

# A look at a view, too: the planner adds up what all of its expressions could cost, which is more than a thousand steps
# do cost.
sub compiled
{
	return $node->safe_psql('dear', "SET jit = on; SET jit_above_cost = 0; EXPLAIN SELECT * FROM $_[0]") =~ /^JIT:/m;
}
ok(compiled('pg_class WHERE relpages + 1 > 2'), 'a session compiles what is dear');
ok(!compiled($_), "but not a look at $_") foreach qw(sas.steps sas.runs sas.attempts sas.alerts sas.history sas.schedules);

# The input of a step, also of each element of a map, comes out of one statement with many parts: to plan it takes twenty
# times as long as to execute it. A plan for a single execution has the number of the run in it.
my $from = -s $node->logfile;
$node->safe_psql('compiles', q{SET auto_explain.log_nested_statements = on; SET auto_explain.log_min_duration = 0;
	SELECT count(s.input) FROM generate_series(1, 3) n CROSS JOIN LATERAL (SELECT input FROM sas.steps WHERE n > 0 OFFSET 0) s});
my @contexts = substr(PostgreSQL::Test::Utils::slurp_file($node->logfile), $from) =~ /Query Text: \(SELECT x\.root.*?(?=\n\d{4}-)/sg;
cmp_ok(scalar @contexts, '>', 10, 'the inputs of steps are looked at');
is(scalar(grep { /= '\d+'::bigint/ } @contexts), 0, 'and no look at one is planned by itself');
done_testing();
