# SPDX-License-Identifier: PostgreSQL
#
# A claim of function steps that fails, as a session holds a table for hours, leaves no memory behind in the worker.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils qw(slurp_file);
use SasTest;
use Test::More;

my $node = new_node('main');
sub sql { return $node->safe_psql('postgres', $_[0]) }

sql(q{CREATE FUNCTION public.same(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
sql(q{SELECT sas.create_workflow('it', '{"steps": {"it": {"function": "public.same"}}}')});
is(sql(q{SELECT run_id FROM sas.submit('it')}), '1', 'a run is submitted');
ok(wait_for($node, q{SELECT result FROM sas.runs WHERE run_id = 1}, 'success'), 'and ends');
my $pid = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas function'});

# in place of a lock, for which each claim would wait a second
sql(q{DO $$ BEGIN EXECUTE (SELECT regexp_replace(pg_get_functiondef(oid), '\nBEGIN\n',
	E'\nBEGIN\nRAISE EXCEPTION USING ERRCODE = ''lock_not_available'', MESSAGE = ''it is locked'';\n')
	FROM pg_proc WHERE proname = 'claim_functions'); END $$});
sql(q{SELECT FROM sas.submit('it')});
ok(wait_for($node, q{SELECT value >= 30 FROM sas.metrics() WHERE name = 'sas_lock_timeouts_total' AND labels ->> 'actor' = 'function'}, 't'), 'claims fail again and again');
my $seen = -s $node->logfile;
is(sql("SELECT pg_log_backend_memory_contexts($pid)"), 't', 'the worker is asked what memory it holds');
my $said;
ok(wait_until(sub { ($said) = substr(slurp_file($node->logfile), $seen) =~ /(\[$pid\] LOG: +level: 0; TopMemoryContext.*?Grand total)/s; return defined $said }), 'and says so');
my $batches = () = $said =~ /sas batch/g;
cmp_ok($batches, '<', 3, 'of the claims that have failed it holds nothing');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), '1', 'it is the same worker');
done_testing();
