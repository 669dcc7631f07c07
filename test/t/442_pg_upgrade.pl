# SPDX-License-Identifier: PostgreSQL
#
# pg_upgrade keeps definitions, schedules, watches and runs. The new server is a
# copy: the old one may be started again, so it calls nobody until it is
# released. The server is upgraded to its own version, or from another one:
#
#   OLD_SERVER=/usr/lib/postgresql/15    an installed server with sas, of this major or an earlier one
#
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasCopies;
use SasService;
use SasTest;
use PostgreSQL::Test::Utils;
use Test::More;

allow_late('a copy leaves its work lying until it is released');

my $from = $ENV{OLD_SERVER};
my $old = new_node('old', 'sas.complete_in' => '5 s', _install => $from);
note('figure: from ' . $old->safe_psql('postgres', 'SHOW server_version'));
my $service = work_of_all_kinds($old);
my $kept = q{SELECT string_agg(x, E'\n' ORDER BY x) FROM (
	SELECT concat_ws(' ', 'workflow', w.workflow, w.version, w.definition) FROM sas.versions w
	UNION ALL SELECT concat_ws(' ', 'agent', name, base_url) FROM sas.agents
	UNION ALL SELECT concat_ws(' ', 'schedule', name, spec, state) FROM sas.schedules
	UNION ALL SELECT concat_ws(' ', 'watch', watcher, key, input) FROM sas.watches
	UNION ALL SELECT concat_ws(' ', 'run', run_id, workflow, key, input, labels) FROM sas.runs) k (x)};
my $before = $old->safe_psql('postgres', 'SELECT max(run_id) FROM sas.runs');
$old->stop;

# checksums are on by default since PostgreSQL 18, and both servers have to have them
my $new = new_node('new', _start => 0, _init => [ no_data_checksums => !!$from ], 'sas.complete_in' => '5 s');
my $bin = $new->config_data('--bindir');
chdir PostgreSQL::Test::Utils::tempdir();
command_ok([ 'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $from ? "$from/bin" : $bin, '-B', $bin,
		'-s', $new->host, '-p', $old->port, '-P', $new->port ], 'pg_upgrade')
  or diag(map { "$_: " . substr(slurp_file($_), -1500) } glob($new->data_dir . '/pg_upgrade_output.d/*/log/pg_upgrade_dump*'));
$old->start;
my $was = $old->safe_psql('postgres', $kept =~ s/FROM sas.runs\)/FROM sas.runs WHERE run_id <= $before)/r);
$old->stop;
$new->start;
is($new->safe_psql('postgres', $kept =~ s/FROM sas.runs\)/FROM sas.runs WHERE run_id <= $before)/r), $was, 'definitions, agents, schedules, watches and runs are kept');
like($was, qr/^agent .*^run .*^schedule .*^watch .*^workflow /ms, 'there are some of each');
calls_nobody($new, $service, 'an upgraded server', reason => qr/from another server/);
$service->script(hangs => [ { json => 'done' } ]);
goes_on_when_released($new, $service, 'an upgraded server');
$new->stop;
done_testing();
