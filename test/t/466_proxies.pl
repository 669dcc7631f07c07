# SPDX-License-Identifier: PostgreSQL
#
# Calls and WebSockets through an HTTP proxy (test/lib/tunnel.py), with and without TLS: the proxy refuses, is silent,
# talks nonsense, or cuts the connection after any number of bytes, in the handshake of TLS or in the middle of a record.
# Every item comes once and in order; a call that never left is not in doubt, one that may have come is.
#
#   SEED=7          where connections are cut; printed
#
# Takes about 90 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $seed = $ENV{SEED} || int(rand(1 << 30));
note("figure: SEED=$seed");
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($cert, $key) = ("$dir/mine.pem", "$dir/mine.key");
IPC::Run::run([ 'openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=mine', '-addext', 'subjectAltName=IP:127.0.0.1',
	'-out', $cert, '-keyout', $key ], '>', '/dev/null', '2>', '/dev/null') or die 'openssl failed';

my $node = new_node('main', 'sas.agents' => 1);
my $tunnel = SasService->new(program => 'tunnel.py');
my %service = (plain => SasStreams->new, tls => SasStreams->new(cert => $cert, key => $key));
my %answers = (plain => SasService->new, tls => SasService->new(cert => $cert, key => $key));
my %options = map { $_ => qq({"proxy": "http://127.0.0.1:$tunnel->{port}", "connect_timeout": "1 s") . ($_ eq 'tls' ? qq(, "ca_file": "$cert"}) : '}') } qw(plain tls);
sub behave { my (%how) = @_; return SasTest::http_post("http://127.0.0.1:$tunnel->{control}/", \%how) }
sub figures { return SasTest::http_get("http://127.0.0.1:$tunnel->{control}/") }
sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

make_table($node);
foreach my $kind (qw(plain tls))
{
	make_agent($node, $kind, $service{$kind}, options => $options{$kind});
	make_agent($node, "calls_$kind", $answers{$kind}, options => $options{$kind}, retry => '{"max_attempts": 1}', request_timeout => '2 s');
	make_watcher($node, $kind, { agent => $kind, stream => { format => 'ws', path => '/ws/{{key}}', body => { after => '{{cursor}}' }, idle_timeout => '5 s' },
		cursor => { start => 0, next => '{{item.n}}' } });
	define($node, "call_$kind", { steps => { it => { agent => "calls_$kind", call => { method => 'POST', path => '/it', body => { run => '{{run.id}}' } } } },
		output => '{{steps.it.output.status}}', recovery => { max_failures => 1 }, on_failure => 'fail' });
}
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'agent'}, '1');
my ($worker) = worker_pids($node, 'agent');

# -- well -----------------------------------------------------------------------------------------

