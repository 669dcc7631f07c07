# SPDX-License-Identifier: PostgreSQL
#
# What a service can do to HTTP, one claim each (test/lib/faults.py): such an answer costs that attempt and no more, or is
# taken for what it is. Nothing but a whole answer counts as one, wherever the connection breaks. No answer passes for that
# of another request. Services that cannot be reached, certificates, names, Retry-After.
# Takes about 40 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Utils;
use SasTest;
use SasService;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();

# self-signed, for this address; valid from now for so many days
sub make_certificate
{
	my ($name, $days) = @_;
	my $file = "$dir/$name";
	PostgreSQL::Test::Utils::append_to_file("$dir/ext", 'subjectAltName=IP:127.0.0.1') unless -e "$dir/ext";
	foreach ([ 'req', '-new', '-newkey', 'rsa:2048', '-nodes', '-subj', "/CN=$name", '-keyout', "$file.key", '-out', "$file.csr" ],
		[ 'x509', '-req', '-in', "$file.csr", '-signkey', "$file.key", '-days', $days, '-extfile', "$dir/ext", '-out', "$file.pem" ])
	{
		IPC::Run::run([ 'openssl', @$_ ], '>', '/dev/null', '2>', '/dev/null') or die "openssl @$_";
	}
	return (cert => "$file.pem", key => "$file.key");
}

my %mine = make_certificate('mine', 2);
# over by the time that the servers have started; OpenSSL makes none that was over before
my %expired = make_certificate('expired', 0);

# names are looked up by the module
system('cc', '-O2', '-shared', '-fPIC', '-o', "$dir/names.so", "$FindBin::RealBin/../modules/names.c", '-ldl') == 0 or die 'no module';
$ENV{SAS_NAMES} = "$dir/names";
PostgreSQL::Test::Utils::append_to_file($ENV{SAS_NAMES}, "127.0.0.1\n");
my $node = do { local $ENV{LD_PRELOAD} = "$dir/names.so"; new_node('main', 'sas.agents' => 1) };
my $service = SasService->new(program => 'faults.py');
my $safe = SasService->new(program => 'faults.py', %mine);
my $old = SasService->new(program => 'faults.py', %expired);
# an answer too many, in a packet of its own, may come after the next request of its connection: nobody else has this one
my $twice = SasService->new(program => 'faults.py');

my %agent = (remote => $service, short => $service, safe => $safe, old => $old, twice => $twice,
	refused => 'http://127.0.0.1:' . free_port(), hole => '', slow_name => 'http://hang.invalid:' . $service->{port},
	no_name => 'http://none.invalid:' . $service->{port}, named => 'http://moves.invalid:' . $service->{port});

# a black hole: one whose queue of connections is full answers no further one
my $hole = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1, ReuseAddr => 1) or die;
listen($hole, 0) or die;
my @waiting = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $hole->sockport, Blocking => 0) } 1 .. 4;
$agent{hole} = 'http://127.0.0.1:' . $hole->sockport;

my %option = (safe => qq("ca_file": "$mine{cert}"), old => qq("ca_file": "$expired{cert}"), hole => '"connect_timeout": "500 ms"', slow_name => '"connect_timeout": "500 ms"');
my %limit = (short => '2 s', slow_name => '2 s', hole => '2 s');
make_agent($node, $_, $agent{$_}, request_timeout => $limit{$_} // '30 s', max_in_flight => $_ eq 'named' ? 1 : 64,
	options => sprintf '{"max_response": "2 MB"%s}', $option{$_} ? ", $option{$_}" : '') foreach sort keys %agent;
define($node, 'meet', {
	steps => { it => { agent => '{{input.agent}}', agents => '*', call => { method => 'POST', path => '/{{input.fault}}/1', body => {} } } },
	output => '{{steps.it.output}}', recovery => { max_failures => 1 }, on_failure => 'fail' });
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, '1');
my ($worker) = worker_pids($node, 'agent');

