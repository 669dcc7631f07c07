# SPDX-License-Identifier: PostgreSQL
#
# What a user, an admin and an outside worker can write into the functions of sas ends well or in an error that says
# what is wrong: no error of the kind "internal" (XX), no statement without an end, and the server and all its workers
# stay. Nor does an error come from a constraint of a table of sas. Definitions, templates, paths, spans, schedules, masks, searches, options of agents and arguments of verbs are
# made from a seed, and made of valid ones by changes; the workflows that are accepted are run.
#
# FUZZ_SECONDS=600 FUZZ_SEED=7 LAYERS=tap TESTS=510_fuzz_surface make check: longer, and others.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

my $seconds = $ENV{FUZZ_SECONDS} // 20;
my $seed = $ENV{FUZZ_SEED} // 30;
my $hang = 30;					# seconds: what takes longer hangs
my $json = JSON::PP->new->canonical->allow_nonref->latin1->boolean_values(JSON::PP::false, JSON::PP::true)->max_depth(6000);

srand($seed);
sub one { return $_[rand @_] }
sub chance { return rand() < $_[0] }

# -- what it is made of ---------------------------------------------------------------------------------------------

my @spans = ('1 s', '0', '-1 s', '10 ms', '178000000 years', '1e300 s', 'infinity', '1 mon -1 d', 'P1Y2M', '00:00:01', '', '1', "1 \x{e9}", '9223372036854775807 us', '2562047788:00:54', '{{input.s}}', '3 days');
my @words = ('a', 'b', 'steps', 'input', 'output', 'item', 'index', 'last', 'key', 'run', 'token', 'state', 'x' x 63, 'x' x 64, 'A', '', ' ', '"', "'", '\\', '$', '*', "\n", "\x{7f}", '..', '/', '%s', '%', 'null', "\x{20ac}", "\x{1f600}", 'finalize', 'schedule:x', '_sas', 'fz.echo', 'fz.fail', 'fz.echo(jsonb)', '"fz"."echo"', 'fz.', '.', 'nothing', 'remote', 'away');
my @paths = ('$', 'input', 'input.n', 'input.a[*]', 'input.a[last]', 'input.a[0 to 99999]', 'steps.a.output', 'steps.a.output.body.id', 'steps.b.key', 'run.id', 'item', 'index', 'last.x', 'input.**', 'input.**{2 to 5}.x', 'input.a ? (@ > 1)', 'input.s like_regex "^(a|aa)+$"',
	'input.n.double()', 'input.s.datetime()', 'input.keyvalue()', '-input.n', 'input.n * 1e1000', 'input.n / 0', 'exists(input.x)', '$.input.n == 1', '$.input.a.size() > 2 && !($.input.n < 3)', '($.input.n == 1) is unknown', '$.input.s starts with "a"', 'strict $.input.zz', 'lax $.a.b', '$x', '@', '$.input."a b"', 'input.n?', 'input.a[$.input.n]', 'input.a.type()', '$.input.n.ceiling().abs()', 'secret.t', 'now');
my @numbers = (0, 1, -1, 2, 99, 1.5, 1e15, -1e15, 2147483647, 2147483648, 9223372036854775807, 1e300, 1001);
my @crons = ('* * * * *', '*/7 3 L * MON#2', '0 0 30 2 *', '0 0 29 2 1', 'every 1 s', 'every 1 h', 'every 0 s', 'every 1 us', '@daily', '@reboot', '60 * * * *', '* * * * * *', '1-0 * * * *', '1/0 * * * *', '1,2,3-4/2 * ? * *', 'every', '');
my @instants = ('now', 'infinity', '-infinity', '4714-11-24 00:00:00+00 BC', '294276-12-31 23:59:59+00', '2030-03-31 02:30:00 Europe/Berlin', '');
my @urls = ('http://127.0.0.1:1', 'https://h', 'http://[::1]:99999/', 'http://u:p@h/', 'file:///etc/passwd', 'http://h/a/../b', 'http://h/%2e%2e/', "http://h/\x{e9}", 'HTTP://H', 'http://h?x#y', '//h', '', 'http://h:0', 'http://' . 'h' x 300);

