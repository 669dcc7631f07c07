# SPDX-License-Identifier: PostgreSQL
#
# CREATE EXTENSION makes the schemas sas and _sas itself, in its own transaction. It takes none that exists:
# somebody may have put into it what the script would then run as a superuser.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', _extension => 0, max_prepared_transactions => 5);
my $n = 0;
$node->safe_psql('postgres', 'CREATE ROLE dba LOGIN; CREATE ROLE guest LOGIN');

# database(): a new one, of a role that is no superuser
sub database
{
	my $name = 'd' . ++$n;
	$node->safe_psql('postgres', "CREATE DATABASE $name OWNER dba");
	return $name;
}

# as(role, database, sql): runs it as somebody who has logged in
sub as
{
	my ($role, $database, $sql) = @_;
	$node->safe_psql($database, $sql, extra_params => [ '-U', $role ]);
	return;
}

sub contents
{
	my ($database) = @_;
	return $node->safe_psql($database, q{
		SELECT 'extension ' || extname FROM pg_extension UNION ALL
		SELECT 'schema ' || nspname || ' ' || coalesce(nspacl::text, '') FROM pg_namespace UNION ALL
		SELECT 'function ' || oid::regprocedure FROM pg_proc WHERE pronamespace::regnamespace::text IN ('sas', '_sas') UNION ALL
		SELECT 'relation ' || oid::regclass FROM pg_class WHERE relnamespace::regnamespace::text IN ('sas', '_sas') ORDER BY 1});
}

# refused(database, schema, claim): CREATE EXTENSION says why not, and leaves nothing
sub refused
{
	my ($database, $schema, $claim) = @_;
	my $before = contents($database);
	my ($out, $err);
	my $status = $node->psql($database, '\set VERBOSITY verbose
		CREATE EXTENSION sas', stdout => \$out, stderr => \$err, on_error_stop => 1);
	isnt($status, 0, $claim);
	like($err, qr/ERROR:  42P06: schema "$schema" already exists.*HINT:  Drop or rename the schema/s,
		'... and it is said why');
	unlike($err, qr/TRAPPED/, '... and nothing of it was run');
	is(contents($database), $before, '... and nothing is left of it');
	return;
}

# created(database, claim)
sub created
{
	my ($database, $claim) = @_;
	my ($out, $err);
	is($node->psql($database, 'BEGIN; CREATE EXTENSION sas; COMMIT; SELECT (SELECT ok IS NOT NULL FROM sas.health())',
		stdout => \$out, stderr => \$err), 0, $claim);
	is($err, '', '... and nothing is complained about');
	is($out, 't', '... and it works');
	return;
}

# what others have made -----------------------------------------------------------------------------

# A function that fits better than that of the system, and an operator.
my $traps = q{
	CREATE FUNCTION %s.format(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'TRAPPED'; END $$;
	CREATE FUNCTION %1$s.trap(oid, oid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'TRAPPED'; END $$;
	CREATE OPERATOR %1$s.<> (LEFTARG = oid, RIGHTARG = oid, FUNCTION = %1$s.trap);
	CREATE VIEW %1$s.pg_namespace AS SELECT n.* FROM pg_catalog.pg_namespace n};
foreach my $schema ('sas', '_sas')
{
	my $d = database();
	as('dba', $d, "CREATE SCHEMA $schema; " . sprintf($traps, $schema));
	refused($d, $schema, "a schema $schema of the owner of the database, with traps in it, is refused");
	$node->safe_psql($d, "ALTER SCHEMA $schema OWNER TO postgres");
	refused($d, $schema, 'also when it belongs to the role that installs');
	$d = database();
	$node->safe_psql($d, "CREATE SCHEMA $schema");
	refused($d, $schema, 'an empty one is refused, too: somebody may have an open transaction that fills it');
	$node->safe_psql($d, "DROP SCHEMA $schema");
	created($d, 'and taken when the schema is gone');
}

# A schema that another session is making: CREATE EXTENSION waits for it, and is refused.
my $d = database();
my $open = SasSession->new($node, $d, user => 'dba');
$open->query('BEGIN; CREATE SCHEMA _sas');
my $installs = SasSession->new($node, $d);
$installs->start_query('CREATE EXTENSION sas');
ok(wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE EXTENSION sas%'}),
	'CREATE EXTENSION waits for a session that makes the schema');
$open->query('COMMIT');
like($installs->answer, qr/duplicate key|already exists/, 'and is refused when that session commits');

# rights that come by themselves ----------------------------------------------------------------------------

# who else has a right to a thing of the extension
my $strangers = q{
	SELECT count(*) FROM (
		SELECT proacl AS acl, proowner AS owner, 'f' AS kind FROM pg_proc WHERE pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
		UNION ALL SELECT relacl, relowner, CASE relkind WHEN 'S' THEN 's' ELSE 'r' END FROM pg_class WHERE relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND relkind IN ('r', 'v', 'S')
		UNION ALL SELECT typacl, typowner, NULL FROM pg_type WHERE typnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND typacl IS NOT NULL
		UNION ALL SELECT nspacl, nspowner, 'n' FROM pg_namespace WHERE nspname IN ('sas', '_sas')) x,
		aclexplode(coalesce(acl, acldefault(kind::"char", owner))) a WHERE a.grantee <> x.owner};
$d = database();
$node->safe_psql($d, 'CREATE EXTENSION sas');
is($node->safe_psql($d, $strangers), '0', 'nobody but the owner has a right to anything');
$d = database();
$node->safe_psql($d, "ALTER DEFAULT PRIVILEGES GRANT $_ TO guest")
  foreach 'SELECT ON TABLES', 'USAGE ON SEQUENCES', 'EXECUTE ON FUNCTIONS', 'USAGE ON TYPES', 'ALL ON SCHEMAS';
$node->safe_psql($d, 'CREATE EXTENSION sas');
is($node->safe_psql($d, $strangers), '0', 'nor by default privileges of the role that installs');
$node->safe_psql($d, q{SELECT sas.set_secret('token', 'sesame'), sas.grant_usage('guest', 'monitor')});
my ($said, $err) = ('', '');
$node->psql($d, 'SELECT value FROM _sas.secret', stdout => \$said, stderr => \$err, extra_params => [ '-U', 'guest' ]);
like($err, qr/permission denied for schema _sas/, 'so that secrets stay in');

# what is there, and what goes ------------------------------------------------------------------------

created(database(), 'the extension makes its own schemas');
$d = database();
created($d, 'once');
$node->safe_psql($d, 'DROP EXTENSION sas');
is($node->safe_psql($d, q{SELECT count(*) FROM pg_namespace WHERE nspname IN ('sas', '_sas')}), '0', 'DROP EXTENSION drops both schemas');
created($d, 'and it can be created again');
is($node->safe_psql($d, q{BEGIN; SET search_path = public; DROP EXTENSION sas; CREATE EXTENSION sas; SHOW search_path}),
	'public', 'the search_path of the session stays as it was');

done_testing();
