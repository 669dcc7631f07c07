# SPDX-License-Identifier: PostgreSQL
#
# A standby has the next release (test/upgrade) and is promoted: the runs go on
# in the schema that both know. A standby that has stayed behind runs nothing
# once the schema has been updated, and goes on with the new library.
# Takes about 40 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;

my $next_path = $ENV{SAS_NEXT} or die 'tools/check makes the next release';
my $old = new_node('old', _init => [ allows_streaming => 1 ]);
my $shop = start_shop();
define_orders($old, $shop);
my $version = q{SELECT extversion FROM pg_extension WHERE extname = 'sas'};
my $from = $old->safe_psql('postgres', $version);

# standby(of, name, path): which has received everything
sub standby
{
	my ($of, $name, $path) = @_;
	$of->backup($name);
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->{_install_path} = $path;
	$standby->init_from_backup($of, $name, has_streaming => 1);
	$standby->start;
	return $standby;
}

# The old primary ends in good order, so the standby has all of it.
sub switch_over
{
	my ($primary, $standby) = @_;
	$primary->stop;
	$standby->promote;
	return;
}

my $new = standby($old, 'new', $next_path);
is($new->safe_psql('postgres', 'SELECT count(*) > 0 FROM sas.workflows'), 't', 'the views of the primary of before are read on a standby with the next library');
$_->faults({ unavailable => 0.03, drop_after => 0.03 }) foreach values %$shop;
submit_orders($old, 200);
wait_for($old, 'SELECT count(*) >= 40 FROM shop.ledger');
switch_over($old, $new);
is($new->safe_psql('postgres', $version), $from, 'the promoted standby has the schema of before');
isnt($new->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}), '0', 'it was promoted in the middle of the orders');
submit_orders($new, 100, first => 201);
all_ended($new, 'every order ends there, those of before and new ones');
is($new->safe_psql('postgres', 'SHOW sas.known_versions') =~ s/ .*//r ne $from, 1, 'under the next library');

# one that has stayed behind follows the update
my $behind = standby($new, 'behind', undef);
submit_orders($new, 100, first => 301);
$new->safe_psql('postgres', 'ALTER EXTENSION sas UPDATE');
my $to = $new->safe_psql('postgres', $version);
isnt($to, $from, 'the schema is updated');
submit_orders($new, 50, first => 401);
$new->wait_for_catchup('behind', 'replay', $new->lsn('write'));
is($behind->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'order'}), '450', 'a standby with the library of before follows, and its views are read');
switch_over($new, $behind);
ok(wait_until(sub { PostgreSQL::Test::Utils::slurp_file($behind->logfile) =~ /version "\Q$to\E", which the loaded library does not support/ }), 'promoted, it says that it does not know the schema');
is($behind->safe_psql('postgres', q{SELECT count(*) FROM sas.workers}), '0', 'and runs nothing');
$behind->stop;
$behind->{_install_path} = $next_path;
$behind->start;
all_ended($behind, 'with the new library every order ends');
$_->faults({}) foreach values %$shop;
books_equal($behind, $shop, 'and the books of the services equal the database');
is($behind->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'order'}), '450', 'no run was lost and none was added');
done_testing();