sub text
{
	return one(
		sub { one(@words) }, sub { join '', map { one(@words, @paths) } 1 .. 1 + rand 4 },
		sub { '{{' . one(@paths) . one('}}', '}}', '}}', '?}}', '}', '}}}}') }, sub { one(@words) . '{{' . one(@paths) . '}}' . one(@words, '\\{{', '{{') },
		sub { one(@paths) }, sub { one(@spans) }, sub { one(@crons) }, sub { one(@instants) }, sub { one(@urls) },
		sub { join '', map { chr(1 + rand 0x2ff) } 1 .. rand 30 }, sub { one(@words) x rand 2000 })->();
}

sub value
{
	my ($depth) = @_;
	return one(
		sub { text() }, sub { text() }, sub { one(@numbers) }, sub { one(@numbers) }, sub { JSON::PP::true }, sub { undef },
		sub { $depth > 3 ? [] : [ map { value($depth + 1) } 1 .. rand 4 ] },
		sub { $depth > 3 ? {} : { map { text() => value($depth + 1) } 1 .. rand 4 } },
		sub { my $deep = {}; $deep = chance(.5) ? [$deep] : { a => $deep } for 1 .. rand 500; $deep })->();
}

my %kinds = (
	call => { agent => 'remote', call => { method => 'POST', path => '/quick/{{input.s}}', query => { q => '{{input.n}}' }, headers => { 'X-A' => '{{input.s}}' }, body => { n => '{{input.n}}' }, timeout => '1 s' } },
	fn => { function => 'fz.echo', input => { n => '{{input.n}}', all => '{{input}}' } },
	map => { function => 'fz.echo', each => '{{input.a}}', concurrency => 2, max_failed => 1 },
	wait => { wait => { signal => [ 'x', 'y' ], timeout => '10 ms', on_timeout => 'go_on' } },
	timer => { wait => { for => '{{input.s}}' } },
	until => { wait => { until => '{{input.at}}' } },
	task => { agent => 'away', task => {}, complete_in => '1 s' },
	poll => { agent => 'remote', call => { path => '/quick' }, poll => { call => { path => '/quick' }, every => '10 ms', until => '$.output.status == 200', timeout => '1 s' } },
	child => { workflow => 'fz_child', input => { n => 1 } },
	include => { include => 'fz_child', input => { n => 1 } },
	again => { workflow => 'fz_child', repeat => { while => '$.index < 2', max => 3, every => '1 ms' } });
my %extra = (
	when => '$.input.n > 0', else => 'skip_cascade', expect => [ '2xx', 404 ], output => { x => '{{output}}' }, retry => { max_attempts => 2, initial => '1 ms', max => '2 ms', backoff => 'exponential', jitter => JSON::PP::true, on => [ 503, '57014' ] },
	complete_in => '1 s', recovery => { max_failures => 1, initial => '1 ms' }, on_failure => { transient => 'skip', permanent => 'compensate' }, undo => { function => 'fz.echo' }, pivot => JSON::PP::true, fallback => { function => 'fz.echo', on => [ 'failed' ] }, queue => 'fz_queue', priority => 3);
my %top = (
	deadline => '5 s', concurrency => [ { key => '{{input.s}}', limit => 2, scope => 'owner', overlap => 'wait' }, { key => 'k', overlap => 'return', limit => 100 } ], mask => [ 'input.s', 'output', 'input.a[*]' ], output => { x => '{{input.n}}' }, finalize => 'fz.echo',
	hooks => [ { on => 'stopped', function => 'fz.echo' }, { on => [ 'success', 'paused' ], notify => 'fz' } ], flow => { sequence => [ 'a', { concurrence => ['b'] } ] }, on_failure => 'fail', queue => 'fz_queue', priority => 1, plan => 'fz.plan', recovery => { max_failures => 1 });

sub definition
{
	my %steps;
	foreach my $name ('a' .. one('a' .. 'd'))
	{
		my %step = %{ $kinds{ one(sort keys %kinds) } };
		foreach (sort keys %extra) { $step{$_} = $extra{$_} if chance(.12) }
		$step{after} = [ one('a' .. 'd') ] if chance(.2);
		$steps{$name} = \%step;
	}
	my %definition = (steps => \%steps);
	foreach (sort keys %top) { $definition{$_} = $top{$_} if chance(.08) }
	return mutated($json->decode($json->encode(\%definition)), rand 4);
}

