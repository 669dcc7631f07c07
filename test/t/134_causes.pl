# SPDX-License-Identifier: PostgreSQL
#
# The whole cause of a failure is stored with the step, and is in sas.explain, the alert and the server log:
# message, DETAIL, HINT and the first lines of CONTEXT. A monitor sees no word of a function, but its SQLSTATE.
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
make_agent($node, 'work', $service);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE mon;
	SELECT sas.grant_usage('mon', 'monitor');
	CREATE ROLE ann;
	SELECT sas.grant_usage('ann', 'user'), sas.grant_agent('work', 'ann');
	CREATE SCHEMA shop AUTHORIZATION ann;
	SET ROLE ann;
	CREATE FUNCTION shop.no_room(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'no room' USING DETAIL = 'Hotel 7 is full.', HINT = 'Book another hotel.', ERRCODE = '22023';
	END $$;
	CREATE FUNCTION shop.ratio(n int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		RETURN 1 / n;
	END $$;
	CREATE FUNCTION shop.book_order(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		r int;
	BEGIN
		r := shop.ratio(0);
		RETURN '{}';
	END $$;
	CREATE FUNCTION shop.deep(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF (input ->> 'n')::int = 0 THEN
			RAISE EXCEPTION '%', repeat('ä', 2000) USING DETAIL = repeat('ö', 2000), HINT = repeat('ü', 2000);
		END IF;
		RETURN shop.deep(jsonb_build_object('n', (input ->> 'n')::int - 1));
	END $$;
	CREATE FUNCTION shop.fine(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;});

# fails(name, definition): its first run, as ann, waits for an operator
sub fails
{
	my ($name, $definition, $input) = @_;
	my $text = JSON::PP->new->canonical->encode($definition);
	$sql->("SET ROLE ann; SELECT sas.create_workflow('$name', \$d\$$text\$d\$)");
	my $run = $sql->("SET ROLE ann; SELECT run_id FROM sas.submit('$name', '" . ($input // '{}') . "')");
	ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'paused'), "$name: paused");
	return $run;
}
sub in_log { my ($re, $name) = @_; return ok(PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ $re, $name) }
sub error { my ($run, $member) = @_; return $sql->("SELECT error ->> '$member' FROM sas.steps WHERE run_id = $run AND error IS NOT NULL") }
sub explained { my ($run, $role) = @_; return $sql->(($role ? "SET ROLE $role; " : '') . "SELECT string_agg(text, ' | ') FROM sas.explain($run)") }
sub alert { my ($run, $role) = @_; return $sql->(($role ? "SET ROLE $role; " : '') . "SELECT message FROM sas.alerts WHERE run_id = $run") }

# -- a function step ----------------------------------------------------------------

my $run = fails('no_room', { steps => { book => { function => 'shop.no_room', on_failure => 'pause' } } });
is(error($run, 'title'), 'no room', 'the message is the title');
is(error($run, 'detail'), 'Hotel 7 is full.', 'with the DETAIL');
is(error($run, 'hint'), 'Book another hotel.', 'the HINT');
is(error($run, 'context'), 'PL/pgSQL function no_room(jsonb) line 3 at RAISE', 'the CONTEXT, without what is outside of the function');
is(error($run, 'type'), 'urn:sas:sqlstate:22023', 'and the SQLSTATE');
my $whole = 'no room: Hotel 7 is full (PL/pgSQL function no_room(jsonb) line 3 at RAISE); hint: Book another hotel';
like(explained($run, 'ann'), qr/step "book" (?:waits|has waited .*): it failed \(\Q$whole\E\)/, 'the owner finds it all in explain');
is(alert($run, 'ann'), "run $run: step \"book\" failed: $whole", 'and in the alert');
in_log(qr/LOG:  run $run step "book" attempt 1 failed: no room\n.*DETAIL:  Hotel 7 is full\.\n.*HINT:  Book another hotel\.\n.*CONTEXT:  PL\/pgSQL function no_room/, 'and in the server log');

is($sql->("SET ROLE mon; SELECT error - '{type,instance}'::text[] FROM sas.steps WHERE run_id = $run"), '{"title": "an error with SQLSTATE 22023"}', 'a monitor sees what kind of error it is only');
is($sql->("SET ROLE mon; SELECT error - '{type,instance}'::text[] FROM sas.runs WHERE run_id = $run"), '{"title": "an error with SQLSTATE 22023"}', 'in runs, too');
is($sql->("SET ROLE mon; SELECT error - '{type,instance}'::text[] FROM sas.attempts WHERE run_id = $run"), '{"title": "an error with SQLSTATE 22023"}', 'and in attempts');
like(explained($run, 'mon'), qr/it failed \(an error with SQLSTATE 22023\)/, 'in explain');
is(alert($run, 'mon'), "run $run: step \"book\" failed: an error with SQLSTATE 22023", 'and in the alert');

$run = fails('nested', { steps => { book => { function => 'shop.book_order', on_failure => 'pause' } } });
is(error($run, 'context'), "PL/pgSQL function ratio(integer) line 3 at RETURN\nPL/pgSQL function book_order(jsonb) line 5 at assignment", 'nested functions, from the inside out');
like(alert($run), qr/division by zero \(PL\/pgSQL function ratio\(integer\) line 3 at RETURN\)$/, 'the alert has the innermost');

$run = fails('deep', { steps => { it => { function => 'shop.deep', on_failure => 'pause' } } }, '{"n": 30}');
is($sql->("SELECT string_agg(k || ' ' || octet_length(error ->> k), ' ' ORDER BY k) FROM sas.steps, unnest('{title,detail,hint}'::text[]) k WHERE run_id = $run"),
	'detail 1000 hint 1000 title 1000', 'long texts are cut, between two characters');
is($sql->("SELECT array_length(string_to_array(error ->> 'context', E'\\n'), 1) FROM sas.steps WHERE run_id = $run"), '5', 'and so is a deep context');

# -- finalize, a hook, a middleware --------------------------------------------------

$run = fails('finalized', { steps => {}, finalize => 'shop.no_room' });
is(error($run, 'detail'), 'Hotel 7 is full.', 'finalize');
like(explained($run), qr/\Q$whole\E/, 'explained');
is(alert($run), "run $run: step \"finalize\" failed: $whole", 'with its alert');

$sql->(q{SET ROLE ann; SELECT sas.create_workflow('hooked', '{"steps": {}, "hooks": [{"on": "success", "function": "shop.no_room"}]}'); SELECT * FROM sas.submit('hooked')});
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'hook-failed'}, '1'), 'a hook fails');
like($sql->(q{SET ROLE ann; SELECT message FROM sas.alerts WHERE kind = 'hook-failed'}), qr/hook 1 of workflow "hooked" for run \d+ \(success\) failed: \Q$whole\E$/, 'with its alert');
is($sql->(q{SET ROLE ann; SELECT error ->> 'detail' FROM sas.hook_runs}), 'Hotel 7 is full.', 'and its row');
is($sql->(q{SET ROLE mon; SELECT error - '{type,instance}'::text[] FROM sas.hook_runs}), '{"title": "an error with SQLSTATE 22023"}', 'of which a monitor sees the kind');

