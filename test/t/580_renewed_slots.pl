# SPDX-License-Identifier: PostgreSQL
#
# A run that waits, and takes the input of a further submit (overlap once_more), needs the slots that its version needs
# for that input, and no others: neither it nor a run behind it under a key that it leaves waits for ever.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasService;
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 4);
sub sql { return $node->safe_psql('postgres', $_[0]) }

# a step that waits for the row of its gate
sql(q{CREATE TABLE public.gate (name text PRIMARY KEY);
	CREATE FUNCTION public.pass(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = input ->> 'gate') LOOP PERFORM pg_sleep(0.01); END LOOP;
		RETURN 'null';
	END $$});
my $steps = { it => { function => 'public.pass', input => { gate => '{{input.gate}}' } } };
my $once = { overlap => 'once_more' };
# the run of a submit; what it was to be: a new one ('t'), or this run
sub submits
{
	my ($workflow, $input, $expected, $name) = @_;
	my ($run, $created) = split /\|/, sql("SELECT run_id, created FROM sas.submit('$workflow', '$input')");
	is($expected eq 't' ? $created : "$created $run", $expected eq 't' ? 't' : "f $expected", $name);
	return $run;
}
sub slots { return sql("SELECT string_agg(concat_ws(' ', rule_no, key, state), ', ' ORDER BY rule_no) FROM _sas.concurrency_slot WHERE run_id = $_[0]") }
sub state_is { my ($run, $state, $name) = @_; return ok(wait_for($node, "SELECT concat_ws(' ', state, result) FROM sas.runs WHERE run_id = $run", $state), $name) }
sub open_gate { return sql("INSERT INTO public.gate VALUES ('$_[0]')") }

define($node, 'grows', { steps => $steps, concurrency => { %$once, key => '{{input.a}}' } });
my $grows = submits('grows', '{"a": "x", "h": "h", "gate": "1"}', 't', 'a run begins');
state_is($grows, 'running', 'it holds its key');
my $grown = submits('grows', '{"a": "x", "h": "h", "gate": "2"}', 't', 'another follows it');
define($node, 'grows', { steps => $steps, concurrency => [ { key => '{{input.h}}', scope => 'owner' }, { %$once, key => '{{input.a}}' } ] });
submits('grows', '{"a": "x", "h": "h", "gate": "1"}', $grown, 'a newer version has one more rule; its submit is taken over');
is(slots($grown) =~ s/ (?:away|waits)//gr, '1 x', 'by a run of the older version, with the key of that');
open_gate('1');
state_is($grown, 'stopped success', 'when the first has ended, the other begins');

define($node, 'shrinks', { steps => $steps, concurrency => [ { %$once, key => '{{input.a}}' }, { key => 'resource', scope => 'owner' } ] });
my $shrinks = submits('shrinks', '{"a": "x", "gate": "2"}', 't', 'a run holds a resource');
state_is($shrinks, 'running', 'and its key');
my $shrunk = submits('shrinks', '{"a": "x", "gate": "2"}', 't', 'another follows it');
define($node, 'shrinks', { steps => $steps, concurrency => { %$once, key => '{{input.a}}' } });
submits('shrinks', '{"a": "x", "gate": "1"}', $shrunk, 'a newer version does not need the resource; its submit is taken over');
is(slots($shrunk) =~ s/ (?:away|waits)//gr, '1 x, 2 resource', 'by a run of the older version, which does');
open_gate('2');
state_is($shrunk, 'stopped success', 'it begins with both');

define($node, 'two', { steps => $steps, concurrency => [ { %$once, key => '{{input.a}}' }, { %$once, key => '{{input.b}}' } ] });
my $one = submits('two', '{"a": "x", "b": "x", "gate": "3"}', 't', 'two rules have one key');
state_is($one, 'running', 'it is taken once');
my $both = submits('two', '{"a": "x", "b": "x", "gate": "3"}', 't', 'another follows it');
submits('two', '{"a": "y", "b": "x", "gate": "3"}', $both, 'and takes an input with two keys');
is(slots($both) =~ s/ (?:away|waits)//gr, '1 y, 2 x', 'both are its own');
open_gate('3');
state_is($both, 'stopped success', 'it begins with them');

define($node, 'moves', { steps => $steps, concurrency => [ { key => '{{input.h}}', scope => 'owner' }, { %$once, key => '{{input.a}}' } ] });
define($node, 'behind', { steps => $steps, concurrency => { key => '{{input.h}}', scope => 'owner' } });
my $first = submits('moves', '{"a": "z", "h": "h0", "gate": "5"}', 't', 'a run with two keys begins');
state_is($first, 'running', 'it holds them');
my $follower = submits('moves', '{"a": "z", "h": "h1", "gate": "5"}', 't', 'another waits for one of them, and is first for a third');
ok(wait_until(sub { slots($follower) eq '1 h1 waits, 2 z waits' }), 'it is in line');
open_gate('7');
my $behind = submits('behind', '{"h": "h1", "gate": "7"}', 't', 'behind it there is a run of another workflow');
ok(wait_until(sub { slots($behind) eq '1 h1 waits' }), 'which waits');
submits('moves', '{"a": "z", "h": "h2", "gate": "5"}', $follower, 'the first leaves that line');
state_is($behind, 'stopped success', 'so that the run behind it begins');
is(slots($follower), '1 h2 waits, 2 z waits', 'the other has its place in the new one');

# while the submit is not committed, the run that it waits for ends, and the key that it leaves stays taken
my $second = submits('behind', '{"h": "h2", "gate": "8"}', 't', 'a run waits behind it');
my $third = submits('behind', '{"h": "h3", "gate": "8"}', 't', 'and one holds another key');
state_is($third, 'running', 'at once');
submits('moves', '{"a": "z", "h": "h3", "gate": "5"}', $follower, 'for which the follower waits now');
state_is($second, 'running', 'the one behind it begins');
my $slow = SasSession->new($node);
$slow->query('BEGIN');
$slow->query(q{SELECT FROM sas.submit('moves', '{"a": "z", "h": "h4", "gate": "5"}')});
open_gate('5');
state_is($first, 'stopped success', 'the first run ends');
ok(wait_for($node, "SELECT count(*) FROM _sas.concurrency_slot WHERE run_id = $first", '0'), 'and has left its lines');
$slow->query('COMMIT');
state_is($follower, 'stopped success', 'the follower begins with the keys that it got meanwhile');

open_gate('8');
state_is($_, 'stopped success', "run $_ ends") for $second, $third;
ok(wait_for($node, 'SELECT (SELECT count(*) FROM _sas.concurrency_slot) + (SELECT count(*) FROM _sas.concurrency_key)', '0'), 'no slot and no key is left');
done_testing();
