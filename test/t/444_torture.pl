# SPDX-License-Identifier: PostgreSQL
#
# A mixed load on a server to which everything happens that can; then a checker
# of its own proves that nothing was lost or doubled: test/torture/README.md.
#
#   SEED=7         the same decisions again (but not the same times); printed
#   MINUTES=30     of the storm (1; SAS_LONG=1: 30)
#   STRIKES="jump_clock fill_disk"    these first
#
# Takes about 90 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../torture";
use SasTest;
use Test::More;
use Time::HiRes qw(time sleep);
use TortureChecker;
use TortureFaults;
use TortureLoad;

my $seed = $ENV{SEED} || int(rand(1 << 30));
my $minutes = $ENV{MINUTES} || ($ENV{SAS_LONG} ? 30 : 1);
srand($seed);
note("figure: MINUTES=$minutes SEED=$seed");
$| = 1;

# how long each part took, which no test judges
my ($part, $took) = (time(), '');
sub took { my ($what) = @_; $took .= sprintf('%s%s %.0f s', $took eq '' ? '' : ', ', $what, time() - $part); $part = time(); return }

TortureFaults::open_strikes(PostgreSQL::Test::Utils::tempdir());
my $node = new_node('server_1', _init => [ allows_streaming => 1 ], max_prepared_transactions => 20, max_worker_processes => 24,
	wal_log_hints => 'on', wal_keep_size => '1GB',
	'sas.complete_in' => '4 s', 'sas.supervisor_interval' => '10 s');
my $url = TortureLoad::start_service($seed);
TortureLoad::define_all($node, $url);
my $load = TortureLoad->start(PostgreSQL::Test::Utils::tempdir(), $seed);
$load->aim($node);
http_post("$url/mood", { wild => JSON::PP::true });

# -- the storm ------------------------------------------------------------------------------------

took('set up');
my $faults = TortureFaults->new($node, $load);
my $end = time() + 60 * $minutes;
sleep 2;
$faults->one('promote');
$faults->one('kill_worker');
$faults->one($_) foreach split / /, $ENV{STRIKES} // '';
$faults->strike while time() < $end;
# a minute is too short for each kind
if ($minutes >= 10)
{
	$faults->strike_rest;
	is(join(' ', $faults->missing), '', 'each kind of fault has happened');
}

# -- and after ------------------------------------------------------------------------------------

took('storm');
http_post("$url/mood", { wild => JSON::PP::false });
$load->finish;
$faults->calm;
$node = $faults->{node};
note('figure: ' . $faults->report);
$node->safe_psql('postgres', q{
	SELECT sas.unschedule('often'); SELECT count(*) FROM sas.unwatch('turns', '{1,2,3,4}'); SELECT FROM sas.unwatch('lines', '{k}') l, sas.unwatch('taken', '{k}') t});
# hooks are runs that the views do not show; alerts tell of those that are parked
sub resume { $node->psql('postgres', q{SELECT count(*) FROM (SELECT run_id FROM sas.runs WHERE state = 'paused' UNION SELECT run_id FROM sas.alerts WHERE kind = 'parked' AND run_id IS NOT NULL) r, LATERAL sas.resume(r.run_id)}); return }
my $open = q{SELECT count(*) FROM _sas.run WHERE state <> 'stopped'};
my $last = 1e9;
my $stuck = time();
wait_until(
	sub {
		resume();
		my $now = $node->safe_psql('postgres', $open);
		($last, $stuck) = ($now, time()) if $now < $last;
		sleep 0.5;
		return $now == 0 || time() > $stuck + 120;
	}, 600 + 60 * $minutes);
is($last, 0, 'every run ends') or diag($node->safe_psql('postgres', q{
	SELECT r.run_id, r.workflow, r.state, s.step, s.element, s.state, s.failure_count, s.complete_by, s.waiting_kind, s.waiting_on, s.error,
		s.waiting_until - sas.now() AS until, s.waiting_since - sas.now() AS since
	FROM sas.runs r LEFT JOIN sas.steps s USING (run_id) WHERE r.state <> 'stopped' ORDER BY 1, 4 LIMIT 40}) . "\n"
		. $node->safe_psql('postgres', q{SELECT sas.now(), s, (SELECT jsonb_agg(d) FROM _sas.message d WHERE d.run_id = s.run_id)
	FROM _sas.step s WHERE s.state IN ('ready', 'running', 'suspended', 'compensating') LIMIT 20}));
ok(wait_for($node, q{SELECT (SELECT count(*) FROM _sas.lease) + (SELECT count(*) FROM _sas.external_slot WHERE request_id IS NOT NULL)}, '0', limit => 60), 'every worker comes to rest');
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state <> 'deleted'}, '0'), 'every infinite task ends');
$load->stop;
took('settled');
TortureChecker::check($node, http_get("$url/books"), $faults->{struck}, $faults->{lost});
note('figure: runs ' . $node->safe_psql('postgres', q{SELECT string_agg(format('%s %s', result, n), ', ' ORDER BY result) FROM (SELECT result, count(*) AS n FROM sas.runs GROUP BY 1) x}));
took('judged');
note("figure: $took");
$node->stop;
done_testing();
