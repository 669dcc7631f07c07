# SPDX-License-Identifier: PostgreSQL
#
# The pages are true: the fenced commands of each page are run in their order,
# in one psql on a fresh server, and give what the page shows. A block ```sql
# is pasted into psql, a block ```text after it is its output, and of a block
# ```sh the fault or the answers that are set in a service are set. A block
# ```json is a definition, and is validated; with a word more it is a part of
# one (```json steps). A block ```sql with a word more (```sql archive) needs
# another server than a fresh one; the test that it names runs it.
# tools/check_docs finds SQL and JSON that is in no such block.
# Takes about 60 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use SasService;
use SasSession;
use Test::More;

my %run_elsewhere = (
	'sql check' => '307_housekeeping',
	'sql archive' => '307_housekeeping',
	'sql subscribe' => '141_subscribed',
	'sql citus' => '540_citus',
	python => '504_client_calls',
	js => '505_client_calls_typescript');

# What a page takes for granted. The tutorial, the recipes and README: nothing. All others: a shop whose services
# do not answer, with its roles and functions; those that show how to operate it: 17 runs, of which 7 is paused.
my $shop = join ';', 'CREATE SCHEMA shop', (map { "CREATE ROLE $_" } qw(shop shop_app packer_app tailer_app ann heir)),
  (map { "SELECT sas.create_agent('$_', 'http://127.0.0.1:1')" } qw(inventory payments mailer shipping pager)),
  (map { "CREATE FUNCTION shop.$_(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT \$1'" } qw(book_order unbook_order order_done log_run take_prices enter leave));
my $order = q[SELECT sas.create_workflow('order', '{"steps": {
	"reserve": {"agent": "inventory", "call": {"method": "POST", "path": "/reservations", "body": {"sku": "{{input.sku}}"}},
		"undo": {"call": {"method": "DELETE", "path": "/reservations/{{steps.reserve.output.body.id}}"}}},
	"charge": {"agent": "payments", "call": {"method": "POST", "path": "/charges"}, "after": ["reserve"]}},
	"output": {"charge": "{{steps.charge.output.body.id}}"}}')];
my $runs = q[SELECT sas.pause_agent('inventory'); SELECT sas.submit_batch('order', array_fill('{"sku": "book"}'::jsonb, '{17}')); SELECT sas.pause(7)];
my %granted = (
	'docs/tutorial.md' => '', 'docs/how-to/recipes.md' => '', 'README.md' => '',
	'docs/reference/builder.md' => $shop, 'docs/how-to/outside-agents.md' => $shop,
	'docs/reference/definition.md' => "$shop; " . join(';', map { "SELECT sas.create_agent('$_', 'http://127.0.0.1:1')" } qw(payments_b packing catalog studio))
		. q[; SELECT sas.create_agent('packer', kind => 'external'), sas.create_workflow('give_back', '{"steps": {}}'),
			sas.create_workflow('shipping', '{"steps": {}}'), sas.create_workflow('billing', '{"steps": {}}');
		CREATE FUNCTION shop.plan_order(jsonb) RETURNS jsonb LANGUAGE sql AS $$SELECT '{"steps": {}}'::jsonb$$],
	'docs/how-to/extending.md' => "$shop; $order; " . q[
		SELECT sas.create_workflow('mailing', '{"steps": {"send": {"agent": "mailer", "call": {"method": "POST", "path": "/mails"}}}}'),
			sas.create_workflow('points', '{"steps": {"add": {"function": "shop.log_run"}}}')],
	'docs/how-to/testing.md' => "$shop; $order; " . q[
		SELECT sas.create_workflow('refund', '{"steps": {"decide": {"wait": {"signal": "decision", "timeout": "2 days"}}}}');
		CREATE FUNCTION shop.place_order(order_id int) RETURNS TABLE (run_id bigint) LANGUAGE sql AS $f$
			SELECT s.run_id FROM sas.submit('order', jsonb_build_object('order_id', order_id, 'sku', 'book')) s $f$],
	# the functions and the table of pg_cron that the page uses
	'docs/how-to/from-pg-cron.md' => "$shop; " . q[
		CREATE SCHEMA cron;
		CREATE TABLE cron.job (jobid bigserial, schedule text, command text, username text DEFAULT current_user, active boolean DEFAULT true, jobname text);
		CREATE FUNCTION cron.schedule(text, text, text) RETURNS bigint LANGUAGE sql AS 'INSERT INTO cron.job (jobname, schedule, command) VALUES ($1, $2, $3) RETURNING jobid';
		CREATE FUNCTION cron.unschedule(text) RETURNS boolean LANGUAGE sql AS 'DELETE FROM cron.job WHERE jobname = $1 RETURNING true';
		SELECT cron.schedule('Each minute', '10 seconds', 'SELECT 1'); CREATE TABLE shop.basket (touched_at timestamptz)],
	'docs/how-to/watchers.md' => "$shop; SELECT sas.create_agent('exchange', 'http://127.0.0.1:1')",
	'docs/reference/streams.md' => "$shop; " . join ';', map { "CREATE TABLE shop.$_ (key text, item jsonb)" } qw(price trade));

