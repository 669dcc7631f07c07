# SPDX-License-Identifier: PostgreSQL
#
# Chunks of functions in real workers, also of those whose worker or server dies, and of an outside program that
# is read while it works. Takes about 15 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasService;
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 2);
$node->safe_psql('postgres', q{
	CREATE TABLE public.gate (open boolean); INSERT INTO public.gate VALUES (false);
	CREATE FUNCTION public.tell(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM sas.emit(to_jsonb(n)) FROM generate_series(1, 3) n;
		WHILE (input ->> 'waits')::boolean AND NOT (SELECT open FROM public.gate) LOOP PERFORM pg_sleep(0.05); END LOOP;
		RETURN input;
	END $$;
	CREATE ROLE ann; SELECT sas.grant_usage('ann', 'user');
	SELECT sas.create_agent('packer', kind => 'external'); SELECT sas.grant_agent('packer', 'ann');
	CREATE ROLE packer LOGIN; SELECT sas.grant_usage('packer', 'worker', 'packer')});
sub chunks { my ($id, $step) = @_; return $node->safe_psql('postgres', "SELECT string_agg(chunk::text, ' ' ORDER BY element, chunk_id) FROM sas.chunks($id, '$step')") }

# -- functions ----------------------------------------------------------------------------------

define($node, 'told', { steps => { m => { function => 'public.tell', each => '{{input.items}}', input => {} } } });
my $id = submit($node, 'told', { items => [ 1 .. 20 ] });
run_of($node, $id);
is(chunks($id, 'm'), join(' ', ('1 2 3') x 20), 'each element has told its chunks, in order');
is(chunks($id, 'm[7]'), '1 2 3', 'one element by its name');

define($node, 'slow', { steps => { f => { function => 'public.tell', input => { waits => JSON::PP::true }, complete_in => '5 min' } } });
$id = submit($node, 'slow', {});
ok(wait_for($node, "SELECT count(*) FROM sas.steps WHERE run_id = $id AND state = 'running'", '1'), 'a function is being carried out');
is(chunks($id, 'f'), '', 'what it tells is not there before it commits');
$node->stop('immediate');
$node->start;
ok(wait_for($node, "SELECT count(*) FROM sas.steps WHERE run_id = $id AND state = 'running'", '1'), 'it is carried out again after a crash');
kill_worker($node, 'function', 'TERM');
$node->safe_psql('postgres', 'UPDATE public.gate SET open = true');
run_of($node, $id);
is(chunks($id, 'f'), '1 2 3', 'and has told everything once');

# -- an outside program -------------------------------------------------------------------------

$node->safe_psql('postgres', q{SET ROLE ann; SELECT sas.create_workflow('pack', '{"steps": {"p": {"task": {}, "agent": "packer"}}}')});
$id = $node->safe_psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('pack')});
my $packer = SasSession->new($node, 'postgres', user => 'packer');
my $request = '';
ok(SasTest::wait_until(sub { ($request) = $packer->query(q{SELECT request_id FROM sas.claim('packer', 'me')}) =~ /([0-9a-f-]{36})/; return defined $request }), 'a program has claimed the task');
my $last = 0;
my $holder = SasSession->new($node);
foreach my $part (1 .. 4)
{
	$holder->query("BEGIN; SELECT state FROM _sas.run WHERE run_id = $id FOR UPDATE") if $part == 4;
	like($packer->query("SELECT sas.emit('{\"part\": $part}', '$request')"), qr/^t$/m, "it tells part $part" . ($part == 4 ? ', while a session has locked the run' : ''));
	my $read = $node->safe_psql('postgres', "SET ROLE ann; SELECT chunk_id, chunk ->> 'part' FROM sas.chunks($id, 'p', $last)");
	is(($read =~ /^(\d+)\|(\d+)$/)[1], $part, 'which a reader sees at once');
	($last) = $read =~ /^(\d+)/;
}
$holder->query('ROLLBACK');
$packer->query('BEGIN');
$packer->query("SELECT sas.emit('\"never\"', '$request')");
$packer->query('ROLLBACK');
is($node->safe_psql('postgres', "SELECT count(*) FROM sas.chunks($id, 'p', $last)"), '0', 'what is rolled back was not told');
$packer->query("SELECT sas.complete('$request', '{}')");
like($packer->query("SELECT sas.emit('\"late\"', '$request')"), qr/^f$/m, 'nothing is told after the claim');
is(run_of($node, $id)->{result}, 'success', 'the run succeeds');
done_testing();