# what the first attempt says of it; after that the service answers well
my $broken = qr/^the connection broke in the middle of the answer$/;
my $invalid = qr/^the answer is not valid HTTP$/;
my $large = qr/^the headers of the answer are too large$|a header of the answer is too large$/;
my %costs = (
	hang => [ qr/^no answer in time$/, 'short' ], hang_in_body => [ qr/^the answer did not end in time$/, 'short' ],
	slow => [ qr/ in time$/, 'short' ],
	informed => [$large], early_hints => [$large], headers => [$large], one_header => [$large], status_line => [$large], trailers => [$large],
	extension => [$broken], chunk_sizes => [$broken], endless_open => [qr/^the answer is larger than max_response$/],
	endless => [qr/^the answer is larger than max_response$|$broken/],
	longer_said => [$broken], large_length => [$invalid], no_hex_chunk => [$broken], negative_chunk => [$broken], absurd_chunk => [$broken],
	large_chunk => [$broken], chunk_without_end => [$broken], chunk_short => [$broken], chunk_long => [$broken], no_last_chunk => [$broken],
	negative_length => [$invalid], no_number_length => [$invalid], absurd_length => [$invalid], two_lengths => [$invalid], list_of_lengths => [$invalid],
	nothing => [qr/^the connection broke before an answer came$/], one_byte => [qr/^the connection broke before an answer came$/],
	no_http => [$invalid], http_09 => [$invalid], nul_in_header => [$invalid], nul_in_status => [$invalid], version_9 => [$invalid], no_colon => [$invalid],
	status_99 => [$invalid], status_0 => [$invalid], status_1000 => [$invalid], status_text => [$invalid], status_negative => [$invalid],
	status_600 => [qr/^"well"$/], switching => [qr/^the answer has no final status$/],
	open_cut => [ $broken, 'safe' ],
	later_in_the_past => [qr/503/], later_in_words => [qr/503/], later_negative => [qr/503/], later_empty => [qr/503/]);

