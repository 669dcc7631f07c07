# SPDX-License-Identifier: PostgreSQL
#
# examples/console in a headless Chromium: login, each page in light and dark and as wide as a phone, verbs by
# mouse and keys, a role that may not, a page that follows. SCREENSHOTS=directory keeps pictures for docs.
# Takes about 60 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasBrowser;
use Test::More;
use PostgreSQL::Test::Utils;

my $node = new_node('main', timezone => 'UTC');
my $port = SasTest::free_port();
$node->safe_psql('postgres', q{
	SET password_encryption = 'scram-sha-256';
	CREATE ROLE ann LOGIN PASSWORD 'ann-secret'; CREATE ROLE bob LOGIN PASSWORD 'bob-secret'; CREATE ROLE opa LOGIN PASSWORD 'opa-secret';
	CREATE ROLE mona LOGIN PASSWORD 'mona-secret'; CREATE ROLE nobody LOGIN PASSWORD 'nobody-secret'; CREATE ROLE trusted LOGIN;
	SELECT sas.grant_usage('ann', 'user'), sas.grant_usage('bob', 'user'), sas.grant_usage('opa', 'operator'), sas.grant_usage('mona', 'monitor');
	SELECT sas.create_agent('payments', 'http://127.0.0.1:1'), sas.create_agent('outside', kind => 'external'), sas.create_queue('narrow', 1);
	SELECT sas.grant_agent('payments', 'ann'), sas.grant_agent('outside', 'ann');
	CREATE SCHEMA f; GRANT USAGE ON SCHEMA f TO ann;
	CREATE FUNCTION f.fails(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION 'it failed for good'; END $f$;
	CREATE FUNCTION f.echo(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
	CREATE FUNCTION f.charge(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $f$
	BEGIN
		IF input ->> 'card' = 'declined' THEN RAISE EXCEPTION 'card declined'; END IF;
		RETURN '{"charge": "ch-17"}';
	END $f$;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA f TO ann;
	SET ROLE ann;
	SELECT sas.create_workflow('waits', '{"steps": {"done": {"function": "f.echo", "undo": {"function": "f.echo"}}, "one": {"wait": {"signal": "go"}, "after": ["done"]}}}');
	SELECT sas.create_workflow('fails', '{"steps": {"bad": {"function": "f.fails", "input": {"a": "{{input.a?}}"}}}, "on_failure": "pause"}');
	SELECT sas.create_workflow('order', '{"steps": {
		"reserve": {"function": "f.echo", "undo": {"function": "f.echo"}},
		"charge": {"function": "f.charge", "undo": {"function": "f.echo"}, "after": ["reserve"]},
		"pack": {"function": "f.echo", "after": ["reserve"]},
		"approve": {"wait": {"signal": "approved", "timeout": "2 days"}, "after": ["charge", "pack"]},
		"ship": {"function": "f.echo", "after": ["approve"]}}}');
	SELECT sas.create_workflow('plain', '{"steps": {}}');
	SELECT sas.schedule('yearly', '@yearly', 'plain');
	SELECT sas.create_watcher('feed', '{"agent": "outside", "external": true, "items": {"function": "f.echo"}}');
	SELECT sas.watch('feed', 'k1');
});
append_to_file($node->data_dir . '/pg_hba.conf.new', "local all postgres trust\nlocal all trusted trust\nlocal all all scram-sha-256\n");
rename($node->data_dir . '/pg_hba.conf.new', $node->data_dir . '/pg_hba.conf') or die $!;
$node->reload;

my $log = PostgreSQL::Test::Utils::tempdir() . '/console.log';
my $program = SasTest::start_program($log, '/usr/bin/python3', "$FindBin::RealBin/../../examples/console/console.py", '--dsn', 'dbname=postgres host=' . $node->host . ' port=' . $node->port, '--port', $port);
ok(SasTest::wait_until(sub { -s $log && slurp_file($log) =~ /ready/ }, 60), 'the console runs') or die slurp_file($log);

my $site = "http://127.0.0.1:$port";
my $browser = SasBrowser::open_browser(PostgreSQL::Test::Utils::tempdir());
my $pictures = $ENV{SCREENSHOTS};

# log_in(role): by typing, and Enter
sub log_in
{
	my ($role) = @_;
	$browser->call(DELETE => '/cookie');
	$browser->go("$site/login");
	$browser->type('[name=role]', $role);
	$browser->type('[name=password]', "$role-secret\x{E007}");
	return ok(SasTest::wait_until(sub { $browser->url !~ /login/ }, 30), "$role logs in");
}

sub submit { my ($workflow, $more) = @_; return $node->safe_psql('postgres', "SET ROLE ann; SELECT run_id FROM sas.submit('$workflow'" . ($more // '') . ')') }
sub becomes { my ($run, $state, $name) = @_; return ok(wait_for($node, "SELECT concat_ws('/', state, result) FROM sas.runs WHERE run_id = $run", $state), $name) }

# press(page, verb, fields): opens the form of a verb, fills it in and sends it
my %pressed;
sub press
{
	my ($page, $verb, %fields) = @_;
	$pressed{$verb} = 1;
	$browser->go("$site$page");
	# the part of the page that holds the form may be closed
	$browser->run('for (const d of document.querySelectorAll("section details:not(.act)")) d.open = true');
	my $act = qq{details.act:has(form[action\$="/do/$verb"] } . (delete $fields{beside} // 'button') . ')';
	my $form = "$act form";
	$browser->click("$act > summary");
	$browser->type("$form [name=$_]", $fields{$_}) foreach sort keys %fields;
	$browser->type("$form [name=reason]", "because of $verb");
	$browser->click("$form [name=confirm]");
	$browser->click("$form button");
	ok(SasTest::wait_until(sub { $browser->run('return document.querySelector(".notice") !== null') }, 30), "$verb on $page is answered");
	return $browser->run('return document.querySelector(".notice").innerText');
}

my $run = submit('waits', q{, key => 'order-1', labels => '{"tenant": "a"}'});
my @failed = map { submit('fails') } 1 .. 3;
submit('plain') foreach 1 .. 3;
# what the pictures show: orders of which some wait, have ended, and were undone
my @order = map { submit('order', sprintf(q{, '{"order_id": %1$d, "sku": "book", "card": "%2$s"}', key => 'order-%1$d', labels => '{"customer": "c-%3$d"}'}, 1040 + $_, $_ == 4 ? 'declined' : '4111', $_ % 3)) } 1 .. 7;
foreach my $one (@order[ 0 .. 2, 4 ])
{
	$node->safe_psql('postgres', "SET ROLE ann; SELECT sas.signal($one, 'approved', '{\"by\": \"eve\"}')");
	becomes($one, 'stopped/success', 'an order is shipped');
}
becomes($order[3], 'stopped/compensated', 'an order whose card is declined is undone');
ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $_ AND step = 'approve'", 'signal'), 'an order waits for its approval') foreach @order[ 5, 6 ];
ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $run AND step = 'one'", 'signal'), 'a run waits');
becomes($_, 'paused', 'a run is paused for its failed step') foreach @failed;

# -- each page, wide and as a phone, light and dark -------------------------------------

log_in('opa');
foreach my $path ('/', '/runs', "/runs/$run", "/runs/$failed[0]", '/workflows', '/agents', '/queues', '/schedules', '/watches', '/alerts', '/workers')
{
	foreach my $width (1240, 390)
	{
		$browser->size($width, 820);
		$browser->go("$site$path");
		cmp_ok($browser->run('return document.documentElement.scrollWidth'), '<=', $width, "$path fits into $width pixels");
	}
}
my %shown = ('/' => 'overview', '/runs' => 'runs', "/runs/$order[6]" => 'run');
foreach my $scheme (qw(light dark))
{
	$browser->scheme($scheme);
	foreach my $path (sort keys %shown)
	{
		$browser->size(1240, 820);
		$browser->go("$site$path");
		my $light = $browser->run('return getComputedStyle(document.body).backgroundColor.match(/\d+/g)[0] > 128 ? "light" : "dark"');
		is($light, $scheme, "$path is $scheme");
		$browser->picture("$pictures/console-$shown{$path}-$scheme.png") if $pictures && $scheme eq ($shown{$path} eq 'runs' ? 'dark' : 'light');
	}
}
$browser->scheme('light');
$browser->size(390, 820);
$browser->go("$site/runs/$order[6]");
$browser->picture("$pictures/console-run-phone.png") if $pictures;
$browser->size(1240, 820);
$browser->go("$site/runs/$order[6]");
is($browser->run('return [...document.querySelectorAll("svg g.node")].filter(g => { const box = g.querySelector("rect").getBoundingClientRect(); return [...g.querySelectorAll("text")].some(t => t.getBoundingClientRect().right > box.right) }).length'), 0, 'no label of the graph leaves its box');

# -- by keys ------------------------------------------------------------------------------

$browser->go("$site/");
$browser->press_keys("\x{E004}");
is($browser->run('return document.activeElement.className'), 'skip', 'the first Tab is at the link past the menu');
isnt($browser->run('return getComputedStyle(document.activeElement).outlineStyle'), 'none', 'and one sees where the focus is');
$browser->press_keys('r');
ok(SasTest::wait_until(sub { $browser->url =~ m{/runs$} }, 30), 'r leads to the runs');
$browser->press_keys('/');
is($browser->run('return document.activeElement.name'), 'text', '/ leads to the search');
$browser->press_keys("tenant\x{E007}");
ok(SasTest::wait_until(sub { $browser->url =~ /text=tenant/ }, 30), 'Enter searches');
is($browser->run('return document.querySelectorAll("#runs tbody tr").length'), 1, 'and finds the run');

# -- verbs --------------------------------------------------------------------------------

log_in('ann');
$browser->go("$site/runs/$run");
$browser->click(qq{details.act:has(form[action\$="/do/cancel"]) > summary});
$browser->click(qq{form[action\$="/do/cancel"] button});
is($browser->run(q{return document.querySelector('form[action$="/do/cancel"]').checkValidity()}), JSON::PP::false, 'without reason and confirmation nothing is sent');
becomes($run, 'running', 'and nothing happens');
like(press("/runs/$run", 'pause'), qr/pause: run $run: done, paused/, 'a run is paused');
press("/runs/$run", 'set_priority', priority => "7");
press("/runs/$run", 'resume');
becomes($run, 'running', 'and resumed');
press("/runs/$run", 'signal', name => 'go');
becomes($run, 'stopped/success', 'a signal ends it');
press("/runs/$run", 'rerun');
press("/runs/$failed[0]", 'set_input');
is($node->safe_psql('postgres', "SELECT input FROM sas.steps WHERE run_id = $failed[0]"), '{}', 'a step is given another input');
press("/runs/$failed[0]", 'retry', beside => '[name=step]');
ok(wait_for($node, "SELECT attempt > 1 AND run_state = 'paused' FROM sas.steps WHERE run_id = $failed[0]"), 'and is tried again with it');
press("/runs/$failed[0]", 'skip');
becomes($failed[0], 'stopped/warning', 'a step is skipped');
press("/runs/$failed[1]", 'force_complete');
becomes($failed[1], 'stopped/success', 'a step is completed by hand');
press("/runs/$failed[2]", 'halt');
becomes($failed[2], 'stopped/error', 'a run is halted');
foreach ([ cancel => 'cancelled' ], [ compensate => 'compensated' ])
{
	my $one = submit('waits');
	ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $one AND step = 'one'", 'signal'), 'another run waits');
	press("/runs/$one", $_->[0]);
	becomes($one, "stopped/$_->[1]", "a run is $_->[1]");
}
my $later = submit('plain', q{, start_at => now() + interval '1 day'});
press("/runs/$later", 'set_version', version => '1');
press("/runs/$later", 'set_start_at', start_at => '2020-01-01 00:00');
becomes($later, 'stopped/success', 'a run that was to begin tomorrow begins at once');
press('/schedules', 'pause_schedule');
press('/schedules', 'resume_schedule');
press('/schedules', 'trigger_schedule');
press('/watches', 'pause_watch');
press('/watches', 'resume_watch');
press('/watches', 'unwatch');
$node->safe_psql('postgres', q{SET ROLE ann; SELECT count(*) FROM sas.submit_batch('waits', array_fill('{}'::jsonb, '{5}'), labels => '{"batch": "b"}')});
like(press('/runs?labels=batch%3Db', 'bulk', verb => 'cancel'), qr/cancel: 5 runs changed/, 'all runs of a search are cancelled');

# -- a page follows ------------------------------------------------------------------------

my $followed = submit('waits');
ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $followed AND step = 'one'", 'signal'), 'one more run waits');
$browser->go("$site/runs/$followed");
$browser->run('window.same = true');
ok(SasTest::wait_until(sub { $browser->run('return news.readyState') == 1 }, 30), 'a page listens');
$node->safe_psql('postgres', "SET ROLE ann; SELECT sas.signal($followed, 'go')");
ok(SasTest::wait_until(sub { $browser->text =~ /\bsuccess\b/ }, 60), 'it shows that its run has ended');
ok($browser->run('return window.same === true'), 'without a reload');

log_in('opa');
press('/agents', 'pause_agent', beside => '[value=payments]');
press('/agents', 'resume_agent', beside => '[value=payments]');
press('/agents', 'reset_agent', beside => '[value=payments]');
press('/queues', 'pause_queue');
press('/queues', 'resume_queue');
press('/workflows', 'pause_workflow', beside => '[value=plain]');
press('/workflows', 'resume_workflow', beside => '[value=plain]');
press('/alerts', 'acknowledge');

my ($verbs) = run_command([ '/usr/bin/python3', '-c', 'import sys; sys.path.insert(0, sys.argv[1]); import console; print(*sorted(console.VERBS | {"bulk": ""}))', "$FindBin::RealBin/../../examples/console" ]);
is(join(' ', sort keys %pressed), $verbs, 'that was each verb');

# -- a role that may not --------------------------------------------------------------------

my $other = submit('waits');
$browser->go("$site/runs/$other");
$node->safe_psql('postgres', q{SELECT sas.revoke_usage('opa'), sas.grant_usage('opa', 'monitor')});
$browser->click(qq{details.act:has(form[action\$="/do/halt"]) > summary});
$browser->type(qq{form[action\$="/do/halt"] [name=reason]}, 'I could');
$browser->click(qq{form[action\$="/do/halt"] [name=confirm]});
$browser->click(qq{form[action\$="/do/halt"] button});
ok(SasTest::wait_until(sub { $browser->text =~ /Refused/ }, 30), 'who may no longer is told that it is refused');
like($browser->text, qr/permission denied/, 'and why');
$browser->go("$site/runs/$other");
is($browser->run('return document.querySelectorAll("details.act").length'), 0, 'and sees no forms any more');

is(join("\n", grep { /Content Security|Refused to|Uncaught/ } $browser->complaints), '', 'the browser has no complaint of the policy or the script');
$browser->close_browser;
SasTest::stop_program($program);
done_testing();
