# SPDX-License-Identifier: PostgreSQL
#
# Where each message of one role costs the scheduler much, those of another role do not go at their pace: for each of
# the former, the latter have as much time.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use JSON::PP ();
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
my $dear = $as->('eager', q{SELECT run_id FROM sas.submit('dear', (SELECT jsonb_build_object('s', repeat('x', 100000), 'list', jsonb_agg(i)) FROM generate_series(1, 150) i))});
my $done = sub { return $sql->("SELECT count(*) FROM sas.steps WHERE run_id = $dear AND state = 'skipped'") };
wait_until(sub { return $done->() > 2 });
my $before = $done->();
my $runs = $as->('calm', q{SELECT string_agg(run_id::text, ',') FROM sas.submit_batch('calm', array_fill('{}'::jsonb, ARRAY[40]))});
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id IN ($runs) AND result = 'success'", '40'), 'many runs of another role end');
my $meanwhile = $done->() - $before;
cmp_ok($meanwhile, '<', 40, 'while a few of the dear steps begin');
ok(wait_until(sub { return $done->() > $before + $meanwhile + 10 }), 'the others begin, too');
is($sql->(q{SELECT count(*) FROM sas.steps WHERE error IS NOT NULL}), '0', 'and none fails');
done_testing();
