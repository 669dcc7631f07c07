# SPDX-License-Identifier: PostgreSQL
#
# A poll whose request takes more than half of sas.agent_memory is sent: there is room for it when nothing else is held.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agent_memory' => '16MB');
my $service = SasService->new;
$service->script(quick => [ { json => 'well' } ]);
make_agent($node, 'remote', $service);
$node->safe_psql('postgres', q{
	CREATE TABLE public.item (item jsonb);
	SELECT sas.create_watcher('big', '{"agent": "remote", "poll": {"call": {"method": "POST", "path": "/quick", "body": ["{{input}}", "{{input}}", "{{input}}", "{{input}}", "{{input}}", "{{input}}", "{{input}}", "{{input}}", "{{input}}", "{{input}}"]},
		"every": "1 hour"}, "items": {"table": "public.item"}}');
	SELECT sas.watch('big', 'k', jsonb_build_object('x', repeat('y', 1000000)))});
ok(wait_for($node, q{SELECT items > 0 FROM sas.watches}, 't'), 'it polls');
done_testing();
