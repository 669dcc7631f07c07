# SPDX-License-Identifier: PostgreSQL
#
# The library for Python submits in the transaction of its caller, waits and signals; handlers that are coroutines and a
# connection of its own for LISTEN; the example in Python.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasClients;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
$ENV{PYTHONPATH} = "$SasTest::tree/clients/python";
$ENV{PYTHONDONTWRITEBYTECODE} = 1;
my $dir = prepare_clients($node, 'python3', "$SasTest::tree/test/lib/clients/worker.py");
prepare_calls();

local $ENV{PGCLIENTENCODING} = 'UTF8';	# the server has none, and psycopg tells bytes then
is(said('python3', "$SasTest::tree/test/lib/clients/calls.py"), q{rolled back: 0
before commit: 0 True
again: True False
waits: True
ended: stopped success {'answer': 42} None
batch before commit: 1 True True
batch again: True [] []
by key: stopped success {'answer': 43} None
async: stopped success [1, None] None
async by key: stopped success {} None
}, 'submit, wait and signal, by batch and by key');

# -- coroutines, and LISTEN past a pooler -------------------------------------------------------------

start_worker('co', grace => 1, env => { ASYNC => 1, LISTEN => 'application_name=ear' });
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ear'}, 1), 'a connection of its own listens');
my $run = SasClients::submit('book', 1);
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'a coroutine completes in its transaction');
is($node->safe_psql('postgres', 'SELECT count(*) FROM book WHERE n = 1'), 1, 'with what it wrote');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ear'});
$run = SasClients::submit('sleep', 2);
ok(worker_says('co', 'sleep 2 begins'), 'and listens again');
kill('TERM', $SasClients::pid{co});
ok(worker_says('co', 'sleep 2 interrupted'), 'a coroutine that does not end in time is interrupted');
ok(worker_ends('co'), 'and the worker ends');
ok(wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $run", 'ready'), 'and the task is for another');

# -- the example --------------------------------------------------------------------------------------

example_packs('python3', "$SasTest::tree/examples/outside/packer.py");
page_packs(qr/```python\n(.*?)```/s, 'def print_page(page, key): print("page", page, key, flush=True)', "$dir/page.py", 'python3');
done_testing();
