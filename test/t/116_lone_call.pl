# SPDX-License-Identifier: PostgreSQL
#
# A call that is alone in its lane is claimed as one of many is: with the same
# rows and the same request, past what a session holds.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasService;
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '6 min');
my $service = SasService->new;
$service->script(held => [ { gate => JSON::PP::true, status => 200, json => { ok => 1 } } ]);
make_agent($node, 'remote', $service);

my %step = (agent => 'remote', call => { method => 'POST', path => '/held/{{input.n}}', headers => { 'x-run' => '{{run.id}} {{run.key?}} {{run.labels.of?}}' },
	body => { all => '{{input.deep}}', key => '{{key}}', none => '{{input.none?}}' } }, complete_in => '40 s', retry => { initial => '10 ms' }, expect => [ '2xx' ]);
define($node, 'one', { steps => { it => {%step} }, output => '{{steps.it.output.body}}', recovery => { max_failures => 1 } });
define($node, 'two', { steps => { it => {%step}, then => { %step, after => ['it'] } }, recovery => { max_failures => 1 } });

my $came = 0;
sub comes { my ($n, $claim) = @_; return ok($service->wait_for_requests('held', $came += $n), $claim) }

# what a claim has written, without numbers and times of its own
sub rows
{
	my ($run) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT jsonb_pretty(jsonb_build_object(
			'step', to_jsonb(s) - '{run_id,lease_id,request_id,complete_by,started_at}'::text[], 'window', s.complete_by - s.started_at,
			'lease', to_jsonb(l) - '{lease_id,worker_id,boot,next_by,run_ids,step_nos,elements,locked_by}'::text[], 'next', l.next_by - s.complete_by,
			'worker', l.locked_by LIKE 'agent %' AND l.boot = _sas.current_boot() AND l.worker_id > 0, 'holds', $run = ANY (l.run_ids) AND s.step_no = ANY (l.step_nos) AND 0 = ANY (l.elements),
			'run', to_jsonb(r) - '{run_id,trace,input,key,labels,created_at,started_at,deadline}'::text[], 'begun', r.started_at >= s.started_at,
			'ready', (SELECT count(*) FROM _sas.ready WHERE run_id = $run)))
		FROM _sas.run r JOIN _sas.step s USING (run_id) JOIN _sas.lease l USING (lease_id) WHERE r.run_id = $run AND s.state = 'running'});
}

sub sent
{
	my ($run) = @_;
	my ($request) = grep { header_of($_, 'x-run') =~ /^$run\b/ } $service->requests('held');
	my $key = header_of($request, 'idempotency-key');
	my %other = map { $_->[0] => 1 } @{ $request->{headers} };
	return ($key, join "\n", $request->{path}, header_of($request, 'x-run') =~ s/^$run/RUN/r, $request->{body} =~ s/$key/KEY/r, sort keys %other);
}

my $input = { n => 'a b', deep => { list => [ 1, 'x', undef ], text => "t" }, unseen => 'x' };
my %more = (labels => '{"of": "mine"}', priority => 7);

# -- the same, either way -------------------------------------------------------------------

my $alone = submit($node, 'one', $input, %more, key => 'k 1');
comes(1, 'a call that is alone is claimed');
my @pair = split /\n/, $node->safe_psql('postgres', q{
	SELECT run_id FROM sas.submit('one', '{"n": "a b", "deep": {"list": [1, "x", null], "text": "t"}, "unseen": "x"}', key => 'k 2', labels => '{"of": "mine"}', priority => 7)
	UNION ALL SELECT run_id FROM sas.submit('one', '{"n": 2, "deep": null}')});
comes(2, 'and two at once');
is(rows($alone), rows($pair[0]), 'both have written the same');
my ($key, $by_itself) = sent($alone);
my ($other_key, $with_another) = sent($pair[0]);
$by_itself =~ s/k 1/k 2/;
is($by_itself, $with_another, 'and send the same');
is($key, $node->safe_psql('postgres', "SELECT idempotency_key FROM sas.steps WHERE run_id = $alone"), 'under the key of the step');
isnt($key, $other_key, 'which is that of this run alone');
is($node->safe_psql('postgres', q{SELECT string_agg(labels ->> 'from' || ' ' || (labels ->> 'to') || ' ' || value, ', ' ORDER BY labels ->> 'from') FROM sas.metrics()
	WHERE name = 'sas_transitions_total' AND labels ->> 'to' = 'running' AND labels ->> 'subject' IN ('run', 'step')}), 'none running 3, pending running 3', 'and are counted alike');
$service->release;
all_ended($node, 'all three end');
is($node->safe_psql('postgres', 'SELECT count(*) FROM _sas.lease'), '0', 'no claim is left over');

# -- steps behind it, and later tries --------------------------------------------------------

my $run = submit($node, 'two', $input);
comes(1, 'the first of two steps');
$service->release;
comes(1, 'the second is alone as well, in a run that has begun');
is($node->safe_psql('postgres', "SELECT string_agg(state, ' ' ORDER BY step) FROM sas.steps WHERE run_id = $run"), 'succeeded running', 'one after the other');
$service->script(held => [ { status => 402 }, { gate => JSON::PP::true, status => 200 } ]);
$service->release;
is(run_of($node, $run)->{result}, 'success', 'both succeed');
define($node, 'stops', { steps => { it => {%step} }, on_failure => 'pause', recovery => { max_failures => 1 } });
$run = submit($node, 'stops', $input);
comes(1, 'a call that is refused');
is(run_of($node, $run)->{state}, 'paused', 'its run waits for an operator');
$node->safe_psql('postgres', "SELECT sas.retry($run, 'it', new_key => true)");
comes(1, 'a further try is made');
my @requests = grep { header_of($_, 'x-run') =~ /^$run\b/ } $service->requests('held');
isnt(header_of($requests[0], 'idempotency-key'), header_of($requests[1], 'idempotency-key'), 'under the other key');
$service->release;
is(run_of($node, $run)->{result}, 'success', 'with which it succeeds');

