# SPDX-License-Identifier: PostgreSQL
#
# A block or procedure that deallocates the statement that runs it, and then rolls back, has its statement freed before
# it returns. Any role may write one, in any database of the server. The library reads nothing of that statement then:
# the session lives on.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Socket::UNIX;
use SasTest;
use Test::More;

my $node = new_node('main');
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
$node->safe_psql('postgres', $_) foreach 'CREATE ROLE nobody LOGIN', 'CREATE SCHEMA theirs AUTHORIZATION nobody';

# -- the protocol, for statements with a name ---------------------------------

sub message
{
	my ($type, $body) = @_;
	return $type . pack('N', length($body) + 4) . $body;
}

# The messages up to the next one that says that the server is ready; undef: the session has ended.
sub answers
{
	my ($socket) = @_;
	my $types = '';
	while ($types !~ /Z$/)
	{
		read($socket, my $head, 5) == 5 or return undef;
		my ($type, $length) = unpack('aN', $head);
		read($socket, my $body, $length - 4) == $length - 4 or return undef;
		$types .= $type;
	}
	return $types;
}

sub session
{
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or die "no socket: $!";
	my $startup = "user\0nobody\0database\0postgres\0\0";
	print $socket pack('NN', length($startup) + 8, 196608), $startup;
	$socket->flush;
	answers($socket) or die 'no session';
	return $socket;
}

# What is answered to a statement of that name.
sub says
{
	my ($socket, $name, $statement) = @_;
	print $socket message('P', "$name\0$statement\0\0\0"), message('B', "\0$name\0\0\0\0\0\0\0"), message('E', "\0\0\0\0\0"), message('S', '');
	$socket->flush;
	return answers($socket);
}

# -- what fills the memory that was freed -------------------------------------

my $room = '/*' . ('x' x 300_000) . '*/';
my %after = (
	'rolls back again' => 'FOR i IN 1 .. 20 LOOP PERFORM 1; ROLLBACK; END LOOP;',
	'traps errors' => 'FOR i IN 1 .. 100 LOOP BEGIN PERFORM 1 / (i % 2); EXCEPTION WHEN OTHERS THEN t := SQLERRM; END; END LOOP;',
	'opens cursors' => q{FOR i IN 1 .. 60 LOOP c := 'c' || i; OPEN c FOR SELECT repeat('Z', 300); END LOOP;},
	'prepares statements' => q{FOR i IN 1 .. 50 LOOP EXECUTE format('PREPARE s_%s AS SELECT %L, %L', i, repeat('B', 200), repeat('C', 500)); END LOOP;},
	'compares' => q{FOR i IN 1 .. 60 LOOP PERFORM 'abc' ~ ('a{1,3}' || repeat('b', i) || '(x|y)*'); END LOOP;});

my $n = 0;
my $socket = session();
foreach my $what (sort keys %after)
{
	foreach my $pad ('', $room)
	{
		my $body = "DECLARE t text := ''; c refcursor; BEGIN EXECUTE 'DEALLOCATE own'; ROLLBACK; $after{$what} $pad END";
		my $procedure = 'theirs.p' . ++$n;
		my %statement = (block => "DO \$x\$ $body \$x\$", procedure => "CALL $procedure()");
		says($socket, '', "CREATE PROCEDURE $procedure() LANGUAGE plpgsql AS \$x\$ $body \$x\$");
		foreach my $kind (sort keys %statement)
		{
			my $said = says($socket, 'own', $statement{$kind});
			is($said, '12CZ', "a $kind that frees its own statement and $what ends well" . ($pad ? ', also a long one' : ''));
			unless ($said)
			{
				# the server recovers
				select(undef, undef, undef, 0.1) until $node->psql('postgres', 'SELECT 1') == 0;
				$socket = session();
			}
			says($socket, '', 'DEALLOCATE ALL');
		}
	}
}
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the server has not been restarted');
is($node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'nobody'}), 't', 'it was one session all the time');
close $socket;
$node->stop;
done_testing();
