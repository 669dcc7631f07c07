# SPDX-License-Identifier: PostgreSQL
#
# What ALTER DATABASE ... SET says reaches background workers, too. The same
# work is done in a database as it comes and in one whose settings change what
# statements mean, what may be written and how values look: nothing that is
# stored differs. The functions of users see the settings of their database.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', _extension => 0, 'sas.function_workers' => 2, max_worker_processes => 30);
my $service = SasService->new;
my $major = $node->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int / 10000});
$node->safe_psql('postgres', $_) foreach 'CREATE ROLE stranger NOLOGIN', map { "CREATE DATABASE $_ TEMPLATE template0 ENCODING 'UTF8'" } qw(plain hostile);

# what other sessions than workers would be told by the database, they are told otherwise by their client
my %hostile = (
	role => 'stranger',
	session_authorization => 'stranger',
	search_path => 'strange, pg_temp',
	standard_conforming_strings => 'off',
	backslash_quote => 'on',
	array_nulls => 'off',
	transform_null_equals => 'on',
	quote_all_identifiers => 'on',
	exit_on_error => 'on',
	default_transaction_read_only => 'on',
	default_transaction_isolation => 'serializable',
	statement_timeout => '1ms',
	lock_timeout => '1ms',
	row_security => 'off',
	session_replication_role => 'replica',
	DateStyle => 'German, DMY',
	IntervalStyle => 'sql_standard',
	TimeZone => 'Australia/Lord_Howe',
	timezone_abbreviations => 'India',
	extra_float_digits => '-15',
	bytea_output => 'escape',
	xmlbinary => 'hex',
	xmloption => 'document',
	jit => 'on',
	jit_above_cost => '0',
	plan_cache_mode => 'force_custom_plan',
	enable_indexscan => 'off',
	enable_indexonlyscan => 'off',
	enable_bitmapscan => 'off',
	enable_nestloop => 'off',
	enable_sort => 'off',
	enable_hashagg => 'off',
	from_collapse_limit => '1',
	join_collapse_limit => '1',
	random_page_cost => '1000',
	max_parallel_workers_per_gather => '4',
	($major >= 16 ? 'debug_parallel_query' : 'force_parallel_mode') => 'on',
	synchronous_commit => 'off',
	client_min_messages => 'error',
	'plpgsql.variable_conflict' => 'use_column',
	'plpgsql.extra_errors' => 'all',
	'plpgsql.extra_warnings' => 'all',
	$major >= 17 ? (restrict_nonsystem_relation_kind => 'view', transaction_timeout => '10ms') : ());
my $defaults = $node->safe_psql('plain', q{LOAD 'plpgsql'; SELECT string_agg(format('-c %s=%s', name, replace(replace(reset_val, '\\', '\\\\'), ' ', '\\ ')), ' ' ORDER BY name)
	FROM pg_settings WHERE name = ANY (string_to_array('} . join(',', keys %hostile) . q{', ',')) AND name NOT IN ('role', 'session_authorization')});
$ENV{PGOPTIONS} = "$defaults -c session_authorization=postgres -c role=none";
$ENV{PGOPTIONS} =~ s/=postgres/'=' . $node->safe_psql('plain', 'SELECT current_user')/e;

