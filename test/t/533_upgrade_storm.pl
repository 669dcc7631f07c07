# SPDX-License-Identifier: PostgreSQL
#
# An upgrade under the load of torture (test/torture): steps of every kind, infinite tasks, a schedule, locks and
# queues, a service that misbehaves, workers that die. A standby with the next library (test/upgrade) takes over, then
# one with that of before, then the server restarts with the next one, and the schema follows. The checker of torture
# proves that nothing was lost or done twice.
#
#   SEED=7       the same decisions again; printed
#   SECONDS=20   of the load in each part
#
# Takes about 90 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../torture";
use SasTest;
use Test::More;
use Time::HiRes qw(time);
use TortureChecker;
use TortureFaults;
use TortureLoad;

my $next_path = $ENV{SAS_NEXT} or die 'tools/check makes the next release';
my $seed = $ENV{SEED} || int(rand(1 << 30));
my $seconds = $ENV{SECONDS} || 8;
srand($seed);
note("figure: SEED=$seed");

my $node = new_node('server_1', _init => [ allows_streaming => 1 ], max_worker_processes => 24, 'sas.complete_in' => '4 s', 'sas.supervisor_interval' => '10 s');
my $version = q{SELECT extversion FROM pg_extension WHERE extname = 'sas'};
my $from = $node->safe_psql('postgres', $version);
my $url = TortureLoad::start_service($seed);
TortureLoad::define_all($node, $url);
my $load = TortureLoad->start(PostgreSQL::Test::Utils::tempdir(), $seed);
$load->aim($node);
http_post("$url/mood", { wild => JSON::PP::true });

my ($servers, @struck) = (1);
my %strikes = map { $_ => 1 } qw(stop_worker kill_worker freeze_worker end_backend hold_rows restart_workers);

# works(name, schema): the load goes on in this schema, while workers die
sub works
{
	my ($name, $schema) = @_;
	my $faults = TortureFaults->new($node, $load);
	my $ended = q{SELECT count(*) FROM sas.runs WHERE state = 'stopped'};
	my $before = $node->safe_psql('postgres', $ended);
	my $until = time() + $seconds;
	$faults->one((sort keys %strikes)[ rand keys %strikes ]) while time() < $until;
	$faults->let_go;
	$faults->thaw(1);
	$faults->until_up;
	push @struck, @{ $faults->{struck} };
	is($node->safe_psql('postgres', $version), $schema, "$name: the schema is $schema");
	ok(wait_for($node, "SELECT ($ended) > $before + 20"), "$name: runs end");
	return;
}

# changes(code): the server is another one afterwards, or away meanwhile
sub changes
{
	my ($code) = @_;
	my $begun = time();
	$code->();
	wait_for($node, 'SELECT NOT pg_is_in_recovery()');
	$load->aim($node);
	push @struck, [ $begun, time(), 'upgrade' ];
	return;
}

# switch_over(path): a synchronous standby with the library of this path takes over
sub switch_over
{
	my ($path) = @_;
	my $name = 'server_' . ++$servers;
	$node->backup($name, backup_options => [ '--checkpoint', 'fast' ]);
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->{_install_path} = $path;
	$standby->init_from_backup($node, $name, has_streaming => 1);
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$standby->start;
	$node->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
	$node->reload;
	wait_for($node, q{SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'}, '1') or die 'no synchronous standby';
	$node->stop('immediate');
	$standby->promote;
	$node = $standby;
	return;
}

sub known { return $node->safe_psql('postgres', 'SHOW sas.known_versions') }

works('the library of before', $from);
changes(sub { switch_over($next_path) });
my ($to) = known() =~ /^(\S+) \Q$from\E$/;
isnt($to, undef, 'a standby with the next library is promoted');
works('the next library on a standby of before', $from);
changes(sub { switch_over(undef) });
unlike(known(), qr/\Q$to\E/, 'a standby with the library of before is promoted');
works('back on the library of before', $from);
changes(sub { $node->stop('immediate'); $node->{_install_path} = $next_path; $node->start });
works('the next library after a restart', $from);
my $updated = 0;
changes(sub {
	foreach (1 .. 50)
	{
		last if $updated = $node->psql('postgres', q{SET lock_timeout = '5s'; ALTER EXTENSION sas UPDATE}, timeout => 120) == 0;
	}
});
ok($updated, 'ALTER EXTENSION UPDATE under load');
works('the next schema', $to);

# -- and after ------------------------------------------------------------------------------------

http_post("$url/mood", { wild => JSON::PP::false });
$load->finish;
$node->safe_psql('postgres', q{
	SELECT sas.unschedule('often'); SELECT count(*) FROM sas.unwatch('turns', '{1,2,3,4}'); SELECT FROM sas.unwatch('lines', '{k}') l, sas.unwatch('taken', '{k}') t});
ok( wait_until(
		sub {
			$node->psql('postgres', q{SELECT count(*) FROM (SELECT run_id FROM sas.runs WHERE state = 'paused') r, LATERAL sas.resume(r.run_id)});
			return $node->safe_psql('postgres', q{SELECT count(*) FROM _sas.run WHERE state <> 'stopped'}) eq '0';
		}, 600), 'every run ends')
  or diag($node->safe_psql('postgres', q{SELECT r.run_id, r.workflow, r.state, s.step, s.state, s.waiting_kind, s.error
	FROM sas.runs r LEFT JOIN sas.steps s USING (run_id) WHERE r.state <> 'stopped' ORDER BY 1, 4 LIMIT 40}));
ok(wait_for($node, q{SELECT (SELECT count(*) FROM _sas.lease) + (SELECT count(*) FROM _sas.external_slot WHERE request_id IS NOT NULL)}, '0'), 'every worker comes to rest');
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state <> 'deleted'}, '0'), 'every infinite task ends');
$load->stop;
TortureChecker::check($node, http_get("$url/books"), \@struck);
note('figure: runs ' . $node->safe_psql('postgres', q{SELECT string_agg(format('%s %s', result, n), ', ' ORDER BY result) FROM (SELECT result, count(*) AS n FROM sas.runs GROUP BY 1) x}));
$node->stop;
done_testing();
