# SPDX-License-Identifier: PostgreSQL
#
# The console in a real browser: pages say what the views say, stand by
# themselves, and nothing that users put into a run can become markup.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;
use IPC::Run;
use PostgreSQL::Test::Utils;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $pages = 0;

# browse(html, what): what a headless Chromium makes of a page: its DOM, or a picture.
sub browse
{
	my ($html, $what, @more) = @_;
	my $file = "$dir/page" . ++$pages . '.html';
	open(my $out, '>', $file) or die $!;
	print $out $html;
	close $out;
	my ($dom, $err) = ('', '');
	my @command = ('chromium', qw(--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --disable-dev-shm-usage --hide-scrollbars),
		"--user-data-dir=$dir/profile$pages", @more, $what eq 'dom' ? '--dump-dom' : "--screenshot=$what", "file://$file");
	IPC::Run::run(\@command, '<', \'', '>', \$dom, '2>', \$err, IPC::Run::timeout(180)) or die "chromium: $err";
	return $dom;
}

# page(node, call, role): the page as that role gets it
sub page
{
	my ($node, $call, $role) = @_;
	return $node->safe_psql('postgres', ($role ? "SET ROLE $role; " : '') . "SELECT sas.$call");
}

# without tags and entities
sub words
{
	my ($html) = @_;
	$html =~ s/<[^>]*>/ /g;
	$html =~ s/&lt;/</g; $html =~ s/&gt;/>/g; $html =~ s/&quot;/"/g; $html =~ s/&amp;/&/g;
	$html =~ s/\s+/ /g;
	return $html;
}

# section(dom, id)
sub section
{
	my ($dom, $id) = @_;
	return $dom =~ m{<section id="$id">(.*?)</section>}s ? $1 : '';
}

my $node = new_node('main', 'sas.supervisor_interval' => '1 s', timezone => 'UTC');
my $shop = start_shop();
define_orders($node, $shop);

# a night: some orders are done, then payments is down; one run is paused by hand, one failed for good
submit_orders($node, 30);
all_ended($node, 'the orders of the day have ended');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('payments', breaker => '{"failures": 3, "open_for": "1 h"}', retry => '{"initial": "10 ms", "max": "50 ms"}')});
$shop->{payments}->faults({ unavailable => 1 });
submit_orders($node, 60, first => 101);
ok(wait_for($node, q{SELECT breaker FROM sas.agents WHERE name = 'payments'}, 'open'), 'the breaker of payments is open');
ok(wait_for($node, q{SELECT count(*) > 40 FROM sas.steps WHERE waiting_kind = 'breaker' AND waiting_on = 'payments'}), 'and its steps wait for that');
my $paused = $node->safe_psql('postgres', q{SELECT run_id FROM sas.runs WHERE state = 'running' ORDER BY run_id DESC LIMIT 1});
$node->safe_psql('postgres', "SELECT sas.pause($paused)");

my $evil = q{"'><script>document.title = 'pwned'</script><img src=x onerror="document.title='pwned'"></pre></style>&amp; ünïcode} . "\n" . '-- $$ \\';
$node->safe_psql('postgres', q{
	CREATE ROLE ann;
	SELECT sas.grant_usage('ann', 'user');
	CREATE SCHEMA a; GRANT USAGE ON SCHEMA a TO ann;
	CREATE FUNCTION a.f(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION USING MESSAGE = input ->> 'x', DETAIL = input ->> 'x'; END $f$;
	GRANT EXECUTE ON FUNCTION a.f TO ann;
	SET ROLE ann;
	SELECT sas.create_workflow('evil', '{"steps": {"first": {"wait": {"for": "1 ms"}}, "bad": {"function": "a.f", "after": ["first"]}, "last": {"function": "a.f", "after": ["bad"]}}, "on_failure": "pause"}')});
my $evil_sql = $evil =~ s/'/''/gr;
my $run = $node->safe_psql('postgres', qq{SET ROLE ann; SELECT run_id FROM sas.submit('evil', jsonb_build_object('x', '$evil_sql'::text), key => '$evil_sql', labels => jsonb_build_object('$evil_sql', '$evil_sql'::text))});
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'paused'), 'a run with hostile content is paused for a failed step');

ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE waiting_kind IN ('reply', 'agent', 'worker', 'supervisor', 'scheduler', 'cool_off', 'retry')}, '0'), 'then nothing moves any more');

