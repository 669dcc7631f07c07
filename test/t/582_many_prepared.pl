# SPDX-License-Identifier: PostgreSQL
#
# A user leaves 249 prepared transactions behind, which hold runs and steps. Each tick of every actor moves the runs of
# all others, sas.health() names the transactions, and when they end their runs go on.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my $most = 249;
my $node = new_node('main', max_prepared_transactions => $most + 1, 'sas.supervisor_interval' => '2 s');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

make_agent($node, 'remote', $service);
$service->script(fail => [ { status => 400 } ], poor => [ { status => 503 } ]);
$sql->(q{
	CREATE ROLE ann; CREATE ROLE bob;
	SELECT sas.grant_usage(r, 'user'), sas.grant_agent('remote', r) FROM unnest('{ann,bob}'::regrole[]) r;
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
my %recovery = (recovery => { initial => '20 ms', max_failures => 2 });
my $call = sub { return { agent => 'remote', call => { path => "/$_[0]" }, retry => { max_attempts => 1 }, @_[ 1 .. $#_ ] } };
define($node, 'child', { steps => { x => { function => 'public.echo' } } });
define($node, 'all', { steps => {
		call => $call->('quick'), fn => { function => 'public.echo', after => ['call'] }, timer => { wait => { for => '20 ms' } },
		map => { function => 'public.echo', each => '{{input.l}}' }, sub => { workflow => 'child' } } });
define($node, 'undone', { %recovery, steps => { done => $call->('quick', undo => { call => { path => '/quick' } }), bad => $call->('fail', after => ['done']) } });
define($node, 'poor', { %recovery, on_failure => 'fail', steps => { x => $call->('poor') } });
# while it is held, its timer becomes due, and its call is to begin; a signal waits for it
define($node, 'held', { steps => { w => { wait => { signal => 'go' } }, t => { wait => { for => '100 ms' } }, c => $call->('quick', after => [ 't', 'w' ]) } });
$sql->(q{SELECT sas.grant_workflow(w, r) FROM unnest('{child,all,undone,poor,held}'::text[]) w, unnest('{ann,bob}'::regrole[]) r});

# -- they are held ---------------------------------------------------------------------------------------------

my $ann = SasSession->new($node);
$ann->query('SET SESSION AUTHORIZATION ann');
my @runs = split /\n/, $ann->query(qq{SELECT run_id FROM sas.submit_batch('held', array_fill('{}'::jsonb, ARRAY[$most]))});
is(scalar @runs, $most, 'a role has runs');
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE step = 'w' AND state = 'suspended'}, $most), 'which have begun');
my $root = SasSession->new($node);
my @way = (
	sub { $ann->query("BEGIN; SELECT FROM sas.pause($_[0]); PREPARE TRANSACTION 'held $_[0]'") },
	sub { $ann->query("BEGIN; SELECT FROM sas.cancel($_[0]); PREPARE TRANSACTION 'held $_[0]'") },
	sub { $root->query("BEGIN; SELECT FROM _sas.run WHERE run_id = $_[0] FOR UPDATE; SELECT FROM _sas.step WHERE run_id = $_[0] FOR UPDATE; PREPARE TRANSACTION 'held $_[0]'") });
$way[ $_ % 3 ]->($runs[$_]) foreach 0 .. $#runs;
is($sql->('SELECT count(*) FROM pg_prepared_xacts'), $most, "$most prepared transactions hold them");
$ann->query('SELECT count(*) FROM unnest(ARRAY[' . join(',', @runs) . "]::bigint[]) r, sas.signal(r, 'go')");

# -- all others move ---------------------------------------------------------------------------------------------

foreach my $turn (1 .. 3)
{
	my $others = $sql->(q{SET ROLE bob; SELECT string_agg(run_id::text, ',') FROM (
		SELECT run_id FROM sas.submit_batch('all', array_fill('{"l": [1, 2]}'::jsonb, '{5}')) UNION ALL SELECT run_id FROM sas.submit('undone') UNION ALL SELECT run_id FROM sas.submit('poor')) x});
	ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id IN ($others) AND state = 'stopped'", 7), "the runs of another role end: $turn")
	  or diag($sql->("SELECT string_agg(workflow || ' ' || state, ', ') FROM sas.runs WHERE run_id IN ($others) AND state <> 'stopped'"));
}
is($sql->('SELECT count(*) FROM sas.runs WHERE run_id IN (' . join(',', @runs) . ") AND state = 'running'"), $most, 'those that are held stand still');
ok(wait_for($node, q{SELECT count(*) > 0 FROM sas.health() h, unnest(h.problems) p WHERE p ~ '^prepared transaction "held \d+" holds run \d+'}, 't'), 'health names them')
  or diag($sql->('SELECT problems FROM sas.health()'));
is($sql->(q{SELECT coalesce(sum(value), 0) FROM sas.metrics() WHERE name = 'sas_lock_timeouts_total'}), '0', 'no tick has given up a lock');
is($sql->(q{SELECT coalesce(string_agg(message, E'\n'), '') FROM sas.alerts WHERE kind = 'stuck'}), '', 'nothing was stuck');

# -- they end ------------------------------------------------------------------------------------------------------

$root->query(($_ % 2 ? 'COMMIT' : 'ROLLBACK') . " PREPARED 'held $runs[$_]'") foreach 0 .. $#runs;
my $ids = join(',', @runs);
my $verbs = sub { my ($way) = @_; return scalar grep { $_ % 2 && $_ % 3 == $way } 0 .. $#runs };
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id IN ($ids) AND state IN ('stopped', 'paused')", $most), 'when they have ended, their runs go on');
is($sql->("SELECT concat_ws(' ', count(*) FILTER (WHERE state = 'paused'), count(*) FILTER (WHERE result = 'cancelled'), count(*) FILTER (WHERE result = 'success')) FROM sas.runs WHERE run_id IN ($ids)"),
	join(' ', $verbs->(0), $verbs->(1), $most - $verbs->(0) - $verbs->(1)), 'what was committed holds, what was rolled back does not');
$_->quit foreach $ann, $root;
done_testing();
