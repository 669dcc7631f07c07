# SPDX-License-Identifier: PostgreSQL
#
# Nobody but a superuser ends or cancels a process of sas, whoever's function it
# executes: workers are processes of the bootstrap superuser.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE ann; CREATE ROLE op; CREATE ROLE adm; CREATE ROLE signaller IN ROLE pg_signal_backend;
	SELECT sas.grant_usage('ann', 'user'), sas.grant_usage('op', 'operator'), sas.grant_usage('adm', 'admin');
	CREATE SCHEMA app;
	GRANT ALL ON SCHEMA app TO PUBLIC;
	CREATE TABLE app.hold (n int);
	INSERT INTO app.hold VALUES (1);
	GRANT ALL ON app.hold TO PUBLIC;
	CREATE FUNCTION app.wait(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE EXISTS (SELECT FROM app.hold) LOOP
			PERFORM pg_sleep(0.02);
		END LOOP;
		RETURN to_jsonb(session_user::text);
	END $$;
	SET ROLE ann;
	SELECT sas.create_workflow('w', '{"steps": {"a": {"function": "app.wait"}}, "output": "{{steps.a.output}}"}')});
my $run = $sql->(q{SET ROLE ann; SELECT run_id FROM sas.submit('w')});
ok(wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $run", 'running'), 'a worker executes the function of a role');
my %pids = map { $_ => (worker_pids($node, $_))[0] } qw(function agent scheduler supervisor);
foreach my $role (qw(ann op adm signaller))
{
	foreach my $actor (sort keys %pids)
	{
		foreach my $how (qw(pg_cancel_backend pg_terminate_backend))
		{
			my $err = '';
			isnt($node->psql('postgres', "SET ROLE $role; SELECT $how($pids{$actor})", stderr => \$err), 0, "$role cannot call $how on the $actor worker");
			like($err, qr/permission denied|must be a (?:superuser|member)/, 'as it is a process of a superuser');
		}
	}
}
is((worker_pids($node, $_))[0], $pids{$_}, "the $_ worker lives on") foreach sort keys %pids;
$sql->('DELETE FROM app.hold');
ok(wait_for($node, "SELECT state || ' ' || result || ' ' || (output #>> '{}') FROM sas.runs WHERE run_id = $run", 'stopped success ann'), 'and the function ends');
done_testing();
