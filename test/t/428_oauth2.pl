# SPDX-License-Identifier: PostgreSQL
#
# Calls of an agent with the option "oauth2" bear an access token: asked for once for all of them, renewed before it
# expires and after a 401, kept in memory only, and masked wherever a service tells it.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils qw(slurp_file);
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $port = SasTest::free_port();
my $log = PostgreSQL::Test::Utils::tempdir() . '/oauth_service.log';
SasTest::start_program($log, 'python3', "$FindBin::RealBin/../lib/oauth_service.py", '--port', $port);
wait_until(sub { -s $log && slurp_file($log) =~ /^listening on/m }) or die 'no service';
my $url = "http://127.0.0.1:$port";
sub control { my (%to) = @_; http_post("$url/control", \%to); return }
sub tokens { return scalar @{ http_get("$url/books")->{tokens} } }
sub calls { my ($path) = @_; return grep { $_->{path} eq $path } @{ http_get("$url/books")->{calls} } }

$node->safe_psql('postgres', q{SET log_statement = 'none'; SELECT sas.set_secret('shop', 'p&ss w:rd'), sas.set_secret('wrong', 'guessed')});
sub option { my ($more) = @_; return qq({"oauth2": {"token_url": "$url/token", "client_id": "shop", "client_secret": "{{secret.shop}}" $more}}) }
make_agent($node, 'api', $url, options => option(', "scope": "read write", "params": {"audience": "https://api.example/?a=b&c"}'));

# -- one token for all --------------------------------------------------------------------------

