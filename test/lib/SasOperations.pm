# SPDX-License-Identifier: PostgreSQL

=head1 NAME

SasOperations - every operation of sas once, in a database of its own, and all that is to be seen of it

=head1 SYNOPSIS

    my %seen = SasOperations::perform($node, 'plain', $service);
    my %other = SasOperations::perform($node, 'other', $service);
    is(SasOperations::difference(\%seen, \%other), '', 'nothing differs');

perform() creates the extension in the database, which exists, does the same work as always, waits until it is done,
and returns what was answered and stored: name => rows. Nothing in them depends on time or chance. The work is that of
the role sas_app, which perform() expects to exist, who may log in and is no superuser. Sessions that do the work have
the settings of the database and of their role; those that look at it have what $SasOperations::calm says, as PGOPTIONS.
Dies where something that was waited for does not come.

=cut

package SasOperations;

use strict;
use warnings;

use JSON::PP ();
use SasService;
use SasSession;
use SasTest;

# options of sessions: of those that look, and of those that do the work, if these need any
our $calm = '';
our $working = '';

my $json = JSON::PP->new->utf8->canonical;

# -- sessions -----------------------------------------------------------------------------------------

# of the role itself, whatever the database says
sub as { my ($options, $user) = @_; return "$options -c session_authorization=$user -c role=none" }

# one session for each of those who ask, because to begin one costs more than what it asks
sub session
{
	my ($self, $options, $user) = @_;
	local $ENV{PGOPTIONS} = as($options, $user);
	return SasSession->new($self->{node}, $self->{database}, user => $user);
}

