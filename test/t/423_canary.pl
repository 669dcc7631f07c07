# SPDX-License-Identifier: PostgreSQL
#
# A monitor sees no value that a user or a service made: a marker is put into
# every place that such a value can come from, and then a monitor reads every
# view, and calls every function that may be called at this level.
#
# What identifies is seen by monitors: names, keys, labels. So are definitions.
# Takes about 60 s.
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
my $canary = 'canary4711';

$sql->($_) foreach 'CREATE ROLE mon LOGIN', q{SELECT sas.grant_usage('mon', 'monitor')},
  'CREATE ROLE ann LOGIN', q{SELECT sas.grant_usage('ann', 'user')}, 'CREATE SCHEMA shop AUTHORIZATION ann', 'GRANT USAGE ON SCHEMA shop TO PUBLIC',
  qq{CREATE FUNCTION shop.raise(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN
		RAISE EXCEPTION 'message $canary' USING DETAIL = 'detail $canary', HINT = 'hint $canary'; END \$\$},
  qq{CREATE FUNCTION shop.transient(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN
		RAISE EXCEPTION 'message $canary' USING ERRCODE = '40001'; END \$\$},
  qq{CREATE FUNCTION shop.answer(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$ SELECT '{"v": "$canary"}'::jsonb \$\$},
  qq{CREATE FUNCTION shop.planned(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$ SELECT '{"steps": {"a": {"function": "shop.answer", "input": {"v": "$canary"}}}}'::jsonb \$\$},
  qq{CREATE FUNCTION shop.badly_planned(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN RAISE EXCEPTION 'message $canary'; END \$\$};
make_agent($node, 'remote', $service, headers => qq({"X-Canary": "$canary"}), options => qq({"query": {"k": "$canary"}}), retry => '{"max_attempts": 1}');
$sql->(q{SELECT sas.grant_agent('remote', 'ann'), sas.create_agent('packer', kind => 'external'), sas.grant_agent('packer', 'ann')});
$service->script(good => [ { json => { v => $canary }, headers => [ [ 'X-Said', $canary ] ] } ]);
$service->script(bad => [ { status => 400, json => { v => $canary } } ]);
$service->script(down => [ { status => 503, json => { v => $canary } } ]);

my %flow = (
	good => { steps => { a => { agent => 'remote', call => { method => 'POST', path => '/good', body => { v => '{{input.v}}' }, headers => { 'X-C' => '{{input.v}}' } } },
			f => { function => 'shop.answer', input => { v => '{{steps.a.output.body.v}}' } } }, output => { v => '{{steps.f.output.v}}' } },
	bad => { steps => { a => { agent => 'remote', call => { path => '/bad' } } }, on_failure => 'fail' },
	down => { steps => { a => { agent => 'remote', call => { path => '/down' } } }, recovery => { max_failures => 1 } },
	raises => { steps => { a => { function => 'shop.raise' } }, on_failure => 'fail' },
	raises_paused => { steps => { a => { function => 'shop.raise' } }, on_failure => 'pause' },
	cools => { steps => { a => { function => 'shop.transient', retry => { max_attempts => 1 } } }, recovery => { initial => '1 h', max => '1 h' } },
	undone => { steps => { a => { function => 'shop.answer', undo => { function => 'shop.raise' } }, b => { function => 'shop.raise', after => ['a'] } } },
	expects => { steps => { a => { function => 'shop.answer', expect => '$.output.v == 7' } }, on_failure => 'fail' },
	neither => { steps => { a => { function => 'shop.answer', expect => qq(\$.output.v.double() > 3) } }, on_failure => 'fail' },
	template => { steps => { a => { function => 'shop.answer', input => { v => '{{input.v.x}}' } } }, on_failure => 'fail' },
	maps => { steps => { a => { each => '{{input.list}}', function => 'shop.raise' } }, on_failure => 'fail' },
	waits => { steps => { a => { wait => { signal => 'go' } } } },
	parent => { steps => { a => { workflow => 'raises' } }, on_failure => 'fail' },
	tasks => { steps => { a => { agent => 'packer', task => {}, input => { v => '{{input.v}}' } } }, on_failure => 'fail' },
	planned => { steps => {}, plan => 'shop.planned' },
	hooked => { steps => {}, hooks => [ { on => 'success', function => 'shop.raise' } ] },
	finalized => { steps => {}, finalize => 'shop.raise' });
my $json = JSON::PP->new->canonical;
my $as_ann = sub { my ($statement) = @_; return $node->safe_psql('postgres', $statement, extra_params => [ '-U', 'ann' ]) };
foreach my $name (sort { ($a eq 'parent') <=> ($b eq 'parent') || $a cmp $b } keys %flow)
{
	my $definition = $json->encode($flow{$name});
	$as_ann->("SELECT sas.create_workflow('$name', \$j\$$definition\$j\$)");
}
my %run;
foreach my $name (sort keys %flow)
{
	$run{$name} = $as_ann->(qq{SELECT run_id FROM sas.submit('$name', '{"v": "$canary", "list": ["$canary"]}', reply_to => 'answers')});
}
# an operator's words, and those of a worker outside
$sql->(qq{SELECT sas.pause($run{waits})});
$sql->(qq{SELECT sas.signal($run{waits}, 'go', '{"v": "$canary"}')});
my $second = $as_ann->(qq{SELECT run_id FROM sas.submit('waits', '{"v": "$canary"}')});
$sql->(qq{SELECT sas.cancel($second, 'reason $canary')});
my $third = $as_ann->(qq{SELECT run_id FROM sas.submit('waits', '{"v": "$canary"}')});
$sql->(qq{SELECT sas.halt($third, 'reason $canary')});
my $skipped = $as_ann->(qq{SELECT run_id FROM sas.submit('raises_paused', '{"v": "$canary"}')});
wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $skipped", 'paused');
$sql->(qq{SELECT sas.set_input($skipped, 'a', '{"v": "$canary"}'), sas.skip($skipped, 'a', '{"v": "$canary"}')});
wait_for($node, q{SELECT count(*) FROM sas.claim('packer', 'me')}, 1);
$sql->(qq{SELECT sas.heartbeat(s.request_id, checkpoint => '{"v": "$canary"}'), sas.fail(s.request_id, 'error $canary', true) FROM _sas.step s WHERE run_id = $run{tasks}});
$as_ann->(qq{SELECT sas.schedule('nightly', 'every 1 day', 'good', '{"v": "$canary"}', start_at => now() + interval '1 day'), sas.pause_schedule('nightly', 'reason $canary')});
$as_ann->(q{SELECT sas.create_workflow('soon', '{"steps": {}}')});
$as_ann->(qq{SELECT sas.create_watcher('looks', '{"function": "shop.raise", "every": "1 h"}'), sas.watch('looks', 'k', '{"v": "$canary"}')});
my %ends = (good => 'stopped', bad => 'stopped', down => 'paused', raises => 'stopped', raises_paused => 'paused', undone => 'paused', expects => 'stopped', neither => 'stopped',
	template => 'stopped', maps => 'stopped', waits => 'paused', parent => 'stopped', tasks => 'stopped', planned => 'stopped', hooked => 'stopped', finalized => 'paused');
wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run{$_}", $ends{$_}) foreach sort keys %ends;
wait_for($node, "SELECT count(*) FROM sas.steps WHERE run_id = $run{cools} AND waiting_kind = 'cool_off'", 1);
wait_for($node, q{SELECT count(*) > 0 FROM sas.hook_runs WHERE error IS NOT NULL}, 't');
wait_for($node, q{SELECT count(*) > 0 FROM sas.watches WHERE last_error IS NOT NULL}, 't');

# reads(sql): what a monitor is shown by it, NOTICEs and errors included
sub reads
{
	my ($statement) = @_;
	my ($out, $err);
	$node->psql('postgres', $statement, stdout => \$out, stderr => \$err, extra_params => [ '-U', 'mon' ]);
	return "$out\n$err";
}

# overhears(sql): what a monitor has itself told of the statements within functions: their plans, with values as bytes
sub overhears
{
	my ($statement) = @_;
	my $said = reads("SET client_min_messages = log; SET debug_print_plan = on; SET debug_pretty_print = off; SET plpgsql.print_strict_params = on; $statement");
	$said =~ s/\[((?: -?\d+)+ ?)\]/join '', map { chr($_ & 255) } split ' ', $1/ge;
	return $said;
}

# nothing of it where a monitor looks
sub clean
{
	my ($what, $statement) = @_;
	my @lines = grep { /$canary/ } split /\n/, reads($statement);
	push @lines, grep { /$canary/ } split /\n/, overhears($statement) if $what =~ /\(/;
	return is(scalar @lines, 0, "a monitor reads no value: $what") || diag(join "\n", map { my $at = index $_, $canary; substr($_, $at > 150 ? $at - 150 : 0, 300) } @lines[ 0 .. ($#lines > 3 ? 3 : $#lines) ]);
}

my @views = split /\n/, $sql->(q{SELECT c.oid::regclass FROM pg_class c WHERE c.relkind = 'v' AND c.relnamespace = 'sas'::regnamespace ORDER BY 1});
cmp_ok(scalar @views, '>', 20, 'there are views to be read');
clean($_, "SELECT t::text FROM $_ t") foreach @views;

# functions, by what they are given
my @ids = sort { $a <=> $b } values %run, $second, $third, $skipped;
my %call = (
	'sas.explain()' => 'SELECT * FROM sas.explain()', 'sas.console(bigint)' => 'SELECT sas.console(); ' . join(';', map { "SELECT sas.console($_)" } @ids),
	'sas.health()' => 'SELECT sas.health()', 'sas.metrics()' => 'SELECT * FROM sas.metrics()', 'sas.metrics_text()' => 'SELECT sas.metrics_text()', 'sas.now()' => 'SELECT sas.now()',
	(map { my $f = $_; ("sas.$f(bigint)" => join(';', map { "SELECT * FROM sas.$f($_)" } @ids)) } qw(explain timeline)));
my @functions = split /\n/, $sql->(q{SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace AND has_function_privilege('mon', p.oid, 'EXECUTE') ORDER BY 1});
foreach my $f (@functions)
{
	my ($name, $arguments) = $f =~ /^([\w.]+)\((.*)\)$/;
	my @given = map { my $type = $_; $type eq 'bigint' ? undef : $type eq 'text' ? 'text' : $type } split /,/, $arguments;
	my $statement = $call{$f};
	if (!defined $statement && $arguments =~ /^bigint/)
	{
		$statement = join ';', map { "SELECT * FROM $name($_)" } @ids;
	}
	elsif ($name eq 'sas.find_runs')
	{
		$statement = join ';', 'SELECT * FROM sas.find_runs()', q{SELECT * FROM sas.find_runs('{}')}, map { "SELECT * FROM sas.find_runs('$_')" } '{"state": "stopped"}', '{"state": "paused"}';
	}
	elsif ($name eq 'sas.console_page')
	{
		$statement = join ';', map { "SELECT * FROM sas.console_page('$_')" } '/', '/runs', '/workflows', '/alerts', '/agents', '/schedules', '/workers', map { "/runs/$_" } @ids;
	}
	elsif ($name eq 'sas.graph_workflow')
	{
		$statement = join ';', map { "SELECT * FROM sas.graph_workflow('$_')" } sort keys %flow;
	}
	$statement //= "SELECT $name()";
	clean($f, $statement);
}

like(overhears(qq{SELECT sas.find_runs('{"text": "$canary"}')}), qr/$canary/, 'what a monitor itself gives to a function it overhears there');

# what a search finds says something of what it searches
is(reads(qq{SELECT count(*) FROM sas.find_runs('{"text": "$canary"}')}) =~ s/\s+//gr, '0', 'and finds no run by a value');
done_testing();
