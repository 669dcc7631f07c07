# SPDX-License-Identifier: PostgreSQL
#
# An act in sas.history has who did it, as which login, when and from where: over
# the network, in a function that has the rights of another role, and from the
# function of a step.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', listen_addresses => '127.0.0.1');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $port = $node->port;
$sql->(q{
	CREATE ROLE adam LOGIN;
	CREATE ROLE boss;
	CREATE ROLE clerk LOGIN;
	GRANT boss TO adam;
	SELECT sas.grant_usage('adam', 'admin'), sas.grant_usage('boss', 'admin');
	SELECT sas.create_agent('shop', 'http://127.0.0.1:1');
	CREATE SCHEMA app AUTHORIZATION adam;
	GRANT USAGE ON SCHEMA app TO PUBLIC;
	SET ROLE adam;
	CREATE FUNCTION app.pause() RETURNS boolean LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp BEGIN ATOMIC SELECT sas.pause_agent('shop'); END;
	CREATE FUNCTION app.step(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(sas.resume_agent('shop')) $$;
	SELECT sas.create_workflow('resumes', '{"steps": {"s": {"function": "app.step"}}}')});

# Logs in over TCP, and executes it.
sub from_afar
{
	my ($role, $statement) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-XqAt', '-d', "host=127.0.0.1 port=$port dbname=postgres user=$role application_name=afar", '-c', $statement ], '>', \$out, '2>', \$err);
	return $out . $err;
}
my $before = $sql->('SELECT clock_timestamp()');
my $last = sub { return $sql->(qq{SELECT concat_ws(' ', act, 'by', role, 'as', session_role, 'from', coalesce(client, 'here'), 'with', application), at BETWEEN '$before' AND clock_timestamp()
	FROM sas.history WHERE detail ->> 'agent' = 'shop' ORDER BY at DESC LIMIT 1}) };

is(from_afar('adam', q{SELECT sas.pause_agent('shop')}), "t\n", 'an admin logs in over the network');
is($last->(), 'pause_agent by adam as adam from 127.0.0.1 with afar|t', 'what it does is told, with its address and the time');
from_afar('adam', q{SET ROLE boss; SELECT sas.resume_agent('shop')});
is($last->(), 'resume_agent by boss as adam from 127.0.0.1 with afar|t', 'as another role, too: both are told');
from_afar('clerk', 'SELECT app.pause()');
is($last->(), 'pause_agent by adam as clerk from 127.0.0.1 with afar|t', 'and in a function of another role: who has called it is told');
my $run = $sql->(q{SET ROLE adam; SELECT run_id FROM sas.submit('resumes')});
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'the function of a step does it');
like($last->(), qr/^resume_agent by adam as adam from here with .*\|t$/, 'it is told as the owner of the run');
done_testing();
