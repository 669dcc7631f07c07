# SPDX-License-Identifier: PostgreSQL
#
# Features together, over real HTTP: maps with keys, fallbacks and undos of each kind, in a child run inside of an
# include; elements in doubt; a map that pauses at its end and goes on with another input and version; a halt amid a
# cancel. Each run ends as its definition says, in the order it says, and leaves nothing behind.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main');
my $service = SasService->new;
make_agent($node, 'shop', $service, retry => '{"max_attempts": 1}');
my $once = { max_failures => 1 };

sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text) }
sub call { my ($path, %more) = @_; return { agent => 'shop', call => { method => 'POST', path => $path }, %more } }
sub delete_at { my ($path) = @_; return { call => { method => 'DELETE', path => $path } } }
sub targets { my ($method) = @_; return map { $_->{target} } grep { $_->{method} eq $method } $service->requests }
sub ended { my ($run) = @_; return "$run->{state} " . ($run->{result} // '') }

sub nothing_left
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $left = q{
		SELECT coalesce(string_agg(what, ', '), '') FROM (
			SELECT 'ready' FROM _sas.ready UNION ALL SELECT 'lease' FROM _sas.lease UNION ALL SELECT 'answer' FROM _sas.answer
			UNION ALL SELECT 'message' FROM _sas.message UNION ALL SELECT 'place' FROM _sas.concurrency_slot
			UNION ALL SELECT 'phase' FROM _sas.phase UNION ALL SELECT 'undo' FROM _sas.undo_order UNION ALL SELECT 'signal' FROM _sas.signal
			UNION ALL SELECT 'abandoned' FROM _sas.abandoned_run UNION ALL SELECT 'list' FROM _sas.map_list
			UNION ALL SELECT 'run' FROM sas.runs WHERE state <> 'stopped') x (what)};
	ok(wait_for($node, $left, ''), "$what: nothing is left");
	return;
}

# -- fallbacks and undos of each kind, in a map of a child run inside of an include ----------------

sql(q{
	CREATE SCHEMA f;
	CREATE TABLE f.book (n serial, what text);
	CREATE FUNCTION f.note(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO f.book (what) VALUES (input ->> 'what') RETURNING to_jsonb(n) $$;
	CREATE FUNCTION f.plan(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_build_object('steps', jsonb_build_object('p', jsonb_build_object('agent', 'shop',
			'call', jsonb_build_object('method', 'POST', 'path', '/planned/' || (input ->> 'x')),
			'undo', jsonb_build_object('call', jsonb_build_object('method', 'DELETE', 'path', '/planned/' || (input ->> 'x')))))) $$});
define($node, 'other', { steps => { a => call('/other/{{input.x}}', undo => delete_at('/other/{{input.x}}')) } });
define($node, 'planned', { plan => 'f.plan' });
my %fallback = (
	call => { call => { method => 'POST', path => '/call/{{item}}' }, undo => delete_at('/call/{{item}}') },
	function => { function => 'f.note', input => { what => 'do {{item}}' }, undo => { function => 'f.note', input => { what => 'undo {{item}}' } } },
	workflow => { workflow => 'other', input => { x => '{{item}}' } },
	include => { include => 'other', input => { x => '{{item}}' } },
	plan => { workflow => 'planned', input => { x => '{{item}}' } },
	wait => { wait => { signal => 'never', timeout => '100 ms', on_timeout => 'go_on' }, undo => { wait => { for => '50 ms' } } });
foreach my $kind (sort keys %fallback)
{
	$service->script(first => [ { status => 422 } ], end => [ { status => 422 } ]);
	my $seen = $service->requests;
	define($node, "leaf_$kind", { recovery => $once, steps => {
		m => call('/first/{{item}}', each => '{{input.items}}', concurrency => { limit => 3, key => '{{item}}', per_key => 1 },
			undo => delete_at('/first/{{item}}'), fallback => $fallback{$kind}) } });
	define($node, "middle_$kind", { steps => { kid => { workflow => "leaf_$kind" } } });
	define($node, "top_$kind", { recovery => $once, steps => { inner => { include => "middle_$kind" }, end => call('/end', after => ['inner']) } });
	my $run = run_of($node, submit($node, "top_$kind", { items => [qw(a b a c)] }));
	is(ended($run), 'stopped compensated', "fallback $kind: the run is undone");
	my @came = map { "$_->{method} $_->{target}" } ($service->requests)[ $seen .. $service->requests - 1 ];
	is(scalar(grep { m{^POST /first/} } @came), 4, "fallback $kind: each element was tried first");
	is(scalar(grep { m{^DELETE /first/} } @came), 0, "fallback $kind: what was refused for good is not undone");
	my %of = (call => 'call', workflow => 'other', include => 'other', plan => 'planned');
	if (my $path = $of{$kind})
	{
		my @done = map { m{^POST /$path/(.)} ? $1 : () } @came;
		my @undone = map { m{^DELETE /$path/(.)} ? $1 : () } @came;
		is(join(' ', sort @done), 'a a b c', "fallback $kind: each element has one");
		is(join(' ', sort @undone), 'a a b c', "fallback $kind: each is undone once");
		my $first = sql(qq{
			SELECT string_agg(i ->> 'item', ' ' ORDER BY s.finished_at DESC) FROM sas.runs r JOIN sas.runs k ON k.parent_run_id = r.run_id
			JOIN sas.steps s ON s.run_id = k.run_id AND s.element IS NOT NULL
			CROSS JOIN LATERAL (SELECT jsonb_build_object('item', r.input -> 'items' ->> s.element - 1)) i (i)
			WHERE r.run_id = $run->{run_id} AND s.step = 'm'}) if $kind eq 'call';
		is(join(' ', reverse @undone), $first, 'one after the other, as its steps tell') if $kind eq 'call';
	}
}
# two workers may call two of them at once: the order is that of their completion
is(sql(q{SELECT string_agg(what, ', ' ORDER BY n) FROM f.book WHERE n > 4}),
	sql(q{SELECT string_agg('undo ' || ('[0, "a", "b", "a", "c"]'::jsonb ->> s.element), ', ' ORDER BY s.completion DESC)
		FROM sas.runs r JOIN _sas.step s USING (run_id) WHERE r.workflow = 'leaf_function' AND s.element > 0 AND s.step_no = (SELECT max(o.step_no) FROM _sas.step o WHERE o.run_id = r.run_id AND o.element > 0)}),
	'functions of a fallback are undone in reverse order');
nothing_left('fallbacks');

# -- elements in doubt, and their fallback ----------------------------------------------------------

$service->script(doubt => [ { status => 500 } ], end => [ { status => 422 } ]);
define($node, 'doubt', { recovery => $once, steps => {
	m => call('/doubt/{{item}}', each => '{{input.items}}', undo => delete_at('/by_key/{{steps.m.key}}'),
		fallback => { call => { method => 'POST', path => '/instead/{{item}}' }, undo => delete_at('/instead/{{item}}') }),
	end => call('/end', after => ['m']) } });
my $run = run_of($node, submit($node, 'doubt', { items => [ 1, 2 ] }));
is(ended($run), 'stopped compensated', 'elements in doubt: the run is undone');
my @keys = sort map { header_of($_, 'idempotency-key') } $service->requests('doubt');
is(join(' ', sort map { m{/by_key/(.*)} ? $1 : () } targets('DELETE')), join(' ', @keys), 'each is undone under the key of its call, once');
my @order = map { $_->{target} } grep { $_->{script} =~ /^(by_key|instead)$/ && !($_->{method} eq 'DELETE' && $_->{script} eq 'instead') } $service->requests;
is(scalar(grep { m{^/instead} } @order), 2, 'then each has its fallback');
is(join(' ', sort grep { m{^/instead} } targets('DELETE')), '/instead/1 /instead/2', 'which is undone');
nothing_left('elements in doubt');

# -- a map that pauses at its end: another input, another version, the verb, and the undo -------------

$service->script(picky => [ { status => 422 } ], end => [ { status => 422 } ]);
my %picky = (each => '{{input.items}}', on_failure => 'pause_at_end', concurrency => { limit => 2, key => '{{item.k}}', per_key => 1 });
my $picky = sub {
	my ($path, $undo, %more) = @_;
	return { recovery => $once, steps => {
		m => { agent => 'shop', call => { method => 'POST', path => '/{{item.path}}', body => { v => '{{item.v}}' } }, undo => delete_at("$undo/{{item.v}}"), %picky, %more },
		end => call($path, after => ['m']) } };
};
define($node, 'picky', $picky->('/end', '/old'));
my @items = map { { k => $_->[0], v => $_->[1], path => $_->[2] } } [ 1, 'a', 'fine' ], [ 1, 'b', 'picky' ], [ 2, 'c', 'fine' ], [ 2, 'd', 'picky' ], [ 1, 'e', 'fine' ];
my $id = submit($node, 'picky', { items => \@items });
$run = run_of($node, $id);
is("$run->{state}: $run->{error}{title}", 'paused: 2 of 5 elements failed', 'a map runs through, then its run pauses');
is(sql("SELECT count(*) FROM sas.alerts WHERE run_id = $id AND closed_at IS NULL"), 1, 'with one alert');
$service->script(picky => [ { json => {} }, { status => 422 } ]);
is(sql("SELECT changed FROM sas.set_input($id, 'm[2]', '{\"v\": \"B\"}')"), 't', 'an element gets another input');
sql("SELECT sas.retry($id, 'm')");
$run = run_of($node, $id);
is("$run->{state}: $run->{error}{title}", 'paused: 1 of 5 elements failed', 'after a retry one of the two is left, whichever');
define($node, 'picky', $picky->('/end', '/new', expect => [ '2xx', 422 ]));
is(sql("SELECT changed FROM sas.set_version($id)"), 't', 'the run gets a mended version');
sql("SELECT sas.resume($id)");
$run = run_of($node, $id);
is(ended($run), 'stopped compensated', 'it goes on to the step after the map, and is undone');
is(scalar(grep { m{^/old/} } targets('DELETE')), 0, 'not by the undo of the version it had');
is(join(' ', sort grep { m{^/new/} } targets('DELETE')), join(' ', map { "/new/$_" } qw(a b c d e)), 'but by the mended one');
is(sql("SELECT string_agg(DISTINCT act, ' ' ORDER BY act) FROM sas.history WHERE run_id = $id"), 'resume retry set_input set_version', 'history names what was done');
is(sql("SELECT count(*) FROM sas.alerts WHERE run_id = $id AND closed_at IS NULL"), 0, 'and no alert is left');
nothing_left('a map that pauses at its end');

# -- a halt amid a cancel -------------------------------------------------------------------------

$service->script(slow => [ { how => 'watch' } ], undo => [ { how => 'watch' } ]);
define($node, 'halted', { steps => { a => call('/fine/a', undo => delete_at('/undo')), b => call('/slow', after => ['a']) } });
$id = submit($node, 'halted');
$service->wait_for_requests('slow', 1);
sql("SELECT sas.cancel($id)");
$service->wait_for_requests('undo', 1);
is(sql("SELECT state || ' ' || result FROM sas.halt($id, 'now')"), 'stopped error', 'a run is halted while a cancel undoes it');
like(sql("SELECT message FROM sas.alerts WHERE run_id = $id AND kind = 'halted'"), qr/; in doubt: b; undo not finished: a$/, 'its alert names what may stand');
is(sql("SELECT result FROM sas.runs WHERE run_id = $id"), 'error', 'its result stays');
nothing_left('a halt amid a cancel');
done_testing();
