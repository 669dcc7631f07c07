# SPDX-License-Identifier: PostgreSQL

=head1 NAME

SasCopies - a server in the middle of all kinds of work, and what a copy of it does

=head1 SYNOPSIS

    my $service = work_of_all_kinds($node);
    ... make a copy, end the original ...
    calls_nobody($copy, $service, 'a base backup', reason => qr/base backup/);
    goes_on_when_released($copy, $service, 'a base backup');

Everything that calls out leaves a trace: requests at the service, and rows in public.called, which is the
copy's own.

=cut

package SasCopies;

use strict;
use warnings;

use Exporter 'import';
use SasService;
use SasTest;
use Test::More;

our @EXPORT = qw(work_of_all_kinds calls_nobody goes_on_at_home goes_on_when_released);

# work_of_all_kinds(node): open work of each kind that calls out, in database postgres; the service that is called.
sub work_of_all_kinds
{
	my ($node) = @_;
	my $service = SasService->new(scripts => { hangs => [ { how => 'silent' }, { json => 'done' } ], down => [ { status => 503 } ] });
	make_agent($node, 'remote', $service);
	$node->safe_psql('postgres', q{
		CREATE TABLE public.called (what text NOT NULL, key text, at timestamptz NOT NULL DEFAULT clock_timestamp());
		CREATE FUNCTION public.note(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
			INSERT INTO public.called VALUES (coalesce(input ->> 'what', 'watcher'), input ->> 'key') RETURNING 'null'::jsonb $$;
		SELECT sas.create_agent('outside', kind => 'external');
		SELECT sas.create_watcher('turns', '{"function": "public.note", "every": "100 ms"}');
		SELECT sas.create_watcher('asks', '{"agent": "remote", "poll": {"call": {"path": "/asks"}, "every": "100 ms"}, "items": {"function": "public.note"}}');
		SELECT sas.create_watcher('hosted', '{"agent": "outside", "external": {}, "items": {"function": "public.note"}}')});
	define($node, 'hangs', { steps => { a => { agent => 'remote', call => { path => '/hangs', method => 'POST' }, complete_in => '5 s', recovery => { initial => '100 ms' } } } });
	define($node, 'down', { steps => { a => { agent => 'remote', call => { path => '/down' }, complete_in => '1 s', recovery => { initial => '100 ms', max => '1 s', max_failures => 100000 } } } });
	define($node, 'local', { steps => { a => { wait => { for => '100 ms' } }, b => { function => 'public.note', input => { what => 'function' }, after => ['a'] } } });
	define($node, 'hooked', { steps => { a => { wait => { for => '2 s' } } }, hooks => [ { on => 'success', agent => 'remote', call => { path => '/hook', method => 'POST' } } ] });
	define($node, 'task', { steps => { a => { agent => 'outside', task => {} } } });
	$node->safe_psql('postgres', q{
		SELECT sas.schedule('often', 'every 1 s', 'local');
		SELECT FROM sas.watch('turns', 'k') t, sas.watch('asks', 'k') a, sas.watch('hosted', 'k') h});
	submit($node, $_, {}, key => 'old') foreach qw(hangs down hooked task);
	$service->wait_for_requests($_, 1) foreach qw(hangs down asks);
	wait_for($node, q{SELECT count(DISTINCT what) = 2 FROM public.called});
	return $service;
}

sub called { my ($node, $database) = @_; return $node->safe_psql($database, 'SELECT count(*) FROM public.called') }
sub workers { my ($node, $database) = @_; return $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND backend_type NOT IN ('sas launcher', 'sas probe') AND datname = '$database'") }

# calls_nobody(node, service, name, dbname, reason): tests that this copy is in quarantine. The original has ended.
sub calls_nobody
{
	my ($node, $service, $name, %option) = @_;
	my $database = $option{dbname} // 'postgres';
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'quarantine' AND closed_at IS NULL}, '1', dbname => $database), "$name: an alert says so");
	like($node->safe_psql($database, q{SELECT message FROM sas.alerts WHERE kind = 'quarantine' AND closed_at IS NULL}), $option{reason}, "$name: and why");
	is($node->safe_psql($database, 'SELECT quarantined, ok FROM sas.health()'), 't|f', "$name: so does health");
	cmp_ok($node->safe_psql($database, q{SELECT count(*) FROM sas.explain() WHERE text LIKE '%this is a copy in quarantine (%): no worker runs until an admin calls sas.release()%'}), '>', 0, "$name: sas.explain says so, and what to do");
	is($node->safe_psql($database, q{SELECT count(*) FROM sas.runs r WHERE state <> 'stopped' AND NOT EXISTS (SELECT FROM sas.explain(r.run_id) WHERE text LIKE '%this is a copy in quarantine%')}), '0', "$name: so it does of each open run");
	my $requests = $service->requests;
	my $functions = called($node, $database);
	# the schedule was due once more, so were windows, timers, the poll and the watcher
	my $from = $node->safe_psql($database, 'SELECT clock_timestamp()');
	ok(wait_for($node, "SELECT clock_timestamp() > '$from'::timestamptz + interval '2500 ms'", 't', dbname => $database), "$name: much falls due");
	is(workers($node, $database), '0', "$name: no worker runs");
	is(scalar($service->requests), $requests, "$name: no request is made");
	is(called($node, $database), $functions, "$name: no function is called");
	is($node->safe_psql($database, q{SELECT count(*) FROM sas.claim('outside', 'program')}), '0', "$name: an outside agent gets no task");
	is($node->safe_psql($database, q{SELECT n.node_id > 0, (SELECT count(*) FROM sas.claim_watchers(n.node_id, 1)) FROM sas.register_node('copy', 1, '{outside}', by_connection => false) n (node_id)}), 't|0', "$name: an outside node no infinite task");
	is($node->safe_psql($database, q{SELECT count(*) FROM sas.submit('local', key => 'while')}), '1', "$name: a run can be submitted, and waits");
	return;
}

