# SPDX-License-Identifier: PostgreSQL
#
# The pages are true: the fenced commands of each page are run in their order,
# in one psql on a fresh server, and give what the page shows. A block ```sql
# is pasted into psql, a block ```text after it is its output, and of a block
# ```sh the fault or the answers that are set in a service are set. A block
# ```json is a definition, and is validated. A block with a word more
# (```sql archive) needs another server than a fresh one; the test that it
# names runs it. tools/check_docs finds SQL that is in no such block.
# Takes about 60 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;

my %run_elsewhere = (
	'sql check' => '307_housekeeping',
	'sql archive' => '307_housekeeping',
	'sql subscribe' => '136_subscribed',
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
	'docs/reference/builder.md' => $shop, 'docs/reference/definition.md' => $shop, 'docs/how-to/outside-agents.md' => $shop,
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
		'POST /refunds' => '1 under 1', 'GET /ping' => '1 under 1', 'GET /weigh' => '1 under 1', 'GET /label' => '1 under 1' });

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

my %quantity;

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
is($quantity{json}, 1, 'and a definition');
done_testing();
