# SPDX-License-Identifier: PostgreSQL
#
# Of many submits under one concurrency key that replaces, each replaces the run before it, and not all of them again,
# which the scheduler would have to do. A replaced run whose undo takes long is not replaced again either, by its
# schedule.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.schedulers' => 0);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $messages = q{SELECT count(*) FROM _sas.message WHERE kind = 'replace'};
my $rule = sub { my ($name, $rule) = @_; return qq{SELECT sas.create_workflow('$name', '{"steps": {"a": {"wait": {"signal": "go"}}}, "concurrency": {"key": "k", "overlap": "replace"$rule}}')} };
$sql->(q{
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	CREATE FUNCTION undo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input FROM pg_sleep(600) $$;
	SELECT sas.create_workflow('undone', '{"steps": {"u": {"function": "public.echo", "undo": {"function": "public.undo", "complete_in": "15 min"}},
		"a": {"wait": {"signal": "go"}, "after": ["u"]}}}')});
$sql->($rule->('one', ''));
$sql->($rule->('three', ', "limit": 3'));
$sql->($rule->('mixed', ', "shared": true'));

$sql->(q{SELECT count(*) FROM generate_series(1, 100) g, sas.submit('one', jsonb_build_object('g', g))});
is($sql->($messages), '99', 'each run is replaced once');
$sql->(q{SELECT count(*) FROM sas.submit_batch('one', array_fill('{}'::jsonb, ARRAY[100]))});
is($sql->($messages), '199', 'also by those of one submit');
$sql->(q{SELECT count(*) FROM generate_series(1, 20) g, sas.submit('three', jsonb_build_object('g', g))});
is($sql->($messages), 199 + 17, 'where three have room, all but the last three');
$sql->($rule->('three', ''));
$sql->(q{SELECT sas.submit('three')});
is($sql->($messages), 199 + 20, 'and the last three where only one has room any longer');
$sql->(q{SELECT sas.submit('mixed')});
$sql->($rule->('mixed', ''));
$sql->(q{SELECT count(*) FROM generate_series(1, 10) g, sas.submit('mixed', jsonb_build_object('g', g))});
is($sql->($messages), 219 + 10, 'so are those that share the key');
$sql->($rule->('mixed', ', "shared": true'));
$sql->(q{SELECT count(*) FROM generate_series(1, 10) g, sas.submit('mixed', jsonb_build_object('g', g))});
is($sql->($messages), 229 + 1, 'and those that do not, by those that do');

# run ids are given out before a submit waits for its keys: here that of the run with both keys
my $key = sub { return qq{{"key": "$_[0]", "scope": "owner", "overlap": "replace"}} };
my $keyed = sub { my ($name, $keys) = @_; $sql->(qq{SELECT sas.create_workflow('$name', '{"steps": {"a": {"wait": {"signal": "go"}}}, "concurrency": [$keys]}')}) };
$keyed->('j', $key->('j'));
$keyed->('k', $key->('k'));
$keyed->('jk', $key->('j') . ', ' . $key->('k'));
my ($first, $waits) = map { SasSession->new($node) } 1 .. 2;
$first->query(q{BEGIN; SELECT sas.submit('j')});
$waits->start_query(q{SELECT sas.submit('jk')});
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'submit'}, '1'), 'a submit waits for a key');
$sql->(q{SELECT sas.submit('k')});
$first->query('ROLLBACK');
$waits->answer;
is($sql->($messages), 230 + 1, 'and replaces the run that got its other key meanwhile');
$sql->(q{SELECT sas.submit('k')});
is($sql->(q{SELECT count(*) FROM _sas.message JOIN sas.runs USING (run_id) WHERE kind = 'replace' AND workflow = 'jk'}), '1', 'the next one replaces it, though its run id is less than that of one that was replaced');

$sql->($_) foreach 'ALTER SYSTEM SET sas.schedulers = 1', 'SELECT pg_reload_conf()';
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'cancelled'}, 199 + 20 + 11 + 2), 'all that are replaced are cancelled');

$sql->(q{SELECT sas.schedule('often', 'every 1 day', 'undone', overlap => 'replace'), sas.trigger_schedule('often')});
ok(wait_for($node, q{SELECT count(*) FROM sas.steps JOIN sas.runs USING (run_id) WHERE workflow = 'undone' AND step = 'a' AND steps.state = 'suspended'}, '1'), 'a run of a schedule has done a step');
$sql->(q{SELECT sas.trigger_schedule('often')});
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE step = 'u' AND state = 'compensating'}, '1'), 'which is undone when it is replaced');
$sql->($_) foreach 'ALTER SYSTEM SET sas.schedulers = 0', 'SELECT pg_reload_conf()';
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'scheduler'}, '0'), 'no scheduler');
$sql->(q{SELECT sas.trigger_schedule('often')});
is($sql->($messages), '1', 'a third run replaces the second one, and the first one is not replaced again');
done_testing();
