# SPDX-License-Identifier: PostgreSQL
#
# A real prometheus-postgres-exporter with the query file of examples: it gives
# every number of sas.metrics() under its name, to a role that may only look;
# what the dashboard and the alerting rules ask for is there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use HTTP::Tiny;
use JSON::PP ();
use SasShop;
use SasTest;
use Test::More;

my $folder = "$SasTest::tree/examples/monitoring";
my $node = new_node('main');
my $shop = start_shop();
define_orders($node, $shop);

# something of everything
$node->safe_psql('postgres', q{
	CREATE ROLE exporter LOGIN;
	SELECT sas.grant_usage('exporter', 'monitor');
	SELECT sas.create_queue('narrow', 1);
	SELECT sas.create_agent('outside', kind => 'external');
	CREATE FUNCTION shop.fail(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
	SELECT sas.create_workflow('fails', '{"steps": {"f": {"function": "shop.fail", "on_failure": "pause"}}}');
	SELECT sas.create_workflow('waits', '{"steps": {"t": {"agent": "outside", "task": {}, "queue": "narrow"}, "s": {"wait": {"signal": "x"}}}}');
	SELECT count(*) FROM sas.submit('fails', reply_to => 'answers');
	SELECT count(*) FROM sas.submit('waits');});
submit_orders($node, 50);
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state NOT IN ('stopped', 'paused')}, '1'), 'all runs but one end or are paused');
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts}, '1'), 'with an alert');

my $port = free_port();
my $log = PostgreSQL::Test::Utils::tempdir() . '/exporter.log';
my $pid;
{
	local $ENV{DATA_SOURCE_NAME} = sprintf 'user=exporter host=%s port=%s dbname=postgres sslmode=disable', $node->host, $node->port;
	$pid = SasTest::start_program($log, 'prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$port",
		'--disable-default-metrics', '--disable-settings-metrics', "--extend.query-path=$folder/postgres_exporter.yaml");
}
my $http = HTTP::Tiny->new(timeout => 30);
my $text = '';
ok( wait_until(
		sub {
			my $answer = $http->get("http://127.0.0.1:$port/metrics");
			$text = $answer->{content} if $answer->{success};
			return $text =~ /^sas_ok/m;
		},
		60),
	'the exporter is scraped') or diag(PostgreSQL::Test::Utils::slurp_file($log));
like($text, qr/^pg_exporter_user_queries_load_error\{[^}]*\} 0$/m, 'it has read the query file');
like($text, qr/^pg_exporter_last_scrape_error 0$/m, 'and no query failed') or diag(PostgreSQL::Test::Utils::slurp_file($log));

# sample => number, with the labels in one order, without those of the exporter's own and those that are empty
sub samples
{
	my ($text) = @_;
	my %of;
	foreach my $line (split /\n/, $text)
	{
		my ($name, $labels, $value) = $line =~ /^(sas_\w+?)(?:\{(.*)\})? (\S+)$/ or next;
		my %label = ($labels // '') =~ /(\w+)="((?:[^"\\]|\\.)*)"/g;
		delete $label{server};
		delete $label{$_} foreach grep { $label{$_} eq '' } keys %label;
		$label{le} += 0 if defined $label{le} && $label{le} ne '+Inf';
		$of{ $name . '{' . join(',', map { "$_=$label{$_}" } sort keys %label) . '}' } = $value;
	}
	return \%of;
}
my $theirs = samples($text);
my $ours = samples($node->safe_psql('postgres', 'SELECT sas.metrics_text()'));
is_deeply([ grep { !exists $ours->{$_} } sort keys %$theirs ], [], 'it gives no sample that sas.metrics_text() does not have');
is_deeply([ grep { !exists $theirs->{$_} } sort keys %$ours ], [], 'and all that it has');
my @counted = grep { /^sas_\w+_(total|count|bucket)\{/ && !/transitions/ } sort keys %$ours;
cmp_ok(scalar @counted, '>', 100, 'there are counters and histograms');
is_deeply([ map { "$_ $theirs->{$_}" } @counted ], [ map { "$_ $ours->{$_}" } @counted ], 'with the same numbers');

# every name in an expression of the dashboard and of the rules
my %there = map { /^(\w+)\{/ ? ($1 => 1) : () } keys %$theirs;
my $dashboard = JSON::PP->new->utf8->decode(PostgreSQL::Test::Utils::slurp_file("$folder/grafana.json"));
my @expressions = map { $_->{expr} } map { @{ $_->{targets} } } @{ $dashboard->{panels} };
push @expressions, map { ref $_->{query} ? $_->{query}{query} : () } @{ $dashboard->{templating}{list} };
cmp_ok(scalar @expressions, '>', 30, 'the dashboard asks for something');
is_deeply([ grep { !$there{$_} } map { /\b(sas_\w+)/g } @expressions ], [], 'every metric of the dashboard is there');
my @rules = PostgreSQL::Test::Utils::slurp_file("$folder/rules.yaml") =~ /^\s+expr: (.*(?:\n\s{10}.*)*)/mg;
cmp_ok(scalar @rules, '>', 8, 'there are alerting rules');
is_deeply([ grep { !$there{$_} } map { /\b(sas_\w+)/g } @rules ], [], 'every metric of the rules is there');
my %asked = map { $_ => 1 } map { s/_(bucket|sum|count)$//r } map { /\b(sas_\w+)/g } @expressions, @rules;
is_deeply([ grep { !$asked{$_} } sort keys %{ { map { s/_(bucket|sum|count)$//r => 1 } keys %there } } ], [ 'sas_build_info', 'sas_metrics_dropped_total', 'sas_queue_max_running' ],
	'and nearly every metric stands on the dashboard');
# the labels by which it groups
my %labels = map { my ($name, $of) = /^(\w+)\{(.*)\}$/; map { ("$name $_" => 1) } map { s/=.*//r } split /,/, $of } keys %$theirs;
my @unknown;
foreach my $expression (map { $_->{expr} } map { @{ $_->{targets} } } @{ $dashboard->{panels} })
{
	my ($name) = $expression =~ /\b(sas_\w+)/;
	my ($by) = $expression =~ /\bby \(([^)]*)\)/;
	push @unknown, map { "$name by $_" } grep { !$labels{"$name $_"} } split /, */, $by // '';
}
is_deeply(\@unknown, [], 'every label by which a panel groups is there');

SasTest::stop_program($pid);
done_testing();
