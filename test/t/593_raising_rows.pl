# SPDX-License-Identifier: PostgreSQL
#
# No row that raises an error stops a tick. In each table with rows of runs or of infinite tasks, one after the other, what
# belongs to one run, and to one task, can be neither written nor deleted by a worker: a damaged page, or somebody's trigger. All
# others that were submitted with it go through every tick, and end. When that has been mended, it ends, too. The tables
# are read from the catalogue. In the table of nodes it is the row of one that has ended. Only the table of messages is left
# out: ticks take from it what they do, and put off into it what fails; if a row of it cannot be deleted, they stop, and say so.
#
#   SAS_TABLES="run step"    only these
#
# Takes about 200 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasKinds;
use SasService;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.schedulers' => 1, 'sas.agents' => 1, 'sas.function_workers' => 1, 'sas.supervisor_interval' => '2 s', max_connections => 40);
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

define_kinds($node, $service, agent => { breaker => '{"off": true}' });
$sql->(q{
	SELECT sas.create_watcher('turn', '{"function": "public.turn", "every": "50 ms"}');
	SELECT sas.create_watcher('feed', '{"agent": "outside", "external": {}, "items": {"table": "public.item"}}')});
my $kinds = 'all,keyed,undone,poor,task';

# what belongs to these is refused; a session may write it
$sql->(q{
	CREATE TABLE bad (kind text, id bigint);
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
	DECLARE
		r jsonb := CASE TG_OP WHEN 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END;
	BEGIN
		IF current_setting('test.may', true) IS NULL
			AND EXISTS (SELECT FROM public.bad b WHERE b.id = (r ->> (b.kind || '_id'))::bigint) THEN
			RAISE EXCEPTION 'refused by the test: % of %', TG_OP, TG_TABLE_NAME;
		END IF;
		RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
	END $$});
my @tables = split /\n/, $sql->(q{
	SELECT DISTINCT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
		AND (a.attname IN ('run_id', 'watch_id') OR a.attname = 'node_id' AND c.relname = 'node')
	WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'message' ORDER BY 1});
cmp_ok(scalar @tables, '>=', 30, 'tables are found');
if (my @only = split ' ', $ENV{SAS_TABLES} // '') { @tables = grep { my $table = $_; grep { $_ eq $table } @only } @tables }

# sessions write, too
sub session
{
	my $session = SasSession->new($node);
	$session->query(q{SET test.may = 'yes'});
	return $session;
}

sub number { my ($text) = @_; return $text =~ /(\d+)/ ? $1 : die "no number in: $text" }

# an outside node with these tasks
sub host
{
	my ($session, $name, @keys) = @_;
	my $id = number($session->query("SELECT sas.register_node('$name', 10, '{outside}', lease => '1 day')"));
	$session->query("SELECT FROM sas.watch('feed', '$_')") foreach @keys;
	my %left = map { $_ => 1 } @keys;
	wait_until(sub { delete $left{$_} foreach $session->query("SELECT key FROM sas.claim_watchers($id, 10)") =~ /^ ?(\S+)$/mg; return !%left }) or die "$name: no tasks";
	return;
}

my $n = 0;
foreach my $table (@tables)
{
	$n++;
	my $keeper = session();
	my $first = session();
	$sql->(qq{SET test.may = 'yes'; SELECT FROM sas.watch('turn', 'bad $n'); SELECT FROM sas.watch('turn', 'good $n')});
	my $ill = session();
	# what is bad may be a task of a node, or a node
	host($ill, "ill_$n", "bad_$n") if $table eq 'node';
	host($first, "first_$n", $table eq 'node' ? () : "bad_$n", "good_$n");
	$sql->("CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON _sas.$table FOR EACH ROW EXECUTE FUNCTION refuse()");
	is($keeper->query(qq{BEGIN;
		CREATE TEMP TABLE made ON COMMIT DROP AS SELECT w, good, (sas.submit(w, jsonb_build_object('ids', ARRAY[1, 2], 'key', 'k $n ' || good))).run_id
			FROM unnest('{$kinds}'::text[]) w, unnest(ARRAY[false, true, true]) good;
		INSERT INTO bad SELECT 'run', run_id FROM made WHERE NOT good;
		INSERT INTO bad SELECT 'watch', watch_id FROM _sas.watch WHERE key IN ('bad $n', 'bad_$n') AND '$table' <> 'node';
		INSERT INTO bad SELECT 'node', node_id FROM _sas.node WHERE name = 'ill_$n';
		CREATE TABLE good_$n AS SELECT run_id FROM made WHERE good;
		COMMIT}), '', "$table: runs are submitted");
	$_->quit foreach $first, $ill;
	my $second = session();
	my $id = number($second->query("SELECT sas.register_node('second_$n', 100, '{outside}', lease => '1 day')"));
	my $left = q{SELECT coalesce(string_agg(r.workflow || ' ' || r.run_id || ' ' || r.state, ', ' ORDER BY 1), '') FROM sas.runs r JOIN good_} . "$n g USING (run_id) WHERE r.state <> 'stopped'";
	my $claim = q{SELECT count(*) FROM sas.claim('outside', 'me', 10)};
	ok(wait_until(sub { $second->query($claim); return $sql->($left) eq '' }, 90), "$table: of one run it takes nothing, and the others end") or diag($sql->($left), "\n", $sql->(q{SELECT string_agg(message, E'\n') FROM sas.alerts WHERE closed_at IS NULL}));
	ok(wait_until(sub { $second->query("SELECT key FROM sas.claim_watchers($id, 10)") =~ /\bgood_$n\b/ }, 60), "$table: nor of one infinite task, and another one gets a new host")
	  or diag($sql->(q{SELECT string_agg(message, E'\n') FROM sas.alerts WHERE closed_at IS NULL}));
	my $cursor = $sql->("SELECT coalesce(cursor::int, 0) FROM sas.watches WHERE key = 'good $n'");
	ok(wait_for($node, "SELECT coalesce(cursor::int, 0) > $cursor FROM sas.watches WHERE key = 'good $n'", 't', limit => 60), "$table: a function is repeated");
	$sql->("DROP TRIGGER refuse ON _sas.$table; SELECT FROM sas.unwatch('turn', '{bad $n,good $n}'); SELECT FROM sas.unwatch('feed', '{bad_$n,good_$n}')");
	$_->quit foreach $second, $keeper;
}

my $open = q{SELECT coalesce(string_agg(DISTINCT workflow, ' '), '') FROM sas.runs WHERE state NOT IN ('stopped', 'paused')};
# a task that was refused is given out once more
ok(wait_until(sub { $sql->(q{SELECT count(*) FROM sas.claim('outside', 'me', 10)}); return $sql->($open) eq '' }, 400), 'when that is mended, what was refused ends, or is paused') or diag $sql->(q{
	SELECT string_agg(r.run_id || ' ' || r.workflow || ' ' || r.state || ' ' || s.step || ' ' || s.state, E'\n') FROM sas.runs r JOIN sas.steps s USING (run_id) WHERE r.state NOT IN ('stopped', 'paused')});
$node->stop;
done_testing();
