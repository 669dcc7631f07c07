# SPDX-License-Identifier: PostgreSQL
#
# mask in a workflow: everybody but the owner of a run sees *** in the place of
# these values, in every view and function, and searches do not find them.
# Long: only make check-long runs it.
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
my $failed;
my $as = sub { my ($role, $statement) = @_; my ($out, $err); $node->psql('postgres', $statement, stdout => \$out, stderr => \$err, extra_params => [ '-U', $role ]); $failed = $err; return $out };
my $json = JSON::PP->new->canonical;

$sql->("CREATE ROLE $_ LOGIN") foreach qw(ann op adm mon member super);
$sql->($_) foreach q{SELECT sas.grant_usage('ann', 'user'), sas.grant_usage('member', 'user'), sas.grant_usage('op', 'operator'), sas.grant_usage('adm', 'admin'), sas.grant_usage('mon', 'monitor')},
  'GRANT ann TO member', 'ALTER ROLE super SUPERUSER', 'CREATE SCHEMA shop AUTHORIZATION ann',
  q{CREATE FUNCTION shop.pay(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('receipt', 'r-hidden', 'list', '[{"pin": "p-hidden", "n": 1}, {"pin": "p-hidden", "n": 2}]'::jsonb, 'ok', true) $$},
  q{CREATE FUNCTION shop.fails(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'card % refused', input ->> 'card'; END $$};
make_agent($node, 'remote', $service);
$sql->(q{SELECT sas.grant_agent('remote', 'ann')});
$service->script(charge => [ map { { json => { token => 't-hidden', id => 7 } } } 1 .. 3 ]);

my %flow = (
	pays => { steps => {
			charge => { agent => 'remote', call => { method => 'POST', path => '/charge', body => { card => '{{input.card.number}}', order => '{{input.order}}' } } },
			pay => { function => 'shop.pay', input => { token => '{{steps.charge.output.body.token}}', order => '{{input.order}}' } },
			whole => { function => 'shop.pay', after => ['pay'] },
			each => { each => '{{input.cards}}', function => 'shop.pay', input => { card => '{{item}}', index => '{{index}}' } } },
		output => { receipt => '{{steps.pay.output.receipt}}', order => '{{input.order}}' },
		mask => [ 'input.card', 'input.cards[*]', '$.steps.charge.output.body.token', 'steps.*.output.receipt', 'steps.*.output.list[*].pin', 'output."receipt"' ] },
	inner => { steps => { send => { agent => 'remote', call => { method => 'POST', path => '/charge', body => { number => '{{input.n}}' } } } },
		output => { token => '{{steps.send.output.body.token}}', id => '{{steps.send.output.body.id}}' }, mask => ['output.token'] },
	outer => { steps => { pay => { include => 'inner', input => { n => '{{input.card.number}}' } },
			after => { function => 'shop.pay', input => { token => '{{steps.pay.output.token}}', id => '{{steps.pay.output.id}}' }, output => { id => '{{input.order}}' } } },
		mask => [ 'input.card', 'input.cards' ] },
	fails => { steps => { a => { function => 'shop.fails', input => { card => '{{input.card.number}}' } } }, on_failure => 'pause', mask => [ 'input.card', 'input.cards' ] });
my %run;
foreach my $name (qw(inner outer fails pays))
{
	my $definition = $json->encode($flow{$name});
	$as->('ann', "SELECT sas.create_workflow('$name', \$j\$$definition\$j\$)");
	next if $name eq 'inner';
	$run{$name} = $as->('ann', qq{SELECT run_id FROM sas.submit('$name', '{"card": {"number": "c-hidden"}, "cards": ["c-hidden", "c-hidden"], "order": "o-shown"}', key => 'k-$name')});
	like($run{$name}, qr/^\d+$/, "a workflow with a mask is defined, and its run submitted: $name");
}
is(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run{pays}", 'stopped'), 1, 'it runs with the values');
wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run{fails}", 'paused');
is(wait_for($node, "SELECT state || result FROM sas.runs WHERE run_id = $run{outer}", 'stoppedsuccess'), 1, 'so does one with an include');
$as->('ann', q{SELECT sas.schedule('yearly', '@yearly', 'pays', '{"card": {"number": "c-hidden"}, "cards": [], "order": "o-shown"}')});
my ($request) = $service->requests('charge');
like($request->{body}, qr/c-hidden/, 'the service gets the value');

is($as->('op', "SELECT input FROM sas.runs WHERE run_id = $run{pays}"), '{"card": "***", "cards": ["***", "***"], "order": "o-shown"}', 'an operator sees *** in the input of the run');
is($as->('op', "SELECT output FROM sas.runs WHERE run_id = $run{pays}"), '{"order": "o-shown", "receipt": "***"}', 'and in its output');
is($as->('op', "SELECT input FROM sas.steps WHERE run_id = $run{pays} AND step = 'charge'"), '{"card": "***", "order": "o-shown"}', 'and in what a step sends');
is($as->('op', "SELECT output -> 'body' FROM sas.steps WHERE run_id = $run{pays} AND step = 'charge'"), '{"id": 7, "token": "***"}', 'and in what came back');
is($as->('op', "SELECT input FROM sas.steps WHERE run_id = $run{pays} AND step = 'pay'"), '{"order": "o-shown", "token": "***"}', 'and in what the next step gets of it');
is($as->('op', "SELECT output FROM sas.steps WHERE run_id = $run{pays} AND step = 'pay'"), '{"ok": true, "list": [{"n": 1, "pin": "***"}, {"n": 2, "pin": "***"}], "receipt": "***"}', 'in each element of an array');
is($as->('op', "SELECT input FROM sas.steps WHERE run_id = $run{pays} AND step = 'whole'"), '{"card": "***", "cards": ["***", "***"], "order": "o-shown"}', 'and where a step gets the input of the run');
is($as->('ann', "SELECT input #>> '{card,number}' FROM sas.runs WHERE run_id = $run{pays}"), 'c-hidden', 'the owner sees all of it');
is($as->('ann', "SELECT output ->> 'receipt' FROM sas.runs WHERE run_id = $run{pays}"), 'r-hidden', 'the output, too');
like($as->('ann', "SELECT error ->> 'title' FROM sas.runs WHERE run_id = $run{fails} UNION ALL SELECT error ->> 'title' FROM sas.steps WHERE run_id = $run{fails}"), qr/c-hidden refused/, 'and errors');

is($as->('op', "SELECT string_agg(step || ' ' || coalesce(output::text, '-'), ', ' ORDER BY position) FROM sas.steps WHERE run_id = $run{outer} AND step LIKE 'pay%'"), 'pay.send "***", pay {"id": 7, "token": "***"}',
	'inside an include all is hidden; the mask of the included workflow holds for its output');
is($as->('op', "SELECT input FROM sas.steps WHERE run_id = $run{outer} AND step = 'after'"), '{"id": 7, "token": "***"}', 'and for what the next step gets of it');
is($as->('op', "SELECT input FROM sas.steps WHERE run_id = $run{outer} AND step = 'pay.send'"), '"***"', 'what an inner step sends is hidden');
is($as->('ann', "SELECT input FROM sas.steps WHERE run_id = $run{outer} AND step = 'pay.send'"), '{"number": "c-hidden"}', 'but not for the owner');
is($as->('op', q{SELECT input FROM sas.schedules WHERE name = 'yearly'}), '{"card": "***", "cards": [], "order": "o-shown"}', 'the input of a schedule is masked as that of its runs');

# nothing of it where others look
my @views = split /\n/, $sql->(q{SELECT c.oid::regclass FROM pg_class c WHERE c.relkind = 'v' AND c.relnamespace = 'sas'::regnamespace ORDER BY 1});
my @look = ((map { "SELECT t::text FROM $_ t" } @views), 'SELECT * FROM sas.explain()', 'SELECT sas.console()', q{SELECT sas.console_page('/')}, q{SELECT sas.console_page('/runs')},
	q{SELECT sas.console_page('/alerts')}, q{SELECT sas.console_page('/schedules')}, q{SELECT r::text FROM sas.find_runs('{}') r},
	map { my $id = $_; ((map { "SELECT * FROM sas.$_($id)" } qw(explain timeline graph console wait)), "SELECT sas.console_page('/runs/$id')") } values %run);
foreach my $role (qw(op adm mon member super))
{
	foreach my $statement (@look)
	{
		my $out = $as->($role, $statement);
		# a monitor may not call all of them
		isnt($out, '', "$role sees something: $statement") if $role ne 'mon' && $statement =~ /\((?:$run{pays}|'\/runs\/$run{pays}')\)/;
		my @lines = grep { /-hidden/ } split /\n/, $out . $failed;
		is(scalar @lines, 0, "$role sees nothing of it: $statement") or diag(map { my $at = index $_, '-hidden'; substr($_, $at > 200 ? $at - 200 : 0, 300) . "\n" } @lines[ 0 .. ($#lines > 2 ? 2 : $#lines) ]);
	}
	is($as->($role, q{SELECT count(*) FROM sas.find_runs('{"text": "-hidden"}')}) || 0, 0, "$role finds no run by it");
}
is($as->('ann', q{SELECT count(*) FROM sas.find_runs('{"text": "-hidden"}')}), 3, 'the owner does');
is($as->('member', "SELECT changed FROM sas.set_input($run{fails}, 'a', '{\"card\": \"x-hidden\"}')"), 't', 'a member of the owner\'s role may give another input');
is($as->($_, "SELECT count(*) || ' ' || count(*) FILTER (WHERE h::text ~ 'hidden') FROM sas.history h WHERE run_id = $run{fails} AND act = 'set_input'"), '1 0', "which the history tells $_ without it") foreach qw(op adm);
like($as->('ann', "SELECT h::text FROM sas.history h WHERE run_id = $run{fails} AND act = 'set_input'"), qr/x-hidden/, 'and the owner with it');
is($as->('adm', "SELECT input FROM sas.steps WHERE run_id = $run{fails} AND step = 'a'") =~ /hidden/ ? 1 : 0, 0, 'which others do not see');

# -- at the door --------------------------------------------------------------------------------
my @bad = (
	[ '"input.card"', '22023', '/mask' ], [ '[7]', '22023', '/mask/0' ], [ '["input", "card"]', '22023', '/mask/1' ], [ '["input.card ? (@ > 1)"]', '22023', '/mask/0' ],
	[ '["input.**"]', '22023', '/mask/0' ], [ '["input.card.size()"]', '22023', '/mask/0' ], [ '["input[last]"]', '22023', '/mask/0' ], [ '["run.id"]', '22023', '/mask/0' ],
	[ '["steps.nobody.output"]', '42P10', '/mask/0' ], [ '["secret.token"]', '22023', '/mask/0' ], [ '[""]', '22023', '/mask/0' ], [ '[null]', '22023', '/mask/0' ],
	[ $json->encode([ map { "input.a$_" } 1 .. 101 ]), '54000', '/mask' ], [ '["input.' . 'x' x 2000 . '"]', '22023', '/mask/0' ]);
foreach my $case (@bad)
{
	my ($mask, $code, $place) = @$case;
	my $err;
	$node->psql('postgres', "\\set VERBOSITY verbose\nSELECT sas.create_workflow('bad', '{\"steps\": {}, \"mask\": $mask}')", stderr => \$err);
	like($err, qr/ERROR:\s+$code:.*DETAIL:\s+At \Q$place\E\.\n.*HINT/s, 'refused with place and hint: ' . substr($mask, 0, 40)) or diag($err);
}
is($sql->(q{SELECT count(*) FROM sas.workflows w WHERE w::text ~ 'bad'}), 0, 'nothing of it is stored');
$sql->(q{SELECT sas.create_workflow('none', '{"steps": {}, "mask": []}')});
my $open = $sql->(q{SELECT run_id FROM sas.submit('none', '{"a": 1}')});
is($as->('op', "SELECT input FROM sas.runs WHERE run_id = $open"), '{"a": 1}', 'an empty mask hides nothing');
done_testing();
