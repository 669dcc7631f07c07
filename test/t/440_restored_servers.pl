# SPDX-License-Identifier: PostgreSQL
#
# A copy of a server calls nobody until it is released: a base backup that is
# started, a restore to a point in time. A crash, a restart and the promotion of
# a standby are no copies. Takes about 90 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasCopies;
use SasTest;
use PostgreSQL::Test::Utils;
use Test::More;

allow_late('a copy leaves its work lying until it is released');

my $primary = new_node('primary', _init => [ allows_streaming => 1, has_archiving => 1 ], 'sas.complete_in' => '5 s', max_prepared_transactions => 5);
my $service = work_of_all_kinds($primary);

# -- the server itself ----------------------------------------------------------------------------

$primary->stop('immediate');
$primary->start;
goes_on_at_home($primary, $service, 'after a crash');
kill_worker($primary, 'agent');
ok(wait_for($primary, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), 'a worker is killed, and the server restarts its processes');
$primary->restart;
ok(wait_for($primary, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), 'after a restart every kind of worker runs');

# -- copies of it ---------------------------------------------------------------------------------

# a call that is in progress when the copies are made
$service->script(hangs => [ { how => 'silent' }, { json => 'done' } ]);
$primary->safe_psql('postgres', q{SELECT count(*) FROM sas.submit('hangs', '{"again": 1}', key => 'second')});
ok($service->wait_for_requests('hangs', 3), 'a call is in progress');
$primary->backup('base');
my $target = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_create_restore_point($$here$$))');
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
ok(wait_for($primary, "SELECT last_archived_wal >= '$target' FROM pg_stat_archiver"), 'the archive has it all');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
is($standby->safe_psql('postgres', 'SELECT quarantined FROM sas.health()'), 'f', 'a standby is no copy');
# after the promotion nobody can note where the data is
$primary->safe_psql('postgres', q{BEGIN; LOCK TABLE _sas.home; PREPARE TRANSACTION 'holds'});
$primary->wait_for_catchup($standby);
$primary->stop('immediate');

my $started = PostgreSQL::Test::Cluster->new('started');
$started->init_from_backup($primary, 'base');
# or it would write into the archive of its original
$started->append_conf('postgresql.conf', 'archive_mode = off');
$started->start;
calls_nobody($started, $service, 'a base backup that is started', reason => qr/started from a base backup/);
$started->restart;
calls_nobody($started, $service, 'the same, restarted', reason => qr/started from a base backup/);
$started->stop('immediate');
$started->start;
calls_nobody($started, $service, 'the same, after a crash', reason => qr/started from a base backup/);
goes_on_when_released($started, $service, 'a base backup that is started');
$started->restart;
ok(wait_for($started, 'SELECT count(DISTINCT actor) FROM sas.workers', '4'), 'what was released stays so');
$started->stop;

$service->script(hangs => [ { how => 'silent' }, { json => 'done' } ]);
my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'base', has_restoring => 1, standby => 0);
$restored->append_conf('postgresql.conf', "recovery_target_name = 'here'\nrecovery_target_action = 'promote'\narchive_mode = off\n");
$restored->start;
ok(wait_for($restored, 'SELECT NOT pg_is_in_recovery()'), 'a restore to a point in time ends');
calls_nobody($restored, $service, 'a restore to a point in time', reason => qr/restored to a point in time/);

# its own standby is a copy of a copy
$restored->backup('base');
my $of_copy = PostgreSQL::Test::Cluster->new('of_copy');
$of_copy->init_from_backup($restored, 'base', has_streaming => 1);
$of_copy->append_conf('postgresql.conf', "recovery_target_name = ''\n");
$of_copy->start;
is($of_copy->safe_psql('postgres', 'SELECT quarantined FROM sas.health()'), 't', 'the standby of a copy says what its primary says');
$restored->stop;
$of_copy->promote;
calls_nobody($of_copy, $service, 'the promoted standby of a copy', reason => qr/restored to a point in time/);
goes_on_when_released($of_copy, $service, 'the promoted standby of a copy');
$of_copy->stop;

# -- a promotion ----------------------------------------------------------------------------------

$service->script(hangs => [ { json => 'done' } ]);
$standby->promote;
ok(wait_for($standby, q{SELECT count(*) > 0 FROM pg_locks WHERE relation = '_sas.home'::regclass AND NOT granted}), 'a standby is promoted, and its databases cannot be looked at');
$standby->stop('immediate');
$standby->start;
$standby->safe_psql('postgres', q{ROLLBACK PREPARED 'holds'});
goes_on_at_home($standby, $service, 'a promoted standby');
$standby->stop('immediate');
$standby->start;
goes_on_at_home($standby, $service, 'a promoted standby after a crash');
$standby->stop;
done_testing();
