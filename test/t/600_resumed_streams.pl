# SPDX-License-Identifier: PostgreSQL
#
# The streams of an agent that was paused connect again as soon as it is resumed, on a server that does nothing else.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasStreams;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '6 min');
my $streams = SasStreams->new;
make_agent($node, 'feed', $streams);
make_table($node);
make_watcher($node, 'lines', { agent => 'feed', stream => { format => 'ndjson', path => '/ndjson/{{key}}', query => { after => '{{cursor?}}' } }, cursor => { next => '{{item.n}}' } });
$streams->feeds(lines => { items => 3 });
watch($node, 'lines', 'lines');
got_items($node, 'lines', 'lines', 3, 'a stream is there');
my $open = sub { my ($n) = @_; return wait_until(sub { $streams->feed('lines')->{open} == $n }, 100) };
foreach my $n (1 .. 3)
{
	$node->safe_psql('postgres', q{SELECT sas.pause_agent('feed')});
	ok($open->(0), "its agent is paused ($n): it closes");
	$node->safe_psql('postgres', q{SELECT sas.resume_agent('feed')});
	ok($open->(1), 'it is resumed: it connects again');
}
done_testing();
