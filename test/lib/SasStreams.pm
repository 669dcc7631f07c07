# SPDX-License-Identifier: PostgreSQL

=head1 NAME

SasStreams - a service of streams, and watchers of it

=head1 SYNOPSIS

    my $streams = SasStreams->new;
    $streams->feeds(prices => { items => 10 });
    make_agent($node, 'feed', $streams);
    make_watcher($node, 'prices', { agent => 'feed', stream => { format => 'sse', path => '/sse/prices' } });
    watch($node, 'prices', 'one', 'two');
    got_items($node, 'prices', 10, 'all items come, once each');

test/lib/streams.py says how a feed may behave.

=cut

package SasStreams;

use strict;
use warnings;

use Exporter 'import';
use JSON::PP ();
use SasService;
use SasTest ();
use Test::More;

our @ISA = ('SasService');
our @EXPORT = qw(make_table make_watcher watch watch_of got_items);

my $json = JSON::PP->new->ascii->utf8->canonical->allow_nonref;

sub new { my ($class, %option) = @_; return SasService::new($class, program => 'streams.py', %option) }

# sets the behaviour of feeds: name => {items => 5, how => ...}
sub feeds { my ($self, %feeds) = @_; SasTest::http_post("http://127.0.0.1:$self->{control}/feeds", \%feeds); return }

# the state of a feed: open, connections, told, asked
sub feed { my ($self, $name) = @_; return $self->all->{$name} // {} }
sub all { my ($self) = @_; return SasTest::http_get("http://127.0.0.1:$self->{control}/feeds") }

# a table that watchers of that name put their items into
sub make_table { my ($node) = @_; $node->safe_psql('postgres', 'CREATE TABLE public.item (nth bigserial, item jsonb, watcher text, key text)'); return }

# make_watcher(node, name, definition): quick by itself; items go to public.item unless it says otherwise
sub make_watcher
{
	my ($node, $name, $definition) = @_;
	my %all = (
		items => { table => 'public.item' },
		retry => { initial => '20 ms', max => '100 ms' },
		%$definition);
	$node->safe_psql('postgres', 'SELECT sas.create_watcher(' . SasService::quote($name) . ', ' . SasService::quote($json->encode(\%all)) . ')');
	return;
}

sub watch
{
	my ($node, $watcher, @keys) = @_;
	$node->safe_psql('postgres', "SELECT count(*) FROM unnest('{" . join(',', @keys) . "}'::text[]) k, sas.watch(" . SasService::quote($watcher) . ', k)');
	return;
}

# the row of sas.watches
sub watch_of
{
	my ($node, $watcher, $key) = @_;
	return $json->decode($node->safe_psql('postgres', "SELECT to_jsonb(w) FROM sas.watches w WHERE watcher = '$watcher' AND key = '$key'"));
}

# tests that the items 1 to quantity of a watch have come, each once and in order
sub got_items
{
	my ($node, $watcher, $key, $quantity, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $n = "coalesce(item #>> '{data,n}', item ->> 'n')::int";
	my $told = SasTest::wait_for($node, "SELECT count(DISTINCT $n) FROM public.item WHERE watcher = '$watcher' AND key = '$key'", $quantity);
	return fail($name) unless $told;
	return is(
		$node->safe_psql('postgres', qq{
			SELECT count(*) || ' items from ' || min(n) || ' to ' || max(n) || CASE WHEN bool_and(n = nth) THEN ' in order' ELSE ' in disorder' END
			FROM (SELECT $n AS n, row_number() OVER (ORDER BY nth) AS nth FROM public.item WHERE watcher = '$watcher' AND key = '$key') x}),
		"$quantity items from 1 to $quantity in order", $name);
}

1;
