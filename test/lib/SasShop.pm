# SPDX-License-Identifier: PostgreSQL

=head1 NAME

SasShop - the demo shop: its three services, orders, and their books

=head1 SYNOPSIS

    my $shop = start_shop();
    define_orders($node, $shop);
    $shop->{payments}->faults({ unavailable => 0.2 });
    submit_orders($node, 100);
    kill_worker($node, 'agent');
    all_ended($node, 'every order ends though an agent worker was killed');
    books_equal($node, $shop, 'and the books agree');

=cut

package SasShop;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Utils;
use SasTest ();
use Test::More;

our @EXPORT = qw(start_service start_shop define_orders submit_orders books_equal);

# start_service(name, seed => N, port => N): one service of the shop, ready;
# its books are on disk, so that it can be killed and started again.
sub start_service
{
	my ($name, %option) = @_;
	my $self = bless {
		name => $name,
		seed => $option{seed} // 1,
		port => $option{port},
		books => PostgreSQL::Test::Utils::tempdir() . "/$name.books",
	}, 'SasShop::Service';
	$self->start;
	return $self;
}

# start_shop(service => port, ...): all three, on free ports unless told.
sub start_shop
{
	my (%ports) = @_;
	my $seed = 1;
	my %shop = map { $_ => start_service($_, seed => $seed++, port => $ports{$_}) } qw(inventory payments shipping);
	return \%shop;
}

# define_orders(node, shop, dbname): the demo's tables, agents and workflow.
sub define_orders
{
	my ($node, $shop, $database) = @_;
	command_ok(
		[
			'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null',
			(map { ('-v', "${_}_port=$shop->{$_}{port}") } sort keys %$shop),
			'-d', $node->connstr($database // 'postgres'),
			'-f', "$SasTest::tree/examples/demo/shop.sql"
		],
		'the orders workflow is defined');
	return;
}

# submit_orders(node, quantity, first => N, dbname => ...): orders with numbers
# from first (1) on, and their runs, in one transaction. Every tenth order's
# card is declined.
sub submit_orders
{
	my ($node, $quantity, %option) = @_;
	my $first = $option{first} // 1;
	my $last = $first + $quantity - 1;
	$node->safe_psql($option{dbname} // 'postgres', qq{
		BEGIN;
		INSERT INTO shop.orders (order_id, customer, sku, amount, card)
		SELECT n, 'customer ' || n % 50, 'sku-' || n % 20, 1 + n % 100,
			CASE WHEN n % 10 = 0 THEN 'declined' ELSE 'card-' || n END
		FROM generate_series($first, $last) n;
		SELECT count(*) FROM shop.orders o,
			LATERAL sas.submit('order', to_jsonb(o), key => o.order_id::text) s
		WHERE o.order_id BETWEEN $first AND $last;
		COMMIT;});
	return;
}

# books_equal(node, shop, name, dbname): a test that the services' own books
# say what the database says, by the demo's own comparison: each order done
# once and whole or undone without a trace, nothing that nobody knows of.
sub books_equal
{
	my ($node, $shop, $name, $database) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = $database // 'postgres';
	delete local $ENV{PGUSER};
	my ($out, $err);
	my $equal = IPC::Run::run(
		[ 'python3', "$SasTest::tree/examples/demo/check.py", map { ("--$_", $shop->{$_}->url) } sort keys %$shop ],
		'>', \$out, '2>', \$err);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($equal, $name // "the services' books equal the database");
	$equal ? note($out) : diag($out . $err);
	return $equal;
}

package SasShop::Service;

use strict;
use warnings;

# Starts it, on the same port again if it had one.
sub start
{
	my ($self) = @_;
	my $fixed = $self->{port};
	foreach my $try (1 .. 20)
	{
		my $port = $fixed // SasTest::free_port();
		my $log = "$self->{books}.log";
		unlink $log;
		my $pid = SasTest::start_program($log, 'python3', "$SasTest::tree/examples/shop/shop.py",
			'--service', $self->{name}, '--port', $port, '--books', $self->{books}, '--seed', $self->{seed});
		my $ready = SasTest::wait_until(
			sub {
				return 1 if -s $log && PostgreSQL::Test::Utils::slurp_file($log) =~ /^listening on/m;
				return waitpid($pid, POSIX::WNOHANG()) != 0;
			},
			30);
		if ($ready && kill(0, $pid) && PostgreSQL::Test::Utils::slurp_file($log) =~ /^listening on/m)
		{
			@$self{qw(port pid)} = ($port, $pid);
			return $self;
		}
		SasTest::stop_program($pid);
		Time::HiRes::sleep(0.1);
	}
	die "service $self->{name} did not start: " . PostgreSQL::Test::Utils::slurp_file("$self->{books}.log");
}

# Ends it; stop('KILL') as a crash does.
sub stop
{
	my ($self, $signal) = @_;
	SasTest::stop_program(delete $self->{pid}, $signal) if defined $self->{pid};
	return;
}

sub url { my ($self, $path) = @_; return "http://127.0.0.1:$self->{port}" . ($path // '') }
sub get { my ($self, $path) = @_; return SasTest::http_get($self->url($path)) }
sub post { my ($self, $path, $value) = @_; return SasTest::http_post($self->url($path), $value) }

sub faults { my ($self, $faults) = @_; return $self->post('/faults', $faults) }
sub hold { my ($self, $work) = @_; return $self->post('/hold', defined $work ? { work => $work } : {}) }
sub release { my ($self) = @_; return $self->post('/release') }
sub reset { my ($self) = @_; return $self->post('/reset') }
sub books { my ($self) = @_; return $self->get('/books') }

# the work requests that came after number $after
sub requests
{
	my ($self, $after) = @_;
	return @{ $self->get('/requests?after=' . ($after // 0))->{requests} };
}

# true once that many work requests came, within the limit
sub wait_for_requests
{
	my ($self, $quantity, $seconds) = @_;
	return SasTest::wait_until(sub { $self->books->{counters}{requests} >= $quantity }, $seconds);
}

1;