$sql->(q{
	CREATE FUNCTION public.no_room(context jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'no room' USING DETAIL = 'Hotel 7 is full.', HINT = 'Book another hotel.';
	END $$;
	CREATE FUNCTION public.fine(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
	SELECT sas.create_workflow('wrapped', '{"steps": {"it": {"function": "public.fine", "on_failure": "pause"}}}');
	SELECT sas.create_middleware('check', 'function', 'public.no_room(jsonb)', workflow => 'wrapped')});
$run = $sql->(q{SELECT run_id FROM sas.submit('wrapped')});
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'paused'), 'a middleware fails');
is(alert($run), "run $run: step \"it\" failed: $whole", 'with its alert');

# -- a plan, at submit ---------------------------------------------------------------

my ($out, $err) = ('', '');
$sql->(q{SET ROLE ann; SELECT sas.create_workflow('planned', '{"plan": "shop.no_room"}')});
$node->psql('postgres', q{SET ROLE ann; SELECT * FROM sas.submit('planned')}, stdout => \$out, stderr => \$err);
like($err, qr/ERROR:  no room\nDETAIL:  Hotel 7 is full\.\nHINT:  Book another hotel\.\nCONTEXT:  PL\/pgSQL function no_room/, 'submit reports what the plan raises');
$run = fails('plans', { steps => { kid => { workflow => 'planned', on_failure => 'pause' } } });
is(alert($run), "run $run: step \"kid\" failed: $whole", 'and so does a step that submits a child');