sub ask
{
	my ($self, $options, $user, $sql) = @_;
	my $session = $self->{sessions}{"$user $options"} //= $self->session($options, $user);
	my ($out, $err) = $session->outcome_of($sql =~ s/;?\s*\z//r);
	die "$self->{database}: $err\n$sql\n" if $err =~ /ERROR|FATAL/;
	return $out;
}

# as a superuser; as the role whose work it is; and by whom nothing is changed
sub admin { my ($self, $sql) = @_; return $self->ask($working, $self->{superuser}, $sql) }
sub app { my ($self, $sql) = @_; return $self->ask($working, 'sas_app', $sql) }
sub look { my ($self, $sql) = @_; return $self->ask($calm, $self->{superuser}, $sql) }

sub until_seen
{
	my ($self, $sql, $expected) = @_;
	wait_until(sub { $self->look($sql) eq $expected }) and return;
	die "$self->{database}: what was waited for did not come: $sql\n" . $self->look(q{
		SELECT r.run_id, r.workflow, r.state, s.step, s.state, s.waiting_kind, s.waiting_on, s.error, r.error
		FROM sas.runs r LEFT JOIN sas.steps s USING (run_id) WHERE r.state <> 'stopped' OR r.result = 'error' LIMIT 50}) . "\n" . $self->look('SELECT a::text FROM sas.alerts a') . "\n";
}

sub note_rows { my ($self, $what, $rows) = @_; push @{ $self->{seen}{$what} }, split /\n/, $rows; return }

# -- what there is ------------------------------------------------------------------------------------

my %definition = (
	child => { steps => { a => { function => 'shop.tell', undo => { function => 'shop.tell' } } }, output => { got => '{{steps.a.output}}' } },
	whole => {
		steps => {
			call => { agent => 'remote', call => { method => 'POST', path => '/echo/{{input.text}}', query => { q => '{{input.text}}' }, headers => { 'X-Text' => 'a b' },
					body => { text => '{{input.text}}', null => '{{input.null}}' } },
				output => '{{output.body}}', undo => { call => { method => 'DELETE', path => '/undo' } } },
			again => { agent => 'remote', call => { path => '/again' }, after => ['call'] },
			polled => { agent => 'remote', call => { path => '/begin' }, poll => { call => { path => '/asked' }, until => '$.output.body.state == "done"', every => '10 ms' }, output => '{{output.body}}' },
			map => { function => 'shop.tell', each => '{{input.list}}', input => { i => '{{item}}', n => '{{index}}' } },
			child => { workflow => 'child', input => { text => '{{input.text}}' } },
			children => { workflow => 'child', each => '{{input.list}}', input => { i => '{{item}}' } },
			pause => { wait => { for => '50 ms' } },
			asked => { wait => { signal => 'go', timeout => '1 hour' } },
			late => { when => '$.input.at.datetime() < "2030-01-01T00:00:00+00:00".datetime()', function => 'shop.tell', input => { at => '{{input.at}}' }, after => [ 'pause', 'map' ] },
			never => { when => '$.input.at.datetime() > "2030-01-01T00:00:00+00:00".datetime()', function => 'shop.tell' },
			queued => { function => 'shop.tell', queue => 'narrow', input => { s => '{{steps.asked.output}}' } },
			fallback => { function => 'shop.odd', fallback => { function => 'shop.tell', input => { instead => 1 } } },
			task => { agent => 'outside', task => {}, input => { t => '{{input.text}}' } },
			turns => { workflow => 'child', input => { l => '{{last}}' }, repeat => { while => '$.index < 2', max => 5 } } },
		output => { text => '{{steps.call.output}}', map => '{{steps.map.output}}', child => '{{steps.child.output}}', task => '{{steps.task.output}}' },
		finalize => 'shop.tell',
		hooks => [ { on => 'success', function => 'shop.tell' } ] },
	undone => { steps => {
			one => { agent => 'remote', call => { method => 'POST', path => '/one' }, output => { status => '{{output.status}}' }, undo => { call => { method => 'DELETE', path => '/one/{{steps.one.output.status}}' } } },
			two => { function => 'shop.tell', after => ['one'], undo => { function => 'shop.tell', input => { undo => '{{steps.two.output}}' } } },
			three => { workflow => 'child', after => ['two'] },
			bad => { function => 'shop.odd', after => ['three'] } } },
	planned => { plan => 'shop.planned' },
	keyed => { steps => { k => { function => 'shop.tell' } }, concurrency => { key => '{{input.text}}', limit => 1 } },
	joined => { steps => { i => { include => 'child' }, b => { function => 'shop.tell', after => ['i'] } } },
	# the rest waits for operators
	held => { steps => { a => { function => 'shop.tell', undo => { function => 'shop.tell', input => { undo => 'a' } } },
			w => { wait => { signal => 'go', timeout => '1 hour' }, after => ['a'] }, b => { function => 'shop.tell', after => ['w'], input => { got => '{{steps.w.output}}' } } } },
	token => { steps => { t => { function => 'shop.tell', input => { token => '{{steps.w.token}}' } }, w => { wait => { signal => 'ready', timeout => '1 hour' } } }, output => '{{steps.w.output}}' },
	mended => { steps => { m => { function => 'shop.mended' } }, on_failure => 'pause', output => '{{steps.m.output}}' },
	emitted => { steps => { e => { function => 'shop.emits' } } },
	subscriber => { steps => { s => { function => 'shop.tell', input => { heard => '{{input}}' } } } });

sub define_all
{
	my ($self) = @_;
	my $url = $self->{service}->url;
	$self->admin('CREATE EXTENSION sas');
	$self->admin(qq{
		SELECT sas.grant_usage('sas_app', 'user');
		SELECT sas.set_secret('word', E'it''s \\\\ "q"');
		SELECT sas.create_agent('remote', '$url', headers => '{"X-Secret": "{{secret.word}}"}', retry => '{"initial": "10 ms", "max_attempts": 3}', breaker => '{"off": true}', rate_limit => '1000/s');
		SELECT sas.create_agent('outside', kind => 'external');
		SELECT sas.grant_agent(a, 'sas_app') FROM unnest('{remote,outside}'::text[]) a;
		SELECT sas.grant_usage('sas_app', 'worker', agent => 'outside');
		SELECT sas.create_queue('narrow', 2, key => '{{input.text}}', per_key => 2);
		SELECT sas.alter_queue('narrow', 3);
		SELECT sas.set_limit('sas_app', 'open_runs', 1000);
		CREATE SCHEMA shop AUTHORIZATION sas_app});
	$self->app(q{
		CREATE TABLE shop.told (n bigint GENERATED ALWAYS AS IDENTITY, what text, value jsonb);
		CREATE TABLE shop.line (item jsonb NOT NULL);
		CREATE TABLE shop.mend (done boolean);
		CREATE FUNCTION shop.tell(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO shop.told (what, value) VALUES ('told', input) RETURNING value $$;
		CREATE FUNCTION shop."Odd name"(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT shop.tell(input) $$;
		CREATE FUNCTION shop.odd(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no: %', input USING ERRCODE = '22023'; END $$;
		CREATE FUNCTION shop.mended(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
			BEGIN IF NOT EXISTS (SELECT FROM shop.mend) THEN RAISE EXCEPTION 'broken' USING ERRCODE = '22023'; END IF; RETURN input; END $$;
		CREATE FUNCTION shop.emits(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(sas.emit(c)) FROM jsonb_array_elements('[null, "a b", {"x": 1.10}]') c $$;
		CREATE FUNCTION shop.planned(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('steps', jsonb_build_object('p', '{"function": "shop.tell"}'::jsonb)) $$;
		CREATE FUNCTION shop.settings(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
			SELECT jsonb_object_agg(k, current_setting(k)) FROM jsonb_array_elements_text(input -> 'names') k $$;
		CREATE FUNCTION shop.tick(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
			INSERT INTO shop.told (what, value) SELECT 'tick', turn -> 'cursor' WHERE coalesce((turn ->> 'cursor')::int, 0) < 3;
			SELECT to_jsonb(least(coalesce((turn ->> 'cursor')::int, 0) + 1, 3)) $$;
		CREATE FUNCTION shop.take(items jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO shop.told (what, value) SELECT 'taken', i FROM jsonb_array_elements(items) i; SELECT NULL::jsonb $$;
		} . join('', map { "SELECT sas.create_workflow('$_', \$json\$" . $json->encode($definition{$_}) . "\$json\$);\n" }
		  # children first
		  sort { ($b eq 'child') <=> ($a eq 'child') || $a cmp $b } keys %definition) . q{
		SELECT sas.create_workflow('built', sas.workflow(sas.steps(
			sas.step('call', sas.call('remote', 'POST', '/echo/built', timeout => '20 s'), retry => sas.retry_policy(2, initial => '1 min 30.5 s'), expect_status => '{200,201}', weight => 0.1),
			sas.step('odd', sas.function('shop."Odd name"', $j${"b": "a\\\\b"}$j$), undo => sas.undo(sas.function('shop.tell'), complete_in => '1 day 2 h'), queue => 'narrow'),
			sas.step('nap', sas.sleep('1.5 ms'))),
			flow => sas.sequence('nap', sas.concurrence('call', 'odd')), deadline => '3 days -1 h', hooks => jsonb_build_array(sas.hook('success', 'shop.tell'))));
		SELECT sas.create_workflow('settings', '{"steps": {"s": {"function": "shop.settings"}}, "output": "{{steps.s.output}}"}');
		SELECT sas.subscribe('subscriber', 'joined');
		SELECT sas.create_watcher('ticks', '{"function": "shop.tick", "every": "10 ms"}');
		SELECT sas.create_watcher('files', '{"agent": "outside", "external": {}, "items": {"table": "shop.line"}}');
		SELECT sas.create_watcher('calls', '{"agent": "outside", "external": {}, "items": {"function": "shop.take"}}');
		SELECT sas.create_watcher('begins', '{"agent": "outside", "external": {}, "items": {"workflow": "child", "item": {"i": "{{item}}"}}}')});
	$self->admin(q{
		CREATE FUNCTION public.around(call jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
		SELECT sas.create_middleware('around', 'function', 'public.around(jsonb)', workflow => 'built')});
	$self->{service}->script(
		again => [ { status => 503 }, { status => 503 }, { json => { ok => JSON::PP::true } } ],
		begin => [ { status => 202, json => { job => 1 } } ],
		asked => [ { json => { state => 'busy' } }, { json => { state => 'done', at => '2024-02-29T12:00:00Z' } } ],
		one => [ { status => 201, json => { id => 'a\\b\'c"d' } }, { status => 204 } ]);
	return;
}

# -- what is done -------------------------------------------------------------------------------------

sub runs_that_work
{
	my ($self) = @_;
	my $input = q{$i${"text": "it's a \\\\ \"q\" / \u00fc\n", "null": null, "list": [1, null, "NULL", "a\\\\b", {"x": 1.10}], "at": "2026-11-01T01:30:00+11:00"}$i$};
	my $id = sub { return $self->app("SELECT run_id FROM $_[0]") };
	$self->{whole} = $id->("sas.submit('whole', $input, key => 'k', labels => '{\"l\": \"v\"}', deadline => '2 days', priority => 3)");
	my $undone = $id->(q{sas.submit('undone', '{"n": null}')});
	$self->app(qq{
		SELECT sas.submit('planned', '{"p": [null]}', after_run => $undone, after_result => '{compensated}');
		SELECT sas.submit('child', '{"later": true}', start_at => clock_timestamp() + interval '300 ms');
		SELECT sas.submit('child', '{"days": true}', start_at => clock_timestamp() + interval '2 days', key => 'days');
		SELECT count(*) FROM generate_series(1, 5) n, LATERAL sas.submit('keyed', '{"text": "a b"}', key => n::text);
		SELECT count(*) FROM sas.submit_batch('joined', ARRAY['{"b": 1}', '{"b": null}']::jsonb[], keys => ARRAY['b1', 'b2'], reply_to => 'told');
		SELECT sas.submit('emitted', '{}', key => 'e');
		SELECT sas.submit('built');
		SELECT sas.submit('token', '{}', key => 't');
		SELECT sas.submit('mended', '{"m": null}', key => 'm');
		SELECT sas.submit('held', jsonb_build_object('n', n), key => 'h' || n) FROM generate_series(1, 9) n});
	$self->note_rows(answers => $self->app("SELECT created FROM sas.submit('whole', $input, key => 'k')"));
	$self->note_rows(answers => $self->app(q{SELECT s.changed FROM sas.find_runs('{"key": "days"}') r, LATERAL sas.set_start_at(r.run_id, clock_timestamp()) s}));
	return;
}

# infinite tasks, one of functions and three of a program outside, whose tasks this is, too
sub watches
{
	my ($self) = @_;
	my $host = $self->session($working, 'sas_app');
	$self->{sessions}{host} = $host;
	$host->query(q{SELECT sas.watch('ticks', 't'); SELECT sas.watch(w, 'it''s', '{"a": null}') FROM unnest('{files,calls,begins}'::text[]) w});
	my ($host_id) = $host->query(q{SELECT sas.register_node('host', 10, '{outside}', lease => '1 h')}) =~ /(\d+)/ or die 'no host';
	my $held = '';
	wait_until(sub { $held .= $host->query("SELECT string_agg(watch_id || ' ' || epoch, ',') FROM sas.claim_watchers($host_id, 10)") . ','; return (() = $held =~ /\d+ \d+/g) == 3 })
	  or die "$self->{database}: the infinite tasks cannot be claimed: $held";
	foreach ($held =~ /(\d+ \d+)/g)
	{
		my ($watch, $epoch) = split / /;
		$self->note_rows(answers => $host->query(qq{SELECT sas.append_items($watch, $epoch, \$j\$[null, "a\\\\b", {"d": "2024-02-29"}, "NULL"]\$j\$, '{"c": 4}')}));
	}
	my $task;
	wait_until(sub { ($task) = $self->app(q{SELECT request_id FROM sas.claim('outside', 'me', lease => '1 h')}) =~ /(\S+)/; return defined $task }) or die 'no task';
	$self->note_rows(answers => $self->app(qq{SELECT sas.heartbeat('$task', 0.5, '{"half": true}'); SELECT sas.complete('$task', '{"done": null}')}));
	$self->app("SELECT sas.signal($self->{whole}, 'go', '{\"by\": \"it''s me\"}')");
	return;
}

# what operators do; each of the runs that are held meets something else
sub verbs
{
	my ($self) = @_;
	$self->until_seen(q{SELECT count(*) FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'held' AND s.step = 'w' AND s.state = 'suspended'}, '9');
	my %run = map { split /\|/ } split /\n/, $self->look(q{SELECT key, run_id FROM sas.runs WHERE workflow IN ('held', 'token', 'mended', 'emitted')});
	my $changed = sub {
		my ($verb, @arguments) = @_;
		my $answer = $self->app("SELECT concat_ws(' ', step, changed, state, result, refused) FROM sas.$verb(" . join(', ', @arguments) . ')');
		$self->note_rows(verbs => "$verb " . $answer =~ s/run \d+/run N/gr);
	};
	$changed->('pause', $run{h1});
	$self->until_seen("SELECT state FROM sas.runs WHERE run_id = $run{h1}", 'paused');
	$changed->('resume', $run{h1});
	$changed->('set_priority', $run{h1}, -7);
	$self->app("SELECT sas.signal($run{h1}, 'go', \$j\$[null, \"a\\\\b\"]\$j\$); SELECT sas.signal_key('held', 'h2', 'go', '{\"n\": 1.10}')");
	$changed->('cancel', $run{h3}, q{'it''s over'});
	$changed->('halt', $run{h4});
	$changed->('skip', $run{h5}, q{'w'}, q{'{"by": "hand"}'});
	$changed->('force_complete', $run{h6}, q{'w'}, q{'{"by": null}'});
	$changed->('compensate', $run{h7}, q{'back'});
	$self->app("SELECT sas.signal($run{h8}, 'go')");
	$self->until_seen("SELECT state FROM sas.runs WHERE run_id = $run{h3}", 'stopped');
	my $new = $self->app("SELECT new_run_id FROM sas.rerun($run{h3})");
	$self->app("SELECT sas.signal($new, 'go'); SELECT sas.signal($run{h9}, 'go', 'null')");

	# a token, as its function has told it
	$self->until_seen(q{SELECT count(*) FROM shop.told WHERE value ? 'token'}, '1');
	$self->until_seen(q{SELECT count(*) FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'token' AND s.step = 'w' AND s.state = 'suspended'}, '1');
	$self->app(q{SELECT sas.signal_token(value ->> 'token', $j${"t": "a\\\\b"}$j$) FROM shop.told WHERE value ? 'token'; UPDATE shop.told SET value = '{}' WHERE value ? 'token'});

	# one that fails, is seen, mended and tried again; that one was halted is to be seen, too
	$self->until_seen("SELECT state FROM sas.runs WHERE run_id = $run{m}", 'paused');
	$self->until_seen(q{SELECT count(*) FROM sas.alerts WHERE closed_at IS NULL}, '2');
	$self->note_rows(verbs => $self->admin(q{SELECT x.changed FROM sas.alerts a, LATERAL sas.acknowledge(a.alert_id) x}));
	$self->note_rows(verbs => $self->look(q{SELECT kind, regexp_replace(message, '^run \d+| \(PL/pgSQL.*', '', 'g'), acknowledged_at IS NOT NULL FROM sas.alerts}));
	$self->app(q{INSERT INTO shop.mend VALUES (true)});
	$changed->('set_input', $run{m}, q{'m'}, q{'{"in": [null]}'});
	$changed->('retry', $run{m});

	foreach (q{SELECT sas.pause_workflow('child'); SELECT sas.resume_workflow('child')},
		q{SELECT sas.grant_workflow('child', 'sas_app'); SELECT sas.revoke_workflow('child', 'sas_app')},
		q{SELECT count(*) FROM sas.pause_watch('ticks', '{t}'); SELECT count(*) FROM sas.resume_watch('ticks', '{t}')})
	{
		$self->note_rows(verbs => $self->app($_));
	}
	$self->note_rows(verbs => $self->admin($_)) foreach q{SELECT sas.pause_queue('narrow'); SELECT sas.resume_queue('narrow')},
	  q{SELECT sas.pause_agent('remote'); SELECT sas.resume_agent('remote'); SELECT sas.reset_agent('remote'); SELECT sas.alter_agent('remote', request_timeout => '20 s', reset => '{rate_limit}')};
	$self->{runs} = \%run;
	return;
}

sub schedules
{
	my ($self) = @_;
	$self->note_rows(schedules => $self->app($_)) foreach
	  q{SELECT extract(epoch FROM t)::bigint FROM sas.next_times('30 2 * * *', 'Europe/Berlin', 5, '2026-03-27 00:00:00+00') t},
	  q{SELECT extract(epoch FROM t)::bigint FROM sas.next_times('every 7 d', 'Australia/Lord_Howe', 3, '2026-03-27 00:00:00+00') t},
	  q{SELECT sas.schedule('yearly', '0 3 1 1 *', 'child', '{"yearly": null}', timezone => 'Europe/Berlin', jitter => '1 min', overlap => 'allow', labels => '{"s": "a"}') IS NOT NULL},
	  q{SELECT created FROM sas.trigger_schedule('yearly')},
	  q{SELECT extract(epoch FROM scheduled_at)::bigint, created FROM sas.backfill_schedule('yearly', '2024-01-01 00:00:00+00', '2025-12-01 00:00:00+00')},
	  q{SELECT sas.pause_schedule('yearly', 'why'); SELECT sas.resume_schedule('yearly')},
	  q{SELECT count(*) FROM sas.calendar(now(), now() + interval '380 days')};
	return;
}

# aids of tests, in a transaction that is rolled back
sub inline
{
	my ($self) = @_;
	my $out = $self->app(q{BEGIN;
		SELECT sas.stub('remote', '{"status": 200, "body": {"stubbed": true}}');
		SELECT result, output FROM sas.run_inline('child', $j${"a": "b\\\\c", "n": null}$j$);
		SELECT result, output #> '{text}' FROM sas.run_inline('undone', '{}');
		SELECT count(*) FROM sas.stubbed_calls();
		ROLLBACK});
	$self->note_rows(inline => $out);
	return;
}

sub settle
{
	my ($self) = @_;
	$self->until_seen(q{SELECT (SELECT count(*) FROM sas.runs WHERE state <> 'stopped') || ' ' || (SELECT count(*) FROM sas.hook_runs WHERE state <> 'stopped')
		|| ' ' || (SELECT count(*) FROM shop.told WHERE what = 'tick') || ' ' || (SELECT count(*) FROM shop.told WHERE what = 'taken') || ' ' || (SELECT count(*) FROM shop.line)
		|| ' ' || (SELECT count(*) FROM sas.runs WHERE workflow = 'child' AND parent_run_id IS NULL)
		|| ' ' || (SELECT count(*) FROM sas.alerts WHERE closed_at IS NULL)}, '0 0 3 4 4 9 0');
	$self->until_seen('SELECT ok FROM sas.health()', 't');
	return;
}

# -- what is seen of it -------------------------------------------------------------------------------

my %stored = (
	runs => q{SELECT workflow, version, key, state, result, priority, input, output, error - 'context' AS error, labels, submitted_by, schedule, parent_run_id IS NULL AS root FROM sas.runs},
	steps => q{SELECT r.workflow, r.key, r.input AS run_input, s.step, s.element, s.kind, s.agent, s.state, s.attempt, s.failure_count, s.input, s.output, s.error - 'context' AS error FROM sas.steps s JOIN sas.runs r USING (run_id)},
	attempts => q{SELECT r.workflow, r.key, r.input AS run_input, a.step, a.element, a.attempt, a.undo, a.agent, a.status, a.http_status, a.error - 'context' AS error FROM sas.attempts a JOIN sas.runs r USING (run_id)},
	history => q{SELECT r.workflow, r.key, h.act, h.step, h.role, h.session_role, h.reason FROM sas.history h LEFT JOIN sas.runs r USING (run_id)},
	'rows of functions' => q{SELECT what, value - 'run' - 'steps' - 'run_id' AS value FROM shop.told WHERE jsonb_typeof(value) = 'object' UNION ALL SELECT what, value FROM shop.told WHERE jsonb_typeof(value) <> 'object'},
	'rows of items' => q{SELECT item FROM shop.line},
	watches => q{SELECT watcher, key, state, input, cursor, last_error - 'context' AS last_error FROM sas.watches},
	middleware => q{SELECT name, phase, workflow, before, after FROM sas.middlewares},
	versions => q{SELECT workflow, version, definition FROM sas.versions});

# in the words of the role whose work it is, under its own settings
my @queries = (
	q{SELECT count(*) FROM sas.find_runs('{"state": "stopped", "created_after": "2020-01-31 09:00+00", "text": "it''s"}', 1000)},
	q{SELECT count(*) FROM sas.explain()},
	q{SELECT count(*) > 5 FROM sas.runs r, LATERAL sas.timeline(r.run_id) WHERE r.workflow = 'whole'},
	q{SELECT regexp_replace(text, 'run [0-9]+|ended .* ago', '', 'g') FROM sas.runs r, LATERAL sas.explain(r.run_id) WHERE r.key = 'b1'},
	q{SELECT sas.graph_workflow('whole')},
	q{SELECT sas.graph_workflow('undone', 'dot')},
	q{SELECT chunk FROM sas.runs r, LATERAL sas.chunks(r.run_id, 'e') WHERE r.key = 'e'},
	q{SELECT event, workflow, key, result, output FROM sas.read_replies('told', 10) ORDER BY 1, 3},
	q{SELECT w.* FROM sas.runs r, LATERAL sas.wait(r.run_id) w WHERE r.key = 'b2'},
	q{SELECT length(sas.console()) > 1000, length(sas.console_page('/runs', '{"workflow": "whole"}')) > 1000},
	q{SELECT path, problem, hint FROM sas.validate_workflow('{"steps": {"a": {"functoin": "shop.tell"}}}')});
# a worker of a busy machine may just now be late
my $health = q{SELECT ok, workers_loaded FROM sas.health()};

sub take_down
{
	my ($self) = @_;
	my $service = $self->{service};
	my @requests = $service->requests;
	foreach my $request (splice(@requests, $self->{requests}))
	{
		$self->note_rows(requests => $json->encode({ map { $_ => $request->{$_} } qw(method target body) }) . ' ' . SasService::header_of($request, 'X-Secret'));
	}
	foreach my $what (sort keys %stored)
	{
		my $rows = $self->look("SELECT x::text FROM (SELECT to_jsonb(x) AS x FROM ($stored{$what}) x) y");
		# numbers of runs in texts, and times
		$rows =~ s/\b\d{4}-\d\d-\d\dT[\d:.]+(?:[+-]\d\d:\d\d|Z)/TIME/g if $what ne 'rows of items';
		$rows =~ s{/runs/\d+}{/runs/N}g;
		$rows =~ s/\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/UUID/g;
		$rows =~ s/"token": "[^"]*"/"token": "TOKEN"/g;
		$rows =~ s/\b00-[0-9a-f]{32}-[0-9a-f]{16}-/TRACE-/g;
		$self->note_rows($what => $rows);
	}
	$self->note_rows(queries => $self->app($_)) foreach @queries;
	my $said;
	wait_until(sub { $said = $self->app($health); return $said =~ /^t/ });
	$self->note_rows(queries => $said);
	$self->note_rows(queries => $self->admin(q{SELECT count(*) > 20 FROM sas.metrics(); SELECT length(sas.metrics_text()) > 1000}));
	return;
}

# and the end of it all
sub remove_all
{
	my ($self) = @_;
	$self->note_rows(ends => $self->app($_)) foreach q{SELECT sas.unschedule('yearly')}, q{SELECT sas.unsubscribe('subscriber', 'joined'); SELECT sas.drop_workflow('subscriber')},
	  q{SELECT count(*) FROM unnest('{ticks,files,calls,begins}'::text[]) w, LATERAL sas.unwatch(w, ARRAY['t', 'it''s']) u};
	$self->note_rows(ends => $self->admin(q{SELECT runs, steps > 0, attempts > 0, more FROM sas.purge('0 s', workflow => 'held')}));
	return;
}

# -- all ------------------------------------------------------------------------------------------------

sub perform
{
	my ($node, $database, $service) = @_;
	my $self = bless { node => $node, database => $database, service => $service, seen => {} }, __PACKAGE__;
	# no setting of the role reaches this
	local $ENV{PGOPTIONS} = $calm;
	$self->{superuser} = $node->safe_psql('postgres', 'SELECT rolname FROM pg_roles WHERE oid = 10');
	$self->{requests} = $service->requests;
	$self->define_all;
	$self->runs_that_work;
	$self->watches;
	$self->verbs;
	$self->schedules;
	$self->inline;
	$self->settle;
	$self->take_down;
	$self->remove_all;
	$_->quit foreach values %{ $self->{sessions} };
	@$_ = sort @$_ foreach values %{ $self->{seen} };
	return %{ $self->{seen} };
}

# difference(seen, other): rows that are only in one of the two, as text
sub difference
{
	my ($seen, $other) = @_;
	my $text = '';
	foreach my $what (sort keys %{ { %$seen, %$other } })
	{
		my %left;
		$left{$_}++ foreach @{ $seen->{$what} // [] };
		$left{$_}-- foreach @{ $other->{$what} // [] };
		$text .= "$what: " . ($left{$_} > 0 ? '-' : '+') . " $_\n" foreach grep { $left{$_} } sort keys %left;
	}
	return $text;
}

1;