foreach my $kind (qw(plain tls))
{
	$service{$kind}->feeds(well => { items => 500, pad => 200 });
	watch($node, $kind, 'well');
	got_items($node, $kind, 'well', 500, "a WebSocket, $kind, brings its items through the proxy");
	is((grep { $_ eq "CONNECT 127.0.0.1:$service{$kind}{port} HTTP/1.1" } @{ figures()->{asked} }) > 0, 1, "$kind: by a tunnel");
	is(run_of($node, submit($node, "call_$kind", {}))->{result}, 'success', "a call, $kind, is answered through the proxy");
}
like(join("\n", @{ figures()->{asked} }), qr{^POST http://127.0.0.1:$answers{plain}{port}/it HTTP/1.1$}m, 'without TLS the proxy is asked for the whole address');
like(join("\n", @{ figures()->{asked} }), qr{^CONNECT 127.0.0.1:$answers{tls}{port} HTTP/1.1$}m, 'with TLS for a tunnel');

# -- a proxy that does not do it ------------------------------------------------------------------

foreach my $case (
	[ { how => 'refuse', status => 403 }, qr/the proxy refused to connect/ ],
	[ { how => 'refuse', status => 407 }, qr/the proxy refused to connect/ ],
	[ { how => 'garbage' }, qr/the answer is not valid HTTP|the connection broke before the request was sent/ ],
	[ { how => 'half' }, qr/the connection broke before the request was sent/ ],
	[ { how => 'shut' }, qr/the connection broke before the request was sent/ ],
	[ { how => 'endless' }, qr/the headers of the answer are too large|the connection broke before the request was sent/ ],
	[ { how => 'silent' }, qr/could not connect in time/ ])
{
	my ($how, $like) = @$case;
	my $name = join ' ', values %$how;
	behave(%$how);
	foreach my $kind (qw(plain tls))
	{
		my $key = join '_', sort values %$how;
		$service{$kind}->feeds($key => { items => 3 });
		watch($node, $kind, $key);
		my $said = '';
		ok(wait_until(sub {
			my $error = watch_of($node, $kind, $key)->{last_error} // {};
			$said = ($error->{title} // '') . ' ' . ($error->{detail} // '');
			return $said =~ $like;
		}), "a proxy that is $name, $kind: the watch says so") or diag($said);
		note("figure: $name, $kind: $said");
	}
	my $run = run_of($node, submit($node, 'call_tls', {}));
	is($run->{result}, 'error', "$name: a call fails");
	is($run->{steps}{it}{in_doubt} ? 1 : 0, 0, 'and is not in doubt: it has never left') or diag($run->{attempts}[0]{error}{detail});
	is(scalar(grep { $_->{body} =~ /"run": ?$run->{run_id}\b/ } $answers{tls}->requests('it')), 0, 'the service knows nothing of it');
	behave();
	foreach my $kind (qw(plain tls)) { got_items($node, $kind, join('_', sort values %$how), 3, "$name, $kind: its items come once the proxy is well") }
}

# -- cut anywhere ---------------------------------------------------------------------------------

foreach my $way (qw(eof reset))
{
	foreach my $kind (qw(plain tls))
	{
		my $key = "cut_$way";
		# in the handshake of TLS and of WebSocket first, then in the middle of items
		behave(cut => [ 1, 3000 ], end => $way, seed => $seed);
		$service{$kind}->feeds($key => { items => 1500, pad => 300 });
		my $before = figures()->{cuts};
		watch($node, $kind, $key);
		ok(wait_until(sub { figures()->{cuts} > $before + 40 }), "$kind: connections are cut ($way), also before a WebSocket is there");
		behave(cut => [ 1, 60_000 ], end => $way);
		got_items($node, $kind, $key, 1500, "$kind, cut by $way: every item is there once, in order");
	}
	# calls: what is not answered in whole is in doubt if it may have come
	behave(cut => [ 1, 3500 ], end => $way);
	my $kinds = "'{call_tls,call_plain}'::text[]";
	my @runs = split /\n/, sql(qq{SELECT s.run_id FROM unnest($kinds) w, generate_series(1, 60) n, sas.submit(w, jsonb_build_object('n', n, 'way', '$way')) s});
	all_of($way, @runs);
}

sub all_of
{
	my ($way, @runs) = @_;
	ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE state <> 'stopped'", '0'), "every call that is cut by $way ends");
	behave();
	my %came;
	foreach my $kind (qw(plain tls)) { $came{$_}++ foreach map { $_->{body} =~ /"run": ?(\d+)/ ? $1 : () } $answers{$kind}->requests('it') }
	my %seen;
	my (@lost, @twice, @wrong);
	foreach my $row (split /\n/, sql('SELECT r.run_id, r.result, s.in_doubt, r.workflow FROM sas.runs r JOIN sas.steps s USING (run_id) WHERE r.run_id IN (' . join(', ', @runs) . ')'))
	{
		my ($id, $result, $doubt, $workflow) = split /\|/, $row;
		$seen{"$result $doubt"}++;
		push @lost, $row if $result ne 'success' && $doubt eq 'f' && $came{$id};
		push @wrong, $row if $result eq 'success' && !$came{$id};
		push @twice, $row if ($came{$id} // 0) > 1;
	}
	is_deeply(\@lost, [], 'what is known not to have been done was not');
	is_deeply(\@wrong, [], 'what ended well was done');
	is_deeply(\@twice, [], 'nothing was sent twice');
	cmp_ok($seen{'error t'} // 0, '>', 0, 'some are in doubt');
	cmp_ok($seen{'error f'} // 0, '>', 0, 'some never left');
	note("figure: cut by $way: " . join(', ', map { "$_: $seen{$_}" } sort keys %seen));
	return;
}

is((worker_pids($node, 'agent'))[0], $worker, 'the worker is the one of before');
$node->stop;
done_testing();
