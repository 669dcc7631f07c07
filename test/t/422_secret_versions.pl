# SPDX-License-Identifier: PostgreSQL
#
# Secrets change while calls are open: what a call was sent with is masked in
# its answer, and in answers to later calls, too.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
my $streams = SasStreams->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

sub says { my ($text, %more) = @_; require MIME::Base64; return { base64 => MIME::Base64::encode_base64($text, ''), headers => [ [ 'Content-Type', 'text/plain' ] ], %more } }

# rotate(times): more often than former values are remembered
my $n = 0;
sub rotate { $sql->(join ';', map { $n++; "SELECT sas.set_secret('token', 'value-hunter2-$n')" } 1 .. shift); return }

rotate(1);
make_agent($node, 'remote', $service, headers => '{"X-Token": "{{secret.token}}"}', request_timeout => '5 min');
make_agent($node, 'feed', $streams, headers => '{"X-Token": "{{secret.token}}"}');
make_table($node);

# -- a call that is open during many changes ------------------------------------------------

$service->script(held => [ says("sent with value-hunter2-1", gate => 1) ]);
$service->script(failed => [ says("sent with value-hunter2-1", status => 400, gate => 1) ]);
$service->script(retried => [ says("first value-hunter2-1", status => 503, gate => 1), says('again value-hunter2-1') ]);
my %open = map { $_ => submit($node, define($node, $_, { steps => { it => { agent => 'remote', complete_in => '10 min', call => { path => "/$_" } } }, output => '{{steps.it.output.body}}',
	recovery => { max_failures => 1 }, on_failure => 'fail' }), {}) } qw(held failed retried);
$service->wait_for_requests($_, 1) foreach keys %open;

make_watcher($node, 'lines', { agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item.n?}}' } });
$streams->feeds(f => { items => 1, per => 3, tail => '{"n": 4, "said": "value-hunter2-1"}' });
watch($node, 'lines', 'f');
wait_for($node, q{SELECT count(*) FROM public.item}, 1);

# the workers load the agent for each of them
$service->script(between => [ { echo => 1 } ]);
foreach (1 .. 100)
{
	rotate(1);
	run_call($node, 'remote', { path => '/between' });
}
# workers know the change: the next call is sent with it
$service->script(after => [ { echo => 1 } ]);
ok(wait_until(sub { run_call($node, 'remote', { path => '/after' }); my ($last) = reverse $service->requests('after'); header_of($last, 'x-token') eq "value-hunter2-$n" }), 'calls are sent with the new value');
$service->release;
is(run_of($node, $open{held})->{output}, 'sent with ' . '*' x 15, 'a call that was open during 100 changes is masked with what it was sent with');
my $failed = run_of($node, $open{failed});
is($failed->{error}{detail}, 'sent with ' . '*' x 15, 'so is its error');
my $retried = run_of($node, $open{retried});
is($retried->{output}, 'again ' . '*' x 15, 'and the answer to another try');
is($retried->{attempts}[0]{error}{detail}, 'first ' . '*' x 15, 'and the error of the first one');
$streams->feeds(f => { items => 3 });
wait_for($node, q{SELECT count(*) > 3 FROM public.item}, 't');
is($sql->(q{SELECT item ->> 'said' FROM public.item WHERE item ? 'said' LIMIT 1}), '*' x 15, 'a stream that was open all the time is masked with what it was begun with');

# -- calls that are sent after the change --------------------------------------------------------

my $before = "value-hunter2-$n";
my $slow = submit($node, define($node, 'slow', { steps => { it => { wait => { signal => 'go' } } } }), {});
rotate(1);
ok(wait_until(sub { run_call($node, 'remote', { path => '/after' }); my ($last) = reverse $service->requests('after'); header_of($last, 'x-token') eq "value-hunter2-$n" }), 'calls are sent with the next value');
$service->script(replayed => [ says("$before, now value-hunter2-$n") ]);
is(run_call($node, 'remote', { path => '/replayed' })->{output}{body}, '*' x length($before) . ', now ' . '*' x length("value-hunter2-$n"),
	'what is sent after the change is masked with the old and the new value');
# workers that were not there before the change
$sql->('SELECT sas.worker_restart()');
is(run_call($node, 'remote', { path => '/replayed' })->{output}{body}, '*' x length($before) . ', now ' . '*' x length("value-hunter2-$n"), 'by workers that start later, too');
# another secret in the header
$sql->(q{SELECT sas.set_secret('other', 'other-hunter2'), sas.alter_agent('remote', headers => '{"X-Token": "{{secret.other}}"}')});
ok(wait_until(sub { run_call($node, 'remote', { path => '/after' }); my ($last) = reverse $service->requests('after'); header_of($last, 'x-token') eq 'other-hunter2' }), 'an agent may refer to another secret');
is(run_call($node, 'remote', { path => '/replayed' })->{output}{body}, '*' x length($before) . ', now ' . '*' x length("value-hunter2-$n"), 'and that of before is masked further on');

# -- how long ---------------------------------------------------------------------------------------

is($sql->(q{SELECT count(*) FROM _sas.former_secret}), 16, 'the newest 16 former values are kept');
$sql->(q{UPDATE _sas.former_secret SET changed_at = changed_at - interval '1 day 1 hour'});
$sql->(q{UPDATE _sas.run SET created_at = created_at - interval '2 days' WHERE state <> 'stopped'});
$sql->('SELECT _sas.forget_secrets()');
is($sql->(q{SELECT count(*) FROM _sas.former_secret}), 16, 'as long as a run is open that began before the change');
$sql->("SELECT sas.signal($slow, 'go')");
is(run_of($node, $slow)->{result}, 'success', 'that run ends');
$sql->('SELECT _sas.forget_secrets()');
is($sql->(q{SELECT count(*) FROM _sas.former_secret}), 0, 'then they are forgotten');
rotate(1);
is($sql->(q{SELECT count(*), count(_sas.forget_secrets()) FROM _sas.former_secret}), '1|1', 'a new one is kept for a day at least');

my $everything = '';
foreach my $table (split /\n/, $sql->(q{SELECT c.oid::regclass FROM pg_class c WHERE c.relkind IN ('r', 'v') AND c.relnamespace::regnamespace::text IN ('sas', '_sas', 'public')
	AND c.relname NOT IN ('secret', 'former_secret')}))
{
	$everything .= "$table: $_\n" foreach split /\n/, $sql->("SELECT t::text FROM $table t");
}
my @found = grep { /hunter2/ } split /\n/, $everything;
is(scalar @found, 0, 'no other table, and no view, has a value') or diag(join "\n", map { substr($_, 0, 300) } @found);
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/(?<!')value-hunter2(?!-\d+')/, 'nor has the server log, but for the statements that set them');
my $dumped = '';
IPC::Run::run([ 'pg_dump', '-d', $node->connstr('postgres') ], '>', \$dumped, '2>', '/dev/null') or die 'pg_dump failed';
unlike($dumped, qr/hunter2/, 'nor has a dump');
done_testing();
