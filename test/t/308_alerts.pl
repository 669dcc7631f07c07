# SPDX-License-Identifier: PostgreSQL
#
# Alerts of the server: a supervisor that is late, workers that fail again and
# again. Each is told once, by NOTIFY and to the hook, and closes itself.
# Takes about 230 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasSession;
use SasTest;
use Test::More;
use Time::HiRes qw(sleep);

my $node = new_node('main', 'sas.supervisor_interval' => '500 ms');
$node->safe_psql('postgres', q{
	CREATE ROLE pager;
	SELECT sas.grant_usage('pager', 'admin');
	GRANT CREATE ON SCHEMA public TO pager;
	SET ROLE pager;
	CREATE TABLE public.page (n int GENERATED ALWAYS AS IDENTITY, kind text, message text, by name DEFAULT current_user);
	CREATE FUNCTION public.page_somebody(alert jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.page (kind, message) SELECT alert ->> 'kind', alert ->> 'message' RETURNING to_jsonb(n) $$;
	SELECT sas.set_alert_hook('public.page_somebody(jsonb)');
	RESET ROLE;
	CREATE FUNCTION public.book(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	SELECT sas.create_workflow('book', '{"steps": {"s": {"function": "public.book"}}}')});
my $listener = SasSession->new($node);
$listener->query('LISTEN sas_alert');
my $heard = '';
sub told { my ($kind) = @_; $heard .= $listener->query('SELECT'); return scalar(() = $heard =~ /with payload "\{"kind": "$kind", "run_id": (?:\d+|null), "alert_id": \d+\}"/g) }

# one that is stopped in the middle of a turn ends that turn as if nothing had been
sub stopped_asleep
{
	my ($pid) = @_;
	return wait_until(sub {
			kill 'STOP', $pid;
			return 1 if $node->safe_psql('postgres', "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid") eq 'Extension';
			kill 'CONT', $pid;
			return 0;
		});
}

# -- a supervisor that is late ----------------------------------------------------------------

my ($supervisor) = $node->safe_psql('postgres', q{SELECT pid FROM sas.workers WHERE actor = 'supervisor'});
ok(stopped_asleep($supervisor), 'the supervisor is stopped in its sleep');
$node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('book')});
all_ended($node, 'work goes on without it');
$node->safe_psql('postgres', q{
	SELECT sas.create_agent('outside', kind => 'external');
	SELECT sas.create_workflow('task', '{"steps": {"s": {"agent": "outside", "task": {}}}}');
	SELECT count(*) FROM sas.submit('task', deadline => '1 s')});
ok(wait_for($node, q{SELECT value > 6 FROM sas.metrics('{sas_lateness_seconds}') WHERE labels ->> 'actor' = 'supervisor'}), 'what is due lies there');
kill 'CONT', $supervisor;
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'late'}, '1'), 'a supervisor that was late says so');
like($node->safe_psql('postgres', q{SELECT message FROM sas.alerts}), qr/^the supervisor was 00:00:\d\d late/, 'and how late');
ok(wait_until(sub { told('late') == 1 }), 'NOTIFY tells of it');
ok(wait_for($node, 'SELECT string_agg(kind || $$ by $$ || by, $$, $$) FROM public.page', 'late by pager'), 'and the hook, which is called as the role that has set it');

# -- a scheduler that is late -----------------------------------------------------------------

my ($scheduler) = $node->safe_psql('postgres', q{SELECT pid FROM sas.workers WHERE actor = 'scheduler'});
ok(stopped_asleep($scheduler), 'the scheduler is stopped in its sleep');
my $run = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('book', start_at => now() + interval '1 s')});
ok(wait_for($node, q{SELECT message FROM sas.alerts WHERE kind = 'late' AND message LIKE '%scheduler%'}, 'the scheduler does not process due work; see sas.workers and the server log'),
	'the supervisor says that it does not look at what is due');
ok(wait_until(sub { told('late') == 2 }), 'NOTIFY tells of it, too');
ok(wait_for($node, q{SELECT count(*) FROM public.page WHERE message LIKE '%scheduler%'}, '1'), 'and the hook, which does not wait for the scheduler');
kill 'CONT', $scheduler;
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped'), 'and it goes on where it was');

# -- a worker that fails again and again --------------------------------------------------------

# whatever a function worker asks for raises
$node->safe_psql('postgres', q{ALTER FUNCTION _sas.claim_functions RENAME TO claim_functions_away});
$node->safe_psql('postgres', q{SELECT FROM sas.submit('book')});
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'crash-loop'}, '1', limit => 400), 'workers that fail again and again are told of')
  or diag($node->safe_psql('postgres', 'SELECT * FROM _sas.crash_loops()'));
like($node->safe_psql('postgres', q{SELECT message FROM sas.alerts WHERE kind = 'crash-loop'}), qr/actor "function" has failed \d+ times in a row/, 'with which and how often');
sleep 2;
is($node->safe_psql('postgres', q{SELECT occurrences FROM sas.alerts WHERE kind = 'crash-loop'}), '1', 'one alert while it lasts');
is(told('crash-loop'), 1, 'told once');
is($node->safe_psql('postgres', q{SELECT alerts_open > 0, ok FROM sas.health()}), 't|f', 'sas.health() shows them');
$node->safe_psql('postgres', q{ALTER FUNCTION _sas.claim_functions_away RENAME TO claim_functions});
ok(wait_for($node, q{SELECT closed_at IS NOT NULL FROM sas.alerts WHERE kind = 'crash-loop'}, 't', limit => 300), 'a worker that has lived for a minute closes it');
ok(wait_for($node, q{SELECT string_agg(kind, ', ' ORDER BY n) FROM public.page}, 'late, late, crash-loop'), 'the hook was told of it as soon as somebody could call it');

# -- a server that crashes between the alert and its hook ------------------------------------------

($supervisor) = $node->safe_psql('postgres', q{SELECT pid FROM sas.workers WHERE actor = 'supervisor'});
ok(stopped_asleep($supervisor), 'the supervisor is stopped in its sleep');
$node->safe_psql('postgres', q{SELECT _sas.raise_alert('hook-failed', 'for the test', 'raised by a session')});
is($node->safe_psql('postgres', q{SELECT count(*) FROM _sas.message m JOIN _sas.alert a USING (alert_id) WHERE m.kind = 'alert_hook' AND a.kind = 'hook-failed'}), '1',
	'an alert leaves a message for its hook');
is($node->safe_psql('postgres', q{SELECT count(*) FROM public.page WHERE kind = 'hook-failed'}), '0', 'the hook is not called in the transaction of the alert');
$listener->quit;
# a stopped process would not see that the server crashes
kill 'KILL', $supervisor;
$node->stop('immediate');
$node->start;
ok(wait_for($node, q{SELECT count(*) FROM public.page WHERE kind = 'hook-failed'}, '1'), 'the server crashes before it is: it is called afterwards');
done_testing();
