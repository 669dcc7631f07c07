# SPDX-License-Identifier: PostgreSQL
#
# Tables that were emptied and vacuumed: the planner knows that they have no rows, and takes any index for as good as
# any other. Sessions cache such plans, and then submit and change many runs with them. So each look-up inside a verb
# still names the first column of its index; else the whole index is read, for each run again. No worker runs.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use SasTest;
use Test::More;

my $node = new_node('main', _extension => 0, _start => 0, autovacuum => 'off', max_worker_processes => 0);
plan skip_all => 'this server has no auto_explain' unless -e $node->config_data('--pkglibdir') . '/auto_explain.so';
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'sas, auto_explain'\nauto_explain.log_format = json\n");
$node->start;
create_extension($node);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

$sql->(q{
	SELECT sas.create_agent('remote', 'http://127.0.0.1:9'), sas.create_agent('outside', kind => 'external'), sas.create_queue('narrow', 1);
	SELECT sas.create_workflow('calls', '{"steps": {"a": {"agent": "remote", "call": {"path": "/"}, "undo": {"call": {"path": "/"}}}, "b": {"agent": "remote", "call": {}, "after": ["a"]}}}');
	SELECT sas.create_workflow('tasks', '{"steps": {"t": {"agent": "outside", "task": {}}}}');
	SELECT sas.create_workflow('waits', '{"steps": {"w": {"wait": {"signal": "go", "timeout": "1 h"}}, "q": {"agent": "remote", "call": {}, "queue": "narrow"}, "c": {"workflow": "calls"}}}');
	SELECT sas.create_workflow('places', '{"steps": {"a": {"agent": "remote", "call": {}}}, "concurrency": {"key": "{{input.key}}"}}');
	SELECT sas.create_watcher('external', '{"agent": "outside", "external": {}, "items": {"workflow": "calls"}}')});
# rows that were never committed, and nothing else
$sql->(q{
	BEGIN;
	SELECT count(*) FROM unnest('{calls,tasks,waits,places}'::text[]) w, sas.submit_batch(w, array_fill('{"key": 1}'::jsonb, ARRAY[2000]));
	SELECT count(sas.watch('external', g::text)) FROM generate_series(1, 2000) g;
	ROLLBACK});
$sql->($sql->(q{SELECT string_agg(format('VACUUM ANALYZE %s;', oid::regclass), ' ') FROM pg_class WHERE relnamespace = '_sas'::regnamespace AND relkind = 'r'}));
is($sql->(q{SELECT reltuples FROM pg_class WHERE oid = '_sas.run'::regclass}), '0', 'the planner knows that there are no runs');