control(slow => 1);
define($node, 'many', { steps => { it => { each => '{{input.items}}', agent => 'api', call => { path => '/many' } } } });
my $many = submit($node, 'many', { items => [ 1 .. 40 ] });
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $many", 'success'), 'forty calls at once succeed');
control(slow => 0);
is(tokens(), 1, 'one token was asked for, though its service is slow');
my $form = http_get("$url/books")->{tokens}[0]{form};
is_deeply($form, { grant_type => 'client_credentials', scope => 'read write', audience => 'https://api.example/?a=b&c' }, 'with its scope and parameters');
is(scalar(grep { $_->{status} == 200 } calls('/many')), 40, 'and all calls had it, each once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.steps WHERE output::text LIKE '%token-%'}), '0', 'what a service tells of it is masked');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.steps WHERE element IS NOT NULL AND output #>> '{body,was}' ~ '^Bearer [*]+$'}), '40', 'and nothing else');

# -- renewed ------------------------------------------------------------------------------------

control(revoke => JSON::PP::true);
my $run = run_call($node, 'api', { path => '/revoked' });
is($run->{result}, 'success', 'a call succeeds whose token was revoked');
is(join(' ', map { $_->{status} } calls('/revoked')), '401 200', 'after a 401, at its second attempt');
is(tokens(), 2, 'with another token');
is($node->safe_psql('postgres', q{SELECT string_agg(a.status, ' ' ORDER BY a.attempt) FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE r.workflow = 'call_1'}),
	'failed succeeded', 'both attempts are shown');

control(refuse_all => JSON::PP::true);
wait_until(sub { time() > http_get("$url/books")->{tokens}[-1]{at} + 1.5 });
$run = run_call($node, 'api', { path => '/refused' }, { step => { retry => { max_attempts => 1 } } });
is($run->{result}, 'error', 'a call fails that is refused whatever its token');
is(join(' ', map { $_->{status} } calls('/refused')), '401 401', 'after one more attempt');
is($run->{error}{status}, 401, 'with the answer of the service');
unlike($node->safe_psql('postgres', q{SELECT string_agg(a.error::text, '') FROM sas.attempts a}), qr/token-/, 'without its token');
control(refuse_all => JSON::PP::false);

make_agent($node, 'fresh', $url, options => option(', "scope": "read"'));
control(stillborn => 1);
my $asked = tokens();
is(run_call($node, 'fresh', { path => '/stillborn' }, { step => { retry => { max_attempts => 1 } } })->{result}, 'success', 'a call succeeds whose first token was refused as soon as it was got');
is(join(' ', map { $_->{status} } calls('/stillborn')), '401 200', 'at its second attempt');
is(tokens(), $asked + 2, 'with another token');

control(refuse_all => JSON::PP::true);
($asked, my $since) = (tokens(), time());
define($node, 'refused', { on_failure => 'fail', steps => { it => { each => '{{input.items}}', agent => 'fresh', max_failed => 40, concurrency => 4, call => { path => '/each' } } } });
my $refused = submit($node, 'refused', { items => [ 1 .. 40 ] });
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $refused", 'warning'), 'forty calls that are refused whatever their token');
cmp_ok(tokens() - $asked, '<=', 3 + time() - $since, 'ask for one token a second at most');
control(refuse_all => JSON::PP::false);

control(life => 3);
$node->safe_psql('postgres', q{SELECT sas.alter_agent('api', max_in_flight => 7)});
control(revoke => JSON::PP::true);
wait_until(sub { time() > http_get("$url/books")->{tokens}[-1]{at} + 1.5 });
is(run_call($node, 'api', { path => '/short' })->{result}, 'success', 'a token that lives for three seconds is used');
my $before = tokens();
my $expires = http_get("$url/books")->{tokens}[-1]{at} + 3.5;
wait_until(sub { time() > $expires });
is(run_call($node, 'api', { path => '/after' })->{result}, 'success', 'and another one when it has expired');
is(join(' ', map { $_->{status} } calls('/after')), '200', 'without a 401');
is(tokens(), $before + 1, 'asked for once');
control(life => 3600);

# -- the token service fails ----------------------------------------------------------------------

control(down => 503);
$node->safe_psql('postgres', qq{SELECT sas.create_agent('down', '$url', retry => '{"initial": "20 ms", "max_attempts": 4}', options => '} . option('') . q{')});
$run = run_call($node, 'down', { path => '/down' });
is($run->{result}, 'error', 'without a token a call fails');
is($run->{error}{detail}, 'no access token: the token service answered 503', 'the error says why');
is(scalar calls('/down'), 0, 'and nothing was sent');
is(scalar(grep { ($_->{form}{scope} // '') eq '' } @{ http_get("$url/books")->{tokens} }), 1, 'a service that fails is left alone for a while');
control(down => undef);
$run = run_call($node, 'down', { path => '/up' }, { step => { retry => { initial => '500 ms', max_attempts => 20 } } });
is($run->{result}, 'success', 'once it gives tokens again, calls succeed');

make_agent($node, 'wrong', $url, options => option('') =~ s/secret\.shop/secret.wrong/r);
is(run_call($node, 'wrong', { path => '/wrong' })->{error}{detail}, 'no access token: the token service answered 401, invalid_client', 'a wrong secret is told by its word');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('wrong', options => '} . option(', "auth": "body"') . q{')});
control(in_body => JSON::PP::true);
is(run_call($node, 'wrong', { path => '/body' })->{result}, 'success', 'an agent that is mended asks at once, here with its secret in the body');
control(in_body => JSON::PP::false);

# -- watchers ---------------------------------------------------------------------------------

make_agent($node, 'feed', $url, options => option(''));
$node->safe_psql('postgres', q{CREATE TABLE item (watch_id bigint, key text, item jsonb);
	SELECT sas.create_watcher('feed', '{"agent": "feed", "stream": {"format": "ndjson", "path": "/lines"}, "items": {"table": "public.item"}, "retry": {"initial": "20 ms", "max": "20 ms"}}'), sas.watch('feed', 'one')});
ok(wait_for($node, q{SELECT count(*) >= 4 FROM item}), 'a stream bears a token, too');
like($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT item ->> 'was', ',') FROM item WHERE item ? 'was'}), qr/^Bearer \*+$/, 'which is masked in its items');
control(revoke => JSON::PP::true);
my $had = $node->safe_psql('postgres', 'SELECT count(*) FROM item');
ok(wait_for($node, "SELECT count(*) > $had + 4 FROM item"), 'and goes on with another one when it was revoked');

# -- nowhere ----------------------------------------------------------------------------------

$node->stop;
unlike(slurp_file($node->logfile), qr/token-\d|p&ss/, 'no token and no secret is in the log');
is(system("grep -rqaE 'token-[0-9]+-of' '" . $node->data_dir . "'") >> 8, 1, 'no token is in any file of the server');
done_testing();
