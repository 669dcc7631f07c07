# SPDX-License-Identifier: PostgreSQL
#
# A role that keeps a transaction open, in which it has changed a run, keeps no operator from acting on the runs
# of all.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE ROLE one LOGIN;
	CREATE ROLE other LOGIN;
	CREATE ROLE op LOGIN;
	SELECT sas.grant_usage('one', 'user'), sas.grant_usage('other', 'user'), sas.grant_usage('op', 'operator');
	SELECT sas.create_agent('gone', 'http://127.0.0.1:1', retry => '{"max_attempts": 1}', breaker => '{"off": true}');
	SELECT sas.grant_agent('gone', 'one'), sas.grant_agent('gone', 'other');
	SELECT sas.create_workflow('cool', '{"steps": {"a": {"agent": "gone", "call": {}}}, "recovery": {"initial": "1 h", "max": "1 h"}}');
	SELECT sas.create_workflow('signal', '{"steps": {"a": {"wait": {"signal": "go"}}}}');
});

my %run;
foreach my $role (qw(one other one))
{
	my $id = $node->safe_psql('postgres', "SELECT run_id FROM sas.submit('signal')", extra_params => [ '-U', $role ]);
	push @{ $run{$role} }, $id;
	ok(wait_for($node, "SELECT state = 'suspended' FROM sas.steps WHERE run_id = $id"), "run $id of $role waits");
}
my $ids = join ',', $run{one}[0], $run{other}[0], $run{one}[1];
my %cooling;
foreach my $role (qw(one other))
{
	$cooling{$role} = $node->safe_psql('postgres', "SELECT run_id FROM sas.submit('cool')", extra_params => [ '-U', $role ]);
	ok(wait_for($node, "SELECT waiting_kind = 'cool_off' FROM sas.steps WHERE run_id = $cooling{$role}"), "run $cooling{$role} of $role cools off");
}
my $holder = $node->background_psql('postgres', extra_params => [ '-U', 'one' ]);
my $pid = $holder->query_safe('SELECT pg_backend_pid()');
$holder->query_safe("BEGIN; SELECT changed FROM sas.set_priority($run{one}[0], 5)");

# A statement of the operator, which is not to wait for the session above.
sub operate
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', "SET statement_timeout = '60 s'; $sql", extra_params => [ '-U', 'op' ]);
}

foreach my $verb (qw(pause resume cancel))
{
	is( operate("SELECT string_agg(CASE WHEN changed THEN 'changed' ELSE regexp_replace(refused, 'run [0-9]+', 'run') END, '; ' ORDER BY run_id)
			FROM sas.${verb}_runs('{$ids}')"),
		"run is held by a transaction of another session, process $pid; end it, or try again; changed; changed", "$verb acts on all other runs");
}
is(operate("SELECT changed FROM sas.halt($run{one}[0])"), 'f', 'a verb for this run alone is refused, too');
ok(wait_for($node, "SELECT count(*) FILTER (WHERE result = 'cancelled') FROM sas.runs", 2), 'the others end');

# -- reset_agent -----------------------------------------------------------------------

$holder->query_safe("COMMIT; BEGIN; SELECT changed FROM sas.set_priority($cooling{one}, 5)");
operate("SELECT sas.reset_agent('gone')");
ok(wait_for($node, "SELECT max(attempt) > 1 FROM sas.steps WHERE run_id = $cooling{other}"), 'reset_agent ends the cool-offs of all other runs');
$holder->query_safe('COMMIT');
is(operate("SELECT changed FROM sas.halt($run{one}[0])"), 't', 'it works when the transaction has ended');
$holder->quit;

done_testing();