# goes_on_at_home(node, service, name, dbname): tests that work of each kind goes on without a release.
sub goes_on_at_home
{
	my ($node, $service, $name, %option) = @_;
	my $database = $option{dbname} // 'postgres';
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $functions = called($node, $database);
	my $asked = $service->requests('asks');
	ok(wait_for($node, "SELECT count(*) > $functions + 3 FROM public.called", 't', dbname => $database), "$name: functions are called");
	ok($service->wait_for_requests('asks', $asked + 2), "$name: requests are made");
	ok(wait_for($node, q{SELECT result FROM sas.runs WHERE workflow = 'hangs' AND key = 'old'}, 'success', dbname => $database), "$name: a call that was in progress is made again");
	my %keys = map { header_of($_, 'idempotency-key') => 1 } $service->requests('hangs');
	is(scalar(keys %keys), $node->safe_psql($database, q{SELECT count(*) FROM sas.runs WHERE workflow = 'hangs'}), "$name: under the same key");
	is($node->safe_psql($database, 'SELECT quarantined FROM sas.health()'), 'f', "$name: health sees no copy");
	is($node->safe_psql($database, q{SELECT count(*) FROM sas.alerts WHERE kind = 'quarantine' AND closed_at IS NULL}), '0', "$name: no alert is open for it");
	return;
}

# goes_on_when_released(node, service, name, dbname): tests that only an admin releases it, and what follows.
sub goes_on_when_released
{
	my ($node, $service, $name, %option) = @_;
	my $database = $option{dbname} // 'postgres';
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->safe_psql($database, q{CREATE ROLE op}) if $node->safe_psql($database, q{SELECT count(*) FROM pg_roles WHERE rolname = 'op'}) eq '0';
	$node->safe_psql($database, q{SELECT sas.grant_usage('op', 'operator')});
	my (undef, undef, $refused) = $node->psql($database, 'SET ROLE op; SELECT sas.release()');
	like($refused, qr/permission denied/, "$name: an operator may not release it");
	$node->safe_psql($database, 'BEGIN; SELECT sas.release(); ROLLBACK');
	is($node->safe_psql($database, 'SELECT quarantined FROM sas.health()'), 't', "$name: a release that is rolled back is none");
	is($node->safe_psql($database, 'SELECT sas.release()'), 't', "$name: an admin releases it");
	is($node->safe_psql($database, q{SELECT count(*), bool_and(detail ? 'quarantined_for') FROM sas.history WHERE act = 'release'}), '1|t', "$name: the history has it");
	goes_on_at_home($node, $service, "$name, released", dbname => $database);
	is($node->safe_psql($database, 'SELECT sas.release()'), 'f', "$name: it is released once");
	ok(wait_for($node, q{SELECT result FROM sas.runs WHERE key = 'while'}, 'success', dbname => $database), "$name: what was submitted meanwhile is done");
	return;
}

1;