# the overview
my $html = page($node, 'console()');
my $dom = browse($html, 'dom');
like($dom, qr{<title>sas: overview of postgres</title>}, 'the title of the page stays what it is');
my $tile = sub { my ($what) = @_; return $dom =~ m{id="runs-$what"><b>(\d+)</b>} ? $1 : undef };
is($tile->($_), $node->safe_psql('postgres', "SELECT count(*) FROM sas.runs WHERE state = '$_'"), "as many runs are shown $_ as sas.runs has") foreach qw(scheduled pending running paused compensating);
is($tile->($_), $node->safe_psql('postgres', "SELECT count(*) FROM sas.runs WHERE result = '$_'"), "as many runs are shown with result $_") foreach qw(success compensated error);
my ($waiting) = $node->safe_psql('postgres', q{SELECT runs FROM sas.explain() WHERE waiting_kind = 'breaker'});
like(words(section($dom, 'waiting')), qr/breaker payments $waiting $waiting .* the breaker of agent "payments" is open until .* sas\.reset_agent\('payments'\)/, 'one row says that they wait for the breaker of payments, and what to do');
like(words(section($dom, 'alerts')), qr/breaker-open .*the breaker of agent "payments" is open/, 'its alert is there');
like(words(section($dom, 'paused')), qr/\Q$paused\E order .* an operator paused it/, 'the paused run is there, and why');
like(words(section($dom, 'agents')), qr/^\s*Agents .*? address payments open breaker open in /, 'the agent whose breaker is open comes first');
like(words(section($dom, 'errors')), qr/order charge payments failed \d+ \d+/, 'what failed is counted');
like(words(section($dom, 'workers')), qr/\d+ supervisor yes/, 'the leading supervisor is shown');