# these are answers: the body
my $deep = '[' x 1000;
my %is = (
	slow_but_in_time => 'well', two_answers => 'well', two_at_once => 'well', more_than_said => 'well', length_and_chunks => 'well',
	version_2 => qr/^"?well"?$/, no_reason => '"well"', version_0 => '"well"', open_end => 'well', some_hints => 'well', chunks => 'well', latin => 'well',
	deep => qr/^\Q$deep\E/, deep_closed => qr/^\Q$deep\E/, nul_text => '{"base64": "YQBi"}', nul_json => '"\u0000"', surrogate => '"\ud800"',
	large_number => '1e400000', numbers => qr/^\[1e131071,1e131071/, some_numbers => '[1000000, 0.00001, 12000]', half_json => '{"a": ',
	long_key => qr/^\{"k{1000}/, bomb => qr/^\{"base64": ".{1,60000}"\}$/, not_utf8 => qr/\xff/);

# and these end the run
my %ends = (
	refused => [ qr/^connection refused$/, 'refused' ], hole => [ qr/^could not connect in time$/, 'hole' ],
	expired => [ qr/^the certificate of the server has expired$/, 'old' ], slow_name => [ qr/^(the name of the host was not found|could not connect) in time$/, 'slow_name' ],
	no_name => [ qr/^the host name could not be resolved$/, 'no_name' ], not_modified => [ qr/304/, 'remote' ]);

my @table = PostgreSQL::Test::Utils::slurp_file("$FindBin::RealBin/../lib/faults.py") =~ /^FAULTS = \{(.*?)^\}/ms ? $1 =~ /"(\w+)": [a-z]/g : ();
is(join(' ', sort(keys %costs, keys %is, 'not_modified')), join(' ', sort @table), 'there is a claim for each fault');

# all at once: they must not disturb each other
my @meet = ((map { [ $_, $costs{$_}[1] // 'remote' ] } keys %costs), (map { [ $_, $_ eq 'two_answers' ? 'twice' : 'remote' ] } keys %is), map { [ $_, $ends{$_}[1] ] } keys %ends);
my $names = join ', ', map { "('$_->[0]', '$_->[1]')" } @meet;
$node->safe_psql('postgres', qq{SELECT count(*) FROM sas.submit_batch('meet', ARRAY(SELECT jsonb_build_object('fault', f, 'agent', a) FROM (VALUES $names) v (f, a)))});
# and those that break off at each byte
my %cut = (fin => 76, reset => 76, chunked_fin => 95, chunked_reset => 95, open_reset => 76);
my $cuts = join ', ', map { "('$_', $cut{$_})" } sort keys %cut;
$node->safe_psql('postgres', qq{SELECT count(*) FROM sas.submit_batch('meet', ARRAY(SELECT jsonb_build_object('fault', f || '_at_' || n, 'agent', 'remote') FROM (VALUES $cuts) v (f, m), generate_series(0, m) n))});
all_ended($node, 'every run ends');
is((worker_pids($node, 'agent'))[0], $worker, 'the worker is the one of before');

my %run = map { my ($fault, $rest) = split /\t/, $_, 2; $fault => [ split /\t/, $rest, 5 ] } split /\n/, $node->safe_psql('postgres', q{
	SELECT r.input ->> 'fault' || E'\t' || r.result || E'\t' || s.in_doubt || E'\t' || coalesce(s.error ->> 'detail', s.error ->> 'title', '') || E'\t'
		|| coalesce((SELECT string_agg(coalesce(a.error ->> 'detail', a.error ->> 'title'), '; ' ORDER BY a.started_at) FROM sas.attempts a WHERE a.run_id = r.run_id AND a.status = 'failed'), '') || E'\t'
		|| CASE WHEN octet_length(r.output::text) < 3000000 THEN coalesce(r.output ->> 'body', '') ELSE 'much' END
	FROM sas.runs r JOIN sas.steps s USING (run_id)});
# the errors of the attempts, but of those that met a connection which another fault had broken
my $lost = 'the connection broke before an answer came';
foreach my $fault (sort keys %costs)
{
	my ($result, $doubt, undef, $details, $body) = @{ $run{$fault} };
	my @details = split /; /, $details;
	my ($detail) = ((grep { $_ ne $lost } @details), @details, '');
	ok($result eq 'success' && $detail =~ $costs{$fault}[0] && $body =~ /^"?well"?$/, "$fault costs an attempt") or diag("@{ $run{$fault} }[0..3] $body");
}
foreach my $fault (sort keys %is)
{
	my ($result, undef, undef, $detail, $body) = @{ $run{$fault} };
	# many of them close a connection that is kept
	# libcurl 8.22 refuses a version that the connection has not: such an answer costs an attempt
	my $refused = $fault eq 'version_2' ? $invalid : qr/^$lost$/;
	ok($result eq 'success' && !(grep { $_ ne $lost && $_ !~ $refused } split /; /, $detail) && (ref $is{$fault} ? $body =~ $is{$fault} : $body eq $is{$fault}), "$fault is an answer") or diag("$result $detail " . substr($body, 0, 200));
}
foreach my $fault (sort keys %ends)
{
	# the last attempt, not one that met a connection which another fault had broken
	my ($result, $doubt, $detail) = @{ $run{$fault} };
	ok($result eq 'error' && $detail =~ $ends{$fault}[0] && $doubt eq 'false', "$fault fails, and is known not to have been done") or diag("$result $doubt $detail");
}

# -- wherever it breaks ---------------------------------------------------------------------------------------------------

foreach my $kind (sort keys %cut)
{
	my @bad = grep { $run{"${kind}_at_$_"}[0] ne 'success' || $run{"${kind}_at_$_"}[4] ne 'well' } 0 .. $cut{$kind};
	is("@bad", '', "$kind: wherever the answer breaks off, the whole one is fetched");
	# the end of the last chunk is in the eyes of the reader
	my $last = $kind =~ /chunked/ ? $cut{$kind} - 5 : $kind =~ /open/ ? $cut{$kind} : $cut{$kind} - 1;
	my @once = grep { http_get($service->url("/asked/${kind}_at_$_/1")) != 2 } 0 .. $last;
	is("@once", '', "$kind: by a second request");
}

# -- whose answer it is ---------------------------------------------------------------------------------------------------

# one connection, and answers that nobody asked for are on it before the next request is sent; an agent that could speak
# HTTP/2 is no exception where the service does not
my %single = (single => [ $service, '{}' ], single_2 => [ $service, '{"http_version": "2"}' ], tls => [ $safe, qq({"ca_file": "$mine{cert}"}) ],
	tls_2 => [ $safe, qq({"ca_file": "$mine{cert}", "http_version": "2"}) ]);
my $n = 1;
foreach my $agent (sort keys %single)
{
	make_agent($node, $agent, $single{$agent}[0], max_in_flight => 1, options => $single{$agent}[1]);
	define($node, "row_$agent", {
		steps => {
			a => { agent => $agent, call => { method => 'POST', path => '/{{input.fault}}/{{input.n}}', body => {} } },
			w => { wait => { signal => 'go' }, after => ['a'] },
			map { my $n = $_; ("b$n" => { agent => $agent, call => { method => ($n % 2 ? 'GET' : 'POST'), path => "/well/$n" }, after => [ $n > 1 ? 'b' . ($n - 1) : 'w' ] }) } 1 .. 4 },
		output => { map { ($_ => "{{steps.$_.output.body}}") } qw(a b1 b2 b3 b4) } });
	foreach my $fault (qw(two_at_once more_than_said), ('two_answers') x 5)
	{
		# the fault is met by the first request of a path
		my $id = submit($node, "row_$agent", { fault => $fault, n => ++$n });
		ok(wait_until(sub { return http_get("http://127.0.0.1:$single{$agent}[0]{control}/done/$fault/$n") == 1 }), "$agent, $fault: all of it has been written");
		$node->safe_psql('postgres', "SELECT FROM sas.signal($id, 'go')");
		my $run = run_of($node, $id);
		is(join(' ', map { $run->{output}{$_} // 'none' } qw(a b1 b2 b3 b4)), 'well well well well well', "$agent, $fault: no answer passes for that of another request");
	}
}

# libcurl sends a question again by itself when the kept connection breaks; of two that are kept, the other may be one with an
# answer that nobody asked for
my $pair = SasService->new(program => 'faults.py');
make_agent($node, 'pair', $pair, max_in_flight => 2);
define($node, 'row_pair', {
	steps => {
		a1 => { agent => 'pair', call => { method => 'POST', path => '/{{input.a1}}/{{input.n}}', body => {} } },
		a2 => { agent => 'pair', call => { method => 'POST', path => '/{{input.a2}}/{{input.n}}', body => {} } },
		w => { wait => { signal => 'go' }, after => [ 'a1', 'a2' ] },
		b => { agent => 'pair', call => { method => 'GET', path => '/nothing/{{input.n}}' }, after => ['w'] } },
	output => { map { ($_ => "{{steps.$_.output.body}}") } qw(a1 a2 b) } });
foreach my $n (101 .. 105)
{
	my @faults = qw(well_together two_together);
	my $id = submit($node, 'row_pair', { n => $n, a1 => $faults[ $n % 2 ], a2 => $faults[ 1 - $n % 2 ] });
	ok(wait_until(sub { return http_get("http://127.0.0.1:$pair->{control}/done/$_/$n") == 1 }), "$n, $_: all of it has been written") foreach @faults;
	$node->safe_psql('postgres', "SELECT FROM sas.signal($id, 'go')");
	my $run = run_of($node, $id);
	is(join(' ', map { $run->{output}{$_} // 'none' } qw(a1 a2 b)), 'well well well', "$n: nor does it for a request that libcurl sends again");
}

# a redirect leads back to the connection on which it came: one that was made for this call, and one that was kept
my %moved = (plain => [ SasService->new(program => 'faults.py'), '' ], tls => [ SasService->new(program => 'faults.py', %mine), qq(, "ca_file": "$mine{cert}") ]);
foreach my $how (sort keys %moved)
{
	make_agent($node, "moved_$how", $moved{$how}[0], max_in_flight => 1, options => qq({"follow_redirects": true$moved{$how}[1]}));
	foreach my $n (1 .. 3)
	{
		my $run = run_call($node, "moved_$how", { method => 'POST', path => "/moved/$n", body => {} });
		is("$run->{result} $run->{output}{body}", 'success well', "moved_$how $n: nor does one behind a redirect for that of the next request");
	}
}

# -- Retry-After, absurd --------------------------------------------------------------------------------------------------

foreach my $fault (qw(later_absurd later_infinite))
{
	my $id = submit($node, 'meet', { fault => $fault, agent => 'remote' });
	ok(wait_for($node, "SELECT waiting_until BETWEEN now() + interval '50 min' AND now() + interval '1 hour' FROM sas.steps WHERE run_id = $id AND state = 'suspended'"), "$fault is capped at an hour");
}
$node->safe_psql('postgres', q{SELECT sas.reset_agent('remote')});
all_ended($node, 'these end, too, when an operator says so');

# -- names ----------------------------------------------------------------------------------------------------------------

# a name that cannot be looked up holds up nobody else, and not the end of the worker
my @slow = map { submit($node, 'meet', { fault => "well_$_", agent => 'slow_name' }) } 1 .. 24;
is(run_of($node, submit($node, 'meet', { fault => 'well', agent => 'remote' }))->{result}, 'success', 'while names are not found, others are called');
is(run_of($node, $_)->{result}, 'error', 'a call whose name hangs fails in its time') foreach $slow[-1];
is(run_of($node, submit($node, 'meet', { fault => 'well', agent => 'named' }))->{result}, 'success', 'and other names are found meanwhile');
kill_worker($node, 'agent', 'TERM');
ok(wait_until(sub { my ($new) = worker_pids($node, 'agent'); $new && $new != $worker }), 'a worker that looks names up ends when it is told to');
is(run_of($node, $_)->{result}, 'error', 'and these calls fail') foreach $slow[0];

# the service has another address from now on
my $moved = free_port();
my $found = run_of($node, submit($node, 'meet', { fault => 'well', agent => 'named' }));
is($found->{result}, 'success', 'a service is found by its name') or diag(explain($found));
open(my $file, '>', "$ENV{SAS_NAMES}.new") or die;
print $file "127.0.0.2\n";
close $file;
rename "$ENV{SAS_NAMES}.new", $ENV{SAS_NAMES} or die;
my $there = SasService->new(program => 'faults.py', port => $service->{port}, address => '127.0.0.2');
$service->stop;
define($node, 'moved', { steps => { it => { agent => 'named', call => { path => '/well/1' }, recovery => { initial => '1 s', max => '2 s', max_failures => 1000 } } } });
is(run_of($node, submit($node, 'moved', {}))->{result}, 'success', 'and found again where it has moved to');

all_ended($node, 'every run ends');
done_testing();
