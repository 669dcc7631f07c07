# SPDX-License-Identifier: PostgreSQL
#
# Breakers of paths: one user's path that answers 500 stops no other call of its agent.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 2);
my $service = SasService->new;
sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
sub view { return sql(q{SELECT concat_ws(' ', breaker, path_breakers) FROM sas.agents WHERE name = 'shared'}) }

make_agent($node, 'shared', $service, retry => '{"max_attempts": 1}',
	breaker => '{"failures": 3, "window": "1 min", "open_for": "1 h", "paths": ["/bad", "/bad/deep"]}');
foreach my $name ('bad', 'bad_not', 'good')
{
	define($node, $name, { steps => { it => { agent => 'shared', call => { method => 'POST', path => "/$name/{{input.n}}" } } },
			recovery => { max_failures => 100, initial => '20 ms', max => '20 ms' } });
}
$service->script(bad => [ ({ status => 500 }) x 3, {} ]);
is(view(), 'closed', 'all breakers are closed at first');
sql(q{SELECT sas.submit_batch('bad', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 3) n))});
ok(wait_for($node, q{SELECT breaker || ' ' || path_breakers FROM sas.agents WHERE name = 'shared'}, 'closed {"/bad": "open"}'),
	'failures below a path open its breaker, not that of the agent') or diag(view());
my $asked = $service->requests('bad');
is($asked, 3, 'exactly as many as its setting says');
for my $name ('good', 'bad_not')
{
	my $id = sql(qq{SELECT run_id FROM sas.submit('$name', '{"n": 1}')});
	is(run_of($node, $id)->{result}, 'success', "a call of /$name goes through");
}
my $deep = sql(q{SELECT run_id FROM sas.submit('bad', '{"n": "deep"}')});
is(run_of($node, $deep)->{result}, 'success', 'and one below a longer path, which has a breaker of its own');
my $waits = sql(q{SELECT run_id FROM sas.submit('bad', '{"n": 4}')});
my $id = sql(q{SELECT run_id FROM sas.submit('good', '{"n": 2}')});
run_of($node, $id);
is(scalar $service->requests('bad'), $asked + 1, 'no other call of the path goes out');
is(sql("SELECT coalesce(sum(attempt + failure_count), 0) FROM sas.steps WHERE run_id = $waits"), '0', 'and what waits for it has no attempt and no failure');
ok(wait_for($node, "SELECT count(*) FROM sas.explain($waits) WHERE waiting_kind = 'retry' AND text LIKE '%; its breaker for \"/bad\" is open; sas.reset_agent(''shared'')%'", '1'),
	'sas.explain names the breaker of the path');
sql('SELECT sas.reset_agent($$shared$$)');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'bad' AND state <> 'stopped'}, '0'), 'an operator resets the agent: all calls go through')
  or diag($node->safe_psql('postgres', q{SELECT run_id, state, waiting_kind, waiting_until, attempt, failure_count FROM sas.steps}));
is(view(), 'closed', 'and the breaker of the path is closed');
is(sql(q{SELECT string_agg(DISTINCT result, ', ') FROM sas.runs}), 'success', 'no run has failed');

# -- fallbacks --------------------------------------------------------------------------

my %body = (agent => 'shared', call => { method => 'POST', path => '/bad/{{input.n}}' }, retry => { max_attempts => 2, initial => '1 ms' });
my $fallback = { call => { method => 'POST', path => '/good/{{input.n}}' }, output => 'other', on => ['breaker_open'] };
my %quick = (max_failures => 1000, initial => '20 ms', max => '20 ms');
define($node, 'falls', { steps => { it => { %body, fallback => $fallback } }, output => '{{steps.it.output}}', recovery => \%quick });
define($node, 'falls_each', { steps => { it => { %body, each => '{{input.items}}', output => 'own', fallback => $fallback } },
		output => '{{steps.it.output}}', recovery => \%quick });
# in doubt, and its undo needs what the call returns: only the call can settle it
define($node, 'settles', { steps => { it => { %body, fallback => $fallback,
			undo => { call => { method => 'DELETE', path => '/bad/{{steps.it.output.body.id}}' } } } },
		output => '{{steps.it.output.status?}}', recovery => \%quick });
$service->script(bad => [ ({ status => 500 }) x 3, {} ]);
my $doubtful = sql(q{SELECT run_id FROM sas.submit('settles', '{"n": 1}')});
ok(wait_for($node, q{SELECT path_breakers FROM sas.agents WHERE name = 'shared'}, '{"/bad": "open"}'), 'the breaker of the path opens again');
my $open = $service->requests('bad');
my $falls = sql(q{SELECT run_id FROM sas.submit('falls', '{"n": 5}')});
is(run_of($node, $falls)->{output}, 'other', 'while the breaker of its path is open, the fallback of a step takes over');
$falls = sql(q{SELECT run_id FROM sas.submit('falls_each', '{"n": 6, "items": [1, 2, 3]}')});
is_deeply(run_of($node, $falls)->{output}, [ ('other') x 3 ], 'and that of each element of a map');
is(sql("SELECT string_agg(DISTINCT step, ' ') FROM sas.attempts WHERE run_id = $falls"), 'it.fallback', 'only fallbacks have attempts');
is(scalar $service->requests('bad'), $open, 'nothing is sent there');
is(sql("SELECT concat_ws(' ', state, in_doubt, waiting_kind) FROM sas.steps WHERE run_id = $doubtful"), 'suspended t retry',
	'a step in doubt waits for the breaker');
sql('SELECT sas.reset_agent($$shared$$)');
is(run_of($node, $doubtful)->{output}, '200', 'and its own call settles it');

# -- refused ----------------------------------------------------------------------------

foreach my $paths ('"/a"', '["a"]', '[1]', '["/a?b"]')
{
	my ($ret, $out, $err) = $node->psql('postgres', "SELECT sas.alter_agent('shared', breaker => '{\"paths\": $paths}')");
	like($err, qr/expected an array of at most 15 paths|is not a path such as/, "paths are not $paths");
}
done_testing();
