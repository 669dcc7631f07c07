# SPDX-License-Identifier: PostgreSQL
#
# Where one tick evaluates much at once for one role, the runs of another role go on: the keys of all elements of
# a map, and the outputs of many runs that end together.
# Takes about 20 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use JSON::PP ();
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $of_input = 'input.list[*] ? (exists($.input.list[*] ? ($.input.s < $.input.s)))';
my $of_item = 'item.l[*] ? (exists($.item.l[*] ? (exists($.item.l[*] ? (exists($.item.l[*] ? (@ + 1 < 0)))))))';
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm;
	SELECT sas.grant_usage(r, 'user') FROM unnest('{eager,calm}'::regrole[]) r;
	CREATE FUNCTION public.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	CREATE FUNCTION public.items(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_agg(jsonb_build_object('l', (SELECT jsonb_agg(i) FROM generate_series(1, (input ->> 'n')::int) i))) FROM generate_series(1, 5000) $$;
	SET ROLE calm;
	SELECT sas.create_workflow('calm', '{"steps": {"a": {"function": "public.echo"}, "b": {"wait": {"for": "1 ms"}, "after": ["a"]}}}')});
my $keyed = sub {
	my ($name, $key) = @_;
	$sql->(qq{SET ROLE eager; SELECT sas.create_workflow('$name', '{"steps": {"items": {"function": "public.items"},
		"each": {"wait": {"signal": "go"}, "each": "{{steps.items.output}}", "concurrency": {"limit": 10, "key": "x$key"}}}, "on_failure": "fail"}')});
};
$keyed->('dear_keys', "{{$of_item}}");
$keyed->('large_keys', '{{item.l}}' x 10);
$keyed->('cheap_keys', '{{index}}');
my %more = (cheap => {}, dear_output => { output => "{{$of_input}}" });
$sql->("SET ROLE eager; SELECT sas.create_workflow('$_', '"
	. JSON::PP->new->encode({ steps => { it => { function => 'public.echo', input => {} } }, %{ $more{$_} } }) . "')")
	foreach sort keys %more;

my $calm_ends = sub {
	my ($what) = @_;
	my $run = $sql->("SET ROLE calm; SELECT run_id FROM sas.submit('calm')");
	is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', "$what: a run of another role succeeds");
};

my $dear = $sql->(q{SET ROLE eager; SELECT run_id FROM sas.submit('dear_keys', '{"n": 12}')});
my $large = $sql->(q{SET ROLE eager; SELECT run_id FROM sas.submit('large_keys', '{"n": 100}')});
my $cheap = $sql->(q{SET ROLE eager; SELECT run_id FROM sas.submit('cheap_keys', '{"n": 1}')});
wait_for($node, "SELECT count(*) FROM sas.steps WHERE run_id IN ($dear, $large, $cheap) AND step = 'items' AND state = 'succeeded'", '3');
$calm_ends->('keys of a map');
like($sql->("SELECT error ->> 'detail' FROM sas.wait($dear, '100 s')"), qr/the keys of all elements take more than 1 s to evaluate/, 'a map whose keys cost too much together fails');
like($sql->("SELECT error ->> 'detail' FROM sas.wait($large, '100 s')"), qr/the keys of all elements have more than 16 MB/, 'and one whose keys are too large together');
wait_for($node, "SELECT count(*) FROM sas.steps WHERE run_id = $cheap AND step = 'each' AND state = 'suspended' AND element IS NOT NULL", '10');
pass('5,000 cheap keys are no problem');
is($sql->("SELECT count(*) FROM sas.runs WHERE run_id = $cheap AND state = 'running'"), '1', 'and their run goes on');

# a batch has grown with cheap runs when dear ones come behind them
my $value = q{(SELECT jsonb_build_object('s', repeat('x', 100000), 'list', jsonb_agg(i)) FROM generate_series(1, 200) i)};
$sql->(qq{SET ROLE eager; BEGIN;
	SELECT count(s.run_id) FROM generate_series(1, 3000) g, sas.submit('cheap', jsonb_build_object('n', g)) s;
	SELECT count(s.run_id) FROM generate_series(1, 200) g, sas.submit('dear_output', jsonb_build_object('n', g) || $value) s; COMMIT});
wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow = 'cheap' AND state = 'pending'", '0');
$calm_ends->('outputs of runs');
my $left = $sql->("SELECT count(*) FROM sas.runs WHERE workflow = 'dear_output' AND state <> 'stopped'");
cmp_ok($left, '>', 140, 'before most of those end');
$sql->(q{SELECT c.* FROM sas.runs r, sas.cancel(r.run_id) c WHERE r.workflow = 'dear_output' AND r.state <> 'stopped'});
wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow = 'dear_output' AND state <> 'stopped'", '0');
is($sql->(q{SELECT count(*) FROM sas.runs WHERE error::text LIKE '%one batch of steps%' OR error::text LIKE '%rolled back%'}), '0', 'none fails for what the others cost');
done_testing();
