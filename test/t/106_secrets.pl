# SPDX-License-Identifier: PostgreSQL
#
# Secrets reach the service and stand nowhere else, whatever the service says.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use SasService;
use Test::More;

# the statements that set the secrets are the user's own to hide; everything else is logged
my $node = new_node('main', _init => [ extra => ['--encoding=UTF8'] ], log_min_messages => 'debug1', log_statement => 'none', log_min_error_statement => 'panic');
my $service = SasService->new;

# plain; with what JSON and addresses escape; beyond ASCII; the beginning of another; digits only
my %secret = (
	plain => 'plain-hunter2-0123456789',
	quoted => 'quo"ted\\hun/ter2 &%+',
	accent => "g\x{e9}heim-hunter2-\x{fc}",
	begin => 'begin-hunter2',
	longer => 'begin-hunter2-and-more',
	digits => '8472910365517',
	spaced => 'spaced "hunter2" out');
my $set = join "\n", map { my $value = $secret{$_}; utf8::encode($value); "SELECT sas.set_secret('$_', '$value');" } sort keys %secret;
$node->safe_psql('postgres', $set);
make_agent($node, 'remote', $service,
	retry => '{"max_attempts": 2, "initial": "10 ms"}',
	headers => '{"Authorization": "Bearer {{secret.plain}}", "X-Quoted": "{{secret.quoted}}", "X-Accent": "{{secret.accent}}",
		"X-Begin": "{{secret.begin}}", "X-Longer": "{{secret.longer}}", "X-Digits": "{{secret.digits}}", "X-Spaced": "{{secret.spaced}}"}',
	options => '{"query": {"key": "{{secret.plain}}", "other": "{{secret.quoted}}"}}');

# -- they arrive -------------------------------------------------------------------------

my $run = run_call($node, 'remote', { path => '/here', query => { mine => 1 } });
my ($request) = $service->requests('here');
is(header_of($request, 'authorization'), "Bearer $secret{plain}", 'a secret in the headers of an agent reaches the service');
is(header_of($request, 'x-quoted'), $secret{quoted}, 'whatever characters it has');
like($request->{target}, qr/[?&]key=plain-hunter2-0123456789(&|$)/, 'and one in the query of its options');
like($request->{target}, qr/mine=1/, 'beside the parameters of the step');

# -- and are said back --------------------------------------------------------------------

# what a service could say: by itself, in JSON with and without escapes, as text and bytes, in headers and errors
my $accent = $secret{accent};
utf8::encode($accent);
my @all = map { $_ eq 'accent' ? $accent : $secret{$_} } sort keys %secret;
my $text = join ' and ', @all;
my $b64 = sub { my ($bytes) = @_; require MIME::Base64; return MIME::Base64::encode_base64($bytes, '') };
my %says = (
	asked => { echo => 1 },
	json => { json => { map { $_ => $secret{$_} } keys %secret } },
	nested => { json => { deep => [ { $secret{plain} => [ $secret{quoted}, $secret{accent} ] } ] } },
	solidus => { base64 => $b64->('{"v": "quo\"ted\\\\hun\/ter2 &%+", "u": "\u0070lain-hunter2-0123456789"}'),
		headers => [ [ 'Content-Type', 'application/json' ] ] },
	number => { base64 => $b64->('{"v": 8472910365517}'), headers => [ [ 'Content-Type', 'application/json' ] ] },
	text => { base64 => $b64->($text), headers => [ [ 'Content-Type', 'text/plain; charset=utf-8' ] ] },
	bytes => { base64 => $b64->("\xff\x00" . $text), headers => [ [ 'Content-Type', 'application/octet-stream' ] ] },
	headers => { headers => [ [ 'X-Said', $secret{plain} ], [ 'X-Said', $secret{quoted} ], [ 'X-Longer', $secret{longer} ], [ 'Set-Cookie', "t=$secret{digits}" ] ] },
	location => { status => 302, headers => [ [ 'Location', "/?key=$secret{plain}" ] ] },
	refused => { status => 400, base64 => $b64->($text) },
	refused_json => { status => 422, json => { map { $_ => $secret{$_} } keys %secret } },
	failed => { status => 500, base64 => $b64->($text) },
	# the error keeps the beginning of what was said: not half a secret either
	cut => { status => 400, base64 => $b64->('x' x 490 . $secret{plain}) },
	cut_2 => { status => 400, base64 => $b64->('x' x 480 . $secret{longer}) });
$service->script($_ => [ $says{$_} ]) foreach keys %says;
foreach my $name (sort keys %says)
{
	my $ran = run_call($node, 'remote', { method => 'POST', path => "/$name", body => {} });
	is($ran->{state}, 'stopped', "a service says secrets back: $name");
}
$run = run_call($node, 'remote', { path => '/text' });
like($run->{output}{body}, qr/^\Q****\E/, 'what it said is kept, the secrets in it overwritten');
$run = run_call($node, 'remote', { path => '/json' });
is(ref $run->{output}{body}, 'HASH', 'JSON stays JSON');

