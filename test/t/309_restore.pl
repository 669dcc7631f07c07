# SPDX-License-Identifier: PostgreSQL
#
# A dump is restored into a server that runs: its workers wait until all of it
# is there, and then open runs go on.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use PostgreSQL::Test::Utils ();
use SasSession;
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;

sub workers { my ($database) = @_; return $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND datname = '$database'") }

# -- what is open when the dump is made -----------------------------------------------------------

$service->script(hangs => [ { how => 'silent' }, { json => 'done' } ]);
make_agent($node, 'remote', $service);
make_agent($node, 'closed', $service);
$node->safe_psql('postgres', q{
	CREATE ROLE limited;
	SELECT sas.grant_usage('limited', 'user');
	SELECT sas.set_limit('limited', 'open_runs', 2), sas.set_limit(NULL, 'depth', 7);
	SELECT sas.alter_agent('closed', enabled => false);
	CREATE SCHEMA shop;
	CREATE TABLE shop.tick (key text);
	CREATE FUNCTION shop.tick(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO shop.tick VALUES (turn ->> 'key') RETURNING 'null'::jsonb $$;
	SELECT sas.create_watcher('ticks', '{"function": "shop.tick", "every": "100 ms"}')});
define($node, 'timer', { steps => { a => { wait => { for => '5 s' } } } });
define($node, 'ready', { steps => { a => { agent => 'closed', call => { path => '/ready' } } } });
define($node, 'held', { steps => { a => { agent => 'remote', call => { path => '/hangs' }, complete_in => '3 s', recovery => { initial => '100 ms' } } } });
define($node, 'signal', { steps => { a => { wait => { signal => 'go' } } } });
# whose definition has a token; no run of it is open
define($node, 'token', { steps => { a => { wait => { signal => 'go' } }, b => { agent => 'remote', call => { path => '/{{steps.a.token}}' } } } });
submit($node, $_, {}, key => 'old') foreach qw(ready held signal);
my $token = $node->safe_psql('postgres', q{SELECT _sas.token(run_id, trace_id, 'a') FROM sas.runs WHERE workflow = 'signal'});
like($token, qr/^\d+-[0-9a-f]{40}$/, 'a wait has a token');
my $limits = q{SELECT string_agg(concat_ws(' ', role, name, value), ', ' ORDER BY role, name) FROM sas.limits WHERE role = 'limited' OR role IS NULL};
my $limited = $node->safe_psql('postgres', $limits);
$node->safe_psql('postgres', q{
	CREATE ROLE gone; CREATE ROLE packing;
	SELECT sas.create_agent('packer', kind => 'external'), sas.grant_usage('packing', 'worker', agent => 'packer');
	SELECT sas.grant_workflow('held', 'limited'), sas.grant_workflow('held', 'gone');
	SELECT sas.grant_agent('remote', 'limited', '{GET}', '{/ready}'), sas.grant_agent('remote', 'gone');
	REVOKE USAGE ON SCHEMA sas FROM gone; DROP ROLE gone});
my $granted = q{SELECT string_agg(g::text, ' ' ORDER BY g::text) FROM sas.grants g};
my $grants = $node->safe_psql('postgres', $granted);
$node->safe_psql('postgres', q{SELECT FROM sas.watch('ticks', 'k')});
$service->wait_for_requests('hangs', 1);
wait_for($node, q{SELECT count(*) > 0 FROM shop.tick});
# a start that nobody can see to before the dump is made; it is overdue when the dump is restored
my @schedulers = worker_pids($node, 'scheduler');
kill('STOP', @schedulers);
$node->safe_psql('postgres', q{SELECT sas.submit('timer', key => 'old', start_at => now() + interval '1 s')});
IPC::Run::run([ 'pg_dump', '-d', $node->connstr('postgres') ], '>', \my $dump) or die 'pg_dump failed';
kill('CONT', @schedulers);

# a big one: what is due is there before the runs are loaded
$dump =~ s/^(COPY _sas[.]reply )/SELECT pg_catalog.pg_advisory_lock(4711);\n$1/m or die 'no such table';
$dump =~ s/^\\(un)?restrict .*$//mg;

# -- the restore ----------------------------------------------------------------------------------

$node->safe_psql('postgres', 'CREATE DATABASE restored');
my $gate = SasSession->new($node, 'restored');
$gate->query('SELECT pg_advisory_lock(4711)');
my $file = $node->basedir . '/dump.sql';
PostgreSQL::Test::Utils::append_to_file($file, $dump . q{
SELECT 'quiet', sas.release();
SELECT count(*) FROM sas.submit('timer', key => 'new');
SELECT state FROM sas.wait((SELECT run_id FROM sas.runs WHERE key = 'new'), '60 s');
});
my ($out, $err) = ('', '');
my $restore = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $file ],
	'>', \$out, '2>', \$err);
