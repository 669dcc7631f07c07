# SPDX-License-Identifier: PostgreSQL
#
# Inputs and requests of one role are so large that a worker cannot build all of one claim. It claims fewer, again and
# again, so that all of them end; and functions and calls of another role begin in turn with them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $n = 60;
my $node = new_node('main');
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
make_agent($node, 'shared', $service);
$service->script(any => [ { json => 'well' } ]);
$sql->(q{CREATE SCHEMA t; GRANT USAGE ON SCHEMA t TO PUBLIC; CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$});
foreach my $role (qw(heavy light))
{
	$sql->("CREATE ROLE $role; SELECT sas.grant_usage('$role', 'user'); SELECT sas.grant_agent('shared', '$role')");
	$as->($role, qq{SELECT sas.create_workflow('${role}_function', '{"steps": {"it": {"function": "t.echo", "input": {"a": "{{input}}", "b": "{{input}}", "c": "{{input}}"}}}}')});
	$as->($role, qq{SELECT sas.create_workflow('${role}_call', '{"steps": {"it": {"agent": "shared",
		"call": {"path": "/any", "method": "POST", "body": {"a": "{{input}}", "b": "{{input}}", "c": "{{input}}"}}}}}')});
}
foreach my $kind (qw(function call))
{
	# so that the worker knows the function, and claims many at a time
	$as->('light', "SELECT count(*) FROM sas.submit_batch('light_$kind', array_fill('{}'::jsonb, '{500}'))");
	ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, '0'), "$kind: many small ones end");
	$as->('heavy', "SELECT count(*) FROM sas.submit_batch('heavy_$kind', array_fill(jsonb_build_object('d', repeat('x', 900000)), '{$n}'))");
	my $run = $as->('light', "SELECT run_id FROM sas.submit('light_$kind')");
	is($sql->("SELECT result FROM sas.wait($run, '90 s')"), 'success', "$kind: one of another role ends beside large ones");
	ok(wait_for($node, qq{SELECT count(*) FROM sas.runs WHERE workflow = 'heavy_$kind' AND result = 'success'}, $n), "$kind: and these end, too");
}
done_testing();
