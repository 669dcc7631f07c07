# SPDX-License-Identifier: PostgreSQL
#
# Paths of one role that cost much keep no other role waiting: its calls are claimed, answered and followed
# by the next step, between those of the first role.
# Takes about 60 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$service->script(dear => [ { json => { s => 'x' x 50000, list => [ 1 .. 300 ] } } ], cheap => [ { json => 'well' } ]);
make_agent($node, 'remote', $service);
make_agent($node, 'other', $service);
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm;
	SELECT sas.grant_usage(r, 'user'), sas.grant_agent(a, r) FROM unnest('{eager,calm}'::regrole[]) r, unnest('{remote,other}'::text[]) a;
	CREATE FUNCTION public.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$});

# all of them take as long as a path may
my $dear = sub { my ($at) = @_; return "$at.list[*] ? (exists(\$.$at.list[*] ? (\$.$at.s < \$.$at.s)))" };
my $value = q{(SELECT jsonb_build_object('s', repeat('x', 100000), 'list', jsonb_agg(i)) FROM generate_series(1, 250) i)};
my $of_input = $dear->('input');
my $call = { agent => 'remote', call => { path => '/cheap' } };
my %dear = (
	expect => { it => { %$call, expect => "exists(\$.$of_input)" } },
	answers => { it => { agent => 'remote', call => { path => '/dear' }, expect => 'exists($.' . $dear->('output.body') . ')' } },
	output => { it => { %$call, output => "{{$of_input}}" } },
	when => { a => $call, b => { %$call, after => ['a'], when => "exists(\$.$of_input)" } },
	first_when => { it => { %$call, when => "exists(\$.$of_input)" } },
	request => { it => { agent => 'remote', call => { method => 'POST', path => '/cheap', body => { x => "{{$of_input}}" } } } },
	function_input => { it => { function => 'public.echo', input => { x => "{{$of_input}}" } } });
$sql->(qq{SET ROLE eager; SELECT sas.create_workflow('$_', \$\$} . JSON::PP->new->encode({ steps => $dear{$_}, on_failure => 'fail' }) . '$$)') foreach sort keys %dear;
foreach my $agent ('remote', 'other')
{
	$sql->(qq{SET ROLE calm; SELECT sas.create_workflow('calm_$agent', '{"steps": {"a": {"agent": "$agent", "call": {"path": "/cheap"}},
		"b": {"function": "public.echo", "after": ["a"], "when": "!exists(\$.input.n)"}, "c": {"agent": "$agent", "call": {"path": "/cheap"}, "expect": "\$.output.status == 200", "after": ["b"]}}}')});
}

foreach my $kind (sort keys %dear)
{
	my $open = "SELECT count(*) FROM sas.runs WHERE workflow = '$kind' AND state <> 'stopped'";
	$sql->(qq{SET ROLE eager; SELECT count(s.run_id) FROM generate_series(1, 60) g, sas.submit('$kind', jsonb_build_object('n', g) || $value) s});
	wait_until(sub { return $sql->($open) < 60 });
	my $before = $sql->($open);
	foreach my $agent ('remote', 'other')
	{
		my $run = $sql->(qq{SET ROLE calm; SELECT run_id FROM sas.submit('calm_$agent')});
		is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', "$kind: a run of another role at agent $agent succeeds");
	}
	my $left = $sql->($open);
	cmp_ok($left, '>', $before / 3, "$kind: before most of those end");
	$sql->(qq{SELECT sas.cancel(run_id) FROM sas.runs WHERE workflow = '$kind' AND state <> 'stopped'});
	wait_for($node, $open, '0');
}
is($sql->(q{SELECT count(*) FROM sas.runs WHERE error::text LIKE '%one batch of steps%'}), '0', 'none fails for what the others cost');
done_testing();
