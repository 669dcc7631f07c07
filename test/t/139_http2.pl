# SPDX-License-Identifier: PostgreSQL
#
# HTTP/2 (test/lib/http2.py): streams that are reset, GOAWAY, limits of streams, connections that end or are reset in the
# middle of an answer, TLS that is cut in its handshake.  Whatever happens, no request is sent but by an attempt that is counted, nothing
# passes for an answer but a whole one, and an outcome is in doubt exactly when the request may have been sent.
# Takes about 45 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SasTest;
use SasService;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my @command = ('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=service',
	'-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', "$dir/key", '-out', "$dir/pem");
IPC::Run::run(\@command, '>', '/dev/null', '2>', '/dev/null') or die "@command";

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new(program => 'http2.py', cert => "$dir/pem", key => "$dir/key");
my $control = "http://127.0.0.1:$service->{control}";
my %agent = (serial => $service, beside => $service, map { ($_ => 'https://127.0.0.1:' . http_get("$control/cut/$service->{port}")) } qw(cut cut_again));
make_agent($node, $_, $agent{$_}, request_timeout => '30 s', max_in_flight => $_ eq 'beside' ? 64 : 1,
	retry => $_ =~ /^(serial|cut)$/ ? '{"max_attempts": 1}' : '{"initial": "20 ms", "max_attempts": 4}',
	options => qq({"http_version": "2", "ca_file": "$dir/pem", "connect_timeout": "25 s"})) foreach sort keys %agent;
# once: what is in doubt shows; again: until it is done
foreach (map { ([ once => 1, $_ ], [ again => 100, $_ ]) } qw(POST PUT))
{
	my ($name, $failures, $method) = @$_;
	define($node, "${name}_" . lc $method, {
		steps => { it => { agent => '{{input.agent}}', agents => '*', call => { method => $method, path => '/', body => { fault => '{{input.fault}}', id => '{{run.id}}' } } } },
		output => '{{steps.it.output.body}}', recovery => { initial => '10 ms', max_failures => $failures }, on_failure => 'fail' });
}
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, '1');
my ($worker) = worker_pids($node, 'agent');

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

my @answers = qw(well goaway_and_answer answer_and_goaway two_answers answer_and_rst);
my %is_answer = map { ($_ => 1) } @answers;
my @faults = PostgreSQL::Test::Utils::slurp_file("$FindBin::RealBin/../lib/http2.py") =~ /^    "(\w+)": lambda/mg;
cmp_ok(scalar @faults, '>', 25, 'there are faults');
my $values = join ', ', map { "('$_')" } @faults;

sub submit_all
{
	my ($workflow, $agent, $from) = @_;
	sql(qq{SELECT count(*) FROM sas.submit_batch('${workflow}_@{[ lc ]}', ARRAY(SELECT jsonb_build_object('fault', f, 'method', '$_', 'agent', '$agent') FROM $from))}) foreach qw(POST PUT);
	return;
}
submit_all('once', 'serial', "(VALUES $values) v (f)");
# connections are shared by agents of one service: alone, so that no other request ends the connection of these
all_ended($node, 'every run of one after the other ends');
submit_all('again', 'beside', "(VALUES $values) v (f), generate_series(1, 5)");
submit_all('once', 'cut', q{(VALUES ('well')) v (f), generate_series(1, 60)});
submit_all('again', 'cut_again', q{(VALUES ('well')) v (f), generate_series(1, 3)});
all_ended($node, 'every run ends');
is((worker_pids($node, 'agent'))[0], $worker, 'the worker is the one of before');

