# SPDX-License-Identifier: PostgreSQL
#
# Services speak UTF-8, whatever the encoding of the database is.
# Long: only make check-long runs it.
use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Encode qw(encode);
use JSON::PP ();
use MIME::Base64;
use SasTest;
use SasService;
use Test::More;

local $ENV{PGCLIENTENCODING} = 'UTF8';
my $node = new_node('main', _init => [ extra => ['--encoding=LATIN1'] ]);
my $service = SasService->new;
my $json = JSON::PP->new->canonical->allow_nonref->ascii;
is($node->safe_psql('postgres', 'SHOW server_encoding'), 'LATIN1', 'a database in LATIN1');
$node->safe_psql('postgres', "SELECT sas.set_secret('token', U&'schl\\00FCssel')");
make_agent($node, 'remote', $service, headers => '{"X-Token": "{{secret.token}}"}');

# -- what is sent ------------------------------------------------------------------------------

sub sent
{
	my (%call) = @_;
	return run_call($node, 'remote', { method => 'POST', path => '/echo', %call }, { input => { name => 'Zoé' } })->{output}{body};
}
is(sent(body => { name => '{{input.name}}', 'ß' => 'ü' })->{body}, '{"ß": "ü", "name": "Zoé"}', 'a body of JSON goes out in UTF-8');
is(sent(text => 'für {{input.name}}')->{body}, 'für Zoé', 'so does text');
is(sent(form => { 'ß' => '{{input.name}}' })->{body}, '%C3%9F=Zo%C3%A9', 'a form');
is(sent(path => '/echo/{{input.name}}', query => { 'ß' => '{{input.name}}' })->{target}, '/echo/Zo%C3%A9?%C3%9F=Zo%C3%A9', 'a path and a query');
is(header_of(sent(headers => { 'X-Name' => '{{input.name}}' }), 'x-name'), 'Zoé', 'a header');
is(header_of(($service->requests('echo'))[-1], 'x-token'), 'schlüssel', 'and a secret');

# -- what comes back ---------------------------------------------------------------------------

my $n = 0;

sub answer_to
{
	my ($bytes, $type, %more) = @_;
	$n++;
	$service->script("a$n" => [ { base64 => encode_base64($bytes, ''), %more, headers => [ [ 'Content-Type', $type ], @{ $more{headers} // [] } ] } ]);
	return run_call($node, 'remote', { path => "/a$n" });
}
sub body_of { my $run = answer_to(@_); return $json->encode($run->{output}{body}) }

is(body_of(encode('UTF-8', '{"name": "Zoé", "ß": 1}'), 'application/json'), $json->encode({ name => 'Zoé', 'ß' => 1 }), 'JSON comes in UTF-8');
is(body_of('{"name": "Zo\u00e9"}', 'application/json'), $json->encode({ name => 'Zoé' }), 'or with escapes');
is(body_of(encode('UTF-8', 'für Zoé'), 'text/plain; charset=utf-8'), $json->encode('für Zoé'), 'text comes in UTF-8');
is(body_of(encode('ISO-8859-1', 'für Zoé'), 'text/plain; charset=iso-8859-1'), $json->encode('für Zoé'), 'what is no UTF-8 is text of the database');
is(body_of(encode('UTF-8', '{"price": "7 €"}'), 'application/json'), $json->encode({ base64 => encode_base64(encode('UTF-8', '{"price": "7 €"}'), '') }),
	'what the database cannot hold is kept as it came');
is(body_of('{"price": "7 \u20ac"}', 'application/json'), $json->encode('{"price": "7 \u20ac"}'), 'or as the text that it came as');
is(body_of(encode('UTF-8', 'mein schlüssel'), 'text/plain'), $json->encode('mein **********'), 'a secret is masked in UTF-8, byte by byte');
is(answer_to(encode('UTF-8', 'für Zoé nicht'), 'text/plain', status => 400)->{error}{detail}, 'für Zoé nicht', 'an error tells what the service said');
is(answer_to('', 'text/plain', headers => [ [ 'X-Name', join('', map { chr } unpack('C*', encode('UTF-8', 'Zoé'))) ] ])->{output}{headers}{x_name}, 'Zoé', 'headers are read as UTF-8');

# -- in a test ---------------------------------------------------------------------------------

define($node, 'stubbed', { steps => { it => { agent => 'remote', call => { method => 'POST', path => '/{{input.name}}', body => { name => '{{input.name}}' } } } }, output => '{{steps.it.output.body}}' });
my @shown = split /\n/, $node->safe_psql('postgres', q{
	BEGIN;
	SELECT FROM sas.stub('remote', U&'{"text": "f\00FCr {{request.body.name}}"}');
	SELECT output FROM sas.run_inline('stubbed', U&'{"name": "Zo\00E9"}');
	SELECT request ->> 'body' FROM sas.stubbed_calls();
	ROLLBACK});
utf8::decode($_) foreach @shown;
is(join(' ', grep { /\S/ } @shown), '"für Zoé" {"name": "Zoé"}', 'stubs are asked and answer in the encoding of the database');

# -- without an encoding -----------------------------------------------------------------------

# such a database stores any bytes
my $bytes = new_node('bytes', _init => [ extra => [ '--encoding=SQL_ASCII', '--locale=C' ] ]);
$ENV{PGCLIENTENCODING} = 'SQL_ASCII';
make_agent($bytes, 'remote', $service);
is($bytes->safe_psql('postgres', 'SHOW server_encoding'), 'SQL_ASCII', 'a database without an encoding');
$service->script(named => [ { base64 => encode_base64(encode('UTF-8', '{"für": "Zoé"}'), ''), headers => [ [ 'Content-Type', 'application/json' ] ] } ],
	escapes => [ { base64 => encode_base64('{"name": "Zo\u00e9"}', ''), headers => [ [ 'Content-Type', 'application/json' ] ] } ]);
my $definition = '{"steps": {"it": {"agent": "remote", "call": {"path": "/named", "body": {"für": "{{input.name}}"}}}}, "output": "{{steps.it.output.body.für}}", "on_failure": "fail", "recovery": {"max_failures": 1}}';
$bytes->safe_psql('postgres', encode('UTF-8', "SELECT sas.create_workflow('named', '$definition')"));

sub named
{
	my ($name) = @_;
	my $id = $bytes->safe_psql('postgres', "SELECT run_id FROM sas.submit('named', '{\"name\": \"$name\"}')");
	my $shown = $bytes->safe_psql('postgres', "SELECT w.result, w.output #>> '{}', w.error ->> 'title', w.error ->> 'detail' FROM sas.wait($id, '2 min') w");
	utf8::decode($shown);
	return $shown;
}
is(named(encode('UTF-8', 'Zoé')), 'success|Zoé||', 'an answer in UTF-8 comes as it is');
is(($service->requests('named'))[-1]{body}, '{"für": "Zoé"}', 'and UTF-8 is sent as it is');
is(named(encode('ISO-8859-1', 'Zoé')), 'error||could not build the request|a text in it is not UTF-8', 'other bytes fail the step');
is(scalar $service->requests('named'), 1, 'before anything is sent');
is(run_call($bytes, 'remote', { path => '/escapes' })->{output}{body}, '{"name": "Zo\u00e9"}', 'JSON with escapes that it has no characters for is text');

done_testing();
