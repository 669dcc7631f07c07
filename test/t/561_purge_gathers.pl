# SPDX-License-Identifier: PostgreSQL
#
# Runs that end one after the other, and whose retention time is over one after the other, are purged together: the
# supervisor does not purge for each of them. Takes about 28 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasService;
use SasSession;
use SasTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', 'sas.retain_success' => '2 s', 'sas.supervisor_interval' => '12 s');
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
# each turn of a purge looks there once
my $turns = sub { return sql(q{SELECT seq_scan FROM pg_stat_user_tables WHERE relid = '_sas.idle_version'::regclass}) };
my $purged = sub { return sql(q{SELECT coalesce(max(run_id), 0) - count(*) FROM sas.runs}) };
define($node, 'nothing', { steps => {} });
sql(q{
	CREATE TABLE stop (); CREATE PROCEDURE public.submit_on() LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. 10000 LOOP
			PERFORM FROM sas.submit('nothing');
			COMMIT;
			EXIT WHEN EXISTS (SELECT FROM public.stop);
			PERFORM pg_sleep(0.05);
		END LOOP;
	END $$});
my $submitter = SasSession->new($node);
$submitter->start_query('CALL submit_on()');
# the first are purged at the next check of the supervisor; from then on it knows when the next one is due
ok(wait_until(sub { $purged->() > 0 }), 'runs are purged');
my ($before, $began, $purged_before) = ($turns->(), time(), $purged->());
ok(wait_until(sub { time() - $began > 10 && $purged->() > $purged_before + 50 }), 'and more of them');
# once in two seconds, and a check that finds nothing in two
my $most = 3 + (time() - $began);
my $took = $turns->() - $before;
cmp_ok($took, '<', $most, "runs that end one after the other are purged in few turns ($took in place of at most $most)");
sql('INSERT INTO stop DEFAULT VALUES');
$submitter->outcome;
ok(wait_for($node, 'SELECT count(*) FROM sas.runs', '0'), 'all of them');
done_testing();