my $books = http_get("$control/books");
my @runs = map { my %run; @run{qw(id workflow agent fault method result doubt attempts output detail)} = split /\t/, $_, 10; \%run } split /\n/, sql(q{
	SELECT concat_ws(E'\t', r.run_id, split_part(r.workflow, '_', 1), r.input ->> 'agent', r.input ->> 'fault', r.input ->> 'method', r.result, s.in_doubt,
		(SELECT count(*) FROM sas.attempts a WHERE a.run_id = r.run_id), coalesce(r.output #>> '{}', ''),
		coalesce((SELECT coalesce(a.error ->> 'detail', a.error ->> 'title') FROM sas.attempts a WHERE a.run_id = r.run_id AND a.status = 'failed' ORDER BY a.started_at LIMIT 1), ''))
	FROM sas.runs r JOIN sas.steps s USING (run_id) ORDER BY r.run_id});
sub those { my ($claim) = @_; return join "\n", map { join ' ', @$_{qw(id workflow agent fault method result doubt attempts output detail)}, $books->{came}{ $_->{id} } // 0, $books->{done}{ $_->{id} } // 0 } grep { $claim->() } @runs }
sub came { return $books->{came}{ $_->{id} } // 0 }
sub done_there { return $books->{done}{ $_->{id} } // 0 }

cmp_ok(scalar @runs, '>', 400, 'of many runs');
is(those(sub { came() > $_->{attempts} }), '', 'no POST and no PUT is sent but by an attempt that is counted');
is(those(sub { $_->{result} eq 'success' && ($_->{output} ne 'well' || !done_there()) }), '', 'what ended well was done, and its answer is whole');
is(those(sub { $_->{workflow} eq 'again' && $_->{result} ne 'success' }), '', 'nothing is lost: what is tried again ends well');
is(those(sub { $_->{workflow} eq 'once' && $_->{doubt} eq 'f' && $_->{result} ne 'success' && done_there() }), '', 'what is known not to have been done was not');
is(those(sub { $_->{agent} eq 'serial' && $_->{doubt} eq 't' && !came() }), '', 'in doubt is what was sent');
is(those(sub { $_->{agent} eq 'serial' && (!$is_answer{ $_->{fault} } && came() == 1 ? $_->{result} ne 'error' : $_->{result} ne 'success') }), '', 'of the faults, only these pass for answers: ' . join(', ', @answers));
is(those(sub { $_->{agent} eq 'serial' && $_->{result} eq 'error' && $_->{detail} !~ /^(the HTTP\/2 stream broke|the connection broke (in the middle of the answer|before an answer came)|the answer is not valid HTTP)$/ }), '', 'and the others say what broke');

my @cut = grep { $_->{agent} eq 'cut' } @runs;
my @before = grep { $_->{result} eq 'error' && $_->{doubt} eq 'f' } @cut;
my @after = grep { $_->{result} eq 'error' && $_->{doubt} eq 't' } @cut;
note(sprintf 'figure: of %d connections that are cut after 32 bytes more each, %d end before the request is sent, %d after, %d work', scalar @cut, scalar @before, scalar @after, @cut - @before - @after);
cmp_ok(scalar @before, '>', 20, 'TLS is cut in the handshake');
is(join("\n", grep { !/^(the TLS handshake failed|the connection broke before the request was sent)$/ } map { $_->{detail} } @before), '', 'which is said');
cmp_ok(scalar(grep { $_->{result} eq 'success' } @cut), '>', 0, 'and later not at all');

# -- limits of streams ------------------------------------------------------------------------------------------------------

# a service that takes a few streams at once, and fewer later; and one that takes none
foreach my $limit (3, 0)
{
	make_agent($node, "narrow_$limit", 'https://127.0.0.1:' . http_get("$control/narrow/$limit"), request_timeout => $limit ? '30 s' : '2 s', max_in_flight => 64,
		retry => $limit ? '{"initial": "20 ms", "max_attempts": 4}' : '{"max_attempts": 1}', breaker => '{"off": true}', options => qq({"http_version": "2", "ca_file": "$dir/pem"}));
}
my $last = sql('SELECT max(run_id) FROM sas.runs');
submit_all('again', 'narrow_3', q{(VALUES ('well')) v (f), generate_series(1, 30)});
submit_all('once', 'narrow_0', q{(VALUES ('well')) v (f), generate_series(1, 3)});
all_ended($node, 'every run of a service that takes few streams ends');
$books = http_get("$control/books");
is(sql(qq{SELECT count(*) FROM sas.runs WHERE run_id > $last AND input ->> 'agent' = 'narrow_3' AND result = 'success'}), '60', 'more calls than it takes at once all end well');
is($books->{narrow}{3}{served}, 60, 'each by one request');
is($books->{narrow}{3}{too_many}, 0, 'and none begins beyond a limit that was acknowledged, also of one that was lowered');
note("figure: streams at once, of three: $books->{narrow}{3}{most}");
is(sql(qq{SELECT string_agg(DISTINCT result, ', ') FROM sas.runs WHERE run_id > $last AND input ->> 'agent' = 'narrow_0'}) . " $books->{narrow}{0}{served}", 'error 0', 'a service that takes none fails the call');
is((worker_pids($node, 'agent'))[0], $worker, 'the worker is still the one of before');
done_testing();
