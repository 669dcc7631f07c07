# SPDX-License-Identifier: PostgreSQL
#
# No role holds a lock that sas needs by taking it itself: what sas locks by name is no advisory lock that SQL can
# name. The attacker sees in pg_locks what sas has locked, and takes all that SQL takes of the same numbers.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

$sql->(q{
	CREATE ROLE worker LOGIN; CREATE ROLE mallory LOGIN;
	SELECT sas.create_agent('outside', kind => 'external'), sas.grant_usage('worker', 'worker', 'outside')});
is($sql->(q{SELECT count(*) FROM pg_proc WHERE pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND prosrc ~ 'pg_(try_)?advisory'}),
	'0', 'no function of sas takes an advisory lock');

my $register = q{SELECT sas.register_node('n1', 10, '{outside}') > 0};
my $worker = SasSession->new($node);
my $mallory = SasSession->new($node);
$worker->query('SET SESSION AUTHORIZATION worker');
$mallory->query('SET SESSION AUTHORIZATION mallory');
$worker->query('BEGIN');
is($worker->query($register), 't', 'a node registers');
my $seen = $mallory->query(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted});
is($seen, '1', 'others see what it has locked by name');
$mallory->query(q{CREATE TEMP TABLE seen AS SELECT classid::bigint::bit(32)::int AS high, objid::bigint::bit(32)::int AS low
	FROM pg_locks WHERE locktype = 'advisory'});
is($mallory->query(q{SELECT bool_and(pg_try_advisory_lock((high::bigint << 32) | (low::bigint & 4294967295)) AND pg_try_advisory_lock(high, low)) FROM seen}), 't',
	'and get all advisory locks of these numbers while it holds it');
$worker->query('COMMIT');
is($worker->query(q{SET lock_timeout = '10 s'; } . $register), 't', 'the node registers again: what they hold is nothing to it');

is($sql->(q{SELECT _sas.try_lock('alert x') AND _sas.try_lock('alert x')}), 't', 'a transaction has its own lock again');
$worker->query('RESET SESSION AUTHORIZATION; BEGIN; SELECT _sas.lock(\'alert x\')');
is($sql->(q{SELECT _sas.try_lock('alert x')}), 'f', 'and no other transaction has it meanwhile');
is($sql->(q{SELECT _sas.try_lock('alert y')}), 't', 'but that of another name');
$worker->query('ROLLBACK');
is($sql->(q{SELECT _sas.try_lock('alert x')}), 't', 'it ends with the transaction');
done_testing();
