# SPDX-License-Identifier: PostgreSQL
#
# The leading supervisor keeps house: old runs go by themselves as soon as a
# setting says so, beside work that goes on; an archive is taken first.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '500 ms', 'sas.supervisors' => 2);
my $runs = 'SELECT count(*) FROM sas.runs';

sub set
{
	my (%settings) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $_ = '$settings{$_}'") foreach keys %settings;
	$node->reload;
	return;
}

sub submit_many
{
	my ($workflow, $quantity, $more) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM sas.submit_batch('$workflow', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(1, $quantity) i)" . ($more // '') . ')');
}

$node->safe_psql('postgres', q{
	CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	CREATE FUNCTION fail(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
	SELECT sas.create_workflow('book', '{"steps": {"s": {"function": "public.book"}}, "output": "{{steps.s.output}}"}');
	SELECT sas.create_workflow('fail', '{"steps": {"s": {"function": "public.fail", "on_failure": "fail"}}}')});
submit_many('book', 3000, q{, keys => ARRAY(SELECT 'k' || i FROM generate_series(1, 3000) i)});
submit_many('fail', 20);
all_ended($node, 'three thousand runs end, and twenty with an error');
is($node->safe_psql('postgres', $runs), '3020', 'nothing is purged before its time');

# -- the recipe of docs/operating/retention.md: archive, then purge -----------------------

my $folder = PostgreSQL::Test::Utils::tempdir();
ok(wait_for($node, q{SELECT max(finished_at) < now() - interval '1.5 s' FROM sas.runs}), 'all have ended a while ago');
my ($recipe, $read) = PostgreSQL::Test::Utils::slurp_file("$SasTest::tree/docs/operating/retention.md") =~ /```sql archive\n(.*?)```/sg;
ok($recipe && $read, 'the page has a recipe for an archive');
s{/archive/}{$folder/}g foreach $recipe, $read;
my ($checks) = PostgreSQL::Test::Utils::slurp_file("$SasTest::tree/docs/operating/monitoring.md") =~ /```sql check\n(.*?)```/s;
$recipe =~ s/'30 days'/'0 s'/g;
$recipe =~ s/\{success,warning\}/{error}/g;
$node->safe_psql('postgres', $recipe);
is($node->safe_psql('postgres', $runs), '3000', 'what was archived is purged');
ok(-s "$folder/runs.csv" && -s "$folder/steps.csv", 'and stands in files');
$node->safe_psql('postgres', qq{
	$read;
	CREATE TABLE old_steps AS SELECT * FROM sas.steps LIMIT 0;
	COPY old_steps FROM '$folder/steps.csv' (FORMAT csv, HEADER)});
is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE r.result = 'error' AND s.state = 'failed' AND s.error ->> 'type' LIKE 'urn:sas:sqlstate:%') FROM old_runs r JOIN old_steps s USING (run_id)}),
	'20|20', 'from which they can be read again');

is($node->psql('postgres', $checks, on_error_stop => 1), 0, 'and its queries for a monitor can be asked');

# -- by itself, and beside work ------------------------------------------------------------------

# one run is held by a session: it is not waited for
my $session = SasSession->new($node);
my $held = $node->safe_psql('postgres', 'SELECT min(run_id) FROM sas.runs');
$session->query('BEGIN');
$session->query("SELECT run_id FROM _sas.run WHERE run_id = $held FOR UPDATE");
submit_many('book', 500);
set('sas.retain_success' => '0');
ok(wait_for($node, $runs, '1'), 'a reload is enough: what is over its time goes, and what ends meanwhile, too');
is($node->safe_psql('postgres', 'SELECT run_id FROM sas.runs'), $held, 'but for the run that a session holds');
is($node->safe_psql('postgres', 'SELECT count(*) FROM _sas.run_key'), '1', 'all keys but its are free');
is($node->safe_psql('postgres', 'SELECT count(*) FROM _sas.step'), '1', 'and all steps are gone');
$session->query('ROLLBACK');
is($node->safe_psql('postgres', q{SELECT runs FROM sas.purge('0')}), '0', 'it is put off for ten minutes');
is($node->safe_psql('postgres', q{SELECT value FROM sas.metrics('{sas_purged_runs}')}), '3519', 'what went is counted');
is($node->safe_psql('postgres', q{SELECT created FROM sas.submit('book', '{"n": 0}', key => 'k2')}), 't', 'a key can be used again, with another input');

# -- kept for ever ----------------------------------------------------------------------------------

set('sas.retain_success' => '-1', 'sas.retain_cancelled' => '1 s');
ok(wait_for($node, q{SELECT _sas.retain('success') IS NULL}), 'kept for ever');
submit_many('book', 10);
$node->safe_psql('postgres', q{SELECT sas.cancel(run_id) FROM sas.submit('book', start_at => now() + interval '1 day')});
my $cancelled = q{SELECT count(*) FROM sas.runs WHERE result = 'cancelled'};
ok(wait_for($node, $cancelled, '0'), 'each result has its own time');
ok(wait_for($node, q{SELECT count(*) >= 10 FROM sas.runs WHERE result = 'success'}), 'what is kept for ever stays');

# the leader dies: another keeps house
submit_many('book', 3000);
all_ended($node, 'three thousand more');
set('sas.retain_success' => '0');
my ($leader) = $node->safe_psql('postgres', q{SELECT pid FROM sas.workers WHERE actor = 'supervisor' AND leader});
kill 'TERM', $leader;
ok(wait_for($node, q{SELECT count(*) <= 1 FROM sas.runs}), 'the leader ends in the middle: another one goes on');
is($node->safe_psql('postgres', q{SELECT count(*) FROM _sas.step s WHERE NOT EXISTS (SELECT FROM _sas.run r WHERE r.run_id = s.run_id)}), '0', 'and leaves nothing half');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.alerts}), '0', 'nobody is bothered');
done_testing();
