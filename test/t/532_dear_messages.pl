# SPDX-License-Identifier: PostgreSQL
#
# Where each message of one role costs the scheduler much, those of another role do not go at their pace: for each of
# the former, the latter have as much time.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils qw(slurp_file);
use SasSession;
use SasTest;
use JSON::PP ();
use POSIX ();
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm;
	SELECT sas.grant_usage(r, 'user') FROM unnest('{eager,calm}'::regrole[]) r;
	SET ROLE calm;
	SELECT sas.create_workflow('calm', '{"steps": {"a": {"wait": {"for": "1 ms"}}, "b": {"wait": {"for": "1 ms"}, "after": ["a"]}}}')});
my $when = 'exists($.input.list[*] ? (exists($.input.list[*] ? ($.input.s < $.input.s))))';
my %steps = map { ("s$_" => { wait => { for => '1 ms' }, after => ['a'], when => $when }) } 1 .. 300;
$as->('eager', "SELECT sas.create_workflow('dear', '" . JSON::PP->new->encode({ steps => { a => { wait => { for => '1 ms' } }, %steps } }) . "')");

# each evaluation takes about 50 ms of processor time on this machine: slow, and within the limit of 100 ms
my $input = q{(SELECT jsonb_build_object('s', repeat('x', 100000), 'list', jsonb_agg(i)) FROM generate_series(1, %d) i)};
my $session = SasSession->new($node);
my $pid = $session->query('SELECT pg_backend_pid()');
my $processor_s = sub { my @fields = split ' ', slurp_file("/proc/$pid/stat"); return ($fields[13] + $fields[14]) / POSIX::sysconf(POSIX::_SC_CLK_TCK()) };
my $begun = $processor_s->();
$session->query(sprintf "DO \$\$ DECLARE d jsonb := jsonb_build_object('input', $input); BEGIN FOR n IN 1..50 LOOP PERFORM jsonb_path_exists(d, '$when'); END LOOP; END \$\$", 100);
my $each_s = ($processor_s->() - $begun) / 50;
$session->quit;
my $dear = $as->('eager', sprintf "SELECT run_id FROM sas.submit('dear', $input)", 100 * sqrt(0.05 / $each_s));
my $done = sub { return $sql->("SELECT count(*) FROM sas.steps WHERE run_id = $dear AND state = 'skipped'") };
wait_until(sub { return $done->() > 2 });
my $runs = $as->('calm', q{SELECT string_agg(run_id::text, ',') FROM sas.submit_batch('calm', array_fill('{}'::jsonb, ARRAY[40]))});
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id IN ($runs) AND result = 'success'", '40'), 'many runs of another role end');
my $meanwhile = $sql->("SELECT count(*) FROM sas.steps WHERE run_id = $dear AND state = 'skipped' AND finished_at
	BETWEEN (SELECT min(created_at) FROM sas.runs WHERE run_id IN ($runs)) AND (SELECT max(finished_at) FROM sas.runs WHERE run_id IN ($runs))");
cmp_ok($meanwhile, '<', 40, 'while a few of the dear steps begin');
ok(wait_until(sub { return $done->() >= 300 }, 900), 'the others begin, too');
is($sql->(q{SELECT count(*) FROM sas.steps WHERE error IS NOT NULL}), '0', 'and none fails');
done_testing();
