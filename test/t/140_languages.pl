# SPDX-License-Identifier: PostgreSQL
#
# A server that speaks another language (lc_messages): the functions of sas are left out of CONTEXT there, too, and
# steps fail and go on as anywhere.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasService;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.agents' => 0);
my (undef, undef, $said) = $node->psql('postgres', q{SET lc_messages = 'de_DE.UTF-8'; SELECT 1 / 0});
plan skip_all => 'no German here' unless $said =~ /Division durch Null/;
$node->safe_psql('postgres', q{
	ALTER DATABASE postgres SET lc_messages = 'de_DE.UTF-8';
	CREATE FUNCTION ratio(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN to_jsonb(1 / (input ->> 'n')::int);
	END $$});
$node->restart;
define($node, 'fails', { steps => { a => { function => 'public.ratio', on_failure => 'fail' } } });
define($node, 'planned', { plan => 'public.ratio' });

sub refused { my (undef, undef, $err) = $node->psql('postgres', $_[0]); return $err }

unlike(refused('SELECT sas.signal(0, $$x$$)'), qr/CONTEXT/, 'what a verb refuses has no context');
my $context = refused(q{SELECT sas.submit('planned', '{"n": 0}')});
like($context, qr/Division durch Null.*CONTEXT:.*ratio\(jsonb\)/s, 'the context of a function that a verb has called stays');
unlike($context, qr/_sas\.|_as\b/, 'without that of the verb');

$node->safe_psql('postgres', q{SELECT sas.schedule('often', 'every 1 s', 'planned', '{"n": 0}')});
ok(wait_for($node, q{SELECT count(*) FROM sas.schedules WHERE error ->> 'title' LIKE 'Division durch Null%'}, '1'), 'a plan function of a schedule fails');
unlike($node->safe_psql('postgres', q{SELECT error FROM sas.schedules}), qr/_sas\./, 'and its error names no function of sas');

my $run = submit($node, 'fails', { n => 0 });
is($node->safe_psql('postgres', "SELECT result FROM sas.wait($run, '100 s')"), 'error', 'a step fails');
is($node->safe_psql('postgres', "SELECT error ->> 'type' FROM sas.steps WHERE run_id = $run"), 'urn:sas:sqlstate:22012', 'with its SQLSTATE');
$run = submit($node, 'fails', { n => 1 });
is($node->safe_psql('postgres', "SELECT result FROM sas.wait($run, '100 s')"), 'success', 'the next run goes on');
$node->stop;
done_testing();