# -- what cannot be filled in ------------------------------------------------------------------

$run = submit($node, 'one', { n => 1 });
like(run_of($node, $run)->{error}{detail}, qr/input\.deep/, 'what a template lacks is told as ever');
is(scalar $service->requests('held'), $came, 'and nothing is sent');

# -- rows that a session holds --------------------------------------------------------------------

$node->safe_psql('postgres', q{SELECT sas.alter_agent('remote', enabled => false)});
$run = submit($node, 'one', $input);
my $session = SasSession->new($node);
$session->query('BEGIN');
is($session->query("SELECT count(*) FROM (SELECT FROM _sas.run WHERE run_id = $run FOR UPDATE) q"), '1', 'a session holds the run');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('remote', enabled => true)});
comes(1, 'its call goes out all the same');
is($node->safe_psql('postgres', "SELECT r.state || ' ' || s.state FROM sas.runs r JOIN sas.steps s USING (run_id) WHERE run_id = $run"), 'pending running', 'the run does not say so yet');
$session->query('ROLLBACK');
$service->release;
is(run_of($node, $run)->{result}, 'success', 'its reply starts and ends it');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('remote', enabled => false)});
$run = submit($node, 'one', $input);
$session->query('BEGIN');
is($session->query("SELECT count(*) FROM (SELECT FROM _sas.ready WHERE run_id = $run FOR UPDATE) q"), '1', 'a session holds its place in the queue');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('remote', enabled => true)});
my $second = submit($node, 'one', $input);
comes(1, 'another one is claimed past it');
is($node->safe_psql('postgres', "SELECT string_agg(state, ' ' ORDER BY run_id) FROM sas.steps WHERE run_id IN ($run, $second)"), 'ready running', 'and not itself');
$session->query('ROLLBACK');
$session->quit;
submit($node, 'one', $input);
comes(2, 'let go, it goes with the next');
$service->release;
all_ended($node, 'all go on');

# -- what is put in its place while it is looked at ---------------------------------------------------

$node->safe_psql('postgres', q{SELECT sas.alter_agent('remote', enabled => false)});
$run = submit($node, 'one', $input);
is($node->safe_psql('postgres', qq{SELECT changed FROM sas.set_input($run, 'it', '{"all": "other"}')}), 't', 'an operator gives a ready step another input');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('remote', enabled => true)});
comes(1, 'it is claimed');
like((grep { header_of($_, 'x-run') =~ /^$run\b/ } $service->requests('held'))[0]{body}, qr/"other"/, 'and sends that');
$service->release;
# whoever looks at a step looks at this table last
$node->safe_psql('postgres', q{SELECT sas.alter_agent('remote', enabled => false)});
$run = submit($node, 'one', $input);
$session = SasSession->new($node);
$session->query('BEGIN');
$session->query('LOCK TABLE _sas.phase IN ACCESS EXCLUSIVE MODE');
$node->safe_psql('postgres', q{SELECT sas.alter_agent('remote', enabled => true)});
ok(wait_until(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas agent' AND wait_event_type = 'Lock'}) eq '1' }), 'a worker is about to claim');
$session->query(qq{DO \$\$ BEGIN
	SET LOCAL lock_timeout = '300 ms';
	PERFORM sas.set_input($run, 'it', '{"all": "new"}');
EXCEPTION WHEN lock_not_available THEN NULL;
END \$\$});
$session->query('COMMIT');
$session->quit;
comes(1, 'its call goes out');
my ($last) = grep { header_of($_, 'x-run') =~ /^$run\b/ } $service->requests('held');
is($last->{body} =~ /"new"/ ? 1 : 0, $node->safe_psql('postgres', "SELECT count(*) FROM _sas.override WHERE run_id = $run"), 'with the input that an operator has given it, if he was told that it has it');
$service->release;
all_ended($node, 'all of them end');

# an operator gives the step another input while it is being claimed: is that taken, it is sent
$session = SasSession->new($node);
$session->query(q{BEGIN; SET LOCAL deadlock_timeout = '10 ms'; LOCK TABLE _sas.lease IN ACCESS EXCLUSIVE MODE});
$run = submit($node, 'one', $input);
ok(wait_for($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'sas agent' AND wait_event_type = 'Lock'}), 'a claim is on its way');
my $answer = $session->query("SELECT 'taken' FROM sas.set_input($run, 'it', '{\"told\": 1}') WHERE changed");
$session->query('COMMIT');
$session->quit;
comes(1, 'it goes out');
my ($last) = grep { header_of($_, 'x-run') =~ /^$run\b/ } $service->requests('held');
ok($answer !~ /taken/ || $last->{body} =~ /told/, 'and not with what it was given before') or diag("$answer\n$last->{body}");
$service->release;
all_ended($node, 'and ends');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM _sas.lease) + (SELECT count(*) FROM _sas.ready) + (SELECT sum(in_flight) FROM sas.agents)'), '0', 'and nothing is left over');
done_testing();
