# SPDX-License-Identifier: PostgreSQL
#
# An answer may have tens of thousands of headers, and a call a thousand. A worker that holds the calls of all roles
# spends on them no time that grows with the square of their number.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils qw(slurp_file);
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
make_agent($node, 'a', $service, retry => '{"max_attempts": 1}');
sub sql { return $node->safe_psql('postgres', $_[0]) }

my $pid = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas agent'});
# ticks of processor time of the agent worker
my $ticks = sub { my @fields = split ' ', slurp_file("/proc/$pid/stat"); return $fields[13] + $fields[14] };
my $n = 30_000;
my @letters = ('a' .. 'z', 0 .. 9);
my @names = map { $letters[ $_ % 36 ] . $letters[ $_ / 36 % 36 ] . $letters[ $_ / 1296 ] } 0 .. $n - 1;
my $spent = sub {
	my ($name, $headers) = @_;
	$service->script($name => [ { headers => $headers, body => 'ok' } ]);
	my $workflow = define($node, $name, { steps => { it => { agent => 'a', call => { path => "/$name" } } } });
	my $begun = $ticks->();
	my $run = run_of($node, submit($node, $workflow));
	is($run->{result}, 'success', "an answer with $n headers: $name");
	return ($ticks->() - $begun, $run->{steps}{it}{output}{headers});
};
$spent->('first', [ map { [ 'abc', 'x' ] } 1 .. $n ]);
my ($same, $list) = $spent->('same', [ map { [ 'abc', $_ % 10 ] } 1 .. $n ]);
is(join('', @{ $list->{abc} }), join('', map { $_ % 10 } 1 .. $n), 'those of one name are an array, in their order');
my ($different, $each) = $spent->('different', [ (map { [ $_, 'x' ] } @names), [ 'abc', 'y' ] ]);
is(scalar(grep { length == 3 } keys %$each), $n, 'those of different names are members');
is($each->{zza}, 'x', 'each with its value');
is_deeply($each->{abc}, [ 'x', 'y' ], 'one came twice');
cmp_ok($different, '<', 5 * $same + 20, "different names cost no more than a few times as much ($different against $same ticks)");

# -- calls ---------------------------------------------------------------------------------------------------------

my %most = map { ("X-$_" => 'x') } 1 .. 1000;
is(run_call($node, 'a', { path => '/most', headers => \%most })->{result}, 'success', 'a call has a thousand headers');
my ($asked) = $service->requests('most');
is(scalar(grep { $_->[0] =~ /^X-/ } @{ $asked->{headers} }), 1000, 'all are sent');
my ($code, $out, $err) = $node->psql('postgres', q{SELECT sas.create_workflow('more', jsonb_build_object('steps', jsonb_build_object('it',
	jsonb_build_object('agent', 'a', 'call', jsonb_build_object('headers', (SELECT jsonb_object_agg('X-' || i, '') FROM generate_series(1, 1001) i))))))},
	extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($err, qr{54000: there are more than 1000 headers\nDETAIL:  At /steps/it/call/headers\.}, 'one more is refused at the door');
sql(q{
	CREATE SCHEMA app;
	CREATE FUNCTION app.sign(context jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
		SELECT jsonb_build_object('request', context -> 'request' || jsonb_build_object('headers', (SELECT jsonb_object_agg('X-' || i, '') FROM generate_series(1, 1001) i))) $$;
	SELECT sas.create_middleware('sign', 'call', 'app.sign(jsonb)')});
is(run_call($node, 'a', { path => '/signed' })->{error}{detail}, '/request/headers: there are more than 1000 headers', 'so is one that middleware makes');
is(scalar($service->requests('signed')), 0, 'nothing is sent');
done_testing();
