# SPDX-License-Identifier: PostgreSQL

=head1 NAME

SasCitus - a Citus cluster whose nodes have the extension

=head1 SYNOPSIS

    use SasCitus;    # skips the whole file where there is no Citus

    my ($coordinator, @workers) = citus_cluster(2);
    my $added = citus_node('third');
    add_citus_node($coordinator, $added);
    kill_citus_node($added);    # the host fails
    start_citus_node($added);

=cut

package SasCitus;

use strict;
use warnings;

use Exporter 'import';
use SasTest;
use Test::More;

our @EXPORT = qw(citus_cluster citus_node add_citus_node kill_citus_node start_citus_node what refused);

chomp(my $libraries = qx(pg_config --pkglibdir));
plan skip_all => 'no Citus: make check-citus CITUS=folder' unless -e "$libraries/citus.so";

# citus_node(name, setting => value, ...): a server that is in no cluster yet
sub citus_node
{
	my ($name, %settings) = @_;
	my $node = new_node(
		$name,
		_extension => 0,
		_init => [ allows_streaming => 'logical' ],
		shared_preload_libraries => 'citus,sas',
		max_prepared_transactions => 100,
		max_worker_processes => 32,
		max_connections => 100,
		%settings);
	# how the node reaches itself
	$node->safe_psql('postgres', sprintf(q{ALTER SYSTEM SET citus.local_hostname = '%s'}, $node->host));
	$node->reload;
	$node->safe_psql('postgres', 'CREATE EXTENSION citus');
	return $node;
}

sub add_citus_node
{
	my ($coordinator, $node) = @_;
	$coordinator->safe_psql('postgres', sprintf(q{SELECT citus_add_node('%s', %d)}, $node->host, $node->port));
	return;
}

# As when its host fails: all its processes are killed at once.
sub kill_citus_node
{
	my ($node) = @_;
	my $pid = $node->{_pid};
	kill('STOP', $pid);
	my @children = split ' ', PostgreSQL::Test::Utils::slurp_file("/proc/$pid/task/$pid/children");
	kill('KILL', @children, $pid);
	wait_until(sub { !kill(0, $pid, @children) }) or die 'a killed server does not end';
	$node->{_pid} = undef;
	return;
}

sub start_citus_node
{
	my ($node) = @_;
	$node->start;
	wait_for($node, 'SELECT count(DISTINCT actor) FROM sas.workers', '4') or die 'no workers on ' . $node->name;
	return;
}

# citus_cluster(workers, setting => value, ...): the coordinator, and so many other nodes
sub citus_cluster
{
	my ($workers, %settings) = @_;
	my ($coordinator, @others) = map { citus_node("node$_", %settings) } 0 .. $workers;
	$coordinator->safe_psql('postgres', sprintf(q{SELECT citus_set_coordinator_host('%s', %d)}, $coordinator->host, $coordinator->port));
	add_citus_node($coordinator, $_) foreach @others;
	$coordinator->safe_psql('postgres', 'CREATE EXTENSION sas');
	wait_for($_, 'SELECT count(DISTINCT actor) FROM sas.workers', '4') or die 'no workers' foreach $coordinator, @others;
	return ($coordinator, @others);
}

# whom what() asks as, if it is not told
our $user;

# what(node, statement, user): its rows, or the whole error
sub what
{
	my ($node, $statement, $as) = @_;
	my ($out, $err);
	$as //= $user;
	my $status = $node->psql('postgres', $statement, stdout => \$out, stderr => \$err,
		extra_params => [ '-v', 'VERBOSITY=verbose', defined $as ? ('-U', $as) : () ]);
	return $status == 0 ? $out : $err;
}

# refused(said, sqlstate, name): what() said that error, with detail and hint
sub refused
{
	my ($said, $sqlstate, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $fine = ok($said =~ /$sqlstate:/ && $said =~ /^DETAIL:/m && $said =~ /^HINT:/m, $name);
	diag($said) unless $fine;
	return $fine;
}

1;
