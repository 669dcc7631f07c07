# SPDX-License-Identifier: PostgreSQL

=head1 NAME

SasPatroni - three servers that Patroni and etcd manage, with links that can be cut

=head1 SYNOPSIS

    my $cluster = SasPatroni->start;				# has a leader and two standbys, one of them synchronous
    my $old = $cluster->leader;						# a member
    $cluster->cut($old);							# its network is gone: etcd, and all others' way to it
    my $new = $cluster->other_leader($old);
    $cluster->heal($old);
    $cluster->is_whole or die;						# all three again, on one timeline
    my $node = $cluster->{node};					# the leader, for the functions of SasTest

Every link goes through a proxy (proxy.py). Everything is on loopback, on free ports below 32768.

=cut

package SasPatroni;

use strict;
use warnings;

use JSON::PP ();
use HTTP::Tiny;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils qw(slurp_file);
use SasTest;

my $json = JSON::PP->new->canonical;
my $http = HTTP::Tiny->new(timeout => 5, keep_alive => 0);

sub missing { return join ' and ', grep { !-x "/usr/bin/$_" } qw(patroni etcd) }

# With etcd3, Patroni before 3.0.3 writes the leader's key without a look at whose it is by now: a leader that hung
# and goes on takes the lead back from the next one, and what that has committed is rewound.
sub overwrites_leader
{
	my ($major, $minor, $patch) = `/usr/bin/patroni --version` =~ /(\d+)\.(\d+)\.(\d+)/ or die 'no version of patroni';
	return $major < 3 || $major == 3 && $minor == 0 && $patch < 3;
}

sub start
{
	my ($class) = @_;
	# sockets need a short path
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $self = bless { dir => $dir, user => scalar getpwuid($<), etcd => free_port(), members => [] }, $class;
	my $peer = free_port();
	SasTest::start_program("$dir/etcd.log", '/usr/bin/etcd', '--data-dir', "$dir/etcd", '--name', 'etcd1',
		'--listen-client-urls', "http://127.0.0.1:$self->{etcd}", '--advertise-client-urls', "http://127.0.0.1:$self->{etcd}",
		'--listen-peer-urls', "http://127.0.0.1:$peer", '--initial-advertise-peer-urls', "http://127.0.0.1:$peer",
		'--initial-cluster', "etcd1=http://127.0.0.1:$peer", '--unsafe-no-fsync', overwrites_leader() ? '--enable-v2' : ());
	wait_until(sub { $http->get("http://127.0.0.1:$self->{etcd}/health")->{success} }) or die 'etcd does not start';
	$self->add_member("sas$_") foreach 1 .. 3;
	# the functions of SasTest ask the leader, as an application finds it
	$self->{node} = PostgreSQL::Test::Cluster->new('patroni');
	$self->{node}{_host} = '127.0.0.1';
	$self->leader or die 'no leader';
	wait_until(sub { $self->is_whole }) or die 'the standbys do not come';
	return $self;
}

sub add_member
{
	my ($self, $name) = @_;
	my $member = { name => $name, dir => "$self->{dir}/$name", port => free_port(), rest => free_port(), links => {} };
	mkdir $member->{dir} or die $!;
	push @{ $self->{members} }, $member;
	$member->{links}{$_} = $self->add_link($member, $_) foreach qw(port rest);
	$member->{links}{etcd} = $self->add_link($member, 'etcd', $self->{etcd});
	my %value = (
		NAME => $name,
		ETCD_HOSTS => "127.0.0.1:$member->{links}{etcd}{port}",
		RESTAPI_LISTEN => "127.0.0.1:$member->{rest}",
		RESTAPI_ADDRESS => "127.0.0.1:$member->{links}{rest}{port}",
		POSTGRES_LISTEN => "127.0.0.1:$member->{port}",
		POSTGRES_ADDRESS => "127.0.0.1:$member->{links}{port}{port}",
		DATA_DIR => "$member->{dir}/data",
		SOCKET_DIR => $member->{dir},
		PGPASS => "$member->{dir}/pgpass");
	chomp($value{BIN_DIR} = `pg_config --bindir`);
	my $conf = slurp_file("$SasTest::tree/examples/patroni/patroni.yml");
	$conf =~ s/\b$_\b/$value{$_}/g foreach keys %value;
	$conf =~ s/username: postgres/username: $self->{user}/g;
	$conf =~ s/^etcd3:/etcd:/m if overwrites_leader();
	# its way to etcd is the link, not what etcd says of itself
	$conf =~ s/^(  hosts: .*)$/$1\n  use_proxies: true/m;
	PostgreSQL::Test::Utils::append_to_file("$member->{dir}/patroni.yml", $conf);
	$self->run_patroni($member);
	return;
}

