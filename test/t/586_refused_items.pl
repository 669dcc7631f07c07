# SPDX-License-Identifier: PostgreSQL
#
# Items of an infinite task that cannot be stored hold up no other one: after three tries its connection is closed, which
# is a failure of it, and it begins again at its cursor. No item is lost or comes twice, and an answer to a poll is not
# taken as one that is known. Takes about 30 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams);
make_table($node);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

# what a disk, or somebody's trigger, does to what comes for one task
$sql->(q{
	CREATE TABLE refused (watch_id bigint);
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.refused r WHERE r.watch_id = NEW.watch_id) THEN
			RAISE EXCEPTION 'refused by the test';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE INSERT ON _sas.watch_batch FOR EACH ROW EXECUTE FUNCTION refuse()});
make_watcher($node, 'lines', { agent => 'feed', cursor => { next => '{{item.n}}' },
		stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } } });
make_watcher($node, 'state', { agent => 'feed', poll => { call => { path => '/state/{{key}}' }, every => '100 ms' } });
$streams->feeds(map({ $_ => { items => 10 } } qw(ill well)), map { $_ => { state => { version => 1 } } } qw(illstate wellstate));
watch($node, 'lines', qw(ill well));
watch($node, 'state', qw(illstate wellstate));
got_items($node, 'lines', $_, 10, "$_: items come") foreach qw(ill well);
# the versions that a poll has passed on
my $versions = sub { return qq{SELECT string_agg(item #>> '{body,version}', ' ' ORDER BY nth) FROM public.item WHERE watcher = 'state' AND key = '$_[0]'} };
ok(wait_for($node, $versions->($_), '1'), "$_: a state comes") foreach qw(illstate wellstate);
my ($worker) = worker_pids($node, 'agent');

# -- those of one are refused -----------------------------------------------------------------------------

my $connections = $streams->feed('ill')->{connections};
$sql->(q{INSERT INTO refused SELECT watch_id FROM sas.watches WHERE key LIKE 'ill%'});
$streams->feeds((map { $_ => { items => 500 } } qw(ill well)), map { $_ => { state => { version => 2 } } } qw(illstate wellstate));
got_items($node, 'lines', 'well', 500, 'items of one are refused: those of another stream come');
ok(wait_for($node, $versions->('wellstate'), '1 2'), 'and those of another poll');
foreach my $key (qw(ill illstate))
{
	my $watch = sub { return watch_of($node, $key eq 'ill' ? 'lines' : 'state', $key) };
	ok(wait_until(sub { $watch->()->{failures} >= 2 }), "$key: that they cannot be stored is a failure, again and again");
	is($watch->()->{last_error}{title}, 'could not store items', "$key: which says so");
	is($watch->()->{items}, $key eq 'ill' ? 10 : 1, "$key: nothing of them is taken in");
}
cmp_ok($streams->feed('ill')->{connections}, '>=', $connections + 2, 'ill: each time it connects again');
is((grep { $_ ne '10' } @{ $streams->feed('ill')->{asked} }[ $connections .. $connections + 1 ]) + 0, 0, 'ill: and begins at its cursor');
is((worker_pids($node, 'agent'))[0], $worker, 'it is the same worker');
$streams->feeds(well => { items => 600 }, wellstate => { state => { version => 3 } });
got_items($node, 'lines', 'well', 600, 'all that time another stream goes on');
ok(wait_for($node, $versions->('wellstate'), '1 2 3'), 'and another poll');

# -- and are not any more ---------------------------------------------------------------------------------

$sql->('TRUNCATE refused');
got_items($node, 'lines', 'ill', 500, 'ill: when they can be stored all come, each once and in order');
ok(wait_for($node, $versions->('illstate'), '1 2'), 'illstate: its state comes, though it has not changed since the service told it');
$node->stop;
done_testing();
