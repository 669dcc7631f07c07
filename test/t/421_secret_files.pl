# SPDX-License-Identifier: PostgreSQL
#
# Secrets that the platform mounts as files below sas.secret_directory: what
# is taken for one, what reaches the service, and what nobody sees.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use PostgreSQL::Test::Utils qw(append_to_file);
use MIME::Base64;
use POSIX ();
use Test::More;

my $base = PostgreSQL::Test::Utils::tempdir();
my $mount = "$base/mount";
mkdir $_ foreach $mount, "$mount/one", "$mount/two", "$base/mount_beside", "$base/other";
my $node = new_node('main');
my $service = SasService->new;

sub spit
{
	my ($file, $text) = @_;
	# a new file in its place, as platforms do it
	open my $f, '>:raw', "$base/$file.new" or die "$base/$file: $!";
	print $f $text;
	close $f;
	rename "$base/$file.new", "$base/$file" or die $!;
	return;
}

# statement(sql): SQLSTATE and message, or ''
sub refused
{
	my ($sql) = @_;
	my $err;
	$node->psql('postgres', "\\set VERBOSITY verbose\n$sql", stderr => \$err);
	return $err =~ /ERROR:\s+(\w{5}): (.*)/ ? "$1 $2" : $err;
}

spit('mount/token', "file-hunter2-one\n");
like(refused(q{SELECT sas.set_secret_file('token', 'token')}), qr/^55000 .*sas.secret_directory is not set/, 'without a directory no secret is a file');
like(refused(q{SET sas.secret_directory = '/etc'}), qr/cannot be changed now/, 'no session sets the directory');
like(refused(q{ALTER SYSTEM SET sas.secret_directory = 'relative'}), qr/^22023/, 'it is an absolute path');
$node->safe_psql('postgres', $_) foreach "ALTER SYSTEM SET sas.secret_directory = '$mount'", 'SELECT pg_reload_conf()';
wait_for($node, 'SHOW sas.secret_directory', $mount);
$node->safe_psql('postgres', $_) foreach 'CREATE ROLE boss LOGIN', q{SELECT sas.grant_usage('boss', 'admin')};
my ($shown, $err);
$node->psql('postgres', 'SHOW sas.secret_directory', stderr => \$err, extra_params => [ '-U', 'boss' ]);
like($err, qr/permission denied|must be superuser/, 'an admin that is no superuser does not see the directory');
$node->psql('postgres', q{ALTER SYSTEM SET sas.secret_directory = '/'}, stderr => \$err, extra_params => [ '-U', 'boss' ]);
like($err, qr/permission denied/, 'nor sets it');

# -- at the door -------------------------------------------------------------------------------

spit('other/outside', 'outside-hunter2');
spit('mount_beside/outside', 'outside-hunter2');
spit('mount/empty', "\n");
spit('mount/large', 'x' x (64 * 1024 + 1));
spit('mount/lines', "one\ntwo\n");
spit('mount/bytes', "\xff\xfe\x00bytes");
spit('mount/closed', 'closed-hunter2');
chmod 0, "$mount/closed";
symlink '../other/outside', "$mount/out";
symlink "$base/mount_beside/outside", "$mount/beside";
symlink '../other', "$mount/dir_out";
symlink 'nowhere', "$mount/dangling";
symlink 'loop', "$mount/loop";
POSIX::mkfifo("$mount/pipe", 0600);
my %door = (
	'../other/outside' => '22023', "$mount/token" => '22023', 'one/../../other/outside' => '22023', '' => '22023', '.' => '22023', './token' => '22023',
	'one//token' => '22023', "tok\nen" => '22023', 'absent' => '58P01', 'token/below' => '58P01', 'out' => '42501', 'beside' => '42501',
	'dir_out/outside' => '42501', 'dangling' => '58P01', 'loop' => '42501', 'pipe' => '22023', 'one' => '22023', 'empty' => '22023', 'large' => '22023',
	'lines' => '22023', 'bytes' => '22023', 'x' x 5000 => '22023');
$door{closed} = '42501' if $> != 0;
foreach my $file (sort keys %door)
{
	my $said = refused("SELECT sas.set_secret_file('door', '$file')");
	is(substr($said, 0, 5), $door{$file}, 'refused at the door: ' . substr($file, 0, 40) =~ s/\n/?/r) or diag($said);
	unlike($said, qr/hunter2/, 'and nothing of a file is said');
}
is(substr(refused(q{SELECT sas.set_secret_file('door', NULL)}), 0, 5), '22023', 'no file is refused');
is(substr(refused(q{SELECT sas.set_secret_file('Door', 'token')}), 0, 5), '42602', 'and a name that is not plain');
is($node->safe_psql('postgres', q{SELECT count(*) FROM _sas.secret}), 0, 'nothing of it is stored');

# -- what is sent ----------------------------------------------------------------------------------