my $from = -s $node->logfile;
{
	local $ENV{PGOPTIONS} = '-c auto_explain.log_min_duration=0 -c auto_explain.log_nested_statements=on -c plan_cache_mode=force_generic_plan';
	$sql->(q{
		CREATE FUNCTION pg_temp.all_of(w text) RETURNS bigint[] LANGUAGE sql AS 'SELECT array_agg(run_id) FROM sas.runs WHERE workflow = w';
		SELECT count(*) FROM unnest('{calls,tasks,waits,places}'::text[]) w, sas.submit_batch(w, array_fill('{"key": 1}'::jsonb, ARRAY[3]));
		SELECT count(*) FROM unnest('{calls,tasks,waits,places}'::text[]) w, sas.submit(w, '{"key": 1}', key => 'one', labels => '{"a": "b"}');
		SELECT count(*) FROM sas.submit('calls', after_runs => pg_temp.all_of('places'), reply_to => 'answers');
		SELECT count(*) FROM sas.submit('calls', start_at => clock_timestamp() + interval '1 h', start_before => clock_timestamp() + interval '2 h');
		SELECT count(sas.signal(run_id, 'go')) FROM sas.runs WHERE workflow = 'waits';
		SELECT count(sas.signal_key('waits', 'one', 'go')) FROM generate_series(1, 2);
		SELECT count(*) FROM sas.pause_runs(pg_temp.all_of('calls'));
		SELECT count(*) FROM sas.set_priority_runs(pg_temp.all_of('calls'), 3);
		SELECT count(*) FROM sas.set_version_runs(pg_temp.all_of('calls'), NULL);
		SELECT count(*) FROM sas.set_input_runs(pg_temp.all_of('calls'), 'b', '{"path": "/other"}');
		SELECT count(*) FROM sas.skip_runs(pg_temp.all_of('calls'), 'b');
		SELECT count(*) FROM sas.resume_runs(pg_temp.all_of('calls'));
		SELECT count(*) FROM sas.claim('outside', 'me', 2) c, sas.complete(c.request_id, '1');
		SELECT count(*) FROM sas.claim('outside', 'me', 2) c, sas.fail(c.request_id, '{"title": "no"}', permanent => true);
		SELECT count(*) FROM sas.retry_runs(pg_temp.all_of('tasks'));
		SELECT count(*) FROM sas.compensate_runs(pg_temp.all_of('tasks'));
		SELECT count(*) FROM sas.halt_runs(pg_temp.all_of('places'));
		SELECT count(*) FROM sas.cancel_runs(pg_temp.all_of('calls') || pg_temp.all_of('waits'));
		SELECT count(*) FROM sas.wait((pg_temp.all_of('places'))[1], '0 s');
		SELECT count(sas.watch('external', g::text)) FROM generate_series(1, 3) g;
		SELECT count(*) FROM (SELECT sas.register_node('host', 10, '{outside}') AS id OFFSET 0) n, sas.claim_watchers(n.id, 2) c, sas.append_items(c.watch_id, c.epoch, '[1, 2]');
		SELECT sas.unwatch('external', '{1,2,3}')});
}
is($sql->(q{SELECT count(*) FILTER (WHERE state = 'stopped') >= 5 AND count(*) > 15 FROM sas.runs}), 't', 'verbs have changed many runs');

# index => its table, its first column
my %index = map { my ($name, @of) = split / /; $name => \@of } split /\n/, $sql->(q{
	SELECT x.relname || ' ' || t.relname || ' ' || regexp_replace(pg_get_indexdef(x.oid, 1, true), '\W', '', 'g') FROM pg_index i
	JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
	WHERE t.relnamespace = '_sas'::regnamespace AND t.relname IN ('abandoned_run', 'alert_run', 'attempt', 'chunk', 'concurrency_slot', 'finished_run', 'item', 'lease', 'message',
		'phase', 'ready', 'reply', 'run', 'run_dependency', 'run_key', 'run_label', 'signal', 'step', 'task', 'watch', 'watch_held', 'watch_wait', 'watch_work')});
my (%found, $seen);
sub look_through
{
	my ($plan, $query, $limited) = @_;
	my $of = $index{ $plan->{'Index Name'} // '' };
	my $condition = $plan->{'Index Cond'} // '';
	$seen++ if $of;
	$found{"$plan->{'Node Type'} using $plan->{'Index Name'} $condition: $query"}++ if $of && !$limited && $condition !~ /\b$of->[1]\b/;
	# a LIMIT ends the walk
	look_through($_, $query, $plan->{'Node Type'} eq 'Limit') foreach @{ $plan->{'Plans'} // [] };
	return;
}
my $log = substr(PostgreSQL::Test::Utils::slurp_file($node->logfile), $from);
while ($log =~ /LOG:  duration: [^\n]* plan:\n(.*?)\n(?=\d{4}-\d\d-\d\d )/sg)
{
	my $plan = JSON::PP->new->decode($1);
	my $query = $plan->{'Query Text'} =~ s/\s+/ /gr;
	# what a person writes has the plan that the sizes give
	look_through($plan->{'Plan'}, substr($query, 0, 160)) unless $query =~ /pg_temp|FROM sas\./;
}
cmp_ok($seen, '>', 200, 'many look-ups are seen');
is(join("\n", map { "$found{$_} x $_" } sort keys %found), '', 'each names the first column of its index');
done_testing();