# What the service of a page was asked, by its recipes: how often, and under how many Idempotency-Keys.
my %asked = (
	'docs/how-to/recipes.md' => {
		'POST /hook' => '4 under 3', 'GET /payments/7' => '1 under 1', 'POST /report' => '3 under 2',
		'GET /items' => '1 under 1', 'GET /items?cursor=b' => '2 under 1', 'POST /charges' => '3 under 3', 'POST /reminders' => '2 under 2',
		'POST /model' => '2 under 2', 'GET /tools/weather' => '1 under 1', 'GET /import/a' => '2 under 2', 'GET /import/b' => '1 under 1',
		'POST /refunds' => '1 under 1', 'GET /ping' => '1 under 1', 'GET /weigh' => '1 under 1', 'GET /label' => '1 under 1',
		'GET /art1' => '1 under 1', 'GET /art2' => '2 under 1', 'GET /art3' => '1 under 1' });

# trailing blanks are lost on a page
sub plain
{
	my ($text) = @_;
	$text =~ s/[ \t]+$//mg;
	$text =~ s/\n+\z//;
	return $text;
}

# the services that a page starts in terminals of their own
sub services_of
{
	my ($page) = @_;
	my %port_of;
	$port_of{8101} = start_service('inventory') if $page =~ /--port 8101/;
	$port_of{8102} = start_service('payments') if $page =~ /--port 8102/;
	if ($page =~ /--port 8103 --control 8104/)
	{
		$port_of{8103} = SasService->new;
		$port_of{8104} = { port => $port_of{8103}->{control} };
	}
	return \%port_of;
}

# The definitions that a block ```json stands for. With a word more its entries are
#   steps    steps
#   run      keys of a run, each in a definition of its own, whose steps it may name
#   step     keys of a step, each in a step of its own, with the name by which the block refers to it
#   map      the same, of a step with each
#   watcher  keys of a watcher, together
my @others = qw(reserve charge pack label ship);