# changes so many places of a tree
sub mutated
{
	my ($tree, $times) = @_;
	for (1 .. $times)
	{
		my @places;
		my @todo = ($tree);
		while (my $at = shift @todo)
		{
			push @places, ref $at eq 'HASH' ? map { [ $at, $_ ] } sort keys %$at : map { [ $at, $_ ] } 0 .. $#$at;
			push @todo, grep { ref eq 'HASH' || ref eq 'ARRAY' } ref $at eq 'HASH' ? map { $at->{$_} } sort keys %$at : @$at;
		}
		last unless @places;
		my ($in, $where) = @{ one(@places) };
		my ($from, $from_where) = @{ one(@places) };
		my $other = $json->decode($json->encode(ref $from eq 'HASH' ? $from->{$from_where} : $from->[$from_where]));
		my $new = one(sub { value(0) }, sub { value(0) }, sub { text() }, sub { one(@numbers) }, sub { $other })->();
		if (ref $in eq 'HASH' && chance(.2)) { delete $in->{$where} }
		elsif (ref $in eq 'HASH' && chance(.2)) { $in->{ text() } = $new }
		elsif (ref $in eq 'HASH') { $in->{$where} = $new }
		else { $in->[$where] = $new }
	}
	return $tree;
}

# -- as statements --------------------------------------------------------------------------------------------------

