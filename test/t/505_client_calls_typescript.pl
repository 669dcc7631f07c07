# SPDX-License-Identifier: PostgreSQL
#
# The library for TypeScript submits in the transaction of its caller, waits and signals, by batch and by key; a connection of its own for
# LISTEN; the example.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasClients;
use PostgreSQL::Test::Utils;
use Test::More;

my $home = node_home();
plan skip_all => 'there is no Node.js with package pg, and npm cannot install it' unless defined $home;
my $node = new_node('main');
prepare_clients($node, 'node', "$home/worker.mjs");
prepare_calls();

is(said('node', "$home/calls.mjs"), q{rolled back: 0
before commit: 0 true
again: true false
waits: true
ended: stopped success 42
batch before commit: 1 true true
batch again: true false 0
null: true true
by key: 43
}, 'submit, wait and signal, by batch and by key');

start_worker('co', env => { LISTEN => 'postgres:///postgres?application_name=ear&host=' . $node->host . '&port=' . $node->port });
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ear'}, 1), 'a connection of its own listens');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ear'});
my $run = SasClients::submit('book', 1);
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'and again');
$run = SasClients::submit('careless', 2);
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'a handler does not wait for a checkpoint, which is refused');
$run = SasClients::submit('book', 3);
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'and the worker goes on');
SasTest::stop_program($SasClients::pid{co});

example_packs('node', "$home/packer.mjs");
page_packs(qr/```js\n(.*?)```/s, 'const printPage = async (page, key) => console.log("page", page, key);', "$home/page.mjs", 'node');
done_testing();
