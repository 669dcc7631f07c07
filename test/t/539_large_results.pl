# SPDX-License-Identifier: PostgreSQL
#
# Functions of one role that return much: to write that takes time, in which functions of other roles wait. So one
# transaction writes no more than about a megabyte, however many calls a worker had in its last ones; and no more where
# such results have waited for the lock of their run. Nothing is lost by that.
# Takes about 30 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
# quick, whatever it returns
$sql->(q{
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('large', '{"steps": {"a": {"function": "public.echo", "input": {"s": "{{input.s}}"}, "each": "{{input.list}}"}}}')});
my $submit = sub {
	my ($of, $n) = @_;
	return $sql->("SELECT run_id FROM (SELECT string_agg(md5(g::text), '') AS s FROM generate_series(1, $of) g) x, sas.submit('large', jsonb_build_object('s', x.s, 'list', ARRAY(SELECT generate_series(1, $n))))");
};
my $ends = sub { my ($run, $name) = @_; is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', $name); return };
# steps that one transaction has written, at most
my $together = sub { return $sql->("SELECT max(n) FROM (SELECT count(*) AS n FROM _sas.step WHERE run_id = $_[0] AND element > 0 GROUP BY xmin::text) x") };

# a worker does many quick ones at once
$ends->($submit->(1, 3000), 'many small results');
# 480 kB each
my $run = $submit->(15000, 60);
$ends->($run, 'many large results');
cmp_ok($together->($run), '<=', 4, 'a transaction writes a few of these');
is($sql->("SELECT count(*) FROM _sas.step WHERE run_id = $run AND element > 0 AND length(output ->> 's') = 480000"), '60', 'and all are there');

# a session holds the run, and lets it go
$run = $submit->(15000, 40);
my $holder = SasSession->new($node);
$holder->query('BEGIN');
ok(wait_until(sub { $holder->query("SELECT count(*) || ' run' FROM _sas.run WHERE run_id = $run AND state = 'running'") =~ /1 run/ }), 'it runs');
$holder->query("SELECT FROM _sas.run WHERE run_id = $run FOR UPDATE");
ok(wait_for($node, "SELECT count(*) + (SELECT count(*) FROM _sas.answer WHERE run_id = $run) FROM _sas.step WHERE run_id = $run AND element > 0 AND state = 'succeeded'", 40), 'results wait for the run');
my $waited = $sql->("SELECT count(*) FROM _sas.answer WHERE run_id = $run");
$holder->query('COMMIT');
$ends->($run, 'the run ends when it is free');
cmp_ok($together->($run), '<=', 8, "and a transaction wrote a few of the $waited results that had waited");
done_testing();
