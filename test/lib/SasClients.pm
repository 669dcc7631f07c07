# SPDX-License-Identifier: PostgreSQL
#
# What the worker libraries of all languages must do, killed and cut off: the
# same claims for each. A test gives the command of its worker
# (test/lib/clients), which does what its tasks say.
package SasClients;

use strict;
use warnings;
use Exporter 'import';
use SasTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(prepare_clients start_worker worker_log worker_says worker_ends open_gate check_worker node_home driver_calls prepared prepare_calls said example_packs page_packs);

our ($node, $dir, @command, %pid);

sub sql { return $node->safe_psql('postgres', $_[0]) }

# prepare_clients(node, command ...): what all workers need
sub prepare_clients
{
	($node, @command) = @_;
	$SasTest::limit = $ENV{LIMIT} if $ENV{LIMIT};
	$dir = PostgreSQL::Test::Utils::tempdir();
	sql(q{
		CREATE TABLE book (n int, worker text);
		SELECT sas.create_agent('work', kind => 'external', max_in_flight => 100);
		SELECT sas.create_workflow('work', '{"steps": {
			"work": {"agent": "work", "task": {}, "recovery": {"initial": "100 ms", "max": "500 ms"}, "retry": {"initial": "50 ms"}}}}')});
	return $dir;
}

sub with_server
{
	my ($run, %more) = @_;
	# not the private python of a root; initdb and its kind come from the server that is tested
	local %ENV = (%ENV, PATH => "/usr/local/bin:/usr/bin:/bin:$ENV{PATH}", PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', %more);
	delete $ENV{PGUSER};
	return $run->();
}

# node_home(): a folder with test/lib/clients, in which sas-worker is installed, and pg: that of Debian, or what npm gets.
# Undefined: there is none.
sub node_home
{
	my $home = PostgreSQL::Test::Utils::tempdir();
	my $clients = "$SasTest::tree/clients/typescript";
	system("cp '$SasTest::tree'/test/lib/clients/*.mjs '$SasTest::tree'/examples/outside/*.mjs '$home'") == 0 or die;
	local $ENV{HOME} = $home;
	my $try = sub { return IPC::Run::run([ 'sh', '-c', "cd '$home' && $_[0]" ], '>', \my $out, '2>', \my $err, IPC::Run::timeout(300)) };
	return unless $try->('command -v node');
	if (-e '/usr/share/nodejs/pg')
	{
		$ENV{NODE_PATH} = '/usr/share/nodejs';
		$try->("mkdir -p node_modules && ln -s /usr/share/nodejs/pg node_modules/pg && cp -r '$clients' node_modules/sas-worker");
	}
	else
	{
		my $npm = 'npm install --no-audit --no-fund --ignore-scripts --install-links';
		$try->("$npm pg") && ok($try->("$npm '$clients'"), 'npm installs from the folder');
	}
	return $try->("node -e 'import(\"sas-worker\").then(() => process.exit(0), () => process.exit(1))'") ? $home : undef;
}

# start_worker(name, concurrency => 4, lease => 30, grace => 30, env => {...})
sub start_worker
{
	my ($name, %o) = @_;
	return $pid{$name} = with_server(
		sub {
			return SasTest::start_program("$dir/$name.log", @command, $name, $o{concurrency} // 4, $o{lease} // 30, $o{grace} // 30, $dir);
		},
		%{ $o{env} // {} });
}

sub worker_log { return -e "$dir/$_[0].log" ? slurp_file("$dir/$_[0].log") : '' }

# true once the worker has printed such a line
sub worker_says
{
	my ($name, $pattern) = @_;
	my $said = wait_until(sub { worker_log($name) =~ /^$name $pattern/m });
	diag("$name has not said \"$pattern\":\n" . worker_log($name)) unless $said;
	return $said;
}

# worker_ends(name): true once it has ended by itself
sub worker_ends
{
	my ($name) = @_;
	my $ended = wait_until(sub { waitpid($pid{$name}, POSIX::WNOHANG()) != 0 });
	diag("$name does not end:\n" . worker_log($name)) unless $ended;
	return $ended;
}

sub open_gate
{
	my ($n) = @_;
	open(my $file, '>', "$dir/gate$n") or die;
	return;
}

sub submit
{
	my ($do, $n, $more) = @_;
	return sql(qq{SELECT run_id FROM sas.submit('work', jsonb_build_object('do', '$do', 'n', $n) || '@{[ $more // '{}' ]}')});
}

sub attempts { return sql("SELECT coalesce(string_agg(status, ' ' ORDER BY attempt), 'none') FROM sas.attempts WHERE run_id = $_[0]") }

sub check_worker
{
	books_hold();
	checkpoint_is_handed_on();
	lease_is_extended();
	cancel_is_told();
	stop_hands_back();
	stop_has_a_limit();
	lost_is_told();
	chunks_are_seen();
	odd_outcomes();
	return;
}

# two workers, one of which is killed; backends and the server die under them
sub books_hold
{
	my $n = 0;
	my $more = sub {
		my ($wanted, $gate) = @_;
		sql(qq{SELECT count(*) FROM generate_series($n + 1, $n + $wanted) g,
			sas.submit('work', jsonb_build_object('do', 'book', 'n', g, 'takes', 0.05, 'gate', @{[ $gate // 'NULL' ]}))});
		$n += $wanted;
	};
	# there are always tasks left, however slow the workers begin
	my $busy_until = sub {
		my ($done) = @_;
		return wait_until(sub {
			return 1 if sql("SELECT $done FROM book") eq 't';
			$more->(40) if sql('SELECT count(*) FROM book') > $n - 40;
			return 0;
		});
	};
	my $booked = sub { return sql('SELECT count(*) FROM book') };

	start_worker($_, concurrency => 8, lease => 3) foreach qw(a b);
	$busy_until->('count(*) >= 40');
	SasTest::stop_program($pid{a}, 'KILL');
	start_worker('c', concurrency => 8, lease => 3);
	$busy_until->(q{count(*) FILTER (WHERE worker = 'c') >= 10});
	is(sql(q{SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name IN ('b', 'c')) x}), 2, 'a worker has one connection');
	my $had = $booked->();
	ok($busy_until->("count(*) >= $had + 20"), 'workers live through the end of their connections');
	$more->(20, 1000);
	$node->stop('immediate');
	sleep 1;
	$node->start;
	$had = $booked->();
	cmp_ok($had, '<=', $n - 20, 'the server goes down with tasks left');
	open_gate(1000);
	ok($busy_until->("count(*) >= $had + 20"), 'and through the end of the server');
	kill('TERM', $pid{b});
	ok(worker_ends('b'), 'a worker ends when it is told so');
	all_ended($node, 'all runs end');
	is(sql('SELECT count(*), count(DISTINCT n) FROM book'), "$n|$n", 'each is in the books once');
	is(sql(q{SELECT count(*) FROM sas.runs WHERE result <> 'success'}), 0, 'none failed');
	kill('TERM', $pid{c});
	ok(worker_ends('c'), 'a worker without a task ends');
	is(sql(q{SELECT in_flight || ' ' || waiting FROM sas.agents WHERE name = 'work'}), '0 0', 'nothing is held');
	return;
}

sub checkpoint_is_handed_on
{
	my $run = submit('pages', 1001);
	start_worker('first', lease => 2);
	worker_says('first', 'pages 1001 waits');
	is(sql("SELECT progress FROM sas.steps WHERE run_id = $run"), '0.6', 'progress is shown');
	SasTest::stop_program($pid{first}, 'KILL');
	open_gate(1001);
	start_worker('second');
	ok(worker_says('second', 'pages 1001 begins 3'), 'the next holder gets the checkpoint of a killed one');
	all_ended($node, 'and ends the task');
	is(attempts($run), 'timed_out succeeded', 'in a second attempt');
	SasTest::stop_program($pid{second});
	return;
}

# while there is no connection for a moment, and while the worker is being stopped
sub lease_is_extended
{
	my $run = submit('gate', 1002);
	start_worker('long', lease => 10);
	worker_says('long', 'gate 1002 begins');
	my $complete_by = "SELECT complete_by FROM sas.steps WHERE run_id = $run";
	my $was = sql($complete_by);
	sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'long'});
	ok(wait_for($node, "SELECT complete_by > '$was' FROM sas.steps WHERE run_id = $run"), 'the lease is extended over another connection');
	kill('TERM', $pid{long});
	$was = sql($complete_by);
	ok(wait_for($node, "SELECT complete_by > '$was'::timestamptz + interval '4 s' FROM sas.steps WHERE run_id = $run"), 'and while a stopped worker has handlers that run');
	open_gate(1002);
	ok(worker_ends('long'), 'it ends when they have ended');
	is(sql("SELECT state, attempt FROM sas.steps WHERE run_id = $run"), 'succeeded|1', 'and the result is reported');
	is(sql('SELECT count(*) FROM book WHERE n = 1002'), 1, 'once');
	return;
}

sub cancel_is_told
{
	my $run = submit('cancel', 1003);
	start_worker('told', lease => 6);
	worker_says('told', 'cancel 1003 begins');
	sql("SELECT * FROM sas.cancel($run)");
	ok(worker_says('told', 'cancel 1003 cancel'), 'cancel reaches the handler');
	ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $run", 'stopped cancelled'), 'and the run ends');
	is(attempts($run), 'none', 'without a failure');
	SasTest::stop_program($pid{told});
	return;
}

sub stop_hands_back
{
	my $run = submit('hang', 1004);
	start_worker('deaf', lease => 600, grace => 1);
	worker_says('deaf', 'hang 1004 begins');
	my $other = start_worker('heir');
	kill('TERM', $pid{deaf});
	ok(worker_says('heir', 'hang 1004 begins'), 'what does not end within the grace period is handed back');
	ok(worker_ends('deaf'), 'and its worker ends all the same');
	open_gate(1004);
	all_ended($node, 'the next one ends it');
	is(sql("SELECT attempt FROM sas.steps WHERE run_id = $run"), 1, 'nothing was counted');
	SasTest::stop_program($pid{heir});
	return;
}

# the server does not answer: nothing can be reported, and the worker ends
sub stop_has_a_limit
{
	my $run = submit('hang', 1005);
	start_worker('silent', lease => 600, grace => 1);
	worker_says('silent', 'hang 1005 begins');
	my ($backend) = sql(q{SELECT pid FROM pg_stat_activity WHERE application_name = 'silent'});
	kill('STOP', $backend);
	kill('TERM', $pid{silent});
	ok(worker_ends('silent'), 'a worker ends though the server does not answer');
	kill('CONT', $backend);
	sql("SELECT * FROM sas.cancel($run)");
	return;
}

# a worker sleeps longer than its lease
sub lost_is_told
{
	my $run = submit('lost', 1006);
	start_worker('sleeper', lease => 2);
	worker_says('sleeper', 'lost 1006 begins');
	kill('STOP', $pid{sleeper});
	ok(wait_for($node, "SELECT state = 'ready' FROM sas.steps WHERE run_id = $run"), 'a lease that is not extended ends');
	sql(q{SELECT sas.alter_agent('work', enabled => false)});
	kill('CONT', $pid{sleeper});
	open_gate(1006);
	ok(worker_says('sleeper', 'lost 1006 lost (?i:true) lost'), 'a checkpoint after the end of the lease is refused');
	is(sql("SELECT count(*) FROM sas.steps WHERE run_id = $run AND state = 'succeeded'"), 0, 'and so is the result');
	is(sql("SELECT count(*) FROM sas.chunks($run, 'work')"), 0, 'and a chunk');
	unlike(worker_log('sleeper'), qr/emitted/, 'which the handler is told');
	sql("SELECT * FROM sas.cancel($run)");
	# the server alone knows it: somebody else has handed the task back
	sql(q{SELECT sas.alter_agent('work', enabled => true)});
	$run = submit('lost', 1009);
	SasTest::stop_program($pid{sleeper});
	start_worker('wakeful', lease => 600);
	worker_says('wakeful', 'lost 1009 begins');
	sql(q{SELECT sas.alter_agent('work', enabled => false)});
	sql("SELECT sas.hand_back(request_id) FROM _sas.external_slot WHERE run_id = $run");
	open_gate(1009);
	ok(worker_says('wakeful', 'lost 1009 lost (?i:true) lost'), 'and after the end of the claim, which the server tells');
	is(sql("SELECT count(*) FROM sas.chunks($run, 'work')"), 0, 'no chunk is stored then, either');
	SasTest::stop_program($pid{wakeful});
	sql("SELECT * FROM sas.cancel($run)");
	sql(q{SELECT sas.alter_agent('work', enabled => true)});
	return;
}

# chunks of a task, in order; the handler gets the error of one that is too large, and continues
sub chunks_are_seen
{
	my $run = submit('emit', 1010);
	start_worker('teller');
	ok(worker_says('teller', 'emit 1010 refused 54000'), 'a chunk that is too large is refused');
	ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'and its handler goes on');
	is(sql("SELECT string_agg(chunk::text, ' ' ORDER BY chunk_id) FROM sas.chunks($run, 'work')"), '{"page": 1} {"page": 2} null', 'the others are there in order');
	SasTest::stop_program($pid{teller});
	return;
}

# outputs that cannot be stored, and other failures
sub odd_outcomes
{
	sql(q{SELECT sas.create_workflow('odd', '{"steps": {"work": {"agent": "work", "task": {}, "recovery": {"max_failures": 1}, "retry": {"max_attempts": 1}}}}')});
	start_worker('odd');
	foreach my $do (qw(nan zero fail broken mute))
	{
		my $run = sql(qq{SELECT run_id FROM sas.submit('odd', '{"do": "$do", "n": 1007}')});
		ok(wait_for($node, "SELECT state = 'failed' FROM sas.steps WHERE run_id = $run"), "$do: a failure that is told");
	}
	my $run = submit('echo', 1008);
	ok(wait_for($node, "SELECT output ->> 'n' FROM sas.steps WHERE run_id = $run", '1008'), 'and the worker goes on');
	SasTest::stop_program($pid{odd});
	return;
}

# -- calls of an application, examples ---------------------------------------------------

sub prepare_calls
{
	sql(q{SELECT sas.create_workflow('asks', '{"steps": {"go": {"wait": {"signal": "go"}}}, "output": "{{steps.go.output}}"}')});
	return;
}

# said(program ...): what it prints
sub said
{
	my (@program) = @_;
	return with_server(
		sub {
			my ($out, $err);
			IPC::Run::run(\@program, '<', \'', '>', \$out, '2>', \$err);
			return $out . $err;
		});
}

# example_packs(program ...): two of the example work through some orders, and one is killed
sub example_packs
{
	my (@program) = @_;
	sql(q{
		SELECT sas.create_agent('packer', kind => 'external');
		CREATE TABLE packed (order_id bigint PRIMARY KEY, worker text, pages int);
		SELECT sas.create_workflow('pack', '{"steps": {"pack": {"agent": "packer", "task": {}, "recovery": {"initial": "100 ms"}}}}');
		SELECT count(*) FROM generate_series(1, 30) n, sas.submit('pack', jsonb_build_object('order', n, 'pages', 3))});
	my @pids = map { my $name = $_; with_server(sub { SasTest::start_program("$dir/$name.log", @program, $name, 0.1) }) } qw(p q);
	wait_for($node, q{SELECT count(*) >= 4 FROM packed WHERE worker = 'p'});
	SasTest::stop_program($pids[0], 'KILL');
	ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'pack' AND result IS DISTINCT FROM 'success'}, '0'), 'the example packs all orders');
	is(sql('SELECT count(*) FROM packed'), 30, 'each once');
	SasTest::stop_program($pids[1]);
	return;
}

# page_packs(block, before, file, program ...): tests that the code of the guide packs an order; only the address of the
# database is changed. block: a pattern that captures the code; before: code that it assumes.
sub page_packs
{
	my ($block, $before, $file, @program) = @_;
	my ($shown) = slurp_file("$SasTest::tree/docs/how-to/outside-agents.md") =~ $block or die "the page has no $block";
	my $place = 'host=' . $node->host . '&port=' . $node->port;
	$shown =~ s{postgres:///shop}{postgres:///postgres?$place} or $shown =~ s{dbname=shop}{dbname=postgres} or die 'no database';
	open my $out, '>', $file or die "$file: $!";
	print $out "$before\n$shown";
	close $out;
	my $run = sql(q{SELECT run_id FROM sas.submit('pack', '{"order": 0, "pages": 3}')});
	my $pid = with_server(sub { SasTest::start_program("$dir/page.log", @program, $file) });
	ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'the program of the page packs an order');
	is(sql("SELECT output->>'box' FROM sas.steps WHERE run_id = $run"), 7, 'and returns its box');
	SasTest::stop_program($pid);
	is(slurp_file("$dir/page.log") =~ s/ \S+$//mgr, "page 0\npage 1\npage 2\n", 'each page once');
	return;
}

# -- drivers ------------------------------------------------------------------------

# "any" has no type to infer: what sas.sequence and sas.concurrence take are results of other builders
our $functions = q{
	SELECT p.oid, p.proname, p.proargnames AS names, p.pronargs::int AS most, (p.pronargs - p.pronargdefaults)::int AS least,
		p.provariadic <> 0 AS many,
		ARRAY(SELECT format_type(CASE WHEN p.provariadic <> 0 AND n = p.pronargs THEN p.provariadic ELSE t END, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY x (t, n) ORDER BY n) AS types
	FROM pg_proc p
	WHERE p.pronamespace = 'sas'::regnamespace AND p.prokind = 'f' AND p.prorettype <> 'trigger'::regtype
		AND NOT '"any"'::regtype = ANY (p.proargtypes)};
sub driver_calls
{
	return sql(qq{
	WITH f AS ($functions), positional AS (
		SELECT format('SELECT * FROM sas.%I(%s)', proname, (SELECT string_agg('\$' || i, ', ' ORDER BY i) FROM generate_series(1, k) i)) AS sql, types[:k] AS types
		FROM f, generate_series(least, most) k),
	named AS (
		SELECT format('SELECT * FROM sas.%I(%s)', proname, (SELECT string_agg(quote_ident(names[i]) || ' => \$' || i, ', ' ORDER BY i) FROM generate_series(1, most) i)), types
		FROM f WHERE most > 0 AND NOT many)
	SELECT json_agg(json_build_array(sql, coalesce(types, '{}'))) FROM (SELECT * FROM positional UNION ALL SELECT * FROM named) x});
}

# prepared(program ...): what a driver says to all calls
sub prepared
{
	my (@program) = @_;
	my $calls = driver_calls();
	return with_server(
		sub {
			my ($out, $err);
			IPC::Run::run(\@program, '<', \$calls, '>', \$out, '2>', \$err);
			return $out . $err;
		});
}

1;