sub literal
{
	my ($text) = @_;
	return 'NULL' unless defined $text;
	$text =~ s/\x00//g;
	utf8::encode($text) if utf8::is_utf8($text) || $text =~ /[\x80-\xff]/;
	$text =~ s/([\\'])/$1$1/g;
	$text =~ s/\n/\\n/g;
	$text =~ s/\r/\\r/g;
	return "E'$text'";
}

sub jsonb
{
	my $text = JSON::PP->new->canonical->allow_nonref->ascii->max_depth(6000)->encode($_[0]);
	$text =~ s/\\u(0000|d[89a-f]..)/?/gi;
	return literal($text) . '::jsonb';
}

my $input = sub { jsonb(mutated({ n => one(@numbers), s => one(@spans), a => [ map { value(3) } 1 .. rand 5 ], at => one(@instants), x => value(0) }, rand 2)) };
my $run = sub { return one(0, -1, '9223372036854775807', '(SELECT min(run_id) FROM sas.runs)', ('(SELECT max(run_id) - ' . int(rand 9) . ' FROM sas.runs)') x 6) };
my $step = sub { return literal(one('a' .. 'd', 'a[1]', 'a[0]', 'a[99999999999]', 'a.b', text())) };
my $name = sub { return literal(chance(.7) ? one('fz_w', 'fz_1', 'fz_2', 'fz_child') : text()) };
my $span = sub { return 'fz.span(' . literal(one(@spans)) . ')' };
my $number = sub { return one('NULL', 0, 1, -1, 10, 2147483647, -2147483648) };
my $at = sub { return literal(one(@instants[ 0 .. 5 ])) . '::timestamptz' };

my @user = (
	sub { 'sas.validate_workflow(' . jsonb(chance(.8) ? definition() : value(0)) . ')' },
	(sub { my $w = literal('fz_' . int rand 3); 'sas.create_workflow(' . $w . ', ' . jsonb(definition()) . ') v, sas.submit(' . $w . ', ' . $input->() . one('', ", key => 'k" . int(rand 9) . "'", ', priority => ' . $number->(), ', deadline => ' . $span->()) . ') s' }) x 5,
	sub { 'sas.submit(' . $name->() . ', ' . $input->() . ', labels => ' . jsonb(value(1)) . ', key => ' . literal(text()) . ', start_at => ' . $at->() . ', start_before => ' . $at->() . ', after_run => ' . $run->() . ')' },
	sub { 'sas.submit_batch(' . $name->() . ', ARRAY[' . join(',', map { $input->() } 0 .. rand 4) . ']::jsonb[], ' . one('NULL', "'{a,NULL,b}'", "'{{a},{b}}'") . ')' },
	sub { 'sas.create_watcher(' . $name->() . ', ' . jsonb(mutated({ function => 'fz.turn', every => '1 h', retry => { initial => '1 s' } }, rand 3)) . ')' },
	sub { 'sas.create_watcher(' . $name->() . ', ' . jsonb(mutated({ agent => 'remote', stream => { format => 'sse', path => '/none', idle_timeout => '1 s' }, items => { function => 'fz.echo' }, cursor => '$.id' }, rand 3)) . ')' },
	sub { 'sas.watch(' . $name->() . ', ' . literal(text()) . ', ' . $input->() . ')' },
	sub { 'sas.next_times(' . literal(one(@crons, text())) . ', ' . literal(one('UTC', 'Europe/Berlin', text())) . ', ' . $number->() . ', ' . $at->() . ')' },
	sub { 'sas.schedule(' . $name->() . ', ' . literal(one(@crons)) . ', ' . $name->() . ', ' . $input->() . ', jitter => ' . $span->() . ', catch_up_window => ' . $span->() . ', start_at => ' . $at->() . ', end_at => ' . $at->() . ')' },
	sub { 'sas.backfill_schedule(' . $name->() . ', ' . $at->() . ', ' . $at->() . ')' },
	sub { 'sas.calendar(' . $at->() . ', ' . $at->() . ')' },
	sub { 'sas.find_runs(' . jsonb(mutated({ text => text(), labels => { a => 1 }, state => ['running'], created_after => one(@instants), run_id => one(@numbers) }, rand 5)) . ', ' . $number->() . ', ' . $run->() . ')' },
	sub { 'sas.console_page(' . literal(one('/', '/runs', '/runs/1', '/alerts', '/schedules', text())) . ', ' . jsonb(value(1)) . ')' },
	sub { 'sas.' . one(qw(explain timeline graph console rerun resume pause)) . '(' . $run->() . ')' },
	sub { 'sas.' . one(qw(cancel halt compensate)) . '(' . $run->() . ', ' . literal(text()) . ')' },
	sub { 'sas.' . one(qw(skip force_complete set_input signal)) . '(' . $run->() . ', ' . $step->() . ', ' . jsonb(value(1)) . ')' },
	sub { 'sas.' . one(qw(retry chunks)) . '(' . $run->() . ', ' . $step->() . ')' },
	sub { 'sas.set_version(' . $run->() . ', ' . $number->() . ')' },
	sub { 'sas.' . one('set_start_at(' . $run->() . ', ' . $at->() . ')', 'set_priority(' . $run->() . ', ' . $number->() . ')', 'set_start_at_runs(ARRAY[' . $run->() . ', NULL], ' . $at->() . ')') },
	sub { 'sas.' . one(qw(signal_key)) . '(' . $name->() . ', ' . literal('k' . int rand 9) . ', ' . literal(one('x', 'y', text())) . ', ' . jsonb(value(1)) . ')' },
	sub { 'sas.signal_token(' . literal(text()) . ", '{}')" },
	sub { 'sas.graph_workflow(' . $name->() . ', ' . literal(one('mermaid', 'dot', 'svg', text())) . ')' },
	sub { 'sas.read_replies(' . literal(text()) . ', ' . $number->() . ')' },
	sub { 'sas.workflow(sas.steps(ARRAY[' . jsonb(value(1)) . ', sas.step(' . $step->() . ", sas.function('fz.echo'), " . one('NULL', "'{a,NULL}'") . ')]), ' . jsonb(value(1)) . ')' },
	sub { 'sas.' . one(qw(sequence concurrence)) . '(' . one(jsonb(value(1)), 'NULL::int', 'VARIADIC NULL::text[]', "VARIADIC '{a,NULL}'::text[]", "ROW(1, 'x')", "VARIADIC '{{a},{b}}'::text[]", "'x'::name, 1.5") . ')' });
my @admin = (
	sub { 'sas.create_agent(' . literal(one('fz_agent', text())) . ', ' . literal(one(@urls)) . ', ' . literal(one('http', 'external', text())) . ', headers => ' . jsonb(mutated({ A => 'b{{secret.t}}' }, rand 3)) . ', retry => ' . jsonb(mutated({ max_attempts => 2, initial => '1 s' }, rand 3))
		  . ', breaker => ' . jsonb(mutated({ failures => 1, open_for => '1 s' }, rand 3)) . ', options => ' . jsonb(mutated({ max_response => '8 MB', connect_timeout => '1 s', sign => { scheme => 'hmac-sha256', secret => 't' }, keep => { status => JSON::PP::true, headers => ['a'], body => ['$.id'] } }, rand 4)) . ', rate_limit => ' . literal(one('5/min', '0/s', '1e9/ms', text())) . ', request_timeout => ' . $span->() . ', max_in_flight => ' . $number->() . ')' },
	sub { 'sas.grant_agent(' . literal(one('fz_agent', 'remote', text())) . ", 'fz_user', ARRAY[" . literal(one('GET', 'get', text())) . '], ARRAY[' . literal(one('/', '/a/../b', '/%2e%2e', '/a{{', text())) . '])' },
	sub { 'sas.create_middleware(' . literal(text()) . ', ' . literal(one('call', 'function', 'finalize', text())) . ", before => 'fz.middle(jsonb)', goes_before => ARRAY[" . literal(text()) . ']) m, sas.drop_middleware(' . literal(text()) . ')' },
	sub { 'sas.set_limit(' . one('NULL', "'fz_user'", '4294967295::oid::regrole') . ', ' . literal(one('depth', text())) . ', ' . one(-1, 50) . ')' },
	sub { 'sas.set_secret(' . literal(one('t', text())) . ', ' . literal(text()) . ')' },
	sub { 'sas.create_queue(' . literal(text()) . ', ' . $number->() . ')' },
	sub { 'sas.purge(' . $span->() . ', ' . one('NULL', 'ARRAY[NULL, ' . literal(text()) . ']') . ', ' . $name->() . ', ' . $number->() . ')' },
	sub { 'sas.metrics(ARRAY[' . literal(text()) . ', NULL])' });
my @worker = (
	sub { "sas.claim('away', " . literal(text()) . ', ' . $number->() . ', ' . $span->() . ')' }, sub { "sas.claim('away', 'w', 3)" },
	sub { 'sas.' . one('complete', 'fail', 'heartbeat') . '(' . one('gen_random_uuid()', "coalesce((SELECT request_id FROM sas.claim('away', 'w')), gen_random_uuid())") . ', ' . one(jsonb(value(1)), literal(text()), "'NaN'", 0.5) . ')' },
	sub { 'sas.register_node(' . literal(text()) . ', ' . $number->() . ", ARRAY['away', " . literal(text()) . '], ' . literal(text()) . ', ' . $span->() . ')' },
	sub { 'sas.append_items(' . $number->() . ', ' . $number->() . ', ' . jsonb(value(1)) . ', ' . jsonb(value(1)) . ')' }, sub { 'sas.heartbeat_node(' . $number->() . ')' }, sub { 'sas.claim_watchers(' . $number->() . ', ' . $number->() . ')' });

# -- and the server -------------------------------------------------------------------------------------------------

my $node = new_node('main', 'sas.function_workers' => 2, max_connections => 30, log_min_error_statement => 'panic');
my $service = SasService->new;
make_agent($node, 'remote', $service);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE fz_user; CREATE ROLE fz_admin; CREATE ROLE fz_worker;
	CREATE SCHEMA fz; GRANT ALL ON SCHEMA fz TO PUBLIC;
	CREATE FUNCTION fz.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE FUNCTION fz.middle(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
	CREATE FUNCTION fz.turn(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
	CREATE FUNCTION fz.plan(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT coalesce(input -> 'x', '{"steps": {}}') $$;
	CREATE FUNCTION fz.fail(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE '%', input; END $$;
	CREATE FUNCTION fz.span(given text) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN RETURN given::interval; EXCEPTION WHEN OTHERS THEN RETURN '-1 us'; END $$;
	-- what it comes to, when that is an error that says nothing
	CREATE FUNCTION fz.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		context text;
	BEGIN
		EXECUTE 'SELECT count(*) FROM (SELECT * FROM ' || statement || ' OFFSET 0) x';
		RETURN 'done';
	EXCEPTION WHEN not_null_violation OR check_violation OR internal_error OR data_corrupted OR index_corrupted OR system_error OR io_error THEN
		GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT;
		RETURN format('FAULT %s %s in %s', SQLSTATE, SQLERRM, context);
	WHEN OTHERS THEN
		RETURN SQLSTATE;
	END $$;
	SELECT sas.create_agent('away', kind => 'external'), sas.create_queue('fz_queue', 3);
	SELECT sas.grant_usage('fz_user', 'user'), sas.grant_usage('fz_admin', 'admin'), sas.grant_usage('fz_worker', 'worker'), sas.grant_agent('remote', 'fz_user'), sas.grant_agent('away', 'fz_user');
	SET ROLE fz_user;
	SELECT sas.create_workflow('fz_child', '{"steps": {"x": {"function": "fz.echo"}}}')});
my $alive = sub { return join ' ', map { worker_pids($node, $_) } qw(scheduler agent function supervisor) };
ok(wait_until(sub { scalar(split / /, $alive->()) >= 4 }), 'all actors are there');
my @actors = qw(scheduler agent supervisor);
my %before = map { $_ => join ' ', worker_pids($node, $_) } @actors;

my %said;
my @faults;
my $n = 0;
my %session = map { $_->[0] => SasSession->new($node) } ([ 'fz_user', \@user ], [ 'fz_admin', \@admin ], [ 'fz_worker', \@worker ]);
foreach my $role (sort keys %session) { $session{$role}->query("SET SESSION AUTHORIZATION $role; SET statement_timeout = '$hang s'; SET client_min_messages = error") }
my $end = time() + $seconds;
while (time() < $end && !@faults)
{
	my ($role, $kinds) = @{ one(([ 'fz_user', \@user ]) x 6, [ 'fz_admin', \@admin ], [ 'fz_worker', \@worker ]) };
	my @statements = map { one(@$kinds)->() } 1 .. 25;
	my $answer = eval { $session{$role}->query(join ";\n", map { 'SELECT fz.try(' . literal($_) . ')' } @statements) } // "no answer: $@";
	my @answers = split /^(?=done$|[0-9A-Z]{5}$|FAULT)/m, $answer;
	foreach (0 .. $#statements)
	{
		$n++;
		my ($what) = ($answers[$_] // '') =~ /^(done|[0-9A-Z]{5})$/;
		$said{$what}++ if $what;
		push @faults, "$role, statement $n of seed $seed: " . substr($statements[$_], 0, 4000) . "\n" . ($answers[$_] // $answer) and last unless $what;
	}
	# so that what was accepted stays little
	$session{fz_user}->query(q{SELECT count(*) FROM sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs WHERE state <> 'stopped' LIMIT 1000)) x}) if $n % 500 == 0;
}
is(join("\n\n", @faults), '', 'every statement is done, or its error says what is wrong');
cmp_ok($said{done} // 0, '>', $n / 20, 'many are accepted');
note("$n statements: ", join ', ', map { "$_ $said{$_}" } sort keys %said);

is(join("\n", map { "$_ $before{$_}" } @actors), join("\n", map { "$_ " . join ' ', worker_pids($node, $_) } @actors), 'all workers are the same as before');
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
unlike($log, qr/terminated by signal|TRAP|PANIC|server process .* exited/, 'no process of the server has ended');
my @told = grep { /sas (scheduler|agent|supervisor|function)\[\d+\] (ERROR|FATAL|WARNING)/ } split /\n/, $log;
is(join("\n", @told[ 0 .. ($#told > 9 ? 9 : $#told) ]), '', 'and no worker an error of its own');
is($sql->(q{SELECT string_agg(message, E'\n') FROM sas.alerts WHERE kind = 'stuck'}), '', 'nor is work set aside that no worker can do');
$sql->(q{SELECT count(*) FROM sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs WHERE state <> 'stopped')) x});
$sql->(q{SET ROLE fz_user; SELECT sas.submit('fz_child', key => 'after all')});
ok(wait_for($node, q{SELECT result FROM sas.runs WHERE key = 'after all'}, 'success'), 'and then a run ends well');
done_testing();
