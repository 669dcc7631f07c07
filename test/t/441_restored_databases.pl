# SPDX-License-Identifier: PostgreSQL
#
# A copy of a database calls nobody until it is released: by CREATE DATABASE ...
# TEMPLATE, or from a dump that has open work, whatever pg_restore is asked for.
# RENAME, SET TABLESPACE and a dump of definitions make no copy. DROP EXTENSION
# leaves nothing behind. Takes about 60 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasCopies;
use SasService;
use SasTest;
use PostgreSQL::Test::Utils;
use Test::More;

allow_late('a copy leaves its work lying until it is released');

my $node = new_node('main', max_worker_processes => 60, 'sas.complete_in' => '5 s');
my $folder = PostgreSQL::Test::Utils::tempdir();
my $sql = sub { my ($query, $database) = @_; return $node->safe_psql($database // 'postgres', $query) };

# -- dumps of definitions ---------------------------------------------------------------------------

define($node, 'early', { steps => { a => { wait => { for => '10 ms' } } } });
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$folder/definitions", 'postgres' ], 'a dump of definitions');
$sql->('CREATE DATABASE defined');
$node->command_ok([ 'pg_restore', '-d', 'defined', "$folder/definitions" ], 'is restored');
ok(wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4', dbname => 'defined'), 'its workers run');
is($sql->('SELECT quarantined FROM sas.health()', 'defined'), 'f', 'a dump without open work is no copy');

# a template in which nothing is defined
$sql->('CREATE DATABASE empty');
$sql->('CREATE EXTENSION sas', 'empty');
ok(wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4', dbname => 'empty'), 'a template has workers');
$sql->('CREATE DATABASE from_empty TEMPLATE empty');
ok(wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4', dbname => 'from_empty'), 'a copy of a database in which nothing is defined has workers at once');
$sql->("DROP DATABASE $_") foreach qw(defined from_empty empty);

# -- the original -----------------------------------------------------------------------------------

my $service = work_of_all_kinds($node);
$sql->('ALTER DATABASE postgres RENAME TO original', 'template1');
goes_on_at_home($node, $service, 'a database under another name', dbname => 'original');
my $elsewhere = PostgreSQL::Test::Utils::tempdir();
$sql->("CREATE TABLESPACE elsewhere LOCATION '$elsewhere'", 'template1');
$sql->('ALTER DATABASE original SET TABLESPACE elsewhere', 'template1');
goes_on_at_home($node, $service, 'a database in another tablespace', dbname => 'original');
$sql->('CREATE DATABASE postgres', 'template1');

# a call that is in progress when the copies are made
$service->script(hangs => [ { how => 'silent' }, { json => 'done' } ]);
my $hung = $service->requests('hangs');
$sql->(q{SELECT count(*) FROM sas.submit('hangs', '{"again": 1}', key => 'second')}, 'original');
ok($service->wait_for_requests('hangs', $hung + 1), 'a call is in progress');
$node->command_ok([ 'pg_dump', '-Fd', '-f', "$folder/directory", 'original' ], 'a dump as a folder');
$node->command_ok([ 'pg_dump', '-f', "$folder/plain.sql", 'original' ], 'a dump as a script');
$node->command_ok([ 'pg_dump', '--inserts', '-f', "$folder/inserts.sql", 'original' ], 'a dump as a script of INSERTs');
$sql->('CREATE DATABASE copied TEMPLATE original');
$sql->('ALTER DATABASE original ALLOW_CONNECTIONS false');
ok(wait_until(sub { SasCopies::workers($node, 'original') == 0 }), 'the original has ended');

# -- the copies -------------------------------------------------------------------------------------

calls_nobody($node, $service, 'a copy of a template', dbname => 'copied', reason => qr/from another database/);
$sql->('ALTER DATABASE copied RENAME TO renamed');
calls_nobody($node, $service, 'the same under another name', dbname => 'renamed', reason => qr/from another database/);
goes_on_when_released($node, $service, 'a copy of a template', dbname => 'renamed');
$sql->('DROP DATABASE renamed');

my %restores = (
	'pg_restore -j' => [ 'pg_restore', '-j', '4', '--exit-on-error', '-d', 'back', "$folder/directory" ],
	'pg_restore' => [ 'pg_restore', '--exit-on-error', '-d', 'back', "$folder/directory" ],
	'a script' => [ 'psql', '-XqAt', '-o', '/dev/null', '-v', 'ON_ERROR_STOP=1', '-d', 'back', '-f', "$folder/plain.sql" ],
	'a script of INSERTs' => [ 'psql', '-XqAt', '-o', '/dev/null', '-v', 'ON_ERROR_STOP=1', '-d', 'back', '-f', "$folder/inserts.sql" ]);
foreach my $how (sort keys %restores)
{
	$service->script(hangs => [ { how => 'silent' }, { json => 'done' } ]);
	$sql->('CREATE DATABASE back TEMPLATE template0');
	$node->command_ok($restores{$how}, "$how: no error");
	calls_nobody($node, $service, $how, dbname => 'back', reason => qr/from another database/);
	goes_on_when_released($node, $service, $how, dbname => 'back');
	last if $how eq 'pg_restore -j' && !Test::More->builder->is_passing;
	$sql->('DROP DATABASE back');
}

# -- DROP EXTENSION ---------------------------------------------------------------------------------

$sql->('ALTER DATABASE original ALLOW_CONNECTIONS true');
ok(wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4', dbname => 'original'), 'the original goes on');
$sql->('DROP EXTENSION sas; DROP FUNCTION public.note; DROP TABLE public.called', 'original');
is($sql->(q{SELECT string_agg(x, ', ') FROM (
	SELECT 'namespace ' || nspname FROM pg_namespace WHERE nspname IN ('sas', '_sas')
	UNION ALL SELECT 'relation ' || oid::regclass FROM pg_class WHERE oid >= 16384
	UNION ALL SELECT 'function ' || oid::regprocedure FROM pg_proc WHERE oid >= 16384
	UNION ALL SELECT 'type ' || oid::regtype FROM pg_type WHERE oid >= 16384
	UNION ALL SELECT 'trigger ' || evtname FROM pg_event_trigger
	UNION ALL SELECT 'large object' FROM pg_largeobject_metadata
	UNION ALL SELECT 'default privilege' FROM pg_default_acl) o (x)}, 'original'), '', 'DROP EXTENSION leaves nothing in the database');
is($sql->(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no lock');
ok(wait_until(sub { SasCopies::workers($node, 'original') == 0 }), 'and no worker');
$sql->('CREATE EXTENSION sas', 'original');
ok(wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4', dbname => 'original'), 'CREATE EXTENSION again: every kind of worker runs');
is($sql->('SELECT (SELECT count(*) FROM sas.runs), (SELECT count(*) FROM sas.agents), (SELECT count(*) FROM sas.watches), (SELECT count(*) FROM sas.alerts), quarantined FROM sas.health()', 'original'), '0|0|0|0|f', 'with nothing of before');
$node->stop;
done_testing();
