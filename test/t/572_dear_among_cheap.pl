# SPDX-License-Identifier: PostgreSQL
#
# Messages of one role that cost the scheduler much come behind many that cost little, with which its batches have grown.
# Few of them are carried out in one transaction even so, for another role waits for the end of each.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils qw(slurp_file);
use SasSession;
use SasTest;
use POSIX ();
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $when = 'exists($.input.list[*] ? (exists($.input.list[*] ? ($.input.s < $.input.s))))';
$sql->(qq{SELECT sas.create_workflow('mixed', '{"steps": {"a": {"wait": {"for": "1 ms"}}, "b": {"wait": {"for": "1 ms"}, "after": ["a"], "when": "$when"}}}')});

# each evaluation takes about 8 ms of processor time on this machine
my $input = q{(SELECT jsonb_build_object('s', repeat('x', 100000), 'list', jsonb_agg(i)) FROM generate_series(1, %d) i)};
my $session = SasSession->new($node);
my $pid = $session->query('SELECT pg_backend_pid()');
my $processor_s = sub { my @fields = split ' ', slurp_file("/proc/$pid/stat"); return ($fields[13] + $fields[14]) / POSIX::sysconf(POSIX::_SC_CLK_TCK()) };
my $begun = $processor_s->();
$session->query(sprintf "DO \$\$ DECLARE d jsonb := jsonb_build_object('input', $input); BEGIN FOR n IN 1..50 LOOP PERFORM jsonb_path_exists(d, '$when'); END LOOP; END \$\$", 60);
my $each_s = ($processor_s->() - $begun) / 50;
$session->quit;
my $dear = sprintf $input, 60 * sqrt(0.008 / $each_s);

# the cheap ones have no list to look at
$sql->(qq{BEGIN;
	SELECT count(*) FROM sas.submit_batch('mixed', array_fill('{"list": [], "s": ""}'::jsonb, ARRAY[600]));
	SELECT count(*) FROM sas.submit_batch('mixed', array_fill($dear, ARRAY[60]));
	COMMIT}) foreach 1 .. 4;
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, 4 * 660), 'all runs end');
my $most = $sql->(q{SELECT max(n) FROM (SELECT count(*) AS n FROM _sas.step s JOIN _sas.run r USING (run_id)
	WHERE s.state = 'skipped' AND jsonb_array_length(r.input -> 'list') > 0 GROUP BY s.xmin::text) q});
cmp_ok($most * 0.008, '<', 0.4, "no transaction carries out more than a few that cost much ($most of 8 ms)");
done_testing();
