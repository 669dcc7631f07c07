# SPDX-License-Identifier: PostgreSQL
#
# Metrics: what was counted is what happened, nothing that was rolled back, and
# the text is what scrapers read.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '500 ms');
my $shop = start_shop();
define_orders($node, $shop);
submit_orders($node, 100);
all_ended($node, 'a hundred orders end');

# name{label="value",...} => number, of one scrape
sub scrape
{
	my ($sql) = @_;
	return { map { /^(\w+(?:\{.*\})?) (\S+)$/ ? ($1 => $2) : () } split /\n/, $node->safe_psql('postgres', $sql // 'SELECT sas.metrics_text()') };
}

# "a=1 b=2" of a query with two columns, and of the samples of a name by one label
sub of_query { return join ' ', map { my @c = split /\|/; "$c[0]=$c[1]" } split /\n/, $node->safe_psql('postgres', shift) }

sub by_label
{
	my ($scrape, $name, $label) = @_;
	my %sum;
	foreach my $sample (keys %$scrape)
	{
		$sum{$1} += $scrape->{$sample} if $sample =~ /^$name\{.*\b$label="([^"]*)"/;
	}
	return join ' ', map { "$_=$sum{$_}" } sort keys %sum;
}

# -- what happened is what was counted ---------------------------------------------

my $of = scrape();
is(by_label($of, 'sas_runs_total', 'result'), of_query('SELECT result, count(*) FROM sas.runs GROUP BY 1 ORDER BY 1'), 'runs by result');
is(by_label($of, 'sas_attempts_total', 'agent'), join(' ', map { "$_=" . $shop->{$_}->books->{counters}{requests} } sort keys %$shop), 'attempts by agent, as the services saw them');
is($of->{'sas_attempts_total{agent="payments",outcome="failed",workflow="order"}'}, 10, 'those that failed');
is($of->{'sas_attempts_total{outcome="succeeded",workflow="order"}'}, of_query(q{SELECT count(*), '' FROM sas.attempts WHERE agent IS NULL AND status = 'succeeded'}) =~ s/=//r, 'and those of functions');
is($of->{'sas_run_wait_seconds_count{workflow="order"}'}, 100, 'each run waited once');
is($of->{'sas_transitions_total{from="none",subject="run",to="pending"}'}, 100, 'each run was submitted once');
is($of->{'sas_transitions_total{from="running",subject="run",to="stopped"}'} + $of->{'sas_transitions_total{from="compensating",subject="run",to="stopped"}'}, 100, 'and stopped once');
is($of->{"sas_open_runs{state=\"$_\"}"}, 0, "no run is $_") foreach qw(scheduled pending running paused compensating);
is($of->{'sas_agent_in_flight{agent="payments"}'}, 0, 'no call is on its way');
is($of->{'sas_workers_running{actor="agent"}'}, 1, 'who works is counted');
is($of->{'sas_ok'}, 1, 'all is well');

# -- the shape of the text ------------------------------------------------------------

my @lines = split /\n/, $node->safe_psql('postgres', 'SELECT sas.metrics_text()');
is(pop @lines, '# EOF', 'the text ends with EOF');
my ($family, $type, %seen, %type, @bad) = ('', '');
foreach my $line (@lines)
{
	if ($line =~ /^# TYPE (\w+) (counter|gauge|histogram|info)$/)
	{
		($family, $type) = ($1, $2);
		push @bad, "again: $line" if $type{$family}++;
	}
	elsif ($line =~ /^# (HELP|UNIT) (\w+) \S/) { push @bad, "not of $family: $line" unless $2 eq $family }
	elsif ($line =~ /^(\w+)(\{(?:\w+="(?:[^"\\]|\\.)*"(?:,(?=\w))?)+\})? (-?[0-9.e+-]+)$/)
	{
		my ($name, $labels) = ($1, $2 // '');
		my %suffix = (counter => '_total', gauge => '', info => '_info', histogram => '_(?:bucket|sum|count)');
		push @bad, "not of $family: $line" unless $name =~ /^$family$suffix{$type}$/;
		push @bad, "twice: $line" if $seen{ $name . $labels }++;
	}
	else { push @bad, "malformed: $line" }
}
is_deeply(\@bad, [], 'every line is a sample of the family above it, and none comes twice');
@bad = ();
foreach my $sample (grep { /_count/ } keys %$of)
{
	my ($name, $labels) = $sample =~ /^(\w+)_count(?:\{(.*)\})?$/ or next;
	$labels //= '';
	my @buckets = map { $of->{$_} } sort { bound($a) <=> bound($b) } grep { /^${name}_bucket\{\Q$labels\E,?le="/ } keys %$of;
	push @bad, "$sample: @buckets" if @buckets != 18 || $buckets[-1] != $of->{$sample} || grep { $buckets[$_] < $buckets[ $_ - 1 ] } 1 .. $#buckets;
}
sub bound { my ($of) = $_[0] =~ /le="([^"]+)"/; return $of eq '+Inf' ? 9**99 : $of }
is_deeply(\@bad, [], 'the buckets of a histogram grow up to its count');
is_deeply(scrape(q{SELECT sas.metrics_text('prometheus')}), $of, 'the older format has the same samples');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT name, ' ' ORDER BY name) FROM sas.metrics('{sas_runs,sas_run_wait_seconds}')}),
	'sas_run_wait_seconds_bucket sas_run_wait_seconds_count sas_run_wait_seconds_sum sas_runs_total', 'families can be asked for alone');
like(($node->psql('postgres', q{SELECT count(*) FROM sas.metrics('{sas_runs_total}')}))[2], qr/metric "sas_runs_total" does not exist/, 'one that there is not is refused');
like(($node->psql('postgres', q{SELECT sas.metrics_text('xml')}))[2], qr/"xml" is not a metrics format/, 'and a format, too');

# -- nothing that was rolled back ------------------------------------------------------

$node->safe_psql('postgres', q{
	BEGIN; SELECT count(*) FROM sas.submit('order', '{}'); ROLLBACK;
	BEGIN; SAVEPOINT a; SELECT count(*) FROM sas.submit('order', '{}'); ROLLBACK TO a; SAVEPOINT b; RELEASE b; COMMIT;
	DO $$ BEGIN PERFORM sas.submit('order', '{}'); RAISE EXCEPTION 'no'; EXCEPTION WHEN OTHERS THEN NULL; END $$;});
is(scrape()->{'sas_transitions_total{from="none",subject="run",to="pending"}'}, 100, 'what was rolled back, as a whole or in part, is not counted');
$node->safe_psql('postgres', q{
	SELECT sas.create_workflow('later', '{"steps": {}}');
	BEGIN; SELECT count(*) FROM sas.submit('later', start_at => now() + '1 day'); SAVEPOINT a;
	SELECT count(*) FROM sas.submit('later', start_at => now() + '1 day'); ROLLBACK TO a;
	SAVEPOINT b; SELECT count(*) FROM sas.submit('later', start_at => now() + '1 day'); RELEASE b; COMMIT;});
$of = scrape();
is($of->{'sas_transitions_total{from="none",subject="run",to="scheduled"}'}, 2, 'what was not rolled back is');
is($of->{'sas_open_runs{state="scheduled"}'}, 2, 'and stands among the open runs');

# -- what goes wrong ---------------------------------------------------------------------

foreach my $of ([ 'held', '10 min' ], [ 'slow', '1 s' ])
{
	$node->safe_psql('postgres', qq{
		SELECT sas.create_workflow('$of->[0]', '{"steps": {"reserve": {"agent": "inventory", "complete_in": "$of->[1]", "recovery": {"max_failures": 1},
			"call": {"method": "POST", "path": "/reservations", "body": {"order": "{{input.n}}", "sku": "y"}}, "on_failure": "pause"}}}')});
}
$shop->{inventory}->hold;
my $run = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('held', '{"n": "x"}')});
ok(wait_until(sub { scrape()->{'sas_agent_in_flight{agent="inventory"}'} == 1 }), 'a call is on its way, and counted');
is(scrape()->{'sas_steps_waiting{kind="reply"}'}, 1, 'its step waits for the reply');
is(scrape()->{'sas_call_slots_used'}, 1, 'and takes a slot');
$shop->{inventory}->release;
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped'), 'it is answered');
$shop->{inventory}->hold;
$run = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('slow', '{"n": "y"}')});
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'paused'), 'it is not answered in time, and its run is paused');
$shop->{inventory}->release;
$of = scrape();
is($of->{'sas_attempts_total{agent="inventory",outcome="timed_out",workflow="slow"}'}, 1, 'an attempt that timed out');
is($of->{'sas_alerts_total{kind="step-failed"}'}, 1, 'an alert was raised');
is($of->{'sas_current_alerts{acknowledged="false",kind="step-failed"}'}, 1, 'and is there');
is($of->{'sas_open_runs{state="paused"}'}, 1, 'a run is paused');
is($of->{'sas_ok'}, 0, 'all is not well');
$node->safe_psql('postgres', 'SELECT changed FROM sas.acknowledge_alerts(ARRAY(SELECT alert_id FROM sas.alerts))');
is(scrape()->{'sas_current_alerts{acknowledged="true",kind="step-failed"}'}, 1, 'somebody has seen it');
$node->safe_psql('postgres', "SELECT sas.cancel($run)");
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'cancelled'), 'cancelled');
ok(!grep({ /^sas_current_alerts/ } keys %{ scrape() }), 'its cause has ended');

# -- and begins anew with the server --------------------------------------------------------

$node->restart;
$of = scrape();
ok(!exists $of->{'sas_runs_total{result="success",workflow="order"}'}, 'counters begin anew with the server');
is($of->{'sas_open_runs{state="scheduled"}'}, 2, 'gauges do not');
submit_orders($node, 1, first => 101);
ok(wait_until(sub { (scrape()->{'sas_runs_total{result="success",workflow="order"}'} // 0) == 1 }), 'and count on');
done_testing();