# -- templates and requests ----------------------------------------------------------

$run = fails('template', { steps => { it => { function => 'shop.fine', input => { a => '{{input.nobody}}' }, on_failure => 'pause' } } });
like(alert($run), qr/failed: could not build the input of the step: input\.nobody: nothing found$/, 'a template that finds nothing');
in_log(qr/LOG:  run $run step "it" attempt 1 failed: could not build the input of the step\n.*DETAIL:  input\.nobody: nothing found/, 'in the log, too');

$run = fails('request', { steps => { it => { agent => 'work', call => { path => '/{{input.nobody}}' }, on_failure => 'pause' } } });
like(alert($run), qr/failed: could not build the request: .*nobody.*nothing found/, 'a request that cannot be made');
like(explained($run), qr/it failed \(could not build the request: .*nobody.*nothing found\)/, 'explained');
in_log(qr/LOG:  run $run step "it" attempt 1 failed: could not build the request\n.*DETAIL:  .*nothing found/, 'in the log, too');

$service->script(work => [ { status => 422, json => { reason => 'sold out' } } ]);
$run = fails('refused', { steps => { it => { agent => 'work', call => { path => '/work' }, on_failure => 'pause' } } });
like(alert($run), qr/failed: the service answered 422: .*sold out/, 'what a service answers');
is(alert($run, 'mon'), "run $run: step \"it\" failed: the service answered 422", 'of which a monitor sees the status');

# -- a function of a watcher -----------------------------------------------------------

$sql->(q{SET ROLE ann;
	SELECT sas.create_watcher('sweep', '{"function": "shop.no_room", "every": "10 ms", "retry": {"initial": "10 ms", "max": "10 ms", "max_failures": 2}}');
	SELECT sas.watch('sweep', 'w')});
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE key = 'w'}, 'failed'), 'a watcher fails');
is($sql->(q{SET ROLE ann; SELECT last_error ->> 'hint' FROM sas.watches WHERE key = 'w'}), 'Book another hotel.', 'its last error is whole');
is($sql->(q{SET ROLE mon; SELECT last_error - '{type,instance}'::text[] FROM sas.watches WHERE key = 'w'}), '{"title": "an error with SQLSTATE 22023"}', 'of which a monitor sees the kind');
is($sql->(q{SELECT message FROM sas.alerts WHERE kind = 'watch-failed'}), "watch \"w\" of watcher \"sweep\" failed: $whole", 'and its alert');
is($sql->(q{SET ROLE mon; SELECT message FROM sas.alerts WHERE kind = 'watch-failed'}), 'watch "w" of watcher "sweep" failed: an error with SQLSTATE 22023', 'the same holds for the alert');
in_log(qr/LOG:  watch \d+ failed: no room\n.*DETAIL:  Hotel 7 is full/, 'and the log');

# -- a flood ---------------------------------------------------------------------------

my $before = () = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ / failed: no room/g;
$sql->(q{SET ROLE ann;
	SELECT sas.create_workflow('flood', '{"steps": {"it": {"function": "shop.no_room"}}, "on_failure": "fail"}');
	SELECT count(*) FROM generate_series(1, 300) n, LATERAL sas.submit('flood', jsonb_build_object('n', n))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'flood' AND state = 'stopped'}, '300'), 'many runs fail');
my $after = () = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ / failed: no room/g;
cmp_ok($after - $before, '<', 200, 'not each of them is logged');
done_testing();
