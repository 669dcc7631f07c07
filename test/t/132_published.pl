# SPDX-License-Identifier: PostgreSQL
#
# A publication of all tables is in nobody's way.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasService;
use SasTest;
use Test::More;

my $node = new_node('main', wal_level => 'logical', max_wal_senders => 5, max_replication_slots => 5);
$node->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
my $service = SasService->new;
$service->script(refuse => [ { status => 402 } ], fails => [ { status => 503 } ]);
make_agent($node, 'remote', $service);
$node->safe_psql('postgres', q{CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$});
define($node, 'order', { steps => {
	call => { agent => 'remote', call => { method => 'POST', path => '/ok' }, undo => { call => { method => 'POST', path => '/undo' } } },
	pause => { wait => { for => '20 ms' }, after => ['call'] },
	each => { function => 'public.echo', each => '{{input.items}}', input => { i => '{{item}}' }, after => ['pause'] },
	last => { agent => 'remote', call => { method => 'POST', path => '/{{input.last}}' }, after => ['each'] } },
	recovery => { max_failures => 2, initial => '20 ms' }, on_failure => 'compensate' });
$node->safe_psql('postgres', q{SELECT run_id FROM generate_series(1, 30) n, LATERAL sas.submit('order',
	jsonb_build_object('items', jsonb_build_array(1, 2, 3), 'last', (ARRAY['ok', 'refuse', 'fails'])[1 + n % 3]), start_at => CASE WHEN n % 2 = 0 THEN now() + interval '300 ms' END)});
all_ended($node, 'runs with timers, maps, tries and undo end in a cluster whose tables are all published');
is($node->safe_psql('postgres', q{SELECT string_agg(result || ' ' || n, ', ' ORDER BY result) FROM (SELECT result, count(*) AS n FROM sas.runs GROUP BY 1) x}),
	'compensated 20, success 10', 'as they should');
is($node->safe_psql('postgres', q{SELECT runs FROM sas.purge('0 s')}), '30', 'and are purged');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/replica identity/, 'the log says nothing of it');
done_testing();