ok(wait_for($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, '1'), 'a dump is being restored');
$node->safe_psql('postgres', 'CREATE DATABASE another');
$node->safe_psql('another', 'CREATE EXTENSION sas');
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND datname = 'another'}, '4'), 'another database gets its workers meanwhile');
is(workers('restored'), '0', 'the one that is restored does not');
ok(wait_for($node, q{SELECT count(*) > 0 FROM _sas.message WHERE due_at < now()}, 't', dbname => 'restored'), 'though something is overdue there');
$gate->query('SELECT pg_advisory_unlock(4711)');
ok($restore->finish, 'the dump is restored without an error');
is($err, '', 'and without a warning');
like($out, qr/quiet[|]t\s+1\s+stopped\s*$/, 'a verb in the same session lets the workers in');

# -- what was open goes on ------------------------------------------------------------------------

$node->safe_psql('restored', q{SELECT sas.alter_agent('closed', enabled => true); SELECT sas.signal_token('} . $token . q{')});
ok(wait_for($node, q{SELECT string_agg(workflow || ' ' || coalesce(result, state), ', ' ORDER BY workflow) FROM sas.runs WHERE key = 'old'},
	'held success, ready success, signal success, timer success', dbname => 'restored'), 'every open run of the dump reaches its end');
my $ticks = $node->safe_psql('restored', 'SELECT count(*) FROM shop.tick');
ok(wait_for($node, "SELECT count(*) > $ticks FROM shop.tick", 't', dbname => 'restored'), 'and its infinite task goes on');
is($node->safe_psql('restored', q{SELECT state || ' ' || (node_id IN (SELECT n.node_id FROM sas.nodes n WHERE NOT n.is_deleted)) FROM sas.watches}), 'processing true', 'on a node of the restored database');

# -- grants ----------------------------------------------------------------------------------------

is($node->safe_psql('restored', $granted), $grants, 'grants are restored, with who gave them and when');
like($grants, qr/\(limited,level,user,.*\(limited,workflow,held,.*\(packing,worker,packer,/, 'there are some of each kind');
foreach my $of (qw(workflow_grant agent_grant))
{
	is($node->safe_psql('restored', qq{SELECT count(*) FROM _sas.$of g WHERE g.role::oid NOT IN (SELECT oid FROM pg_roles)}), '0', "a role that is gone has no $of");
	is($node->safe_psql('postgres', qq{SELECT count(*) FROM _sas.$of g WHERE g.role::oid NOT IN (SELECT oid FROM pg_roles)}), '1', 'though it has where it was');
}
my (undef, undef, $stands) = $node->psql('restored', 'DROP OWNED BY packing; DROP ROLE packing');
like($stands, qr/privileges for .* in database postgres|objects in database postgres/, 'rights in another database keep a role');
is($node->safe_psql('restored', q{SELECT count(*) FROM sas.grants WHERE role = 'packing'}), '0', 'DROP OWNED takes them in this database');
$node->safe_psql('restored', q{SELECT sas.revoke_usage('limited')});
my (undef, undef, $none) = $node->psql('restored', q{SET ROLE limited; SELECT FROM sas.submit('signal')});
like($none, qr/permission denied/, 'a level that was restored can be taken away');
$node->safe_psql('restored', q{SELECT sas.grant_usage('limited', 'user')});

# -- limits of roles --------------------------------------------------------------------------------

is($node->safe_psql('restored', $limits), $limited, 'limits of roles and their default are restored');
like($limited, qr/limited open_runs 2/, 'there are some');
$node->safe_psql('restored', q{SELECT sas.grant_workflow('signal', 'limited')});
my ($ret, $submitted, $refused) = $node->psql('restored', q{SET ROLE limited; SELECT count(*) FROM sas.submit_batch('signal', array_fill('{}'::jsonb, '{3}'))});
like($refused, qr/role "limited" has too many runs open/, 'and hold there');

# -- what looks like a restore and is none ---------------------------------------------------------

ok(wait_for($node, 'SELECT count(*) > 3 FROM sas.workers', 't', dbname => 'restored'), 'the workers are there');
my $before = $node->safe_psql('restored', 'SELECT string_agg(pid::text, chr(32) ORDER BY pid) FROM sas.workers');
$gate->query('SET check_function_bodies = off; CREATE EXTENSION IF NOT EXISTS sas');
is($node->safe_psql('restored', 'SELECT string_agg(pid::text, chr(32) ORDER BY pid) FROM sas.workers'), $before, 'an extension that is there already keeps no worker away');
$gate->query('COPY _sas.override FROM PROGRAM $$true$$');
ok(wait_for($node, 'SELECT count(*) > 3 FROM sas.workers', 't', dbname => 'restored'), 'nor does a COPY of no rows');
$gate->query('BEGIN; COPY _sas.idle_version FROM PROGRAM $$echo 0$$; ROLLBACK');
ok(wait_until(sub { workers('restored') == 0 }), 'a session that loads a table keeps them away, though it gave up');
$gate->query('DISCARD ALL');
ok(wait_for($node, 'SELECT count(*) > 3 FROM sas.workers', 't', dbname => 'restored'), 'until its connection is handed on');
$gate->quit;

done_testing();
