# SPDX-License-Identifier: PostgreSQL
#
# Many signals of one run, whose steps cost much to judge, hold up no other role: they are delivered a few at a time.
# A signal that came in time counts, however late it is delivered.
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
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm;
	SELECT sas.grant_usage(r, 'user') FROM unnest('{eager,calm}'::regrole[]) r;
	SET ROLE calm;
	SELECT sas.create_workflow('calm', '{"steps": {"a": {"wait": {"for": "1 ms"}}}}')});
my $of_input = 'input.list[*] ? (exists($.input.list[*] ? ($.input.s < $.input.s)))';
my $value = q{(SELECT jsonb_build_object('s', repeat('x', 100000), 'list', jsonb_agg(i)) FROM generate_series(1, 150) i)};
my %wait = (wait => { signal => 'go', timeout => '{{input.timeout}}' }, each => '{{input.list}}', max_failed => 1000);
my %workflows = (dear => { %wait, expect => "!exists(\$.$of_input)" }, cheap => \%wait);
$as->('eager', "SELECT sas.create_workflow('$_', '" . JSON::PP->new->encode({ steps => { m => $workflows{$_} } }) . "')") foreach sort keys %workflows;
my $begin = sub {
	my ($workflow, $timeout, $n) = @_;
	my $run = $as->('eager', "SELECT run_id FROM sas.submit('$workflow', $value || '{\"timeout\": \"$timeout\"}')");
	wait_for($node, "SELECT count(*) FROM sas.steps WHERE run_id = $run AND state = 'suspended' AND element IS NOT NULL", '150');
	$as->('eager', "SELECT count(sas.signal($run, 'go', to_jsonb(g))) FROM generate_series(1, $n) g");
	return $run;
};
my $cheap = $begin->('cheap', '1 h', 150);
is($sql->("SELECT result FROM sas.wait($cheap, '100 s')"), 'success', 'cheap ones are delivered');
is($sql->("SELECT count(*) FROM sas.steps WHERE run_id = $cheap AND element IS NOT NULL AND output = to_jsonb(element)"), '150', 'in their order');

my $dear = $begin->('dear', '1 h', 100);
my $done = sub { return $sql->("SELECT count(*) FROM sas.steps WHERE run_id = $dear AND element IS NOT NULL AND state NOT IN ('suspended', 'ready', 'waiting')") };
my $run = $as->('calm', q{SELECT run_id FROM sas.submit('calm')});
is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', 'a run of another role succeeds');
cmp_ok($done->(), '<', 60, 'before most of the dear ones are delivered');
ok(wait_until(sub { return $done->() == 100 }), 'all are');
$as->('eager', "SELECT sas.halt($dear)");

# the scheduler sees them when the time of the waits is over; on a slow machine the waits take longer, so that all signals come in time
my ($late, $in_time);
foreach my $timeout ('10 s', '60 s', '300 s')
{
	$late = $begin->('dear', $timeout, 0);
	my @schedulers = worker_pids($node, 'scheduler');
	kill('STOP', @schedulers);
	$as->('eager', "SELECT count(sas.signal($late, 'go', to_jsonb(g))) FROM generate_series(1, 20) g");
	$in_time = $sql->("SELECT count(*) FROM sas.steps WHERE run_id = $late AND element IS NOT NULL AND waiting_until > clock_timestamp()");
	wait_for($node, "SELECT max(waiting_until) < clock_timestamp() FROM sas.steps WHERE run_id = $late", undef, limit => 400);
	kill('CONT', @schedulers);
	last if $in_time == 150;
}
is($sql->("SELECT result FROM sas.wait($late, '100 s')"), 'warning', 'steps without a signal fail in the end');
is($sql->("SELECT count(*) FROM sas.steps WHERE run_id = $late AND element IS NOT NULL AND state = 'succeeded'"), '20', 'those with one do not');
done_testing();
