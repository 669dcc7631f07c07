# SPDX-License-Identifier: PostgreSQL
#
# Any role fills the queue of notifications: it listens in a transaction that it leaves open, and notifies. Whoever
# notifies then fails at commit. The runs of others go on: while the queue is almost full, sas tells nobody.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', _start => 0);
$node->append_conf('postgresql.conf', "max_notify_queue_pages = 64\n") if $node->pg_version >= 17;
$node->start;
create_extension($node);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

is($sql->(q{SELECT string_agg(oid::regprocedure::text, ' ') FROM pg_proc
	WHERE pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND (prosrc || coalesce(pg_get_function_sqlbody(oid), '')) ~ '\mpg_notify\M'
		AND prosrc !~ 'WHERE pg_notification_queue_usage\(\) < 0.9\s*$'}), '', 'whoever notifies looks whether there is room');
is($sql->(q{SELECT count(*) FROM _sas.notify('x', 'y')}), '1', 'and does while there is room');

SKIP:
{
	skip 'the queue has 8 GB before version 17', 5 if $node->pg_version < 17;
	$sql->(q{
		CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
		SELECT sas.create_agent('outside', kind => 'external');
		SELECT sas.create_workflow('hooked', '{"steps": {"a": {"function": "public.echo"}}, "hooks": [{"on": "stopped", "notify": "told"}]}');
		SELECT sas.create_workflow('task', '{"steps": {"a": {"agent": "outside", "task": {}}}}');
		CREATE ROLE mallory LOGIN});
	my $mallory = SasSession->new($node, undef, user => 'mallory');
	$mallory->query('LISTEN x');
	$mallory->query('BEGIN; SELECT 1');
	my $flood = sub { return $node->psql('postgres', q{SELECT count(pg_notify('flood', repeat('x', 7000) || g)) FROM generate_series(1, 5) g}) };
	ok(wait_until(sub { $flood->() != 0 }), 'a role has filled the queue');
	$sql->(q{SELECT sas.submit('hooked', key => 'h', reply_to => 'q')});
	ok(wait_for($node, q{SELECT result FROM sas.runs WHERE key = 'h'}, 'success'), 'a run whose end is notified ends');
	$sql->(q{SELECT sas.submit('task', key => 't')});
	is($sql->(q{SELECT sas.complete(request_id, '1') FROM sas.claim('outside', 'w')}), 't', 'a task for an outside program is there');
	ok(wait_for($node, q{SELECT result FROM sas.runs WHERE key = 't'}, 'success'), 'and its run ends');
	unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/sas \w+\[\d+\] ERROR/, 'no worker has had an error');
}
done_testing();
