# SPDX-License-Identifier: PostgreSQL

=head1 NAME

TortureLoad - workflows of every kind of step, and programs that submit and signal their runs and claim their tasks

=head1 SYNOPSIS

    my $service = TortureLoad::start_service($seed);
    TortureLoad::define_all($node, $service);
    my $load = TortureLoad->start($folder, $seed);	# processes of their own
    $load->aim($node);								# at this server from now on
    $load->finish;									# nothing more is submitted; signals and claims go on
    $load->stop;

=cut

package TortureLoad;

use strict;
use warnings;

use FindBin;
use JSON::PP ();
use SasTest ();
use Time::HiRes qw(sleep time);

my $json = JSON::PP->new->canonical;

sub start_service
{
	my ($seed) = @_;
	my $port = SasTest::free_port();
	my $log = PostgreSQL::Test::Utils::tempdir() . "/torture.service.log";
	SasTest::start_program($log, 'python3', "$FindBin::RealBin/../torture/service.py", '--port', $port, '--seed', $seed);
	SasTest::wait_until(sub { -s $log && PostgreSQL::Test::Utils::slurp_file($log) =~ /^listening on/m }) or die 'no service';
	return "http://127.0.0.1:$port";
}

# -- what is run ------------------------------------------------------------------

sub call
{
	my ($step, %more) = @_;
	my $item = delete $more{item};
	my $body = { id => '{{input.id}}', step => $step, $item ? (item => $item) : () };
	my $path = delete $more{path} // "/do/$step";
	my %poll = delete $more{undo_polls} ? (poll => job()) : ();
	my %of = delete $more{substitute} ? () : (of => "{{steps.$step.key}}");
	return { agent => 'remote', call => { method => 'POST', path => $path, body => $body },
		undo => { call => { method => 'POST', path => "/undo/$step", body => { %$body, %of } }, %poll }, %more };
}

sub job { return { call => { path => '/jobs/{{started.body.key}}' }, until => '$.output.body.state == "done"', every => '100 ms' } }

sub local_step
{
	my ($step, %more) = @_;
	my $input = { id => '{{input.id}}', step => $step };
	return { function => 'torture.effect', input => $input, undo => { function => 'torture.effect', input => { %$input, undo => JSON::PP::true } }, %more };
}

# the run cannot go on here if its input says so
sub breaks { my (@after) = @_; my $step = call('bad', path => '/fail/bad', when => '$.input.bad == true', after => \@after); delete $step->{undo}; return $step }

sub workflows
{
	my %all = (
		chain => { steps => { a => call('a'), b => local_step('b', after => ['a']), c => call('c', after => ['b'], undo_polls => 1), bad => breaks('c'), d => local_step('d', after => ['bad']) },
			finalize => 'torture.finish' },
		fan => { steps => { m => call('m', each => '{{input.items}}', concurrency => 2, item => '{{item}}'), bad => breaks('m'), z => local_step('z', after => ['bad']) } },
		beside => { steps => { a => call('a'), b => local_step('b'), c => call('c'), d => local_step('d'), bad => breaks(qw(a b c d)) } },
		parent => { steps => {
				k => { workflow => 'chain', input => { id => '{{input.id}}.k', bad => JSON::PP::false } },
				l => { workflow => 'fan', input => { id => '{{input.id}}.l', bad => '{{input.bad}}', items => [ 1, 2 ] }, after => ['k'] } } },
		waits => { steps => { a => call('a'), w => { wait => { signal => 'go' }, after => ['a'] }, b => local_step('b', after => ['w']), bad => breaks('b') } },
		timer => { steps => { t => { wait => { for => '300 ms' } }, a => call('a', after => ['t']) } },
		polled => { steps => { j => call('j', poll => job(), undo_polls => 1), bad => breaks('j') } },
		task => { steps => { x => { agent => 'outside', task => {}, input => { id => '{{input.id}}' } }, b => local_step('b', after => ['x']) } },
		keyed => { steps => { b => local_step('b'), c => call('c', after => ['b']) }, concurrency => { key => '{{input.k}}' } },
		queued => { steps => { b => local_step('b', queue => 'narrow'), a => call('a', queue => 'narrow') } },
		joined => { steps => { i => { include => 'beside' }, b => local_step('last', after => ['i']) } },
		planned => { plan => 'torture.plan' },
		again => { steps => { r => call('r', repeat => { while => '$.last.body.n < 3', max => 10 }), b => local_step('b', after => ['r']) } },
		falls => { steps => { f => { agent => 'remote', call => { method => 'POST', path => '/down/f', body => {} }, retry => { max_attempts => 1 }, recovery => { max_failures => 1 },
					fallback => { %{ call('f', substitute => 1) } } } } });
	foreach my $w (values %all)
	{
		$w->{recovery} = { initial => '100 ms', max => '1 s', max_failures => 100_000 };
		$_->{complete_in} = '4 s' foreach grep { !$_->{wait} && !$_->{workflow} && !$_->{task} && !$_->{include} } values %{ $w->{steps} };
	}
	# the watch over it is part of the run: one that notes its end
	$all{chain}{hooks} = [ { on => 'success', function => 'torture.hook' } ];
	return \%all;
}

