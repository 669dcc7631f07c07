# SPDX-License-Identifier: PostgreSQL
#
# examples/console over real HTTP: who logs in is a role of PostgreSQL; each
# page, each verb, all runs of a search; a role that may not; forms of other
# sites refused; a page is told of what changes. Takes about 30 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;
use HTTP::Tiny;
use IO::Select;
use IO::Socket::INET;
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
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA f TO ann;
	SET ROLE ann;
	SELECT sas.create_workflow('waits', '{"steps": {"done": {"function": "f.echo", "undo": {"function": "f.echo"}}, "one": {"wait": {"signal": "go"}, "after": ["done"]}}}');
	SELECT sas.create_workflow('fails', '{"steps": {"bad": {"function": "f.fails", "input": {"a": "{{input.a?}}"}}}, "on_failure": "pause"}');
	SELECT sas.create_workflow('plain', '{"steps": {}}');
	SELECT sas.schedule('yearly', '@yearly', 'plain');
	SELECT sas.create_watcher('feed', '{"agent": "outside", "external": true, "items": {"function": "f.echo"}}');
	SELECT sas.watch('feed', 'k1');
});
append_to_file($node->data_dir . '/pg_hba.conf.new', "local all postgres trust\nlocal all trusted trust\nlocal all all scram-sha-256\n");
rename($node->data_dir . '/pg_hba.conf.new', $node->data_dir . '/pg_hba.conf') or die $!;
$node->reload;

my $log = PostgreSQL::Test::Utils::tempdir() . '/console.log';
# a password that the program has for itself is nobody's
my $passwords = PostgreSQL::Test::Utils::tempdir() . '/passwords';
append_to_file($passwords, "*:*:*:ann:ann-secret\n");
chmod(0600, $passwords) or die $!;
my $program = do { local $ENV{PGPASSFILE} = $passwords; SasTest::start_program($log, '/usr/bin/python3', "$FindBin::RealBin/../../examples/console/console.py", '--dsn', 'dbname=postgres host=' . $node->host . ' port=' . $node->port, '--port', $port) };
ok(SasTest::wait_until(sub { -s $log && slurp_file($log) =~ /ready/ }, 60), 'the console runs') or die slurp_file($log);

my $site = "http://127.0.0.1:$port";
my $plain = HTTP::Tiny->new(max_redirect => 0, timeout => 120);

# encode(fields)
sub encode { my (%f) = @_; return $plain->www_form_urlencode(\%f) }

# log_in(role, password): {cookie, token}, or the answer that refused
sub log_in
{
	my ($role, $password) = @_;
	my $form = $plain->get("$site/login");
	my ($login) = $form->{headers}{'set-cookie'} =~ /^(sas_login=[^;]+)/;
	my ($token) = $form->{content} =~ /name="token" value="([^"]+)"/;
	my $answer = $plain->post("$site/login", { content => encode(token => $token, role => $role, password => $password),
		headers => { 'content-type' => 'application/x-www-form-urlencoded', cookie => $login } });
	return $answer unless $answer->{status} == 303;
	my ($cookie) = $answer->{headers}{'set-cookie'} =~ /^(sas=[^;]+)/;
	my $me = { cookie => $cookie, set_cookie => $answer->{headers}{'set-cookie'} };
	($me->{token}) = page($me, '/')->{content} =~ /name="token" value="([^"]+)"/;
	return $me;
}

sub page { my ($me, $path, %h) = @_; return $plain->get("$site$path", { headers => { ($me ? (cookie => $me->{cookie}) : ()), %h } }) }

# act(me, verb, fields): the answer; sure: reason and confirmation are there unless said otherwise
sub act
{
	my ($me, $verb, %f) = @_;
	my $headers = delete $f{_headers} // {};
	%f = (token => $me->{token}, reason => "because of $verb", confirm => 'yes', %f);
	delete $f{$_} foreach grep { !defined $f{$_} } keys %f;
	return $plain->post("$site/do/$verb", { content => encode(%f), headers => { 'content-type' => 'application/x-www-form-urlencoded', cookie => $me->{cookie}, %$headers } });
}

