# SPDX-License-Identifier: PostgreSQL
#
# A function that does not listen when it is cancelled is ended with its worker; a step that has ended its worker twice
# is parked. Other functions go on meanwhile. Takes about 40 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;
use PostgreSQL::Test::Utils;

my $node = new_node('main', 'sas.supervisor_interval' => '10 s', 'sas.function_workers' => 1, 'sas.function_workers_max' => 4);
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }

# a module of C that takes no notice of anything
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($includes) = split /\n/, `pg_config --includedir-server`;
system('cc', '-shared', '-fPIC', "-I$includes", '-o', "$dir/deaf.so", "$FindBin::RealBin/../modules/deaf.c") == 0 or die 'no module';

sql(qq{
	CREATE TABLE called (what text, at timestamptz DEFAULT clock_timestamp());
	CREATE SEQUENCE calls;
	CREATE FUNCTION wait_for_file(text) RETURNS void LANGUAGE c STRICT AS '$dir/deaf', 'deaf';
	CREATE FUNCTION stone(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		PERFORM nextval('public.calls');
		INSERT INTO public.called VALUES ('stone');
		PERFORM public.wait_for_file('$dir/open');
		RETURN '{}';
	END \$\$;
	CREATE FUNCTION stubborn(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		PERFORM nextval('public.calls');
		INSERT INTO public.called VALUES ('stubborn');
		LOOP
			BEGIN
				PERFORM pg_sleep(60);
			EXCEPTION WHEN query_canceled THEN
				NULL;
			END;
		END LOOP;
	END \$\$;
	CREATE FUNCTION brief(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$ SELECT '{}'::jsonb \$\$;});
define($node, 'brief', { steps => { it => { function => 'public.brief' } } });

foreach my $case ([ 'stubborn', 'a function that catches its cancellation' ], [ 'stone', 'a function that nothing can end' ])
{
	my ($function, $name) = @$case;
	sql('TRUNCATE called; ALTER SEQUENCE calls RESTART');
	define($node, $function, { recovery => { initial => '100 ms', max_failures => 10 }, on_failure => 'fail',
			steps => { bad => { function => "public.$function", complete_in => '2 s' }, after => { function => 'public.brief', after => ['bad'] } } });
	my $run = submit($node, $function, {});
	ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'paused'), "$name: its run is paused in the end");
	# on a busy machine a call may end in good order before it is deaf
	my $calls = sql('SELECT last_value FROM calls');
	is(sql("SELECT count(*) FROM sas.attempts WHERE run_id = $run AND status = 'lost'"), '2', "$name: it has ended its worker twice");
	is(sql('SELECT count(*) FROM called'), '0', "$name: nothing that it wrote is there");
	is(sql("SELECT paused_for FROM sas.runs WHERE run_id = $run"), 'step "bad" is parked: its function has ended its worker twice', "$name: the run says why");
	like(sql(q{SELECT message FROM sas.alerts WHERE kind = 'parked' AND closed_at IS NULL}), qr/run $run: step "bad" is parked/, "$name: so does an alert");
	is(sql("SELECT string_agg(DISTINCT error ->> 'type', ', ') FROM sas.attempts WHERE run_id = $run AND status <> 'timed_out'"), 'urn:sas:worker-lost', "$name: its attempts tell so");
	my $other = submit($node, 'brief', {});
	ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $other", 'success'), "$name: other functions go on");
	is(sql('SELECT last_value FROM calls'), $calls, "$name: it is not called again");
	sql(qq{CREATE OR REPLACE FUNCTION $function(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$ SELECT '{}'::jsonb \$\$});
	is(sql("SELECT changed FROM sas.resume($run)"), 't', "$name: mended, it is resumed");
	ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), "$name: and its run ends");
	is(sql(q{SELECT count(*) FROM sas.alerts WHERE kind = 'parked' AND closed_at IS NULL}), '0', "$name: its alert is closed");
}
open(my $file, '>', "$dir/open") or die "open: $!";
close($file);
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND query LIKE '%stone%'}, '0'), 'what nothing could end has come back');
ok(wait_for($node, 'SELECT count(*) FROM called', '0'), 'and has left nothing');
done_testing();