# as platforms mount them: the file is a link to one below a link that is turned over
spit('mount/one/key', "linked-hunter2-one\r\n");
spit('mount/two/key', 'linked-hunter2-two');
symlink 'one', "$mount/data";
symlink 'data/key', "$mount/key";
$node->safe_psql('postgres', q{SELECT sas.set_secret_file('token', 'token'), sas.set_secret_file('key', 'key')}, extra_params => [ '-U', 'boss' ]);
make_agent($node, 'remote', $service, headers => '{"X-Token": "{{secret.token}}", "X-Key": "{{secret.key}}"}');
$service->script($_ => [ { echo => 1 } ]) foreach 'call', 'held';

# sent(run): what the service got, and that nothing of it is shown
sub sent
{
	my ($run) = @_;
	my ($last) = reverse $service->requests('call');
	return header_of($last, 'x-token') . ' ' . header_of($last, 'x-key');
}
my $run = run_call($node, 'remote', { path => '/call' });
is(sent(), 'file-hunter2-one linked-hunter2-one', 'the values in the files reach the service, without the line break');
unlike(JSON::PP::encode_json($run), qr/hunter2/, 'and are masked in what it says back');

spit('mount/token', "file-hunter2-two\n");
symlink 'two', "$mount/data.new";
rename "$mount/data.new", "$mount/data";
ok(wait_until(sub { run_call($node, 'remote', { path => '/call' }); sent() eq 'file-hunter2-two linked-hunter2-two' }), 'files that change are read again, also by a link that is turned over')
  or diag(sent());
$service->script(old => [ { base64 => MIME::Base64::encode_base64('it was file-hunter2-one and linked-hunter2-one', ''), headers => [ [ 'Content-Type', 'text/plain' ] ] } ]);
is(run_call($node, 'remote', { path => '/old' })->{output}{body}, 'it was ' . '*' x 16 . ' and ' . '*' x 18, 'and the values of before are masked, too');

# -- gone -----------------------------------------------------------------------------------------------

unlink "$mount/token";
my %once = (step => { recovery => { max_failures => 1 } });
ok(wait_until(sub { $run = run_call($node, 'remote', { path => '/call' }, \%once); $run->{result} eq 'error' }), 'without its file a call fails');
is($run->{error}{detail}, 'file "token" of secret "token" does not exist', 'and says which file it is');
is($run->{attempts}[-1]{error}{detail}, 'file "token" of secret "token" does not exist', 'so does the attempt');
my $waits = submit($node, define($node, 'patient', { recovery => { max_failures => 1000, initial => '100 ms', max => '100 ms' },
	steps => { it => { agent => 'remote', call => { path => '/call' } } } }), {});
wait_for($node, "SELECT count(*) > 1 FROM sas.attempts WHERE run_id = $waits", 't');
symlink '../other/outside', "$mount/token";
wait_for($node, "SELECT count(*) > 0 FROM sas.attempts WHERE run_id = $waits AND error ->> 'detail' ~ 'leads out'", 't');
pass('a link that leads out, put in its place, is not followed');
unlink "$mount/token";
spit('mount/token', 'file-hunter2-three');
is(run_of($node, $waits)->{result}, 'success', 'a file that comes back mends it: the failure is transient');
is(sent(), 'file-hunter2-three linked-hunter2-two', 'with the value that it has then');
$node->safe_psql('postgres', $_) foreach q{ALTER SYSTEM SET sas.secret_directory = ''}, 'SELECT pg_reload_conf()';
ok(wait_until(sub { $run = run_call($node, 'remote', { path => '/call' }, \%once); $run->{result} eq 'error' }), 'without the directory, too');
like($run->{error}{detail}, qr/sas.secret_directory is not set/, 'and says so');

# -- nowhere ---------------------------------------------------------------------------------------------

my $everything = '';
foreach my $table (split /\n/, $node->safe_psql('postgres', q{SELECT c.oid::regclass FROM pg_class c WHERE c.relkind IN ('r', 'v') AND c.relnamespace::regnamespace::text IN ('sas', '_sas')}))
{
	$everything .= $node->safe_psql('postgres', "SELECT t::text FROM $table t");
}
cmp_ok(length $everything, '>', 10_000, 'there is much in tables and views');
unlike($everything, qr/hunter2/, 'no table and no view has a value of a file');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/hunter2/, 'nor has the server log');
my $dumped = '';
IPC::Run::run([ 'pg_dump', '-d', $node->connstr('postgres') ], '>', \$dumped, '2>', '/dev/null') or die 'pg_dump failed';
unlike($dumped, qr/hunter2/, 'nor has a dump');
is($node->safe_psql('postgres', q{SELECT detail FROM sas.history WHERE act = 'set_secret_file' AND detail ->> 'secret' = 'token'}),
	'{"file": "token", "secret": "token", "changed": false}', 'sas.history has who set which file, and no value');
