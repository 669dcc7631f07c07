# SPDX-License-Identifier: PostgreSQL
#
# What a hostile service says where nobody expects it: numbers that no float holds, secrets in the words of an event,
# an ETag that no request can have, tokens that another worker or an earlier call was given. Nobody else notices, and
# nothing is stored in clear.
# Takes about 50 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils qw(append_to_file slurp_file);
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
my $url = $service->url;
my %once = (retry => '{"max_attempts": 1}');
sub sql { return $node->safe_psql('postgres', $_[0]) }

$node->safe_psql('postgres', q{SET log_statement = 'none'; SELECT sas.set_secret('of_me', 'hunter2-of-the-test')});
sub token_agent
{
	my ($name, $token) = @_;
	$service->script("token_$name" => [ { body => $token, headers => [ [ 'Content-Type', 'application/json' ] ] } ]);
	make_agent($node, $name, $service, %once, options => qq({"oauth2": {"token_url": "$url/token_$name", "client_id": "me", "client_secret": "{{secret.of_me}}"}}));
	return;
}

# -- a token service ---------------------------------------------------------------------------------------------

make_agent($node, 'other', $service, %once);
my %life = ('1e400' => 'success', '-1e400' => 'error', '1e-400' => 'error', '0' => 'error', '"3600"' => 'success', 'null' => 'success', '{}' => 'success', '[1e400]' => 'success');
my $n = 0;
foreach my $life (sort keys %life)
{
	my $name = 'life_' . $n++;
	token_agent($name, qq({"access_token": "token-of-the-test", "expires_in": $life}));
	my $run = run_call($node, $name, { path => '/quick' }, { step => { recovery => { max_failures => 1 } } });
	is($run->{result}, $life{$life}, "a token that lives for $life seconds");
	is($run->{error}{detail}, 'no access token: the token service gave a token that has expired', 'it has expired') if $life{$life} eq 'error';
}
is(run_call($node, 'other', { path => '/quick' })->{result}, 'success', 'calls of other agents go on');
unlike(slurp_file($node->logfile), qr/sas agent\S* ERROR/, 'no turn of a worker has failed');

# -- tokens that this worker has not sent with this call ---------------------------------------------------------

token_agent('bears', '{"access_token": "first-token-of-the-test", "expires_in": 1}');
is(run_call($node, 'bears', { path => '/quick' })->{result}, 'success', 'a call has a token');
$service->script(token_bears => [ { json => { access_token => 'second-token-of-the-test' } } ]);
ok(wait_until(sub {
	run_call($node, 'bears', { path => '/quick' });
	return header_of((reverse $service->requests('quick'))[0], 'authorization') eq 'Bearer second-token-of-the-test';
}), 'and another one later');
my $foreign = 'eyJhbGciOi.token-of/another+worker~_==';
$service->script(replays => [ { json => { first => 'first-token-of-the-test', second => 'second-token-of-the-test', third => "Bearer $foreign", also => "authorization=bearer%20$foreign&x=1", plain => 'Bearer realm=x' },
	headers => [ [ 'X-Was', "Bearer $foreign" ], [ 'X-Next', 'continues-here' ], [ 'X-Short', 'Bearer abc' ], [ 'X-Last', 'a-long-word-after-a-short-one' ] ] } ]);
my $said = run_call($node, 'bears', { path => '/replays' })->{output};
is($said->{body}{$_}, '*' x 23, "the $_ token is masked") foreach 'first';
is($said->{body}{second}, '*' x 24, 'so is the one that was sent');
is($said->{body}{third}, 'Bearer ' . '*' x length $foreign, 'and what another worker may have sent');
like($said->{body}{also}, qr/^authorization=bearer%20\*+&x=1$/, 'also in a form');
is($said->{headers}{x_was}, 'Bearer ' . '*' x length $foreign, 'also in a header');
is($said->{headers}{x_next}, 'continues-here', 'the next header stays');
is("$said->{headers}{x_short} $said->{headers}{x_last}", 'Bearer abc a-long-word-after-a-short-one', 'so do short words, with the header after them');
is($said->{body}{plain}, 'Bearer realm=x', 'other words after Bearer stay');
$service->script(replays_badly => [ { status => 400, json => { was => "Bearer $foreign", first => 'first-token-of-the-test' } } ]);
run_call($node, 'bears', { path => '/replays_badly' });
is(sql(q{SELECT count(*) FROM sas.attempts WHERE error::text ~ 'token-of'}), '0', 'an error has none of them');

$service->script(bearers => [ { body => 'Bearer' x 350_000, headers => [ [ 'Content-Type', 'text/plain' ] ] } ]);
is(length run_call($node, 'bears', { path => '/bearers' })->{output}{body}, 2_100_000, 'an answer of such words only takes no time that grows with its square');

# -- more tokens than anybody remembers: they take no place of what a secret was before ----------------------------------

