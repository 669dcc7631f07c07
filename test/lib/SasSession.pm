# SPDX-License-Identifier: PostgreSQL

=head1 NAME

SasSession - a psql that stays open, for what other sessions do meanwhile

=head1 SYNOPSIS

    my $session = SasSession->new($node);
    $session->query('BEGIN');
    $session->query('SELECT FROM _sas.run WHERE run_id = 1 FOR UPDATE');
    $session->start_query('SELECT pg_sleep(100)');	# and goes on
    $session->kill;									# the client dies, as by a crash

=cut

package SasSession;

use strict;
use warnings;

use IPC::Run;
use SasTest ();
use Time::HiRes qw(sleep);

sub new
{
	my ($class, $node, $database, %option) = @_;
	my $self = bless { in => '', out => '', err => '', n => 0 }, $class;
	my $connection = $node->connstr($database // 'postgres');
	$connection .= " user=$option{user}" if $option{user};
	$self->{harness} = IPC::Run::start([ 'psql', @{ $option{options} // ['-XqAt'] }, '-d', $connection, '-f', '-' ],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err});
	return $self;
}

# sends it and does not wait
sub start_query
{
	my ($self, $sql) = @_;
	$self->{n}++;
	$self->{out} = $self->{err} = '';
	$self->{in} .= "$sql;\n\\echo end-of-query-$self->{n}\n";
	eval { $self->{harness}->pump_nb while length $self->{in} };
	return;
}

# true when it has answered, or is gone
sub answered
{
	my ($self) = @_;
	return 1 if eval { $self->{harness}->pump_nb; 1 } && $self->{out} =~ /^end-of-query-$self->{n}$/m;
	return !$self->is_open;
}

# false when it is gone: its server was, or its psql has stopped at an error
sub is_open
{
	my ($self) = @_;
	return eval { $self->{harness}->pumpable };
}

# what it answered, within the limit, as psql prints it, and its errors
sub outcome
{
	my ($self, $seconds) = @_;
	# most answer at once
	for (my $pause = 0.001; $pause < 0.05 && !$self->answered; $pause *= 2) { sleep($pause) }
	SasTest::wait_until(sub { $self->answered }, $seconds) or die "no answer from a session: $self->{out}$self->{err}";
	my $out = $self->{out};
	$out =~ s/^end-of-query-$self->{n}\n//m;
	chomp $out;
	return ($out, $self->{err});
}

# the same as one text
sub answer
{
	my ($self, $seconds) = @_;
	return join('', $self->outcome($seconds));
}

sub query
{
	my ($self, $sql, $seconds) = @_;
	return join('', $self->outcome_of($sql, $seconds));
}

# to_look(node, database, sql): a session that asks the same again and again; look() is what it answers then, and
# its errors. The answer is undefined when the session is gone.
sub to_look
{
	my ($class, $node, $database, $sql) = @_;
	my $self = $class->new($node, $database);
	$sql =~ s/;\s*\z//;
	$self->{look} = $sql;
	# planned once, where that is possible
	if ($sql =~ /\A\s*(?:SELECT|WITH)\b[^;]*\z/)
	{
		my (undef, $err) = eval { $self->outcome_of("PREPARE looked AS $sql") };
		$self->{look} = 'EXECUTE looked' if defined $err && $err eq '';
	}
	return $self;
}

sub outcome_of
{
	my ($self, $sql, $seconds) = @_;
	$self->start_query($sql);
	return $self->outcome($seconds);
}

sub look
{
	my ($self) = @_;
	my ($out, $err) = eval { $self->outcome_of($self->{look}) };
	return (undef, $err // $@) unless defined $out && $self->is_open;
	return ($out, $err);
}

# ends it in good order
sub quit
{
	my ($self) = @_;
	my $harness = delete $self->{harness} or return;
	eval { $harness->finish };
	return;
}

# ends it as a crash of the client does
sub kill
{
	my ($self) = @_;
	my $harness = delete $self->{harness} or return;
	$harness->kill_kill(grace => 0);
	return;
}

sub DESTROY { my ($self) = @_; local ($?, $@); $self->kill; return }

1;
