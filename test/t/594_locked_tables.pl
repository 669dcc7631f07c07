# SPDX-License-Identifier: PostgreSQL
#
# A session has locked a table that a tick writes to, above SHARE UPDATE EXCLUSIVE. The tick gives up, and what it was to
# do is put off for a second, not for a minute, as if it were broken. So it goes on at once when the table is released.
# Takes about 10 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.schedulers' => 1, 'sas.supervisor_interval' => '6 min');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
$sql->(q{SELECT sas.create_workflow('waits', '{"steps": {"first": {"wait": {"signal": "go"}}, "then": {"function": "public.echo", "after": ["first"]}}}')});
my $run = $sql->(q{SELECT run_id FROM sas.submit('waits')});
ok(wait_for($node, "SELECT waiting_kind FROM sas.steps WHERE run_id = $run AND step = 'first'", 'signal'), 'a step waits for a signal');

# the next step is a row of this table
my $holder = SasSession->new($node);
$holder->query('BEGIN; LOCK TABLE _sas.ready IN ACCESS EXCLUSIVE MODE');
my $given_up = q{SELECT coalesce(sum(n), 0) > 0 FROM _sas.series() WHERE metric = 'lock_timeout' AND label = 'scheduler'};
my $put_off = "SELECT count(*) FROM _sas.message WHERE run_id = $run AND kind = 'signal'";
$sql->("SELECT sas.signal($run, 'go')");
ok(wait_for($node, $given_up), 'a tick that is to write to a locked table gives up');
ok(wait_for($node, $put_off, '1'), 'its work is put off');
is($sql->(qq{SELECT due_at > clock_timestamp() + interval '20 s' FROM _sas.message WHERE run_id = $run AND kind = 'signal'}), 'f', 'for a short time');
$holder->query('COMMIT');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'it goes on when the table is released');
$holder->quit;
$node->stop;
done_testing();
