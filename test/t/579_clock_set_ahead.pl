# SPDX-License-Identifier: PostgreSQL
#
# A clock that is set ahead, past complete-by, takes no call from the worker that makes it, and its answer counts: a
# worker measures the time of its calls on a clock that does not jump. Calls that it claims afterwards change nothing
# about those from before; and a step whose worker dies is taken back. Takes about 30 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../torture";
use SasTest;
use SasService;
use Test::More;
use TortureFaults ();

TortureFaults::open_strikes(PostgreSQL::Test::Utils::tempdir());
my $node = new_node('main', 'sas.agents' => 1, 'sas.supervisor_interval' => '1 s');
my $service = SasService->new;
my $clock = bless { node => $node }, 'TortureFaults';
$service->script(held => [ { gate => 1 } ], never => [ { gate => 1 } ]);
make_agent($node, 'remote', $service, request_timeout => '10 min');
define($node, 'held', { steps => { it => { agent => 'remote', complete_in => '10 min', call => { method => 'POST', path => '/held' } } } });
define($node, 'quick', { steps => { it => { agent => 'remote', call => { method => 'POST', path => '/quick' } } } });
define($node, 'day', { steps => { it => { agent => 'remote', complete_in => '1 day', call => { method => 'POST', path => '/day' } } } });
define($node, 'never', { steps => { it => { agent => 'remote', complete_in => '2 s', call => { method => 'POST', path => '/never' } } } });

sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
my $ended = q{SELECT string_agg(DISTINCT coalesce(result, state), ' ') FROM sas.runs WHERE workflow = 'held'};
my $wrong = q{SELECT coalesce(string_agg(status, ' '), '') FROM sas.attempts WHERE status <> 'succeeded'};

# until supervisors have had time to take back what is overdue
sub looked
{
	my $look = q{SELECT max(last_activity_at) FROM sas.workers WHERE actor = 'supervisor'};
	foreach (1 .. 3)
	{
		my $last = sql($look);
		wait_for($node, "SELECT ($look) > '$last'") or return 0;
	}
	return 1;
}

sql(q{SELECT count(s.run_id) FROM generate_series(1, 3) n, sas.submit('held', jsonb_build_object('n', n)) s});
ok(wait_until(sub { $service->requests('held') == 3 }), 'three calls are under way');
looked();
$clock->set_strikes(ahead => 6 * 3600);
cmp_ok(sql('SELECT count(*) FROM _sas.step WHERE complete_by < sas.now()'), '==', 3, 'the clock is set ahead, past complete-by');
ok(looked(), 'supervisors look');
is(sql($wrong), '', 'and take nothing back');
my $quick = submit($node, 'quick', {});
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $quick", 'success'), 'their worker claims and makes another call');
ok(looked(), 'supervisors look again');
is(sql($wrong), '', 'and take nothing back');
$service->release;
ok(wait_for($node, $ended, 'success'), 'each of the three is answered, and that counts');
is(sql($wrong), '', 'no attempt failed');
is(scalar($service->requests('held')), 3, 'and none is asked for again');

my $day = submit($node, 'day', {});
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $day", 'success'), 'a call that has had a whole day ends');
$clock->set_strikes(ahead => 9 * 3600);
$quick = submit($node, 'quick', {});
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $quick", 'success'), 'the clock is set ahead, and another ends');
my $never = submit($node, 'never', {});
ok(wait_for($node, "SELECT count(*) > 0 FROM sas.attempts WHERE run_id = $never AND status <> 'succeeded'"), 'one that gets no answer is taken back nevertheless');

sql(q{SELECT count(s.run_id) FROM generate_series(4, 5) n, sas.submit('held', jsonb_build_object('n', n)) s});
ok(wait_until(sub { $service->requests('held') == 5 }), 'two more calls are under way');
looked();
$clock->set_strikes(ahead => 12 * 3600);
ok(looked(), 'the clock is set ahead again');
kill_worker($node, 'agent');
ok(wait_until(sub { $service->requests('held') == 7 }), 'their worker dies: another one makes them');
$service->release;
ok(wait_for($node, $ended, 'success'), 'and the runs end');
$node->stop;
done_testing();
