# SPDX-License-Identifier: PostgreSQL
#
# CREATE EXTENSION takes no schema sas in which somebody else has put, or may put, what the script would then run
# as a superuser.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', _extension => 0, max_prepared_transactions => 5);
my $n = 0;
$node->safe_psql('postgres', 'CREATE ROLE dba LOGIN; CREATE ROLE other LOGIN SUPERUSER; CREATE ROLE guest LOGIN');

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

# what others have made -----------------------------------------------------------------------------

# A function that fits better than that of the system, an operator, and one of each other kind.
my $traps = q{
	CREATE FUNCTION sas.format(text, text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN RAISE EXCEPTION 'TRAPPED'; END IF;
		RETURN '';
	END $$;
	CREATE FUNCTION sas.trap(oid, oid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'TRAPPED'; END $$;
	CREATE OPERATOR sas.<> (LEFTARG = oid, RIGHTARG = oid, FUNCTION = sas.trap);
	CREATE FUNCTION sas.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql
		AS $$ BEGIN RAISE EXCEPTION 'TRAPPED'; END $$;
	CREATE FUNCTION sas.pg_get_userbyid(oid) RETURNS name LANGUAGE plpgsql
		AS $$ BEGIN RAISE EXCEPTION 'TRAPPED'; END $$;
	CREATE VIEW sas.pg_namespace AS SELECT n.* FROM pg_catalog.pg_namespace n WHERE sas.trap(n.oid, n.oid)};
my %kinds = (
	table => 'CREATE TABLE sas.x (a int)',
	view => 'CREATE VIEW sas.x AS SELECT 1 AS a',
	sequence => 'CREATE SEQUENCE sas.x',
	function => 'CREATE FUNCTION sas.x() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$',
	procedure => 'CREATE PROCEDURE sas.x() LANGUAGE sql AS $$ SELECT 1 $$',
	aggregate => 'CREATE AGGREGATE sas.x(int) (SFUNC = int4pl, STYPE = int)',
	'composite type' => 'CREATE TYPE sas.x AS (a int)',
	'enum type' => q{CREATE TYPE sas.x AS ENUM ('a')},
	'shell type' => 'CREATE TYPE sas.x',
	domain => 'CREATE DOMAIN sas.x AS int',
	operator => 'CREATE OPERATOR sas.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)',
	collation => q{CREATE COLLATION sas.x FROM "C"},
	conversion => q{CREATE CONVERSION sas.x FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8},
	'operator class' => 'CREATE OPERATOR CLASS sas.x FOR TYPE int USING btree AS STORAGE int',
	'operator family' => 'CREATE OPERATOR FAMILY sas.x USING btree',
	'statistics object' => 'CREATE TABLE public.t (a int, b int); CREATE STATISTICS sas.x ON a, b FROM public.t',
	'text search configuration' => 'CREATE TEXT SEARCH CONFIGURATION sas.x (COPY = pg_catalog.simple)',
	'text search dictionary' => 'CREATE TEXT SEARCH DICTIONARY sas.x (TEMPLATE = simple)',
	'default privileges' => 'ALTER DEFAULT PRIVILEGES IN SCHEMA sas GRANT EXECUTE ON FUNCTIONS TO guest',
	extension => 'CREATE EXTENSION pg_trgm SCHEMA sas');
delete $kinds{extension}
  unless $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_trgm'});

# refused(database, why, claim): CREATE EXTENSION says why not, and leaves nothing
sub refused
{
	my ($database, $why, $claim) = @_;
	my $before = contents($database);
	my ($out, $err);
	my $status = $node->psql($database, '\set VERBOSITY verbose
		CREATE EXTENSION sas', stdout => \$out, stderr => \$err, on_error_stop => 1);
	isnt($status, 0, $claim);
	like($err, qr/ERROR:  55000: extension "sas" cannot be created .*DETAIL:  $why.*HINT:  Drop or rename/s,
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

sub contents
{
	my ($database) = @_;
	return $node->safe_psql($database, q{
		SELECT 'extension ' || extname FROM pg_extension UNION ALL
		SELECT 'schema ' || nspname || ' ' || coalesce(nspacl::text, '') FROM pg_namespace UNION ALL
		SELECT 'function ' || oid::regprocedure FROM pg_proc WHERE pronamespace::regnamespace::text = 'sas' UNION ALL
		SELECT 'relation ' || oid::regclass FROM pg_class WHERE relnamespace::regnamespace::text = 'sas' ORDER BY 1});
}

my $d = database();
as('dba', $d, "CREATE SCHEMA sas; $traps");
refused($d, 'It belongs to role "dba"', 'a schema of the owner of the database, with traps in it, is refused');
$node->safe_psql($d, 'ALTER SCHEMA sas OWNER TO postgres');
refused($d, 'It holds ', 'also when it is made over to who installs');

$d = database();
as('dba', $d, 'CREATE SCHEMA sas');
refused($d, 'It belongs to role "dba"', 'one that is empty is refused, too: he could fill it meanwhile');

$d = database();
as('other', $d, 'CREATE SCHEMA sas');
refused($d, 'It belongs to role "other"', 'one of another superuser is refused');

foreach my $kind (sort keys %kinds)
{
	$d = database();
	$node->safe_psql($d, "CREATE SCHEMA sas; $kinds{$kind}");
	refused($d, 'It holds ', "one of one's own with a thing in it is refused: $kind");
}

$d = database();
$node->safe_psql($d, 'CREATE SCHEMA sas; GRANT CREATE ON SCHEMA sas TO guest');
refused($d, 'Role "guest" may create', 'one in which a role may create is refused');
$node->safe_psql($d, 'REVOKE CREATE ON SCHEMA sas FROM guest; GRANT CREATE ON SCHEMA sas TO PUBLIC');
refused($d, 'Everybody may create', 'one in which everybody may create is refused');
$node->safe_psql($d, 'REVOKE CREATE ON SCHEMA sas FROM PUBLIC; GRANT USAGE ON SCHEMA sas TO guest');
created($d, 'one that a role may only use is taken');

$d = database();
$node->safe_psql($d, 'ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO guest');
refused($d, 'Role "guest" may create', 'a new one in which a role may create by default privileges is refused');
$node->safe_psql($d, 'CREATE SCHEMA sas');
refused($d, 'Role "guest" may create', 'and so is one that was made beforehand');

# what others have made and not committed ---------------------------------------------------------------

foreach my $end ('COMMIT', q{PREPARE TRANSACTION 'trap'})
{
	$d = database();
	as('dba', $d, 'CREATE SCHEMA sas');
	my $open = SasSession->new($node, $d, user => 'dba');
	$open->query("BEGIN; $traps");
	if ($end ne 'COMMIT')
	{
		$open->query($end);
		wait_for($node, q{SELECT count(*) FROM pg_prepared_xacts}, '1');
	}
	$node->safe_psql($d, 'ALTER SCHEMA sas OWNER TO postgres');
	refused($d, $end eq 'COMMIT' ? 'Process \d+ has a transaction open' : 'The prepared transaction "trap"', "one in which somebody makes things, by $end");
	$end eq 'COMMIT' ? $open->query('ROLLBACK') : $node->safe_psql($d, q{ROLLBACK PREPARED 'trap'});
	created($d, 'one that nobody has made anything in is taken, when that is over');
}

# rights that come by themselves ----------------------------------------------------------------------------

# who else has a right to a thing of the extension
my $strangers = q{
	SELECT count(*) FROM (
		SELECT proacl AS acl, proowner AS owner, 'f' AS kind FROM pg_proc WHERE pronamespace = 'sas'::regnamespace
		UNION ALL SELECT relacl, relowner, CASE relkind WHEN 'S' THEN 's' ELSE 'r' END FROM pg_class WHERE relnamespace = 'sas'::regnamespace AND relkind IN ('r', 'v', 'S')
		UNION ALL SELECT typacl, typowner, NULL FROM pg_type WHERE typnamespace = 'sas'::regnamespace AND typacl IS NOT NULL
		UNION ALL SELECT nspacl, nspowner, 'n' FROM pg_namespace WHERE nspname = 'sas') x,
		aclexplode(coalesce(acl, acldefault(kind::"char", owner))) a WHERE a.grantee <> x.owner};
$d = database();
$node->safe_psql($d, 'CREATE EXTENSION sas');
is($node->safe_psql($d, $strangers), '0', 'nobody but the owner has a right to anything');
$d = database();
$node->safe_psql($d, "ALTER DEFAULT PRIVILEGES GRANT $_ TO guest")
  foreach 'SELECT ON TABLES', 'USAGE ON SEQUENCES', 'EXECUTE ON FUNCTIONS', 'USAGE ON TYPES', 'USAGE ON SCHEMAS';
$node->safe_psql($d, 'CREATE EXTENSION sas');
is($node->safe_psql($d, $strangers), '0', 'nor by default privileges of the role that installs');
$node->safe_psql($d, q{SELECT sas.set_secret('token', 'sesame'), sas.grant_usage('guest', 'monitor')});
my ($said, $err) = ('', '');
$node->psql($d, 'SELECT value FROM sas.secret', stdout => \$said, stderr => \$err, extra_params => [ '-U', 'guest' ]);
like($err, qr/permission denied for table secret/, 'so that secrets stay in');

# what is taken -------------------------------------------------------------------------------------

created(database(), 'without a schema the extension makes its own');
$d = database();
$node->safe_psql($d, 'CREATE SCHEMA sas');
created($d, 'an empty one of one\'s own is taken');
$node->safe_psql($d, 'DROP EXTENSION sas');
created($d, 'and what DROP EXTENSION leaves, again');
is($node->safe_psql($d, q{BEGIN; SET search_path = public; DROP EXTENSION sas; CREATE EXTENSION sas; SHOW search_path}),
	'public', 'the search_path of the session stays as it was');

done_testing();