like(refused(q{SELECT sas.drop_secret('token')}), qr/^2BP01/, 'a file that an agent refers to is not dropped');
$node->safe_psql('postgres', q{SELECT sas.set_secret('token', 'plain-again'), sas.alter_agent('remote', headers => '{"X-Token": "{{secret.token}}"}'), sas.drop_secret('key')});
run_call($node, 'remote', { path => '/call' });
is(sent(), 'plain-again ', 'sas.set_secret puts a value in the place of a file');

# a file that a superuser has set: no admin uses it, whatever its name
spit('mount/root', 'root-hunter2');
symlink 'root', "$mount/alias";
link "$mount/root", "$mount/one/hard";
$node->safe_psql('postgres', $_) foreach "ALTER SYSTEM SET sas.secret_directory = '$mount'", 'SELECT pg_reload_conf()';
wait_for($node, 'SHOW sas.secret_directory', $mount);
$node->safe_psql('postgres', q{SELECT sas.set_secret_file('root', 'root')});
foreach my $file (qw(root alias one/hard))
{
	like(refused(qq{SET ROLE boss; SELECT sas.set_secret_file('theirs', '$file')}), qr/^42501 file "$file" has the value of secret "root"/, "an admin does not use the file of a superuser's secret as $file");
}
is(refused(q{SET ROLE boss; SELECT sas.set_secret_file('theirs', 'two/key')}), '', 'another one it does');
like(refused(q{SELECT sas.set_secret_file('mine', 'key')}), qr/^42501 file "key" has the value of secret "theirs"/, 'a superuser is told that an admin uses a file');

# nor while a platform turns the link over again and again, each time to a new file: two names of it may lead to two files
my $platform = SasTest::start_program("$base/platform.log", $^X, '-e', <<'TURN', $mount);
chdir shift or die $!;
$| = 1;
for (my $n = 0; !-e 'still'; $n++)
{
	mkdir "turn_$n" and open(F, '>', "turn_$n/key") and print(F "turned-hunter2-$n") and close(F) and symlink("turn_$n", 'turned.new') and rename('turned.new', 'turned') or die $!;
	print "turning\n" if $n == 0;
}
TURN
symlink 'turned/key', "$mount/$_" foreach qw(turned_key turned_alias);
ok(wait_until(sub { -s "$base/platform.log" }), 'a platform turns a link over');
# it may change while it is set
ok(wait_until(sub { refused(q{SELECT sas.set_secret_file('turned', 'turned_key')}) !~ /./ }), 'in the end a name of it is set');
my $ends = $node->safe_psql('postgres', q{
	SET ROLE boss;
	DO $do$
	DECLARE ends jsonb := '{}'; said text;
	BEGIN
		FOR i IN 1 .. 500 LOOP
			BEGIN
				PERFORM sas.set_secret_file('theirs', 'turned_alias');
				said := 'done';
			EXCEPTION WHEN OTHERS THEN said := SQLSTATE;
			END;
			ends := ends || jsonb_build_object(said, coalesce((ends ->> said)::int, 0) + 1);
		END LOOP;
		PERFORM set_config('test.ends', ends::text, false);
	END $do$;
	SELECT string_agg(k, ' ' ORDER BY k) FROM jsonb_object_keys(current_setting('test.ends')::jsonb) k});
append_to_file("$mount/still", '');
waitpid $platform, 0;
like($ends, qr/^(42501|55006|42501 55006)$/, 'an admin does not use the file of a superuser while it is replaced');

# nor with a snapshot from before the superuser set it
spit('mount/late', 'late-hunter2');
my $old = SasSession->new($node, 'postgres', user => 'boss');
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$old->query('SELECT 1');
$node->safe_psql('postgres', q{SELECT sas.set_secret_file('late', 'late')});
like($old->query(q{SELECT sas.set_secret_file('early', 'late')}), qr/could not serialize access/, 'an older snapshot does not hide the superuser\'s secret');
$old->quit;

# other files of agents: an admin names what is below the directory, too
my $as_admin = sub { refused(qq{SET ROLE files_admin; SELECT sas.create_agent('files', 'https://127.0.0.1:1', options => '{"ca_file": "$_[0]"}')}) };
$node->safe_psql('postgres', q{CREATE ROLE files_admin; SELECT sas.grant_usage('files_admin', 'admin')});
$node->safe_psql('postgres', $_) foreach "ALTER SYSTEM SET sas.secret_directory = '$mount'", 'SELECT pg_reload_conf()';
wait_for($node, 'SHOW sas.secret_directory', $mount);
is($as_admin->("$mount/ca.pem"), '', 'an admin names a ca_file below the directory of secrets');
like($as_admin->($_), qr/^42501/, "and not $_") foreach "$mount/../ca.pem", "${mount}_beside/ca.pem", "$base/ca.pem", 'ca.pem';
done_testing();