sub define_all
{
	my ($node, $url) = @_;
	$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', "$FindBin::RealBin/../torture/load.sql" ], 'the load is defined');
	my $ahead = $ENV{SAS_STRIKES} ? qq{CREATE OR REPLACE FUNCTION torture.ahead() RETURNS float8 LANGUAGE sql AS \$\$ SELECT pg_read_file('$ENV{SAS_STRIKES}.ahead')::float8 \$\$;} : '';
	my $sql = qq{
		$ahead
		CREATE FUNCTION torture.hook(context jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
			INSERT INTO torture.effect (id, step, undo) VALUES (context ->> 'run_id', 'hook', false) RETURNING 'null'::jsonb \$\$;
		CREATE FUNCTION torture.tick(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$ SELECT input \$\$;
		SELECT sas.create_agent('remote', base_url => '$url', request_timeout => '2 s', breaker => '{"failures": 30, "window": "2 s", "open_for": "1 s"}', retry => '{"initial": "50 ms", "max_attempts": 3}');
		SELECT sas.create_agent('outside', kind => 'external');
		SELECT sas.create_queue('narrow', max_running => 2);
		SELECT sas.create_watcher('turns', '{"function": "torture.turn", "every": "100 ms", "retry": {"initial": "100 ms", "max": "1 s"}}');
		SELECT sas.create_workflow('tick', '{"steps": {"b": {"function": "torture.tick"}}}');
		SELECT sas.schedule('often', 'every 1 s', 'tick');
		CREATE TABLE torture.line (key text, item jsonb NOT NULL);
		CREATE FUNCTION torture.take(items jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
			INSERT INTO torture.line SELECT 'function', i FROM jsonb_array_elements(items) i RETURNING 'null'::jsonb \$\$;
		SELECT sas.create_watcher('lines', '{"agent": "remote", "stream": {"format": "ndjson", "path": "/feed", "query": {"after": "{{cursor}}"}}, "cursor": {"start": 0, "next": "{{item.n}}"}, "items": {"table": "torture.line"}, "retry": {"initial": "50 ms", "max": "500 ms"}}');
		SELECT sas.create_watcher('taken', '{"agent": "remote", "stream": {"format": "ndjson", "path": "/feed", "query": {"after": "{{cursor}}"}}, "cursor": {"start": 0, "next": "{{item.n}}"}, "items": {"function": "torture.take"}, "retry": {"initial": "50 ms", "max": "500 ms"}}');
		CREATE FUNCTION torture.plan(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
			SELECT '{"steps": {"b": ${\ $json->encode(local_step('b', complete_in => '4 s')) }}}'::jsonb \$\$;
		SELECT count(*) FROM unnest('{1,2,3,4}'::text[]) k, sas.watch('turns', k);
		SELECT FROM sas.watch('lines', 'k') l, sas.watch('taken', 'k') t;
	};
	my $all = workflows();
	# children first
	foreach my $name (sort { ($a =~ /parent|joined/) <=> ($b =~ /parent|joined/) || $a cmp $b } keys %$all)
	{
		$sql .= "SELECT sas.create_workflow('$name', \$json\$" . $json->encode($all->{$name}) . "\$json\$);\n";
	}
	$node->safe_psql('postgres', $sql);
	return;
}

# -- who runs it -------------------------------------------------------------------

sub start
{
	my ($class, $folder, $seed) = @_;
	my $self = bless { folder => $folder, pids => [] }, $class;
	$self->{target} = "$folder/target";
	my $n = 0;
	foreach my $work (\&submit_some, \&submit_some, \&signal_some, \&claim_some, \&verbs)
	{
		my $own = $seed + ++$n;
		my $pid = fork() // die "fork: $!";
		if ($pid == 0)
		{
			srand($own);
			$SIG{TERM} = sub { POSIX::_exit(0) };
			$self->work($work);
			POSIX::_exit(0);
		}
		push @{ $self->{pids} }, $pid;
	}
	return $self;
}

sub aim
{
	my ($self, $node) = @_;
	open(my $file, '>', "$self->{target}.new") or die;
	print $file $node->connstr('postgres');
	close $file;
	rename "$self->{target}.new", $self->{target} or die;
	return;
}

sub finish { my ($self) = @_; open(my $file, '>', "$self->{folder}/finish") or die; return }

sub stop
{
	my ($self) = @_;
	foreach my $pid (@{ $self->{pids} })
	{
		kill('TERM', $pid);
		waitpid($pid, 0);
	}
	$self->{pids} = [];
	return;
}

sub work
{
	my ($self, $work) = @_;
	while (1)
	{
		my $finishing = -e "$self->{folder}/finish";
		my $connection = eval { PostgreSQL::Test::Utils::slurp_file($self->{target}) };
		my $script = $connection && $work->($finishing);
		if ($script)
		{
			open(my $psql, '|-', "psql -XqAt -d \"$connection\" >>$self->{folder}/client.log 2>&1") or next;
			local $SIG{PIPE} = 'IGNORE';
			print $psql "SET statement_timeout = '20 s';\n$script";
			close $psql;
		}
		sleep($finishing ? 0.3 : 0.05 + rand(0.2));
	}
	return;
}

my @names = qw(chain chain fan beside parent waits timer polled task keyed queued again falls joined planned);

# each in a transaction of its own, with the application's row
sub submit_some
{
	my ($finishing) = @_;
	return if $finishing;
	my $script = '';
	foreach (1 .. 1 + int(rand(5)))
	{
		my $name = $names[ rand @names ];
		my $input = $json->encode({ bad => rand() < 0.25 ? JSON::PP::true : JSON::PP::false, k => int(rand(3)), items => [ 1 .. int(rand(4)) ] });
		my $priority = int(rand(3));
		my $end = (qw(COMMIT COMMIT COMMIT COMMIT COMMIT COMMIT COMMIT ROLLBACK), "SAVEPOINT s; ROLLBACK TO s; COMMIT")[ rand 9 ];
		my $dwell = rand() < 0.2 ? 'SELECT pg_sleep(' . rand(0.3) . ');' : '';
		$script .= qq{BEGIN;
			WITH b AS (INSERT INTO torture.business (id, workflow, input) SELECT n::text, '$name', jsonb_build_object('id', n::text) || '$input' FROM gen_random_uuid() n RETURNING *)
			SELECT count(*) FROM b, sas.submit(b.workflow, b.input, key => b.id, priority => $priority);
			$dwell $end;\n};
	}
	return $script;
}

sub signal_some
{
	return q{
		SELECT count(*) FROM (SELECT s.run_id FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'waits' AND s.step = 'w' AND s.state = 'suspended' LIMIT 5) x, LATERAL (SELECT sas.signal(x.run_id, 'go')) y;
	};
}

# claims tasks; some are handed back, some failed, some left to their leases
sub claim_some
{
	my ($finishing) = @_;
	my $roll = $finishing ? 0 : rand();
	my $together = "sas.complete_tasks(ARRAY(SELECT request_id FROM t), ARRAY(SELECT '{}'::jsonb FROM t))";
	my $do =
		  $roll < 0.3 ? $together
		: $roll < 0.7 ? "sas.complete(request_id, '{}') FROM t"
		: $roll < 0.8 ? "sas.fail(request_id, 'no') FROM t"
		: $roll < 0.9 ? 'sas.hand_back(request_id) FROM t'
		: 'NULL';
	return "CREATE TEMP TABLE t AS SELECT * FROM sas.claim('outside', 'torture', 5, lease => '2 s'); SELECT $do;\n";
}

# operators
sub verbs
{
	my ($finishing) = @_;
	return if $finishing || rand() < 0.5;
	my $verb = (qw(pause pause cancel resume resume retry))[ rand 6 ];
	my $where = $verb =~ /resume|retry/ ? q{state = 'paused'} : q{state IN ('running', 'pending', 'compensating')};
	return "SELECT count(*) FROM (SELECT run_id FROM sas.runs WHERE $where AND parent_run_id IS NULL ORDER BY random() LIMIT 3) r, LATERAL sas.$verb(r.run_id);\n";
}

1;