# -- said back in disguise: a good part of each is found nowhere -----------------------------
my $hidden = $secret{plain};
my $percent = join '', map { sprintf '%%%02x', ord } split //, $hidden;
my %disguise = (
	hex => unpack('H*', $hidden),
	upper_hex => uc unpack('H*', $hidden),
	percent => $percent,
	percent_in_part => 'plain%2dhunter2%2D01%323456789',
	escaped_in_part => 'plain\u002dhunter2\u002D0123456789',
	html => 'plain&#45;hunter2&#x2d;&#048;123456789',
	(map { ("base64_$_" => $b64->('x' x $_ . "$hidden and more")) } 0 .. 2));
foreach my $name (sort keys %disguise)
{
	$service->script("as_$name" => [ { base64 => $b64->("it is $disguise{$name}."), headers => [ [ 'Content-Type', 'text/plain' ] ] } ]);
	my $said = run_call($node, 'remote', { path => "/as_$name" })->{output}{body};
	like($said, qr/^it is .*\*{20}/, "it is overwritten as $name") or diag($said);
	is(index($said, substr($disguise{$name}, 8, 12)), -1, "nothing of it is left as $name");
}
my %spaced = (
	plain => 'spaced "hunter2" out',
	form => 'spaced+"hunter2"+out',
	html => 'spaced &quot;hunter2&#34; out');