sub definitions_of
{
	my ($part, $block) = @_;
	my @entries = map { s/\s+\z//r } split /^(?=")/m, $block;
	my $others = join ',', map { qq("$_": {"agent": "inventory", "call": {"path": "/$_"}}) } grep { $part ne 'steps' || $block !~ /^"$_"/m } @others;
	my ($name) = $block =~ /\{\{steps\.(\w+)/;
	my $call = '"agent": "inventory", "call": {"path": "/x"}' . ($part eq 'map' ? ', "each": "{{input.items}}"' : '');
	return $part eq 'run' ? map { qq({"steps": {$others}, $_}) } @entries
	  : $part eq 'steps' ? '{"steps": {' . join(',', $others || (), @entries) . '}}'
	  : $part eq 'watcher' ? '{"agent": "exchange", "items": {"table": "shop.price"}, ' . join('', @entries) . '}'
	  : map { '{"steps": {"' . ($name // 'charge') . qq(": {$call, $_}}}) } @entries;
}

my %quantity;

# An argument is optional where the page says so, and a view has the columns that the page lists, in their order. The
# agents and submits have their defaults in a table.
sub check_surface
{
	my ($node, $page) = @_;
	my %signature;
	foreach ($page =~ /^    (sas\.\w+\(.*?\)(?:\s+RETURNS\b.*?|))(?=\n    sas\.|\n\n)/msg)
	{
		s/\s+/ /g;
		my ($name, $arguments) = /^sas\.(\w+)\(((?:[^()]|\([^()]*\))*)\)/;
		push @{ $signature{$name} }, join ', ', map { s/ DEFAULT .*/ DEFAULT/r } split /, (?!as )/, $arguments;
	}
	my $actual = $node->safe_psql('postgres', q{
		SELECT p.proname, coalesce((
			SELECT string_agg(CASE WHEN p.proargmodes[n] = 'o' THEN 'OUT ' ELSE '' END || p.proargnames[n] || ' '
				|| replace(replace(replace(format_type(t, NULL), 'timestamp with time zone', 'timestamptz'), 'integer', 'int'),
					'double precision', 'float8')
				|| CASE WHEN n <= p.pronargs AND n > p.pronargs - p.pronargdefaults THEN ' DEFAULT' ELSE '' END, ', ' ORDER BY n)
			FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY AS a (t, n)
			WHERE coalesce(p.proargmodes[n], 'i') = 'i' OR p.proargmodes[n] = 'o' AND p.proname <> 'health'), '')
		FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace ORDER BY 1, 2});
	my @wrong;
	foreach (split /\n/, $actual)
	{
		my ($name, $arguments) = split /\|/, $_, 2;
		next if !$signature{$name} || $name =~ /^(?:create_agent|alter_agent|submit|submit_batch)$/;
		push @wrong, "$name($arguments)" unless grep { $_ eq ($arguments // '') } @{ $signature{$name} };
	}
	is(join("\n", @wrong), '', 'docs/reference/sql.md: the signatures are those of the functions');
	cmp_ok(scalar(keys %signature), '>', 80, 'many of them');
	while ($page =~ /^### `sas\.(\w+)`\n\n((?:`\w+`[,;]?\s+)+)/mg)
	{
		my ($view, $columns) = ($1, $2);
		next if $view =~ /^cluster_/;
		is(join(' ', $columns =~ /(\w+)/g),
			$node->safe_psql('postgres', "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'sas.$view'::regclass AND attnum > 0 AND NOT attisdropped"),
			"docs/reference/sql.md: the columns of sas.$view");
	}
	return;
}

sub run_page
{
	my ($file) = @_;
	my $page = PostgreSQL::Test::Utils::slurp_file("$SasTest::tree/$file");
	my $creates = $page =~ /^CREATE EXTENSION sas;/m;
	my $node = new_node($file =~ s{\W+}{_}gr, _extension => !$creates);
	my $port_of = services_of($page);
	my $given;
	$node->safe_psql('postgres', $granted{$file} // "$shop; $order; $runs");
	my $psql = SasSession->new($node, undef, options => [ '-X', '-v', 'ON_ERROR_STOP=1' ]);

	while ($page =~ /^( *)```(\w[\w ]*)\n(.*?)^\1```$/msg)
	{
		my ($indent, $kind, $block) = ($1, $2, $3);
		my $line = 1 + substr($page, 0, $-[0]) =~ tr/\n//;
		$block =~ s/^$indent//mg;
		my $here = "$file:$line";
		$quantity{$kind}++;
		$block =~ s/127\.0\.0\.1:(\d+)/"127.0.0.1:" . ($port_of->{$1} ? $port_of->{$1}->{port} : $1)/ge unless $kind eq 'text';
		if ($run_elsewhere{$kind})
		{
			my $test = PostgreSQL::Test::Utils::slurp_file("$FindBin::RealBin/$run_elsewhere{$kind}.pl");
			ok($test =~ /```\Q$kind\E\\n/, "$here: $run_elsewhere{$kind} runs $kind");
		}
		elsif ($kind eq 'sql')
		{
			$psql->start_query($block);
			# an error ends psql
			my $done = SasTest::wait_until(sub { $psql->answered }) && $psql->{out} =~ s/^end-of-query-\d+\n//m;
			ok($done, "$here: the commands work") or diag($psql->{err});
			return unless $done;
			$given = $psql->{out};
		}
		elsif ($kind eq 'text')
		{
			is(plain($given), plain($block), "$here: and give what is shown");
		}
		elsif ($kind eq 'json')
		{
			is($node->safe_psql('postgres', "SELECT * FROM sas.validate_workflow(\$json\$$block\$json\$)"), '', "$here: the definition is valid");
		}
		elsif ($kind eq 'json output')
		{
			ok(eval { JSON::PP::decode_json($block) }, "$here: is JSON");
		}
		elsif ($kind =~ /^json (steps|run|step|map|watcher)$/)
		{
			my $part = $1;
			foreach my $definition (definitions_of($part, $block))
			{
				my ($code, $out, $err) = $node->psql('postgres', $part eq 'watcher'
					? "BEGIN; SELECT sas.create_watcher('part', \$json\$$definition\$json\$)"
					: "SELECT * FROM sas.validate_workflow(\$json\$$definition\$json\$)");
				is($err . $out, '', "$here: the $part are valid") or diag($definition);
			}
		}
		elsif ($kind eq 'sh' && $block =~ m{^curl -d '([^']*)' http://127\.0\.0\.1:(\d+/(?:faults|scripts))$})
		{
			SasTest::http_post("http://127.0.0.1:$2", JSON::PP::decode_json($1));
		}
		else
		{
			fail("$here: $kind is not run");
		}
	}
	$psql->quit;
	check_surface($node, $page) if $file eq 'docs/reference/sql.md';
	$node->stop;
	if ($asked{$file})
	{
		my %keys;
		push @{ $keys{"$_->{method} $_->{target}"} }, header_of($_, 'idempotency-key') foreach $port_of->{8103}->requests;
		is_deeply({ map { my @all = @{ $keys{$_} }; ($_ => scalar(@all) . ' under ' . scalar(keys %{ { map { $_ => 1 } @all } })) } keys %keys },
			$asked{$file}, "$file: the service was asked what the page says, and nothing twice");
	}
	return;
}

chdir $SasTest::tree or die "$SasTest::tree: $!";
my @pages = grep { PostgreSQL::Test::Utils::slurp_file($_) =~ /^```/m } sort 'README.md', glob('docs/*.md docs/*/*.md');
run_page($_) foreach @pages;

cmp_ok($quantity{sql}, '>', 110, 'the pages have commands');
cmp_ok($quantity{text}, '>', 18, 'and results');
cmp_ok($quantity{json}, '>', 1, 'and definitions');
cmp_ok($quantity{"json $_"}, '>', 0, "and $_ of definitions") foreach qw(steps run step map watcher);
done_testing();