foreach my $database (qw(plain hostile))
{
	my $sql = sub { return $node->safe_psql($database, $_[0]) };
	if ($database eq 'hostile')
	{
		$node->safe_psql('plain', "ALTER DATABASE hostile SET $_ = " . ($_ eq 'search_path' ? $hostile{$_} : "'$hostile{$_}'")) foreach sort keys %hostile;
	}
	is($sql->('SELECT current_user = session_user'), 't', "$database: a client works as itself");
	$sql->('CREATE EXTENSION sas');
	my $url = $service->url;
	$sql->(qq{
		SELECT sas.create_agent('remote', '$url', retry => '{"initial": "10 ms", "max_attempts": 3}', breaker => '{"off": true}');
		SELECT sas.create_agent('outside', kind => 'external');
		SELECT sas.create_queue('narrow', 2);
		CREATE TABLE told (n bigint GENERATED ALWAYS AS IDENTITY, what text, value jsonb);
		CREATE TABLE line (item jsonb NOT NULL)});
	$sql->(q{
		CREATE FUNCTION tell(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO public.told (what, value) VALUES ('told', input) RETURNING value $$;
		CREATE FUNCTION odd(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no: %', input USING ERRCODE = '22023'; END $$;
		CREATE FUNCTION planned(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('steps', jsonb_build_object('p', '{"function": "public.tell"}'::jsonb)) $$;
		CREATE FUNCTION settings(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
			SELECT jsonb_object_agg(k, current_setting(k)) FROM jsonb_array_elements_text(input -> 'names') k $$;
		CREATE FUNCTION tick(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
			INSERT INTO public.told (what, value) SELECT 'tick', turn -> 'cursor' WHERE coalesce((turn ->> 'cursor')::int, 0) < 3;
			SELECT to_jsonb(least(coalesce((turn ->> 'cursor')::int, 0) + 1, 3)) $$;
		CREATE FUNCTION take(items jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO public.told (what, value) SELECT 'taken', i FROM jsonb_array_elements(items) i; SELECT NULL::jsonb $$});

	my %definition = (
		settings => { steps => { s => { function => 'public.settings' } }, output => '{{steps.s.output}}' },
		child => { steps => { a => { function => 'public.tell', undo => { function => 'public.tell' } } }, output => { got => '{{steps.a.output}}' } },
		whole => {
			steps => {
				call => { agent => 'remote', call => { method => 'POST', path => '/echo/{{input.text}}', query => { q => '{{input.text}}' }, headers => { 'X-Text' => 'a b' }, body => { text => '{{input.text}}', null => '{{input.null}}' } },
					output => '{{output.body}}', undo => { call => { method => 'DELETE', path => '/undo' } } },
				again => { agent => 'remote', call => { path => '/again' }, after => ['call'] },
				polled => { agent => 'remote', call => { path => '/begin' }, poll => { call => { path => '/asked' }, until => '$.output.body.state == "done"', every => '10 ms' }, output => '{{output.body}}' },
				map => { function => 'public.tell', each => '{{input.list}}', input => { i => '{{item}}', n => '{{index}}' } },
				child => { workflow => 'child', input => { text => '{{input.text}}' } },
				children => { workflow => 'child', each => '{{input.list}}', input => { i => '{{item}}' } },
				pause => { wait => { for => '50 ms' } },
				asked => { wait => { signal => 'go', timeout => '1 hour' } },
				late => { when => '$.input.at.datetime() < "2030-01-01T00:00:00+00:00".datetime()', function => 'public.tell', input => { at => '{{input.at}}' }, after => [ 'pause', 'map' ] },
				never => { when => '$.input.at.datetime() > "2030-01-01T00:00:00+00:00".datetime()', function => 'public.tell' },
				queued => { function => 'public.tell', queue => 'narrow', input => { s => '{{steps.asked.output}}' } },
				fallback => { function => 'public.odd', fallback => { function => 'public.tell', input => { instead => 1 } } },
				task => { agent => 'outside', task => {}, input => { t => '{{input.text}}' } },
				turns => { workflow => 'child', input => { l => '{{last}}' }, repeat => { while => '$.index < 2', max => 5 } } },
			output => { text => '{{steps.call.output}}', map => '{{steps.map.output}}', child => '{{steps.child.output}}', task => '{{steps.task.output}}' },
			finalize => 'public.tell',
			hooks => [ { on => 'success', function => 'public.tell' } ] },
		undone => { steps => {
				one => { agent => 'remote', call => { method => 'POST', path => '/one' }, output => { status => '{{output.status}}' }, undo => { call => { method => 'DELETE', path => '/one/{{steps.one.output.status}}' } } },
				two => { function => 'public.tell', after => ['one'], undo => { function => 'public.tell', input => { undo => '{{steps.two.output}}' } } },
				three => { workflow => 'child', after => ['two'] },
				bad => { function => 'public.odd', after => ['three'] } } },
		planned => { plan => 'public.planned' },
		keyed => { steps => { k => { function => 'public.tell' } }, concurrency => { key => '{{input.text}}', limit => 1 } });
	foreach my $name ('settings', 'child', sort grep { !/^(settings|child)$/ } keys %definition)
	{
		my $text = JSON::PP->new->utf8->canonical->encode($definition{$name});
		$sql->("SELECT sas.create_workflow('$name', \$json\$$text\$json\$)");
	}
	$sql->(q{SELECT sas.create_watcher('ticks', '{"function": "public.tick", "every": "10 ms"}');
		SELECT sas.create_watcher('files', '{"agent": "outside", "external": {}, "items": {"table": "public.line"}}');
		SELECT sas.create_watcher('calls', '{"agent": "outside", "external": {}, "items": {"function": "public.take"}}');
		SELECT sas.create_watcher('begins', '{"agent": "outside", "external": {}, "items": {"workflow": "child", "item": {"i": "{{item}}"}}}')});
	$service->script(
		again => [ { status => 503 }, { status => 503 }, { json => { ok => JSON::PP::true } } ],
		begin => [ { status => 202, json => { job => 1 } } ],
		asked => [ { json => { state => 'busy' } }, { json => { state => 'done', at => '2024-02-29T12:00:00Z' } } ],
		one => [ { status => 201, json => { id => 'a\\b\'c"d' } }, { status => 204 } ]);

	# -- the same work in both ------------------------------------------------------------

	my $input = q{'{"text": "it''s a \\\\ \"q\" / \\u00fc\n", "null": null, "list": [1, null, "NULL", "a\\\\b", {"x": 1.10}], "at": "2026-11-01T01:30:00+11:00"}'};
	$sql->(qq{
		SELECT sas.submit('whole', $input, key => 'k', labels => '{"l": "v"}', deadline => '2 days', priority => 3);
		SELECT sas.submit('undone', '{"n": null}');
		SELECT sas.submit('planned', '{"p": [null]}');
		SELECT sas.submit('child', '{"later": true}', start_at => clock_timestamp() + interval '300 ms');
		SELECT sas.submit('child', '{"after": true}', after_run => 3);
		SELECT count(*) FROM generate_series(1, 5) n, LATERAL sas.submit('keyed', '{"text": "a b"}', key => n::text)});
	my $host = SasSession->new($node, $database);
	$host->query(q{SELECT sas.watch('ticks', 't'); SELECT sas.watch(w, 'it''s', '{"a": null}') FROM unnest('{files,calls,begins}'::text[]) w});
	my ($host_id) = $host->query(q{SELECT sas.register_node('host', 10, '{outside}')}) =~ /(\d+)/;
	my $held = q{};
	wait_until(sub { $held .= $host->query("SELECT string_agg(watch_id || ' ' || epoch, ',') FROM sas.claim_watchers($host_id, 10)"); return (() = $held =~ /\d+ \d+/g) == 3 });
	foreach ($held =~ /(\d+ \d+)/g)
	{
		my ($watch, $epoch) = split / /;
		like($host->query(qq{SELECT sas.append_items($watch, $epoch, '[null, "a\\\\b", {"d": "2024-02-29"}, "NULL"]', '{"c": 4}')}), qr/go/, "$database: items are taken in");
	}
	my $task = '';

	my $standing = q{SELECT r.run_id, r.workflow, r.state, s.step, s.state, s.waiting_kind, s.waiting_on, s.error, r.error
		FROM sas.runs r LEFT JOIN sas.steps s USING (run_id) WHERE r.state <> 'stopped' OR r.result = 'error' LIMIT 50};
	ok(wait_until(sub { ($task) = $sql->(q{SELECT request_id FROM sas.claim('outside', 'me')}) =~ /(\S+)/; return defined $task }), "$database: a task is claimed")
	  or BAIL_OUT($sql->($standing));
	$sql->("SELECT sas.complete('$task', '{\"done\": null}')");
	$sql->(q{SELECT sas.signal(1, 'go', '{"by": "it''s me"}')});
	ok( wait_for(
			$node, q{SELECT (SELECT count(*) FROM sas.runs WHERE state <> 'stopped') || ' ' || (SELECT count(*) FROM sas.hook_runs WHERE state <> 'stopped')
				|| ' ' || (SELECT count(*) FROM told WHERE what = 'tick') || ' ' || (SELECT count(*) FROM told WHERE what = 'taken') || ' ' || (SELECT count(*) FROM line)
				|| ' ' || (SELECT count(*) FROM sas.runs WHERE workflow = 'child' AND parent_run_id IS NULL)}, '0 0 3 4 4 6',
			dbname => $database),
		"$database: all work comes to its end")
	  or diag($sql->($standing));
	is( $sql->(q{SELECT string_agg(DISTINCT result, ' ' ORDER BY result) FROM sas.runs}),
		'compensated success', "$database: as it should");
	is($sql->(q{SELECT string_agg(kind || ': ' || message, ', ') FROM sas.alerts}), '', "$database: without an alert");
	$host->query('SELECT 1');
}

# -- what is stored -----------------------------------------------------------------------------------

my %stored = (
	runs => q{SELECT workflow, version, key, state, result, priority, input, output, error - 'context' AS error, labels, submitted_by, parent_run_id IS NULL AS root FROM sas.runs},
	steps => q{SELECT r.workflow, r.input AS run_input, s.step, s.element, s.kind, s.agent, s.state, s.attempt, s.failure_count, s.input, s.output, s.error - 'context' AS error FROM sas.steps s JOIN sas.runs r USING (run_id)},
	attempts => q{SELECT r.workflow, r.input AS run_input, a.step, a.element, a.attempt, a.undo, a.agent, a.status, a.http_status, a.error - 'context' AS error FROM sas.attempts a JOIN sas.runs r USING (run_id)},
	'rows of functions' => q{SELECT what, value - 'run' - 'steps' - 'run_id' AS value FROM told WHERE jsonb_typeof(value) = 'object' UNION ALL SELECT what, value FROM told WHERE jsonb_typeof(value) <> 'object'},
	'rows of items' => q{SELECT item FROM line},
	watches => q{SELECT watcher, key, state, input, cursor, last_error - 'context' AS last_error FROM sas.watches});
foreach my $what (sort keys %stored)
{
	my %rows = map {
		my $rows = $node->safe_psql($_, "SELECT x::text FROM (SELECT to_jsonb(x) AS x FROM ($stored{$what}) x) y ORDER BY 1");
		# numbers of runs in texts, and times
		$rows =~ s/\b\d{4}-\d\d-\d\dT[\d:.]+(?:[+-]\d\d:\d\d|Z)/TIME/g if $what ne 'rows of items';
		$rows =~ s{/runs/\d+}{/runs/N}g;
		$rows =~ s/\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/UUID/g;
		$rows =~ s/\b00-[0-9a-f]{32}-[0-9a-f]{16}-/TRACE-/g;
		$_ => [ split /\n/, $rows ];
	} qw(plain hostile);
	cmp_ok(scalar @{ $rows{plain} }, '>', 0, "there are $what");
	is_deeply($rows{hostile}, $rows{plain}, "$what are the same");
}

# -- functions of users ---------------------------------------------------------------------------------

my @seen = grep { !/^(role|session_authorization|search_path|exit_on_error|default_transaction.*|.*_timeout|row_security|client_min_messages|synchronous_commit|restrict.*)$/ } sort keys %hostile;
my $list = JSON::PP->new->encode({ names => \@seen });
my $run = $node->safe_psql('hostile', "SELECT run_id FROM sas.submit('settings', '$list')");
my $out = $node->safe_psql('hostile', "SELECT output FROM sas.wait($run, '60 s')");
my %got = %{ JSON::PP->new->decode($out) };
is_deeply(\%got, { map { $_ => $hostile{$_} } @seen }, 'a function of a user sees the settings of its database');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/sas (?:agent|scheduler|supervisor)\[\d+\] ERROR/, 'no turn of a worker failed');
done_testing();