my $mount = PostgreSQL::Test::Utils::tempdir();
sub put { my ($value) = @_; append_to_file("$mount/key.new", $value); rename "$mount/key.new", "$mount/key" or die $!; return }
put('filed-hunter2-one');
sql("ALTER SYSTEM SET sas.secret_directory = '$mount'");
sql('SELECT pg_reload_conf()');
wait_for($node, 'SHOW sas.secret_directory', $mount);
sql(q{SELECT sas.set_secret_file('filed', 'key')});
$service->script(token_filed => [ map { { json => { access_token => "filed-token-number-$_" } } } 100 .. 199 ]);
my $options = sub { return qq({"oauth2": {"token_url": "$url/token_filed", "client_id": "me", "client_secret": "{{secret.of_me}}", "params": {"n": "$_[0]"}}}) };
make_agent($node, 'filed', $service, %once, headers => '{"X-Key": "{{secret.filed}}"}', options => $options->(0));
is(run_call($node, 'filed', { path => '/quick' })->{result}, 'success', 'a secret is in a file');
put('filed-hunter2-two');
ok(wait_until(sub { run_call($node, 'filed', { path => '/quick' }); return header_of((reverse $service->requests('quick'))[0], 'x-key') eq 'filed-hunter2-two' }), 'which is replaced');
define($node, 'filed', { steps => { it => { agent => 'filed', call => { path => '/quick' } } } });
sql(join "\n", map { "SELECT sas.alter_agent('filed', options => '" . $options->($_) . "'); SELECT run_id FROM sas.submit('filed') \\gset\nSELECT FROM sas.wait(:run_id);" } 1 .. 70);
cmp_ok(scalar($service->requests('token_filed')), '>', 65, 'and there are many tokens');
my $newest = 'filed-token-number-' . (99 + $service->requests('token_filed'));
my $earlier = 'filed-token-number-' . (99 + $service->requests('token_filed') - 60);
$service->script(filed => [ { json => { was => 'filed-hunter2-one', is => 'filed-hunter2-two', newest => $newest, earlier => $earlier } } ]);
my $filed = run_call($node, 'filed', { path => '/filed' })->{output}{body};
is($filed->{$_}, '*' x length 'filed-hunter2-one', "what it $_ is masked") foreach qw(was is);
is($filed->{$_}, '*' x length $newest, "so is the $_ token") foreach qw(newest earlier);

# -- events -------------------------------------------------------------------------------------------------------

make_table($node);
make_agent($node, 'feed', $service, headers => '{"X-Key": "{{secret.of_me}}"}');
my $events = join '', map { "id: $_ hunter2-of-the-test\nevent: told hunter2-of-the-test\ndata: hunter2-of-the-test\n\n" } 1 .. 2;
$service->script(events => [ { body => $events, headers => [ [ 'Content-Type', 'text/event-stream' ] ] } ]);
make_watcher($node, 'events', { agent => 'feed', stream => { format => 'sse', path => '/events' }, retry => { initial => '1 h', max => '1 h' } });
watch($node, 'events', 'a');
ok(wait_for($node, q{SELECT count(*) FROM public.item WHERE watcher = 'events'}, '2'), 'a service tells events');
my $stars = '*' x length 'hunter2-of-the-test';
is(sql(q{SELECT string_agg(item::text, ' ' ORDER BY nth) FROM public.item WHERE watcher = 'events'}),
	join(' ', map { qq({"id": "$_ $stars", "data": "$stars", "event": "told $stars"}) } 1 .. 2), 'whose ids, names and data are masked');
ok(wait_for($node, q{SELECT cursor #>> '{}' FROM sas.watches WHERE watcher = 'events'}, "2 $stars"), 'so is the cursor');

# -- polls ---------------------------------------------------------------------------------------------------------

$service->script(etag => [ map { { json => { n => $_ }, headers => [ [ 'ETag', qq("\x01$_") ] ] } } 1 .. 5 ]);
make_watcher($node, 'etag', { agent => 'feed', poll => { call => { path => '/etag' }, every => '50 ms' } });
watch($node, 'etag', 'a');
ok(wait_for($node, q{SELECT count(*) >= 5 FROM public.item WHERE watcher = 'etag'}, 't'), 'an ETag that no request can have does not end the polls');
is(watch_of($node, 'etag', 'a')->{failures}, 0, 'and is no failure');

# -- nowhere -------------------------------------------------------------------------------------------------------

sql(q{SELECT FROM sas.unwatch('etag', '{a}')});
my $everything = join "\n", map { sql("SELECT t::text FROM $_ t") } split /\n/,
  sql(q{SELECT c.oid::regclass FROM pg_class c WHERE c.relkind = 'r' AND c.relname <> 'secret' AND c.relnamespace::regnamespace::text IN ('_sas', 'public')});
cmp_ok(length $everything, '>', 10_000, 'there is much in the tables');
unlike($everything, qr/hunter2|(?:first|second)-token|eyJhbGciOi/, 'no table has a secret or a token in clear');
done_testing();
