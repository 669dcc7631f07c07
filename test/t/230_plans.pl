# SPDX-License-Identifier: PostgreSQL
#
# Plans of ticks. Workers of all kinds go through their ticks while auto_explain
# logs the plan of each of their statements, with next to nothing in the tables:
# no plan may depend on that. None walks over a whole table that grows, nor over
# a whole index of one, nor over what the first columns of an index leave. Takes about 15 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use SasTest;
use SasService;
use SasSession;
use Test::More;

# nothing is logged of what the test itself asks
$ENV{PGOPTIONS} = '-c auto_explain.log_min_duration=-1';
my $node = new_node('main', shared_preload_libraries => 'sas,auto_explain', log_line_prefix => '%m %b[%p] ',
	'auto_explain.log_min_duration' => 0, 'auto_explain.log_nested_statements' => 'on', 'auto_explain.log_format' => 'json',
	'sas.supervisor_interval' => '5 s', 'sas.retain_success' => '1 s', max_wal_size => '4GB');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

# Tables of what is defined, of nodes and roles, and of mutexes; rows of the others come with runs and items.
my %defined = map { $_ => 1 } qw(
  agent agent_grant agent_health alert_hook boot composition deadline_sweep deferred_work external_slot former_secret home idle_version
  level_grant lock_row middleware node planned privilege queue role_limit secret subscription token_key transition watcher
  worker_grant workflow workflow_edge workflow_grant workflow_hook workflow_step workflow_version);

# -- what goes through every tick --------------------------------------------------------------------

