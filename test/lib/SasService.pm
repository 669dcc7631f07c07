# SPDX-License-Identifier: PostgreSQL

=head1 NAME

SasService - a service that answers as a test tells it to, and calls of it

=head1 SYNOPSIS

    my $service = SasService->new;
    make_agent($node, 'remote', $service, retry => '{"max_attempts": 3}');
    $service->script(pay => [ { status => 503 }, { json => { id => 7 } } ]);
    my $run = run_call($node, 'remote', { path => '/pay' }, { input => { n => 1 } });
    is($run->{output}{body}{id}, 7);
    is(scalar $service->requests('pay'), 2);

test/lib/service.py says what an answer may be.

=cut

package SasService;

use strict;
use warnings;

use Exporter 'import';
use FindBin;
use JSON::PP ();
use SasTest ();

our @EXPORT = qw(make_agent define submit run_call run_of header_of);

my $json = JSON::PP->new->ascii->utf8->canonical->allow_nonref;
my $workflows = 0;

sub new
{
	my ($class, %option) = @_;
	my $self = bless {%option}, $class;
	foreach my $try (1 .. 20)
	{
		@$self{qw(port control)} = ($option{port} // SasTest::free_port(), SasTest::free_port());
		my $log = PostgreSQL::Test::Utils::tempdir() . "/service.$self->{port}.log";
		$self->{pid} = SasTest::start_program($log, 'python3', "$FindBin::RealBin/../lib/" . ($option{program} // 'service.py'),
			'--port', $self->{port}, '--control', $self->{control},
			$option{address} ? ('--address', $option{address}) : (),
			$option{cert} ? ('--cert', $option{cert}, '--key', $option{key}) : (),
			# whose certificates of clients it knows
			$option{ca} ? ('--ca', $option{ca}) : (),
			# what it answers from the first request on
			$option{scripts} ? ('--scripts', $json->encode($option{scripts})) : ());
		my $gone = 0;
		SasTest::wait_until(
			sub {
				$gone = waitpid($self->{pid}, POSIX::WNOHANG()) != 0;
				return $gone || -s $log && PostgreSQL::Test::Utils::slurp_file($log) =~ /^listening on/m;
			});
		return $self unless $gone;
		SasTest::stop_program($self->{pid});
	}
	die 'the service did not start';
}

sub stop { my ($self) = @_; SasTest::stop_program(delete $self->{pid}, 'KILL'); return }

sub url
{
	my ($self, $path) = @_;
	return ($self->{cert} ? 'https' : 'http') . "://127.0.0.1:$self->{port}" . ($path // '');
}

sub script { my ($self, %scripts) = @_; SasTest::http_post("http://127.0.0.1:$self->{control}/scripts", \%scripts); return }
sub release { my ($self) = @_; SasTest::http_post("http://127.0.0.1:$self->{control}/release"); return }
sub figures { my ($self) = @_; return SasTest::http_get("http://127.0.0.1:$self->{control}/figures") }

# what came for a script, or all, in order
sub requests
{
	my ($self, $script) = @_;
	return grep { !defined $script || $_->{script} eq $script }
	  @{ SasTest::http_get("http://127.0.0.1:$self->{control}/requests")->{requests} };
}

sub wait_for_requests
{
	my ($self, $script, $quantity) = @_;
	my $came = SasTest::wait_until(sub { $self->requests($script) >= $quantity });
	Test::More::diag("waited in vain for $quantity requests of $script, there are " . scalar($self->requests($script))) unless $came;
	return $came;
}

# the values of a header of a request, joined
sub header_of
{
	my ($request, $name) = @_;
	return join(',', map { $_->[1] } grep { lc $_->[0] eq lc $name } @{ $request->{headers} });
}

sub quote { my ($value) = @_; $value =~ s/'/''/g; return "'$value'" }

# make_agent(node, name, service or url, setting => value, ...): quick by
# itself: pauses of some ms, no breaker, each as given if it is.
sub make_agent
{
	my ($node, $name, $service, %setting) = @_;
	my %all = (
		base_url => ref $service ? $service->url : $service,
		retry => '{"initial": "20 ms", "max_attempts": 4}',
		breaker => '{"off": true}',
		%setting);
	$node->safe_psql('postgres', 'SELECT sas.create_agent(' . quote($name) . ', '
		  . join(', ', map { "$_ => " . quote($all{$_}) } sort keys %all) . ')');
	return;
}

# define(node, name, definition): a workflow; its name.
sub define
{
	my ($node, $name, $definition) = @_;
	$node->safe_psql('postgres', 'SELECT sas.create_workflow(' . quote($name) . ', ' . quote($json->encode($definition)) . ')');
	return $name;
}

# submit(node, workflow, input, name => value): the run's id.
sub submit
{
	my ($node, $workflow, $input, %option) = @_;
	return $node->safe_psql('postgres', 'SELECT run_id FROM sas.submit(' . quote($workflow) . ', ' . quote($json->encode($input // {}))
		  . join('', map { ", $_ => " . quote($option{$_}) } sort keys %option) . ')');
}

# run_of(node, run_id): the run when it has stopped or paused, with its steps
# by name and its attempts in order.
sub run_of
{
	my ($node, $run_id) = @_;
	$node->safe_psql('postgres', "SELECT FROM sas.wait($run_id, '120 s')");
	return $json->decode($node->safe_psql('postgres', qq{
		SELECT to_jsonb(r) || jsonb_build_object(
			'steps', (SELECT jsonb_object_agg(s.step, to_jsonb(s)) FROM sas.steps s WHERE s.run_id = r.run_id),
			'attempts', (SELECT coalesce(jsonb_agg(to_jsonb(a) ORDER BY a.started_at, a.attempt), '[]') FROM sas.attempts a WHERE a.run_id = r.run_id))
		FROM sas.runs r WHERE run_id = $run_id}));
}

# run_call(node, agent, call, option): a run of one call and how it ended:
# option step adds to the step, workflow to the definition, input is the run's.
sub run_call
{
	my ($node, $agent, $call, $option) = @_;
	my $name = define($node, 'call_' . ++$workflows, {
		steps => { it => { agent => $agent, call => $call, %{ $option->{step} // {} } } },
		output => '{{steps.it.output}}',
		recovery => { max_failures => 1 },
		on_failure => 'fail',
		%{ $option->{workflow} // {} } });
	return run_of($node, submit($node, $name, $option->{input}));
}

1;