# a run
my $run_html = page($node, "console($run)");
my $run_dom = browse($run_html, 'dom');
like($run_dom, qr{<title>sas: run $run of evil</title>}, 'the title of a run stays what it is');
cmp_ok(index(words($run_dom), words($evil =~ s/</&lt;/gr =~ s/&amp;/&amp;amp;/gr)), '>', 0, 'the hostile content is shown as it is');
like($run_dom, qr/ünïcode/, 'whatever its letters');
is(scalar(() = section($run_dom, 'graph') =~ /<g class="node s-(?:succeeded|failed|waiting)">/g), 3, 'the graph has its three steps, with their states');
is(scalar(() = section($run_dom, 'graph') =~ /<path d="M[^"]*" marker-end/g), 2, 'and what leads where');
like(section($run_dom, 'timeline'), qr{title="bad">bad</div><div class="track"><div class="bar s-failed}, 'the timeline has its failed attempt');
like(words(section($run_dom, 'why')), qr/run $run of workflow "evil" is paused by sas supervisor since/, 'why it stands is told');
like(words(section($run_dom, 'steps')), qr/input \{/i, 'inputs are shown');

# with the policy that forbids scripts taken out: it is the escaping that holds, not the policy
foreach my $p ([ 'the overview', $html ], [ 'the page of a run', $run_html ])
{
	my ($name, $text) = @$p;
	like($text, qr/Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'/, "$name may fetch and run nothing");
	(my $open = $text) =~ s/<meta http-equiv="Content-Security-Policy"[^>]*>//;
	my $free = browse($open, 'dom');
	unlike($free, qr/<(?:script|img|link|iframe|object|embed|form|base)\b/i, "$name has no element that could run or fetch");
	my %attributes;
	while ($free =~ /<[a-z][^\s>\/]*((?:\s+[\w:-]+(?:="[^"]*")?)*)\s*\/?>/gi)
	{
		my $list = $1;
		$attributes{lc $1} = 1 while $list =~ /([\w:-]+)="[^"]*"/g;
	}
	is(join(' ', grep { /^(?:src|srcset|href|action|data|on\w+)$|:href$/ } sort keys %attributes), '', "$name refers to nothing outside and has no handler");
	ok($attributes{class} && $attributes{title}, 'what attributes there are was looked at');
	like($free, qr{<title>sas: (?:overview of postgres|run $run of evil)</title>}, "$name was not taken over");
	is(scalar(() = $free =~ /<body/g), 1, "$name has one body");
}

# the timeline of an order that was undone: what succeeded at first, what failed, and the undo
my $undone = $node->safe_psql('postgres', q{SELECT min(run_id) FROM sas.runs WHERE workflow = 'order' AND result = 'compensated'});
is($node->safe_psql('postgres', qq{SELECT string_agg(DISTINCT step || ' ' || CASE WHEN undo THEN 'undo ' ELSE '' END || status || ' ' || right(bar, 1), ', ') FROM sas.timeline($undone) WHERE step IS NOT NULL AND (status <> 'failed' OR step = 'charge')}),
	'charge failed x, reserve succeeded =, reserve undo succeeded <, slot succeeded =, slot undo succeeded <', 'the timeline of an order has what it did, what failed, and the undo');
is($node->safe_psql('postgres', qq{SELECT bool_and(length(bar) <= 60 AND length(bar) > 0) FROM sas.timeline($undone)}), 't', 'no bar is longer than the axis');

like(words(section(browse(page($node, "console($undone)"), 'dom'), 'graph')), qr/ reserve call inventory compensated slot /, 'what was done once and undone once has no count of attempts');

# on a phone nothing reaches over the edge: the page in a frame as wide as one
foreach my $p ([ 'the overview', $html ], [ 'the page of a run', $run_html ])
{
	my ($name, $text) = @$p;
	(my $frame = $text) =~ s/<meta http-equiv="Content-Security-Policy"[^>]*>//;
	$frame =~ s/&/&amp;/g; $frame =~ s/"/&quot;/g;
	my $phone = browse(qq{<!DOCTYPE html><meta charset="utf-8"><title>none</title><iframe id="f" style="border: 0; width: 360px; height: 800px" srcdoc="$frame" onload="var d = this.contentDocument; document.title = 'wide ' + d.documentElement.scrollWidth + ' tables ' + Array.from(d.querySelectorAll('table')).filter(t => t.getBoundingClientRect().right > 360).length"></iframe>}, 'dom');
	like($phone, qr{<title>wide 3[0-6]\d tables 0</title>}, "$name fits a phone") or diag($phone =~ /(<title>.*?<\/title>)/);
}

# rights: as in the views
my $hers = browse(page($node, 'console()', 'ann'), 'dom');
like(section($hers, 'paused'), qr/<td class="n" data-l="run">$run</, 'a role sees its own runs');
unlike($hers, qr/<td class="n" data-l="run">$paused</, 'and no others');
unlike(words(section($hers, 'alerts')), qr/order/, 'nor alerts of others');

# pictures, light and dark; a person should look at them from time to time
foreach my $p ([ 'overview', $html, 1500 ], [ 'run', $run_html, 1700 ], [ 'order', page($node, 'console(' . $node->safe_psql('postgres', q{SELECT min(run_id) FROM sas.runs WHERE workflow = 'order' AND result = 'compensated'}) . ')'), 1700 ])
{
	my ($name, $text, $height) = @$p;
	my $file = "$dir/$name.png";
	browse($text, $file, "--window-size=1280,$height");
	open(my $in, '<:raw', $file) or die "$file: $!";
	read($in, my $start, 24);
	is(substr($start, 1, 3) . ' ' . join(' x ', unpack('NN', substr($start, 16, 8))), "PNG 1280 x $height", "a picture of $name is made");
	cmp_ok(-s $file, '>', 20_000, 'with something on it');
	next unless $ENV{SAS_PICTURES};
	system('cp', $file, "$ENV{SAS_PICTURES}/$name.png");
	open(my $out, '>', "$ENV{SAS_PICTURES}/$name.html") or die $!;
	print $out $text;
}
done_testing();