sub submit { my ($workflow, $more) = @_; return $node->safe_psql('postgres', "SET ROLE ann; SELECT run_id FROM sas.submit('$workflow'" . ($more // '') . ')') }
sub state_of { my ($run) = @_; return $node->safe_psql('postgres', "SELECT concat_ws('/', state, result) FROM sas.runs WHERE run_id = $run") }
sub becomes { my ($run, $state, $name) = @_; return ok(wait_for($node, "SELECT concat_ws('/', state, result) FROM sas.runs WHERE run_id = $run", $state), $name) }

# -- who logs in --------------------------------------------------------------------

is(page(undef, $_)->{status}, 303, "without a session $_ leads to the login") foreach qw(/ /runs /runs/1 /events);
is($plain->post("$site/do/cancel", { content => encode(run_id => 1) })->{status}, 303, 'and no verb is called');
is(log_in('ann', 'wrong')->{status}, 403, 'a wrong password is refused');
is(log_in('ann', '')->{status}, 403, 'so is none, also where the program has a file with the password');
is(log_in('trusted', '')->{status}, 403, 'and a role that the server lets in without one');
is(log_in('ann@x; DROP', 'x')->{status}, 403, 'and what is no role');
is(join(' ', map { log_in('a' x 64, 'x')->{status} } 1 .. 6), join(' ', (403) x 6), 'a name that no role can have is not remembered');
is($plain->post("$site/login", { content => encode(token => 'x', role => 'ann', password => 'ann-secret'), headers => { 'content-type' => 'application/x-www-form-urlencoded', cookie => 'sas_login=y' } })->{status}, 403, 'a login from a form of somebody else is refused');
my %me = map { $_ => log_in($_, "$_-secret") } qw(ann bob opa mona nobody);
like($me{ann}{set_cookie}, qr/HttpOnly.*SameSite=Strict/i, 'the cookie of a session is for this site alone, and no script');

# beside each other, as one who guesses would do it
my ($login, $token) = do { my $form = $plain->get("$site/login"); ($form->{headers}{'set-cookie'} =~ /^(sas_login=[^;]+)/, $form->{content} =~ /name="token" value="([^"]+)"/) };
my @guesses = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die } 1 .. 15;
foreach my $guess (@guesses)
{
	my $content = encode(token => $token, role => 'mona', password => "guess");
	print $guess "POST /login HTTP/1.1\r\nHost: 127.0.0.1:$port\r\nConnection: close\r\nCookie: $login\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: " . length($content) . "\r\n\r\n$content";
}
is(scalar(grep { my $answer = do { local $/; <$_> }; $answer =~ m{^HTTP/1.1 429 } } @guesses), 10, 'of fifteen guesses at the same time five are tried');

# -- each page ----------------------------------------------------------------------

my $run = submit('waits', q{, key => 'k<1>', labels => '{"tenant": "a"}'});
ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $run AND step = 'one'", 'signal'), 'a run waits');
foreach my $path ('/', '/runs', "/runs/$run", '/workflows', '/agents', '/queues', '/schedules', '/watches', '/alerts', '/workers', '/runs?state=running&labels=tenant%3Da&key=&text=')
{
	my $answer = page($me{ann}, $path);
	is($answer->{status}, 200, "$path is there");
	like($answer->{content}, qr{, as ann</span></header>}, "as $path is for ann");
	like($answer->{headers}{'content-security-policy'}, qr/default-src 'none'.*form-action 'self'.*frame-ancestors 'none'/, "$path has its policy");
	is("$answer->{headers}{'x-content-type-options'} $answer->{headers}{'cache-control'}", 'nosniff no-store', "$path is kept by nobody");
}
like(page($me{ann}, '/runs?text=tenant')->{content}, qr{<a href="/runs/$run">$run</a>}, 'a search finds the run');
is(page($me{bob}, "/runs/$run")->{status}, 404, 'for another user there is no such run');
unlike(page($me{bob}, '/runs')->{content}, qr{href="/runs/$run"}, 'nor in a list');
is(page($me{nobody}, '/')->{status}, 403, 'a role without a level sees nothing');
is(page($me{ann}, '/nope')->{status}, 400, 'a page that is not there is refused');
like(page($me{ann}, '/runs?created_after=whenever')->{content}, qr/whenever&quot; is no instant.*Write an instant/s, 'a search that is wrong says why');
like(page($me{ann}, '/console.js')->{headers}{'content-type'}, qr/javascript/, 'the script is there');
is(page($me{ann}, '/runs?root=//evil.example&token=mine&notice=x')->{content} =~ m{evil\.example|value="mine"}, '', 'an address cannot set what the server sets');

# -- what is refused ------------------------------------------------------------------

is(act($me{ann}, 'cancel', run_id => $run, token => $_)->{status}, 403, 'a form without the token of the session is refused: ' . ($_ // 'none')) foreach (undef, '', 'x', $me{bob}{token});
is(act($me{ann}, 'cancel', run_id => $run, _headers => { origin => 'http://evil.example' })->{status}, 403, 'so is one from another site');
is(act($me{ann}, 'cancel', run_id => $run, _headers => { 'sec-fetch-site' => 'cross-site' })->{status}, 403, 'as the browser tells it');
is(act($me{ann}, 'cancel', run_id => $run, reason => ' ')->{status}, 400, 'a verb without a reason is refused');
is(act($me{ann}, 'cancel', run_id => $run, confirm => undef)->{status}, 400, 'or without a confirmation');
is(act($me{ann}, $_, run_id => $run)->{status}, 404, "there is no verb $_") foreach qw(drop_agent set_secret);
is(act($me{ann}, 'skip', run_id => $run)->{status}, 400, 'nor one without what it needs');
is(page($me{ann}, '/do/cancel?run_id=' . $run)->{status}, 400, 'and no verb by GET');
is(state_of($run), 'running', 'all of which changed nothing');

# a role that may not
is(act($me{mona}, 'cancel', run_id => $run)->{status}, 403, 'a monitor may not cancel');
is(act($me{mona}, 'bulk', verb => 'cancel', search => '{}')->{status}, 403, 'nor many');
is(act($me{ann}, 'reset_agent', name => 'payments')->{status}, 403, 'a user may not reset an agent');
is(act($me{ann}, 'pause_queue', name => 'narrow')->{status}, 403, 'nor pause a queue');
is(act($me{bob}, 'cancel', run_id => $run)->{status}, 303, 'a verb on the run of another');
is(state_of($run), 'running', 'changes nothing');
unlike(page($me{mona}, "/runs/$run")->{content}, qr{action="/do/}, 'who may do nothing has no forms');

# -- each verb ---------------------------------------------------------------------------

# does(who, verb, fields, query, wanted)
sub does
{
	my ($who, $verb, $fields, $query, $wanted) = @_;
	my $answer = act($me{$who}, $verb, %$fields);
	is($answer->{status}, 303, "$verb by $who is done") or diag($answer->{content});
	return '' if $answer->{status} != 303;
	ok(wait_for($node, $query, $wanted), "$verb: $query") if $query;
	return page($me{$who}, $answer->{headers}{location})->{content};
}

like(does('ann', 'pause', { run_id => $run }, "SELECT state FROM sas.runs WHERE run_id = $run", 'paused'), qr{<section class="notice" role="status">pause: run $run: done, paused</section>}, 'and the page says so');
does('ann', 'set_priority', { run_id => $run, priority => 7 }, "SELECT priority FROM sas.runs WHERE run_id = $run", 7);
does('ann', 'resume', { run_id => $run }, "SELECT state FROM sas.runs WHERE run_id = $run", 'running');
does('ann', 'signal', { run_id => $run, name => 'go', payload => '{"x": 1}' }, "SELECT result FROM sas.runs WHERE run_id = $run", 'success');
does('ann', 'rerun', { run_id => $run }, "SELECT count(*) FROM sas.runs WHERE workflow = 'waits'", 2);
my $again = $node->safe_psql('postgres', 'SELECT max(run_id) FROM sas.runs');
does('opa', 'cancel', { run_id => $again }, "SELECT state || '/' || result FROM sas.runs WHERE run_id = $again", 'stopped/cancelled');
is($node->safe_psql('postgres', "SELECT string_agg(act || ': ' || role || ': ' || reason || ': ' || application, ', ' ORDER BY at) FROM sas.history WHERE run_id IN ($run, $again) AND act IN ('pause', 'cancel', 'signal', 'set_priority')"),
	'pause: ann: because of pause: sas console, set_priority: ann: because of set_priority: sas console, cancel: opa: because of cancel: sas console', 'the history keeps who, where and why');
my $halted = submit('waits');
does('ann', 'halt', { run_id => $halted }, "SELECT state FROM sas.runs WHERE run_id = $halted", 'stopped');
my $undone = submit('waits');
ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $undone AND step = 'one'", 'signal'), 'another run waits');
does('ann', 'compensate', { run_id => $undone }, "SELECT result FROM sas.runs WHERE run_id = $undone", 'compensated');
my @failed = map { submit('fails') } 1 .. 5;
becomes($_, 'paused', 'a run is paused for its failed step') foreach @failed;
does('ann', 'set_input', { run_id => $failed[0], step => 'bad', input => '{"a": 5}' }, "SELECT input FROM sas.steps WHERE run_id = $failed[0]", '{"a": 5}');
does('ann', 'retry', { run_id => $failed[0], step => 'bad' }, "SELECT attempt > 1 AND run_state = 'paused' FROM sas.steps WHERE run_id = $failed[0]", 't');
does('ann', 'retry', { run_id => $failed[0], new_key => 'yes' }, "SELECT attempt > 2 AND run_state = 'paused' FROM sas.steps WHERE run_id = $failed[0]", 't');
does('ann', 'skip', { run_id => $failed[0], step => 'bad', output => 'null' });
becomes($failed[0], 'stopped/warning', 'a run whose step was skipped goes on');
does('opa', 'skip', { run_id => $failed[4], step => 'bad', output => '' }, "SELECT output IS NULL AND state = 'skipped' FROM sas.steps WHERE run_id = $failed[4] AND step = 'bad'", 't');
does('ann', 'force_complete', { run_id => $failed[1], step => 'bad', output => '{"by": "hand"}' });
becomes($failed[1], 'stopped/success', 'and one whose step was completed by hand');
is(act($me{ann}, 'force_complete', run_id => $failed[2], step => 'bad', output => '{not json')->{status}, 409, 'what is no JSON is refused');
my $later = submit('plain', q{, start_at => now() + interval '1 day'});
does('ann', 'set_start_at', { run_id => $later, start_at => '2100-01-02 03:04' }, "SELECT start_at FROM sas.runs WHERE run_id = $later", '2100-01-02 03:04:00+00');
is(act($me{ann}, 'set_start_at', run_id => $later, start_at => 'some day')->{status}, 409, 'what is no time is refused');
$node->safe_psql('postgres', q{SET ROLE ann; SELECT sas.create_workflow('plain', '{"steps": {}, "priority": 1}')});
does('ann', 'set_version', { run_id => $later }, "SELECT version FROM sas.runs WHERE run_id = $later", 2);
does('ann', 'set_version', { run_id => $later, version => 1 }, "SELECT version FROM sas.runs WHERE run_id = $later", 1);
does('ann', 'set_start_at', { run_id => $later, start_at => '2020-01-01' }, "SELECT result FROM sas.runs WHERE run_id = $later", 'success');
my $alert = $node->safe_psql('postgres', 'SELECT max(alert_id) FROM sas.alerts WHERE acknowledged_at IS NULL');
does('opa', 'acknowledge', { alert_id => $alert }, "SELECT acknowledged_by FROM sas.alerts WHERE alert_id = $alert", 'opa');
does('opa', 'pause_agent', { name => 'payments' }, q{SELECT enabled FROM sas.agents WHERE name = 'payments'}, 'f');
does('opa', 'resume_agent', { name => 'payments' }, q{SELECT enabled FROM sas.agents WHERE name = 'payments'}, 't');
does('opa', 'reset_agent', { name => 'payments' });
does('opa', 'pause_queue', { name => 'narrow' }, 'SELECT paused_at IS NOT NULL FROM sas.queues', 't');
does('opa', 'pause_workflow', { name => 'plain' }, q{SELECT paused_at IS NOT NULL FROM sas.workflows WHERE workflow = 'plain'}, 't');
does('opa', 'resume_workflow', { name => 'plain' }, q{SELECT paused_at IS NOT NULL FROM sas.workflows WHERE workflow = 'plain'}, 'f');
does('opa', 'resume_queue', { name => 'narrow' }, 'SELECT paused_at IS NOT NULL FROM sas.queues', 'f');
does('ann', 'pause_schedule', { name => 'yearly' }, 'SELECT state || paused_reason FROM sas.schedules', 'pausedbecause of pause_schedule');
does('ann', 'resume_schedule', { name => 'yearly' }, 'SELECT state FROM sas.schedules', 'active');
does('ann', 'trigger_schedule', { name => 'yearly' }, q{SELECT count(*) FROM sas.runs WHERE workflow = 'plain'}, 2);
does('ann', 'pause_watch', { name => 'feed', key => 'k1' }, q{SELECT state LIKE '%paus%' FROM sas.watches}, 't');
does('ann', 'resume_watch', { name => 'feed', key => 'k1' }, q{SELECT state LIKE '%paus%' FROM sas.watches}, 'f');
does('ann', 'unwatch', { name => 'feed', key => 'k1' }, q{SELECT count(*) FROM sas.watches WHERE state NOT LIKE '%delet%'}, 0);
like(does('ann', 'unwatch', { name => 'feed', key => 'nobody' }), qr{role="status">unwatch: key nobody: [^<]*no[^<]*</section>}, 'a verb that is refused is not said to be done');
like(does('opa', 'resume_agent', { name => 'payments' }), qr{role="status">resume_agent: payments: nothing changed</section>}, 'nor one that changes nothing');
like(does('opa', 'pause_agent', { name => 'payments' }), qr{role="status">pause_agent: payments: done</section>}, 'one that does is');
does('opa', 'resume_agent', { name => 'payments' });
like(does('opa', 'acknowledge', { alert_id => $alert }), qr{role="status">acknowledge: alert $alert: [^<]*opa[^<]*</section>}, 'who has acknowledged an alert before is said');
like(does('ann', 'trigger_schedule', { name => 'yearly' }), qr{role="status">trigger_schedule: run \d+: done</section>}, 'the run of a schedule is named');
is(page($me{ann}, '/%00')->{status}, 400, 'an address that no text can be is refused');

# all runs of a search
$node->safe_psql('postgres', q{SET ROLE ann; SELECT count(*) FROM sas.submit_batch('waits', array_fill('{}'::jsonb, '{30}'), labels => '{"batch": "b"}')});
$node->safe_psql('postgres', q{SET ROLE ann; SELECT count(*) FROM sas.submit_batch('plain', '{"{}"}', labels => '{"batch": "b"}')});
my ($search) = page($me{ann}, '/runs?labels=batch%3Db')->{content} =~ /name="search" value="([^"]*)"/;
$search =~ s/&quot;/"/g;
like(does('ann', 'bulk', { verb => 'cancel', search => $search }, q{SELECT count(*) FROM sas.runs WHERE labels = '{"batch": "b"}' AND result = 'cancelled'}, 30), qr/cancel: 30 runs changed/, 'all runs that a search finds are cancelled, and the page says how many');
is(act($me{ann}, 'bulk', verb => 'drop', search => '{}')->{status}, 400, 'not by any word');

# -- a page follows ----------------------------------------------------------------------

my $followed = submit('waits');
ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $followed AND step = 'one'", 'signal'), 'one more run waits');
my $events = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Proto => 'tcp') or die $!;
print $events "GET /events HTTP/1.1\r\nHost: 127.0.0.1:$port\r\nCookie: $me{ann}{cookie}\r\n\r\n";
my $heard = '';
sub hear
{
	my ($pattern) = @_;
	return SasTest::wait_until(sub {
		while (IO::Select->new($events)->can_read(0.05)) { sysread($events, $heard, 65536, length $heard) or last }
		return $heard =~ $pattern;
	}, 60);
}
ok(hear(qr/text\/event-stream.*: here/s), 'events are a stream');
$heard = '';
$node->safe_psql('postgres', "SET ROLE ann; SELECT sas.signal($followed, 'go')");
ok(hear(qr/data: change/), 'it tells of a change that is not of this program');
becomes($followed, 'stopped/success', 'the run has ended');
# what the last commits of the run said has been heard, too, when the channel is quiet
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sas console' AND query LIKE '%sas.follow%'}), 1, 'by LISTEN, as the role that looks');
close $events;

# -- the end of a session ----------------------------------------------------------------

is($plain->post("$site/logout", { content => encode(token => 'x'), headers => { 'content-type' => 'application/x-www-form-urlencoded', cookie => $me{bob}{cookie} } })->{status}, 403, 'nobody else ends a session');
is($plain->post("$site/logout", { content => encode(token => $me{bob}{token}), headers => { 'content-type' => 'application/x-www-form-urlencoded', cookie => $me{bob}{cookie} } })->{status}, 303, 'logging out');
is(page($me{bob}, '/runs')->{status}, 303, 'ends it');
log_in('ann', 'wrong') foreach 1 .. 5;
is(log_in('ann', 'ann-secret')->{status}, 429, 'after five wrong passwords a role has to wait');
unlike(slurp_file($log), qr/Traceback|secret/, 'the program has met no error of its own, and printed no password') or diag(slurp_file($log));
SasTest::stop_program($program);
done_testing();