sub add_link
{
	my ($self, $member, $name, $to) = @_;
	my $port = free_port();
	my $log = "$member->{dir}/link_$name.log";
	my $pid = SasTest::start_program($log, 'python3', "$SasTest::tree/test/lib/proxy.py", '--listen', $port, '--to', $to // $member->{$name});
	wait_until(sub { -s $log && slurp_file($log) =~ /^listening on/m }) or die 'no link';
	return { port => $port, pid => $pid };
}

# begins it, or begins it again after kill_all
sub run_patroni
{
	my ($self, $member) = @_;
	$member->{starts}++;
	$member->{patroni} = SasTest::start_program("$member->{dir}/patroni.$member->{starts}.log", '/usr/bin/patroni', "$member->{dir}/patroni.yml");
	return;
}

# what the members say of each other, as the first that answers has it
sub members_seen
{
	my ($self) = @_;
	foreach my $member (@{ $self->{members} })
	{
		next if $member->{away};
		my $answer = $http->get("http://127.0.0.1:$member->{rest}/cluster");
		return { map { $_->{name} => $_ } @{ $json->decode($answer->{content})->{members} } } if $answer->{success};
	}
	return {};
}

# The leader that takes writes; other than the given one.
sub other_leader
{
	my ($self, $than) = @_;
	my $found;
	wait_until(
		sub {
			my $seen = $self->members_seen;
			($found) = grep { ($seen->{ $_->{name} }{role} // '') eq 'leader' && (!$than || $_ != $than) } @{ $self->{members} };
			return 0 unless $found;
			$self->{node}{_port} = $found->{port};
			return ($self->ask($found, 'SELECT NOT pg_is_in_recovery()') // '') eq 't';
		}) or return;
	return $found;
}

sub leader { my ($self) = @_; return $self->other_leader }

# what one member says, however the others see it; undef: nothing
sub ask
{
	my ($self, $member, $query) = @_;
	local $ENV{PGCONNECT_TIMEOUT} = 5;
	my ($out, $err);
	my $done = eval { IPC::Run::run([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', "host=127.0.0.1 port=$member->{port} dbname=postgres" ],
			'<', \$query, '>', \$out, '2>', \$err, IPC::Run::timeout(20)) };
	return unless $done;
	chomp $out;
	return $out;
}

# a leader, two standbys that stream from it on its timeline, one of them synchronous
sub is_whole
{
	my ($self) = @_;
	my $seen = $self->members_seen;
	my %roles;
	my %timelines;
	foreach my $member (values %$seen)
	{
		return 0 unless $member->{state} =~ /^(running|streaming)$/;
		$roles{ $member->{role} }++;
		$timelines{ $member->{timeline} // 0 }++;
	}
	return 0 unless ($roles{leader} // 0) == 1 && ($roles{sync_standby} // 0) == 1 && keys %$seen == 3 && keys %timelines == 1;
	my ($leader) = grep { $seen->{ $_->{name} }{role} eq 'leader' } @{ $self->{members} };
	return ($self->ask($leader, q{SELECT count(*) || ' ' || count(*) FILTER (WHERE sync_state = 'sync') FROM pg_stat_replication WHERE state = 'streaming'}) // '') eq '2 1';
}

# the processes of its server
sub processes
{
	my ($self, $member) = @_;
	my $file = eval { slurp_file("$member->{dir}/data/postmaster.pid") } or return;
	my ($postmaster) = $file =~ /^(\d+)/;
	my @children = map { m{/proc/(\d+)/}; $1 } grep { (eval { slurp_file($_) } // '') =~ /^PPid:\s+$postmaster$/m } glob('/proc/[0-9]*/status');
	return ($postmaster, @children);
}

sub cut  { my ($self, $member) = @_; $member->{away} = 1; kill('USR1', map { $_->{pid} } values %{ $member->{links} }); return }
sub heal { my ($self, $member) = @_; delete $member->{away}; kill('USR2', map { $_->{pid} } values %{ $member->{links} }); return }

# the machine is gone, and comes back
sub kill_all
{
	my ($self, $member) = @_;
	$member->{away} = 1;
	my @processes = $self->processes($member);
	SasTest::stop_program($member->{patroni}, 'KILL');
	kill('KILL', @processes);
	return;
}

sub come_back { my ($self, $member) = @_; delete $member->{away}; $self->run_patroni($member); return }

# hung: Patroni alone, or all of it
sub freeze
{
	my ($self, $member, $all) = @_;
	$member->{away} = 1;
	$member->{frozen} = [ $member->{patroni}, $all ? $self->processes($member) : () ];
	kill('STOP', @{ $member->{frozen} });
	return;
}

sub thaw
{
	my ($self, $member) = @_;
	delete $member->{away};
	kill('CONT', reverse @{ delete $member->{frozen} });
	return;
}

sub switch_over
{
	my ($self, $member) = @_;
	my $answer = HTTP::Tiny->new(timeout => 120)->post("http://127.0.0.1:$member->{rest}/switchover", { content => $json->encode({ leader => $member->{name} }), headers => { 'content-type' => 'application/json' } });
	return $answer->{success};
}

# Patroni leaves the server running when it ends.
sub stop
{
	my ($self) = @_;
	foreach my $member (@{ $self->{members} })
	{
		kill('CONT', @{ $member->{frozen} // [] });
		SasTest::stop_program($member->{patroni}, 'KILL');
		my ($postmaster) = $self->processes($member);
		kill('QUIT', $postmaster) if $postmaster;
	}
	return;
}

1;