foreach my $name (sort keys %spaced)
{
	$service->script("spaced_$name" => [ { base64 => $b64->("it is $spaced{$name}."), headers => [ [ 'Content-Type', 'text/plain' ] ] } ]);
	is(run_call($node, 'remote', { path => "/spaced_$name" })->{output}{body}, 'it is ' . '*' x length($spaced{$name}) . '.', "a value with spaces and quotes is overwritten as $name");
}
# of two or four bytes for each character
my %wide = (utf_16_be => 'n*', utf_16_le => 'v*', utf_32_be => 'N*', utf_32_le => 'V*');
foreach my $name (sort keys %wide)
{
	$service->script("as_$name" => [ { base64 => $b64->(pack $wide{$name}, map { ord } split //, "it is $hidden and $secret{accent}."), headers => [ [ 'Content-Type', 'text/plain' ] ] } ]);
	my $said = run_call($node, 'remote', { path => "/as_$name" })->{output}{body}{base64};
	$said = MIME::Base64::decode_base64($said) =~ s/\0//gr;
	like($said, qr/^it is \*{40,}.* and \*{20,}\.$/, "it is overwritten as $name") or diag($said);
}
$service->script(split_up => [ { headers => [ [ 'X-One', 'it is plain-hunter2-' ], [ 'X-Two', '0123456789, really' ] ] } ]);
my $headers = run_call($node, 'remote', { path => '/split_up' })->{output}{headers};
is("@{$headers}{qw(x_one x_two)}", 'it is ' . '*' x 14 . ' ' . '*' x 10 . ', really', 'a value that is split over two headers is overwritten, too') or diag(explain($headers));

# while a call is on its way
$service->script(held => [ { gate => 1 } ]);
my $held = submit($node, define($node, 'held', { steps => { it => { agent => 'remote', call => { path => '/held' } } } }), {});
$service->wait_for_requests('held', 1);
my $activity = $node->safe_psql('postgres', q{SELECT string_agg(a::text, E'\n') FROM pg_stat_activity a});
$service->release;
run_of($node, $held);

# the session that sets a secret stays: others do not read the value in its last statement, nor the log in an error
my $setter = SasSession->new($node);
$setter->query(q{SET application_name = 'setter'; BEGIN; SELECT sas.set_secret('spoken', 'spoken-hunter2')});
$activity .= my $last = $node->safe_psql('postgres', q{SELECT query FROM pg_stat_activity WHERE application_name = 'setter'});
like($last, qr/^SELECT sas.set_secret\((?!.*hunter2)/s, 'the statement that sets a secret is shown without its value') or diag($last);
$setter->query(q{ROLLBACK; SET log_min_error_statement = 'error'});
$setter->query(q{SELECT sas.set_secret('Spoken', 'spoken-hunter2')});
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/"Spoken" is not a valid name.*STATEMENT:  SELECT sas.set_secret\(/s, 'and logged without it, if it fails');
$setter->query('SELECT 42 AS another');
like($node->safe_psql('postgres', q{SELECT query FROM pg_stat_activity WHERE application_name = 'setter'}), qr/another/, 'other statements are shown as they are');

# a template that fails names no value
my ($status, $out, $err) = $node->psql('postgres', q{SELECT sas.alter_agent('remote', headers => '{"A": "{{secret.nobody}} {{secret.plain}}"}')});
like($err, qr/secret "nobody" does not exist/, 'a secret that is not there is refused at the door');

# -- nothing is left of them ----------------------------------------------------------------

# what may give a secret away: itself, escaped as JSON, as an address, or a good part of it
my %trace = map { $_ => [ $_ ] } @all;
my @traces = ('hunter2', 'hun/ter2', 'hun\/ter2', 'hun%2Fter2', '8472910365517', 'plain-hun', 'begin-hun', 'quo"ted', 'quo\"ted', '-and-more');
my @tables = split /\n/, $node->safe_psql('postgres', q{
	SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'm') AND (n.nspname IN ('sas', '_sas', 'public')) AND c.oid <> '_sas.secret'::regclass ORDER BY 1});
cmp_ok(scalar @tables, '>', 10, 'the tables to look into are found');
my $dump = '';
foreach my $table (@tables, qw(sas.runs sas.steps sas.attempts sas.agents sas.alerts sas.history))
{
	$dump .= "$table: $_\n" foreach split /\n/, $node->safe_psql('postgres', "SELECT t::text FROM $table t");
}
cmp_ok(length $dump, '>', 10_000, 'and have much in them');
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
foreach my $part (@traces)
{
	(my $doubled = $part) =~ s/"/""/g;
	my @found = grep { index($_, $part) >= 0 || index($_, $doubled) >= 0 } split /\n/, $dump;
	is(scalar @found, 0, "no table, and no view, holds $part") or diag(map { substr($_, 0, 600) . "\n" } @found[ 0 .. ($#found > 3 ? 3 : $#found) ]);
	is(index($activity, $part), -1, "nor does pg_stat_activity show it");
	is(index($log, $part), -1, "nor the server's log");
}
my $bytes = $b64->("\xff\x00" . $text);
is(index($dump, substr($bytes, 8, 40)), -1, 'nor are they kept as base64');

# -- and the doors ---------------------------------------------------------------------------

$node->safe_psql('postgres', q{CREATE ROLE joe LOGIN; CREATE ROLE boss LOGIN});
$node->safe_psql('postgres', q{SELECT sas.grant_usage('joe', 'user'); SELECT sas.grant_usage('boss', 'admin')});
foreach my $role (qw(joe boss))
{
	foreach my $sql ('SELECT value FROM _sas.secret', 'SELECT * FROM _sas.agents_for_workers()')
	{
		my $code = $node->psql('postgres', $sql, extra_params => [ '-U', $role ], stderr => \$err);
		like($err, qr/permission denied/, "role $role cannot read secrets: $sql");
	}
}
# a part of what it says may have a part of a secret in it
make_agent($node, 'without', $service);
foreach my $name ('Range', 'range', 'RANGE')
{
	my $asked = $service->requests('asked');
	$run = run_call($node, 'remote', { path => '/asked', headers => { $name => 'bytes=0-3' } }, { input => {} });
	like($run->{error}{detail} // $run->{error}{title}, qr/header Range asks for a part of the answer/, "a call of an agent with secrets asks for no part of an answer: $name");
	is(scalar $service->requests('asked'), $asked, 'nothing is sent');
	is(run_call($node, 'without', { path => '/asked', headers => { $name => 'bytes=0-3' } })->{result}, 'success', 'one of an agent without does');
}
# nor are all encodings of text known in which a secret may come back
foreach my $header ([ Accept => 'text/plain;charset=UTF-16' ], [ accept => 'text/html, text/*; q=0.5; Charset = "ibm037"' ], [ 'Accept-Charset' => 'utf-8, utf-7;q=0.1' ])
{
	my $asked = $service->requests('asked');
	$run = run_call($node, 'remote', { path => '/asked', headers => { @$header } }, { input => {} });
	like($run->{error}{detail} // $run->{error}{title}, qr/a header asks for an encoding of text/, "nor for another encoding of text: @$header");
	is(scalar $service->requests('asked'), $asked, 'nothing is sent');
	is(run_call($node, 'without', { path => '/asked', headers => { @$header } })->{result}, 'success', 'one of an agent without does');
}
is(run_call($node, 'remote', { path => '/text', headers => { @$_ } })->{result}, 'success', "it may ask for this one: @$_")
  foreach [ Accept => 'application/json; charset=utf-8, text/plain;charset="ISO-8859-1"' ], [ 'Accept-Charset' => 'utf-8, iso-8859-1;q=0.5, *;q=0.1' ];
my $dumped = '';
IPC::Run::run([ 'pg_dump', '-d', $node->connstr('postgres') ], '>', \$dumped, '2>', '/dev/null') or die 'pg_dump failed';
is(index($dumped, 'hunter2'), -1, 'a dump has no secret in it');
($status, $out, $err) = $node->psql('postgres', q{SELECT sas.create_workflow('leak', '{"steps": {"it": {"agent": "remote", "call": {"body": "{{secret.plain}}"}}}}')});
like($err, qr/cannot refer to a secret/, 'a workflow cannot refer to a secret');
my $echo = define($node, 'echo', { steps => { it => { agent => 'remote', call => { method => 'POST', path => '/', body => '{{input.v}}' } } },
	output => '{{steps.it.output.body.body}}' });
is(run_of($node, submit($node, $echo, { v => '{{secret.plain}}' }))->{output}, '"{{secret.plain}}"', 'nor can an input: values from input are never expanded');
done_testing();
