# SPDX-License-Identifier: PostgreSQL
#
# A server that may open few files: workers make as many calls and host as
# many streams as there are descriptors for, say so when they start, and leave
# the server its own; so a worker that is ended can start again.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $service = SasService->new;
my $node = new_node('main', _start => 0, 'sas.supervisor_interval' => '1 s', restart_after_crash => 'off');

# of this process, and of the server that it starts
sub limit_files { my ($n) = @_; return system('prlimit', '--pid', $$, "--nofile=$n:$n") == 0 }

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

# how many calls and infinite tasks the last worker said it would do with
sub said
{
	my @all = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /this sas agent worker makes (\d+) calls and hosts (\d+) infinite tasks at once, not 1000 and \d+$/mg;
	return @all[ -2, -1 ];
}

# 100 calls that are held, to four agents: one leaves a quarter of the slots to others. So many are on their way at once
sub hold_calls
{
	my ($expected, $name) = @_;
	$service->script(call => [ { gate => 1 } ]);
	my $before = $service->requests('call');
	sql(q{SELECT count(*) FROM unnest('{call,call_2,call_3,call_4}'::text[]) w, sas.submit_batch(w, array_fill('{}'::jsonb, ARRAY[25]))});
	$service->wait_for_requests('call', $before + $expected);
	ok(wait_for($node, 'SELECT sum(in_flight) FROM sas.agents', $expected), $name);
	return;
}

sub let_calls_end
{
	my ($name) = @_;
	$service->script(call => [ {} ]);
	$service->release;
	ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, '0'), $name);
	return;
}

# -- a low setting: sockets come on top of the files of the server -----------------------------

$node->append_conf('postgresql.conf', "max_files_per_process = 64\nsas.agent_slots = 150\nsas.watch_slots = 100\n");
$node->start;
create_extension($node);
foreach my $n ('', '_2', '_3', '_4')
{
	make_agent($node, "remote$n", $service, max_in_flight => 1000, request_timeout => '10 min');
	define($node, "call$n", { steps => { it => { agent => "remote$n", call => { path => '/call' } } }, recovery => { initial => '10 ms' } });
}
hold_calls(100, 'with few files per process all calls are on their way at once');
let_calls_end('and end');
$node->stop;

# -- a low limit of the kernel ------------------------------------------------------------

ok(limit_files(200), 'a limit that nobody can raise');
$node->append_conf('postgresql.conf', "max_files_per_process = 1000\nsas.agent_slots = 1000\nsas.watch_slots = 10000\n");
$node->start;
ok(wait_until(sub { said() }), 'the worker says what it can do');
my ($calls, $streams) = said();
cmp_ok($calls, '>=', 5, 'some calls');
cmp_ok($calls, '<', 60, 'not as many as are set');
cmp_ok($streams, '>=', 10, 'and some streams');
hold_calls($calls, 'so many calls are on their way');

# and streams on top of them
$service->script(stream => [ { how => 'silent' } ]);
sql('CREATE TABLE item (item jsonb)');
sql(q{SELECT sas.create_watcher('watched', '{"agent": "remote", "stream": {"format": "sse", "path": "/stream"}, "items": {"table": "public.item"}}')});
sql(q{SELECT count(*) FROM generate_series(1, 100) i, sas.watch('watched', 'n' || i)});
ok($service->wait_for_requests('stream', $streams), 'so many streams begin');
is(sql(q{SELECT count(*) FROM sas.watches WHERE node IS NOT NULL}), $streams, 'no more are hosted');

# the files of the server
sql(q{SELECT count(*) FROM (SELECT query_to_xml(format('SELECT count(*) FROM %s', c.oid::regclass), true, true, '') FROM pg_class c
	JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN ('sas', '_sas') AND c.relkind IN ('r', 'v')) x});
foreach my $n (1 .. 2)
{
	my $count = $service->requests('call');
	kill('TERM', worker_pids($node, 'agent'));
	ok($service->wait_for_requests('call', $count + $calls), "a worker that starts again ($n) makes as many calls");
}
sql(q{SELECT count(*) FROM sas.unwatch('watched', ARRAY(SELECT 'n' || i FROM generate_series(1, 100) i), discard => true)});
let_calls_end('every call is made');
is_deeply([ said() ], [ $calls, $streams ], 'each worker has said the same');
$node->stop;
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/too many open files|out of file descriptors/i, 'nobody was short of a descriptor');
done_testing();