make_agent($node, 'remote', $service);
$service->script(fail => [ { status => 400 } ], poor => [ { status => 503 } ]);
$sql->(q{
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE FUNCTION said(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
	CREATE FUNCTION unchanged(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
	CREATE FUNCTION turn(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(coalesce((turn ->> 'cursor')::int, 0) + 1) $$;
	CREATE FUNCTION slow(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(true) FROM pg_sleep(2) $$;
	CREATE FUNCTION planned(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"steps": {"x": {"function": "public.echo"}}}'::jsonb $$;
	CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY, item jsonb NOT NULL);
	SELECT sas.create_agent('outside', kind => 'external');
	SELECT sas.create_queue('narrow', 2);
	SELECT sas.create_queue('keyed', 2, key => '{{input.key}}', per_key => 1);
	SELECT sas.create_watcher('turn', '{"function": "public.turn", "every": "2 s"}');
	SELECT sas.create_watcher('items', '{"agent": "outside", "external": {}, "items": {"table": "public.item"}}')});
my %recovery = (recovery => { initial => '20 ms', max_failures => 2 });
define($node, 'child', { steps => { x => { function => 'public.echo' } } });
define($node, 'planned', { plan => 'public.planned' });
define($node, 'all', {
	steps => {
		call => { agent => 'remote', call => { path => '/quick' } },
		wrapped => { function => 'public.echo', after => ['call'] },
		timer => { wait => { for => '20 ms' } },
		map => { function => 'public.echo', each => '{{input.ids}}', concurrency => 1 },
		sub => { workflow => 'child' },
		plan => { workflow => 'planned' },
		keyed => { function => 'public.echo', queue => 'keyed' },
		queued => { function => 'public.echo', queue => 'narrow' } },
	finalize => 'public.said',
	hooks => [ { on => 'stopped', function => 'public.said' } ] });
define($node, 'placed', { steps => { x => { function => 'public.echo' } }, concurrency => { key => '{{input.key}}', limit => 1 } });
define($node, 'undone', { %recovery, steps => {
		done => { agent => 'remote', call => { path => '/quick' }, undo => { call => { path => '/quick' } } },
		bad => { agent => 'remote', call => { path => '/fail' }, after => ['done'] } } });
define($node, 'held', { steps => { x => { agent => 'remote', call => { path => '/fail' }, each => '{{input.ids}}', on_failure => 'pause_at_end' } } });
define($node, 'poor', { %recovery, on_failure => 'pause', steps => { x => { agent => 'remote', call => { path => '/poor' }, retry => { max_attempts => 1 } } } });
define($node, 'task', { %recovery, on_failure => 'fail', steps => { x => { agent => 'outside', task => {}, complete_in => '200 ms' } } });
define($node, 'slow', { steps => { x => { function => 'public.slow' } } });
define($node, 'signal', { steps => { x => { wait => { signal => 'go' } } } });
define($node, 'late', { deadline => '300 ms', steps => { x => { wait => { signal => 'go' } } } });
$sql->(q{SELECT sas.schedule('each', 'every 1 s', 'child');
	SELECT sas.create_middleware('around', 'function', before => 'public.unchanged(jsonb)', workflow => 'child');
	SELECT sas.create_middleware('about', 'call', before => 'public.unchanged(jsonb)', workflow => 'undone')});
my $outside = SasSession->new($node);
my ($host) = $outside->query(q{SELECT sas.register_node('host', 10, '{outside}')}) =~ /(\d+)/;

# everything; its runs end
sub go_through
{
	my $begun = $sql->('SELECT coalesce(max(run_id), 0) FROM _sas.run');
	$sql->(qq{
		SELECT count(*) FROM generate_series(1, 3) g, LATERAL sas.submit('all', jsonb_build_object('ids', ARRAY[1, 2, 3], 'key', g % 2));
		SELECT count(*) FROM generate_series(1, 3) g, LATERAL sas.submit('placed', '{"key": 1}');
		SELECT count(*) FROM sas.submit('undone'); SELECT count(*) FROM sas.submit('held', '{"ids": [1, 2]}'); SELECT count(*) FROM sas.submit('poor'); SELECT count(*) FROM sas.submit('task');
		SELECT count(*) FROM sas.submit('slow') a, sas.submit('late') b, generate_series(1, 5) g, LATERAL sas.submit('child') c;
		SELECT count(*) FROM sas.submit('child', start_at => clock_timestamp() + interval '200 ms', reply_to => 'replies');
		SELECT sas.watch('turn', '$begun'), sas.watch('items', '$begun')});
	$outside->query(q{SELECT count(*) FROM sas.claim('outside', 'me', lease => '100 ms')});
	my ($task, $epoch);
	wait_until(sub { ($task, $epoch) = $outside->query("SELECT watch_id || ' ' || epoch FROM sas.claim_watchers($host, 1)") =~ /(\d+) (\d+)/ });
	$outside->query("SELECT sas.append_items($task, $epoch, '[1, 2]')");
	$sql->(q{SELECT sas.signal(run_id, 'go') FROM sas.submit('signal')});
	my ($halted) = $sql->(q{SELECT run_id FROM sas.submit('signal')});
	$sql->("SELECT FROM sas.halt($halted)");
	ok(wait_for($node, "SELECT coalesce(string_agg(concat_ws(' ', run_id, workflow, state, paused_for), ', '), '') FROM sas.runs WHERE run_id > $begun AND state <> 'stopped' AND schedule IS NULL AND workflow NOT IN ('held', 'poor', 'task')", '', limit => 60), "runs of all kinds end");
	ok(wait_for($node, 'SELECT count(*) >= 2 FROM item'), "items are delivered");
	# a worker that dies leaves a lease
	my ($slow) = $sql->(q{SELECT run_id FROM sas.submit('slow')});
	ok(wait_for($node, "SELECT locked_by IS NOT NULL FROM sas.steps WHERE run_id = $slow"), "a function is called");
	my ($pid) = $sql->(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas function' AND query LIKE '%slow%' OR backend_type = 'sas function' AND wait_event = 'PgSleep' LIMIT 1});
	$sql->("SELECT pg_terminate_backend($pid)") if $pid;
	ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id = $slow AND state <> 'stopped'", 0), "and ends");
	return;
}

# -- what the log says ------------------------------------------------------------------------------

# each plan that workers have logged from there on: who, and what it says
sub logged_plans
{
	my ($from) = @_;
	my (@plans, %seen);
	open(my $log, '<', $node->logfile) or die $!;
	seek($log, $from, 0);
	my ($who, $text);
	while (my $line = <$log>)
	{
		if ($line =~ /^\d{4}-\d\d-\d\d /)
		{
			# most are made again and again
			push @plans, [ $who, JSON::PP->new->decode($text) ] if defined $who && !$seen{"$who $text"}++;
			$who = undef;
			($who, $text) = ($1, '') if $line =~ /(sas \w+)\[\d+\] LOG:  duration: .* plan:/;
		}
		elsif (defined $who)
		{
			$text .= $line;
		}
	}
	close $log;
	return @plans;
}

my %table_of = map { split / / } split /\n/, $sql->(q{SELECT x.relname || ' ' || t.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
	JOIN pg_class t ON t.oid = i.indrelid WHERE t.relnamespace = '_sas'::regnamespace});
my %ours = map { $_ => 1 } values %table_of, split /\n/, $sql->(q{SELECT relname FROM pg_class WHERE relnamespace = '_sas'::regnamespace AND relkind = 'r'});

my %columns_of = map { my ($index, @columns) = split / /; ($index => \@columns) } split /\n/, $sql->(q{SELECT x.relname || ' ' || string_agg(a.attname, ' ' ORDER BY a.attnum)
	FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_attribute a ON a.attrelid = x.oid WHERE x.relnamespace = '_sas'::regnamespace GROUP BY x.relname});

# The columns of an index that a condition skips though it names a later one; empty: none. What one run has is few.
sub skipped_columns
{
	my ($index, $condition) = @_;
	my (@skipped, @before_last);
	$condition =~ s/\((\w+)\)::\w+/$1/g;
	foreach my $column (@{ $columns_of{$index} })
	{
		my $named = $condition =~ /(?<![.\w])$column (?:[<>=]|IS)/;
		return if $named && $column eq 'run_id' && !@skipped;
		if ($named) { @before_last = @skipped }
		else { push @skipped, $column }
	}
	return @before_last;
}

# the scans of a plan that walk over a whole table or index; a LIMIT above it ends a walk
sub walks
{
	my ($plan, $query, $limited) = @_;
	my $type = $plan->{'Node Type'};
	my $index = $plan->{'Index Name'};
	my $table = $plan->{'Relation Name'} // $table_of{ $index // '' } // '';
	my @found;
	# counts all that is open, now and then
	return if $query =~ /_sas\.set_share\(/;
	if ($ours{$table} && !$defined{$table} && !$limited)
	{
		push @found, "Seq Scan on $table" if $type eq 'Seq Scan';
		# without a time the index of messages is read for all runs that an actor has messages for
		push @found, "$type using $index of $table without a time"
		  if $table eq 'message' && $index ne 'message_of_run' && ($plan->{'Index Cond'} // 'due_at') !~ /due_at/;
		# a condition on a column of the index, and none on one before it: all that the first columns leave is read
		my @skipped = defined $index ? skipped_columns($index, $plan->{'Index Cond'} // '') : ();
		push @found, "$type using $index of $table for any @skipped" if @skipped;
		# with a range of time, it is read for all runs whose messages are due
		push @found, "$type using $index of $table for runs among all that is due"
		  if $table eq 'message' && ($plan->{'Index Cond'} // '') =~ /due_at [<>].*run_id =/;
		# whether there is any ends with the first; of two indexes all is wanted: open alerts, items that workers hold
		push @found, "$type using $index of $table without a condition"
		  if defined $index && !defined $plan->{'Index Cond'} && $query !~ /EXISTS \(SELECT FROM _sas\.$table\b/ && $index !~ /^(?:alert_cause|watch_work_worker)$/;
	}
	push @found, walks($_, $query, $type eq 'Limit' || $limited && $type !~ /Sort|Aggregate|Hash|Materialize/) foreach @{ $plan->{'Plans'} // [] };
	return @found;
}

sub check_plans
{
	my ($from, $claim) = @_;
	my (%found, %actors);
	foreach my $logged (logged_plans($from))
	{
		my ($who, $plan) = @$logged;
		$actors{$who}++;
		foreach my $walk (walks($plan->{'Plan'}, $plan->{'Query Text'}))
		{
			my $query = substr($plan->{'Query Text'} =~ s/\s+/ /gr, 0, 150);
			$found{"$who: $walk: $query"}++;
		}
	}
	is(join(', ', sort grep { $actors{$_} > 5 } keys %actors), 'sas agent, sas function, sas scheduler, sas supervisor', "plans of all actors are seen");
	is(join("\n", map { "$found{$_} x $_" } sort keys %found), '', $claim);
	return;
}

my $from = -s $node->logfile;
go_through();
# a check of the conditions, a purge
ok(wait_for($node, q{SELECT count(*) FROM _sas.finished_run WHERE result = 'success' AND ended_at < clock_timestamp() - interval '20 s'}, 0), 'what has ended is purged');
check_plans($from, 'no tick walks over a table that grows');

# -- the same, where the tables were analyzed while they had nothing of the kind that comes now ------

$sql->(q{SET allow_system_table_mods = on;
	DELETE FROM pg_statistic s USING pg_class c WHERE s.starelid = c.oid AND c.relnamespace = '_sas'::regnamespace;
	INSERT INTO pg_statistic (starelid, staattnum, stainherit, stanullfrac, stawidth, stadistinct,
		stakind1, stakind2, stakind3, stakind4, stakind5, staop1, staop2, staop3, staop4, staop5, stacoll1, stacoll2, stacoll3, stacoll4, stacoll5)
	SELECT c.oid, a.attnum, false, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
	WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND coalesce(a.attstattarget, -1) <> 0
	  AND a.attname IN ('owner', 'actor', 'lane')});
# what workers have planned before is planned again, and nothing is analyzed
$sql->(join ';', map { "ALTER TABLE _sas.$_ SET (autovacuum_enabled = false)" } sort keys %ours);
$from = -s $node->logfile;
go_through();
check_plans($from, 'nor where it seems to have next to nothing of what is wanted');

done_testing();
