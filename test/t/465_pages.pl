# SPDX-License-Identifier: PostgreSQL
#
# The pages are true: the fenced commands of each page are run in their order,
# on a fresh server, and give what the page shows. A block ```sql is run by
# psql, a block ```text after it is its output, and of a block ```sh the fault
# or the answers that are set in a service are set. A block ```json is a
# definition, and is validated. A block with a word more (```sql archive)
# needs another server than a fresh one; the test that it names runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my %run_elsewhere = (
	'sql check' => '307_housekeeping',
	'sql archive' => '307_housekeeping',
	python => '504_client_calls',
	js => '505_client_calls_typescript');

# what a page of reference takes for granted
my $shop = join ';', 'CREATE SCHEMA shop', (map { "SELECT sas.create_agent('$_', 'http://127.0.0.1:1')" } qw(inventory payments mailer)),
  map { "CREATE FUNCTION shop.$_(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT \$1'" } qw(book_order unbook_order order_done);
my %granted = ('docs/reference/builder.md' => $shop, 'docs/reference/definition.md' => $shop);

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
	$node->safe_psql('postgres', $granted{$file}) if $granted{$file};

	while ($page =~ /^```(\w[\w ]*)\n(.*?)^```$/msg)
	{
		my ($kind, $block) = ($1, $2);
		my $line = 1 + substr($page, 0, $-[0]) =~ tr/\n//;
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
			my @psql = ('psql', '-X', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', '-');
			my $done = IPC::Run::run(\@psql, '<', \$block, '>', \$given, '2>', \my $complaint);
			ok($done, "$here: the commands work") or diag($complaint);
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
	$node->stop;
	return;
}

chdir $SasTest::tree or die "$SasTest::tree: $!";
my @pages = grep { PostgreSQL::Test::Utils::slurp_file($_) =~ /^```/m } sort 'README.md', glob('docs/*.md docs/*/*.md');
run_page($_) foreach @pages;

cmp_ok($quantity{sql}, '>', 35, 'the pages have commands');
cmp_ok($quantity{text}, '>', 18, 'and results');
is($quantity{json}, 1, 'and a definition');
done_testing();
