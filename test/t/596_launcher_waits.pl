# SPDX-License-Identifier: PostgreSQL
#
# The launcher reads pg_database, and has to wait for a lock meanwhile. A request that comes while it does counts: the
# server has reset its latch, but it does not sleep over it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

# the timer of the look for deadlocks sets the latch, too: it is over by then
my $node = new_node('main', max_worker_processes => 24, deadlock_timeout => '10ms');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->("CREATE DATABASE $_") foreach qw(second other);
my ($looks, $locks, $renames) = map { SasSession->new($node) } 1 .. 3;
my $adds = SasSession->new($node, 'second');
my $launcher = $looks->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas launcher'});
my $waits = q{SELECT count(*) FROM pg_locks WHERE pid = } . $launcher . q{ AND NOT granted};

$adds->query('BEGIN; SET client_min_messages = warning; CREATE EXTENSION sas');
kill STOP => $launcher;
$renames->query('ALTER DATABASE other RENAME TO renamed');
$locks->query('BEGIN; LOCK TABLE pg_database IN ACCESS EXCLUSIVE MODE');
kill CONT => $launcher;
ok(wait_until(sub { $looks->query($waits) eq '1' }), 'the launcher waits for a lock');
$adds->query('COMMIT');
is($looks->query($waits), '1', 'the extension is added to a database, and it waits on');
$locks->query('COMMIT');
ok(wait_until(sub { $adds->query('SELECT count(DISTINCT actor) FROM sas.workers') eq '4' }), 'when it has the lock, it starts the workers of that database');
$_->quit foreach $looks, $locks, $renames, $adds;
$node->stop;
done_testing();
