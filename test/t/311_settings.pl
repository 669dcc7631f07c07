# SPDX-License-Identifier: PostgreSQL
#
# A database may read strings, arrays, dates and intervals in another way than by default: the script of the
# extension makes the same there, and the workers do the same.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', _extension => 0);
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(odd usual);
$node->safe_psql('postgres', "ALTER DATABASE odd SET $_") foreach
  'standard_conforming_strings = off', 'backslash_quote = off', 'array_nulls = off', 'transform_null_equals = on',
  q{datestyle = 'German, DMY'}, 'intervalstyle = sql_standard', 'extra_float_digits = -5', 'bytea_output = escape';

foreach (qw(odd usual))
{
	my ($out, $err) = ('', '');
	is($node->psql($_, 'CREATE EXTENSION sas', stdout => \$out, stderr => \$err), 0, "the extension is created in the $_ database");
	is($err, '', 'without a warning');
}

# -- what the script has made ---------------------------------------------------------------------

# as the usual settings show it
my $pin = q{SET standard_conforming_strings = on; SET datestyle = iso; SET intervalstyle = postgres; SET extra_float_digits = 1;};
my %made = (
	functions => q{SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND p.prokind = 'f'
	               ORDER BY p.oid::regprocedure::text},
	views => q{SELECT c.relname || pg_get_viewdef(c.oid) FROM pg_class c
	           WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND c.relkind = 'v' ORDER BY c.relname},
	defaults => q{SELECT d.adrelid::regclass || ' ' || d.adnum || pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d
	              WHERE d.adrelid IN (SELECT oid FROM pg_class WHERE relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace)) ORDER BY 1},
	constraints => q{SELECT conrelid::regclass || conname || pg_get_constraintdef(oid) FROM pg_constraint
	                 WHERE connamespace IN ('sas'::regnamespace, '_sas'::regnamespace) ORDER BY 1},
	indexes => q{SELECT indexdef FROM pg_indexes WHERE schemaname IN ('sas', '_sas') ORDER BY 1},
	comments => q{SELECT obj_description(oid) FROM pg_proc WHERE pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) ORDER BY oid::regprocedure::text},
	transitions => q{SELECT t::text FROM sas.transitions t ORDER BY 1});
foreach my $kind (sort keys %made)
{
	is($node->safe_psql('odd', "$pin $made{$kind}"), $node->safe_psql('usual', "$pin $made{$kind}"), "the $kind are the same in both");
}

# -- what workers do ------------------------------------------------------------------------------

$node->safe_psql('odd', q{
	CREATE SCHEMA shop;
	CREATE TABLE shop.item (id serial, item jsonb);
	CREATE FUNCTION shop.book(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_agent('packer', kind => 'external');
	SELECT sas.create_workflow('child', $${"steps": {"a": {"function": "shop.book", "input": "{{input}}"}}, "output": "{{steps.a.output}}"}$$);
	SELECT sas.create_workflow('parent', $${"steps": {
		"one": {"workflow": "child", "input": {"path": "a\\\\b", "none": null}},
		"map": {"workflow": "child", "each": "{{input.list}}", "input": "{{item}}", "after": ["one"]},
		"date": {"wait": {"until": "{{input.date}}"}},
		"nap": {"wait": {"for": "10 ms"}}},
		"output": {"one": "{{steps.one.output}}", "map": "{{steps.map.output}}", "date": "{{steps.date.output}}"}}$$);
	SELECT sas.create_watcher('prices', '{"agent": "packer", "external": {}, "items": {"table": "shop.item"}}')});
my $run = $node->safe_psql('odd', q{SELECT run_id FROM sas.submit('parent', $${"list": [{"a": 1}, {"a": "x\\\\y"}, {"a": null}], "date": "03/02/2001 08:00+00"}$$)});
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped', dbname => 'odd'),
	'a run with children comes to its end');
is($node->safe_psql('odd', "SELECT result || ' ' || coalesce(output, error) FROM sas.runs WHERE run_id = $run"),
	'success {"map": [{"a": 1}, {"a": "x\\\\y"}, {"a": null}], "one": {"none": null, "path": "a\\\\b"}, "date": "2001-03-02T08:00:00+00:00"}',
	'with the output that it has under the usual settings');
$node->safe_psql('odd', q{SELECT FROM sas.watch('prices', 'k')});
my $host = $node->safe_psql('odd', q{SELECT sas.register_node('outside', 5, '{packer}', by_connection => false)});
ok(wait_for($node, "SELECT count(*) FROM sas.claim_watchers($host, 1)", '1', dbname => 'odd'), 'an infinite task is claimed');
is($node->safe_psql('odd', q{SELECT sas.append_items(w.watch_id, w.epoch, $$[{"a": "x\\\\y"}, null, [null]]$$) FROM sas.watches w}),
	'go', 'takes items in');
ok(wait_for($node, q{SELECT string_agg(item::text, ' ' ORDER BY id) FROM shop.item}, '{"a": "x\\\\y"} null [null]', dbname => 'odd'),
	'its items arrive');
is($node->safe_psql('odd', 'SELECT count(*) FROM sas.alerts'), '0', 'and there is no alert');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/nonstandard use/, 'nothing is read in a way that is not standard');

done_testing();
