# SPDX-License-Identifier: PostgreSQL
#
# WebSocket as RFC 6455 has it: the groups 1 to 7, 9 and 10 of Autobahn's suite
# for clients, by their numbers, and what it does not ask (test/lib/websockets.py).
# Group 9 (large and many messages) has its full sizes where SAS_LONG is set.
# Each case is a watch: its messages become items, the service notes what the
# worker says, and what is wrong is a failure of that watch alone.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use JSON::PP;
use Test::More;

my $json = JSON::PP->new->utf8->canonical->allow_nonref;
my $node = new_node('main', _init => [ extra => ['--encoding=UTF8'] ]);
my $service = SasService->new(program => 'websockets.py');
my $told = sub { SasTest::http_get("http://127.0.0.1:$service->{control}/") };

make_agent($node, 'ws', $service, request_timeout => '10 s', options => '{"max_response": "200 kB"}');
make_agent($node, 'large', $service, request_timeout => '10 s', options => '{"max_response": "30 MB"}');
make_table($node);
make_watcher($node, 'large', { agent => 'large', stream => { format => 'ws', path => '/{{key}}' } });
make_watcher($node, 'case', { agent => 'ws', stream => { format => 'ws', path => '/{{key}}' } });
my $agent = (worker_pids($node, 'agent'))[0];
my $cases = $told->()->{cases};
cmp_ok(scalar(keys %$cases), '>', 230, 'there are cases');
watch($node, 'case', grep { !/^9/ } sort keys %$cases);
watch($node, 'large', grep { /^9/ } sort keys %$cases);

my @open;
ok(wait_until(
		sub {
			my $results = $told->()->{results};
			@open = grep { !$results->{$_} || ($cases->{$_}{reset} ? $results->{$_}{connections} < 2 : !$results->{$_}{ended} && $cases->{$_}{said}) } sort keys %$cases;
			return !@open;
		}),
	'each case comes to its end') or diag("@open");
my $results = $told->()->{results};

# compared as jsonb: Perl has its own thoughts on characters at the end of a plane
my $expected = JSON::PP->new->ascii->encode({ map { $_ => $cases->{$_}{items} } keys %$cases });
$expected =~ s/'/''/g;
$node->safe_psql('postgres', "CREATE TABLE public.expected AS SELECT * FROM jsonb_each('$expected') e (name, items)");
my $wrong = q{SELECT name FROM public.expected e
	WHERE items <> coalesce((SELECT jsonb_agg(CASE watcher WHEN 'large' THEN jsonb_build_array(length(t), md5(t)) ELSE item END ORDER BY nth)
		FROM public.item i CROSS JOIN LATERAL coalesce(item ->> 'base64', item #>> '{}') t WHERE i.key = e.name), '[]') ORDER BY 1};
wait_for($node, "SELECT count(*) FROM ($wrong) x", 0);
my %wrong = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', $wrong);
my $errors = sub {
	return $json->decode($node->safe_psql('postgres', q{SELECT jsonb_object_agg(key, concat_ws(' ', last_error ->> 'title', last_error ->> 'status', last_error ->> 'detail'))
		FROM sas.watches}));
};
my @silent = grep { defined $cases->{$_}{problem} } keys %$cases;
wait_until(sub { my $told = $errors->(); @silent = grep { $told->{$_} !~ /\Q$cases->{$_}{problem}\E/ } @silent; return !@silent });
my %silent = map { $_ => 1 } @silent;

foreach my $name (sort keys %$cases)
{
	my $case = $cases->{$name};
	my $result = $results->{$name};

	ok(!$wrong{$name}, "$name: its messages are items");
	# what is unread when a connection is closed resets it, and may cut off what was said
	is($json->encode($result->{said}), $json->encode($case->{said}), "$name: the service is told what it has to be told") if $case->{said} && !$case->{reset};
	ok($result->{masked}, "$name: in frames with a mask") if $case->{said};
	ok(!$silent{$name}, "$name: is a failure of that watch, which says why") or diag($errors->()->{$name}) if defined $case->{problem};
}
is((worker_pids($node, 'agent'))[0], $agent, 'the worker is the same');
$node->stop;
done_testing();
