# SPDX-License-Identifier: PostgreSQL

=head1 NAME

TortureChecker - proves from the tables, the application's rows and the service's books that nothing was lost or doubled

=head1 SYNOPSIS

    TortureChecker::check($node, $books, $faults->{struck});

It reads tables with SQL of its own, and calls no function of sas. Each claim is one test; what breaks it is shown.
What has struck is [begin, end, kind, pid] each; kind died, crash or upgrade: all processes of the server ended without notice.

=cut

package TortureChecker;

use strict;
use warnings;

use JSON::PP ();
use POSIX ();
use SasTest;
use Test::More;
use Time::HiRes qw(time);

my $json = JSON::PP->new->canonical;

# none(node, name, sql): a test that the query finds no row
sub none
{
	my ($node, $name, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $found = $node->safe_psql('postgres', "SELECT x::text FROM ($sql) x LIMIT 10");
	is($found, '', $name) or diag(whereabouts($node, $found));
	return;
}

# What is known of the first things that a query has found: what was sent and when, what came to the service and when.
sub whereabouts
{
	my ($node, $found) = @_;
	my @ids = $found =~ /^\("?([0-9a-f-]+(?:\.\w+)*)[,")]/mg;
	return join "\n", map { $node->safe_psql('postgres', qq{
		WITH these AS (SELECT * FROM torture.known WHERE id = '$_' OR run_id::text = '$_')
		SELECT format('%s run %s %s %s/%s', k.id, k.run_id, k.workflow, k.state, k.result) FROM these k
		UNION ALL SELECT format('%s sent %s[%s] attempt %s undo %s %s to %s: %s by %s', k.id, s.name, a.element, a.attempt, a.undo,
			to_char(a.started_at AT TIME ZONE 'UTC', 'HH24:MI:SS.MS'), to_char(a.finished_at AT TIME ZONE 'UTC', 'HH24:MI:SS.MS'), a.status, a.worker)
			FROM these k JOIN _sas.attempt a USING (run_id) JOIN _sas.run r USING (run_id)
			JOIN _sas.workflow_step s ON s.version_id = r.version_id AND s.step_no = a.step_no AND s.undo = a.undo
		UNION ALL SELECT format('%s came %s %s %s at %s: %s', b.id, b.kind, b.step, b.item, b.times, b.key)
			FROM torture.book b WHERE b.id IN (SELECT id FROM these)}) } splice(@ids, 0, 5);
}

sub check
{
	my ($node, $books, $struck, $lost) = @_;
	load_books($node, $books, $lost);
	runs($node);
	remote($node);
	local_effects($node);
	leftovers($node);
	histories($node);
	sent_again($node, $books, $struck, $lost);
	overtaken($books, $struck);
	return;
}

# The books of the service, as a table: what is compared is SQL.
sub load_books
{
	my ($node, $books, $lost) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/books.sql';
	open(my $out, '>', $file) or die;
	print $out "CREATE TABLE torture.book (seq int, key text, kind text, id text, step text, item text, at float8, asked int, times text);\nCOPY torture.book FROM stdin;\n";
	foreach my $e (@{ $books->{effects} })
	{
		print $out join("\t", $e->{seq}, $e->{key}, $e->{kind}, map({ defined $_ ? $_ : '\N' } $e->{id}, $e->{step}, $e->{item}), $e->{at}, $e->{asked},
			join(' ', map { POSIX::strftime('%H:%M:%S', gmtime($_)) . sprintf('.%03d', 1000 * ($_ - int($_))) } @{ $e->{times} })), "\n";
	}
	print $out "\\.\nCREATE INDEX ON torture.book (id, step);\n";
	# which run an id belongs to: that of the application's row, or a child of it
	print $out q{CREATE TABLE torture.known AS
		SELECT r.run_id, r.input ->> 'id' AS id, w.name AS workflow, r.state, r.result, r.parent_run_id
		FROM _sas.run r JOIN _sas.workflow_version v USING (version_id) JOIN _sas.workflow w USING (workflow_id)
		WHERE r.input ? 'id' AND w.name !~ '[^a-z]';
		CREATE INDEX ON torture.known (id); ANALYZE torture.known, torture.book, torture.effect;
		CREATE TABLE torture.lost (at float8);};
	print $out "INSERT INTO torture.lost VALUES ($_);\n" foreach @{ $lost // [] };
	# An asynchronous standby did not have what was done last. Nothing that a service did for the rest is excused.
	print $out q{CREATE TABLE torture.excused AS SELECT DISTINCT split_part(b.id, '.', 1) AS id
			FROM torture.book b, torture.lost l WHERE b.at BETWEEN l.at - 5 AND l.at + 1;
		CREATE INDEX ON torture.excused (id);
		CREATE VIEW torture.judged_book AS SELECT * FROM torture.book b WHERE NOT EXISTS (SELECT FROM torture.excused x WHERE x.id = split_part(b.id, '.', 1));
		CREATE VIEW torture.judged_known AS SELECT * FROM torture.known k WHERE NOT EXISTS (SELECT FROM torture.excused x WHERE x.id = split_part(k.id, '.', 1));};
	close $out;
	$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', $file ], "the books are read");
	return;
}

sub runs
{
	my ($node) = @_;
	none($node, 'each run has ended, or is paused with an open alert', q{
		SELECT r.run_id, r.state FROM _sas.run r WHERE r.state <> 'stopped' AND NOT (r.state = 'paused' AND EXISTS (
			SELECT FROM _sas.alert_run m JOIN _sas.alert l USING (alert_id) WHERE m.run_id = r.run_id AND l.closed_at IS NULL))});
	none($node, 'each row of the application has its run', q{SELECT b.id, b.workflow FROM torture.business b WHERE NOT EXISTS (SELECT FROM torture.known k WHERE k.id = b.id AND k.parent_run_id IS NULL)});
	none($node, 'each has one run, and each run its row', q{SELECT k.id, count(*) FROM torture.known k LEFT JOIN torture.business b ON b.id = k.id WHERE k.parent_run_id IS NULL GROUP BY 1 HAVING count(*) > 1 OR count(b.id) = 0});
	none($node, 'a run that was to break never succeeded', q{SELECT b.id, k.result FROM torture.business b JOIN torture.known k USING (id) WHERE b.input ->> 'bad' = 'true' AND k.result = 'success' AND b.workflow IN ('chain', 'fan', 'beside', 'waits', 'polled', 'parent', 'joined')});
	none($node, 'no step of a stopped run is open', q{SELECT s.run_id, s.step_no, s.element, s.state FROM _sas.step s JOIN _sas.run r USING (run_id) WHERE r.state = 'stopped' AND s.state IN ('ready', 'running', 'suspended', 'compensating')});
	none($node, 'runs of one concurrency key never overlapped', q{
		WITH span AS (
			SELECT k.run_id, r.input -> 'k' AS k, min(m.seq) FILTER (WHERE m.to_state = 'running') AS begun, max(m.seq) FILTER (WHERE m.to_state = 'stopped') AS ended
			FROM torture.known k JOIN _sas.run r USING (run_id) JOIN torture.moved m ON m.subject = 'run' AND m.run_id = k.run_id
			WHERE k.workflow = 'keyed' GROUP BY 1, 2)
		SELECT a.run_id, b.run_id AS other FROM span a JOIN span b ON b.k = a.k AND a.begun < b.begun AND a.ended > b.begun});
	return;
}

sub remote
{
	my ($node) = @_;
	# an operator who resumes a run gets another child run in the place of one that failed
	none($node, 'each step was called under one key', q{
		SELECT e.id, e.step, e.item, e.kind, count(DISTINCT e.key) FROM torture.judged_book e WHERE e.step <> 'r' GROUP BY 1, 2, 3, 4
		HAVING count(DISTINCT e.key) > (SELECT count(*) FROM torture.judged_known k WHERE k.id = e.id)});
	none($node, 'nobody was called for a run that was never committed', q{SELECT DISTINCT e.id FROM torture.judged_book e WHERE NOT EXISTS (SELECT FROM torture.judged_known k WHERE k.id = e.id)});
	none($node, 'nothing of a run that succeeded was undone', q{SELECT e.id, e.step FROM torture.judged_book e JOIN torture.judged_known k USING (id) WHERE k.result IN ('success', 'warning') AND e.kind = 'undo'
		AND NOT EXISTS (SELECT FROM torture.judged_known p WHERE p.run_id = k.parent_run_id AND p.result NOT IN ('success', 'warning'))});
	none($node, 'every call of a run that succeeded was made', q{
		SELECT k.id, s.step FROM torture.judged_known k
		JOIN (VALUES ('chain', 'a'), ('chain', 'c'), ('beside', 'a'), ('beside', 'c'), ('joined', 'a'), ('joined', 'c'), ('waits', 'a'), ('timer', 'a'), ('polled', 'j'), ('keyed', 'c'), ('queued', 'a'), ('again', 'r'), ('falls', 'f')) AS s (workflow, step) USING (workflow)
		WHERE k.result = 'success' AND NOT EXISTS (SELECT FROM torture.judged_book e WHERE e.id = k.id AND e.step = s.step AND e.kind = 'do')});
	none($node, 'and for every element of a map', q{
		SELECT k.id FROM torture.judged_known k JOIN _sas.run r USING (run_id) WHERE k.workflow = 'fan' AND k.result = 'success'
		AND jsonb_array_length(r.input -> 'items') <> (SELECT count(*) FROM torture.judged_book e WHERE e.id = k.id AND e.step = 'm' AND e.kind = 'do')});
	none($node, 'everything done by a run that was undone or cancelled was taken back', q{
		SELECT e.id, e.step, e.item, k.result FROM torture.judged_book e JOIN torture.judged_known k USING (id)
		WHERE k.result IN ('compensated', 'cancelled', 'error') AND e.kind = 'do' AND NOT EXISTS (
			SELECT FROM torture.judged_book u WHERE u.id = e.id AND u.step = e.step AND u.item IS NOT DISTINCT FROM e.item AND u.kind = 'undo' AND u.seq > e.seq)});
	none($node, 'a chain was undone in reverse order', q{
		SELECT a.id FROM torture.judged_book a JOIN torture.judged_book c USING (id) JOIN torture.judged_known k USING (id)
		WHERE k.workflow = 'chain' AND a.kind = 'undo' AND a.step = 'a' AND c.kind = 'undo' AND c.step = 'c' AND c.seq > a.seq});
	none($node, 'with its function in between', q{
		SELECT a.id FROM torture.judged_book a JOIN torture.effect b USING (id) JOIN torture.judged_book c USING (id) JOIN torture.judged_known k USING (id)
		WHERE k.workflow = 'chain' AND a.kind = 'undo' AND a.step = 'a' AND c.kind = 'undo' AND c.step = 'c' AND b.step = 'b' AND b.undo
			AND NOT (extract(epoch FROM b.at) BETWEEN c.at AND a.at)});
	return;
}

sub local_effects
{
	my ($node) = @_;
	none($node, 'no function took effect twice', q{
		SELECT e.id, e.step, e.n, e.undo, count(*) FROM torture.effect e GROUP BY 1, 2, 3, 4
		HAVING count(*) > (SELECT greatest(count(*), 1) FROM torture.known k WHERE k.id = e.id)});
	none($node, 'none for a run that was never committed', q{SELECT id, step FROM torture.effect e WHERE e.step <> 'hook' AND NOT EXISTS (SELECT FROM torture.known k WHERE k.id = e.id)});
	none($node, 'every function of a run that succeeded took effect', q{
		SELECT k.id, s.step FROM torture.known k
		JOIN (VALUES ('chain', 'b'), ('chain', 'd'), ('chain', 'finalize'), ('fan', 'z'), ('beside', 'b'), ('beside', 'd'), ('waits', 'b'), ('task', 'b'), ('keyed', 'b'), ('queued', 'b'), ('again', 'b'), ('joined', 'b'), ('joined', 'd'), ('joined', 'last'), ('planned', 'b')) AS s (workflow, step) USING (workflow)
		WHERE k.result = 'success' AND NOT EXISTS (SELECT FROM torture.effect e WHERE e.id = k.id AND e.step = s.step AND NOT e.undo)});
	none($node, 'and nothing of it was undone', q{SELECT e.id, e.step FROM torture.effect e JOIN torture.known k USING (id) WHERE e.undo AND k.result = 'success'
		AND NOT EXISTS (SELECT FROM torture.known p WHERE p.run_id = k.parent_run_id AND p.result <> 'success')});
	none($node, 'every effect of a function of a run that was undone or cancelled was taken back', q{
		SELECT e.id, e.step, k.result FROM torture.effect e JOIN torture.known k USING (id)
		WHERE k.result IN ('compensated', 'cancelled', 'error') AND NOT e.undo AND e.step NOT IN ('hook', 'finalize') AND NOT EXISTS (
			SELECT FROM torture.effect u WHERE u.id = e.id AND u.step = e.step AND u.undo)});
	none($node, 'nothing was taken back that was not done', q{SELECT e.id, e.step FROM torture.effect e WHERE e.undo AND NOT EXISTS (SELECT FROM torture.effect d WHERE d.id = e.id AND d.step = e.step AND NOT d.undo)});
	none($node, 'every chain that succeeded called its hook, once', q{
		SELECT k.run_id, count(e.id) FROM torture.known k LEFT JOIN torture.effect e ON e.step = 'hook' AND e.id = k.run_id::text
		WHERE k.workflow = 'chain' AND k.result = 'success' GROUP BY 1 HAVING count(e.id) <> 1});
	none($node, 'every turn of an infinite task followed the one before, once', q{SELECT key, count(*), max(n) FROM torture.turn GROUP BY 1 HAVING count(*) <> max(n) OR count(DISTINCT n) <> max(n)});
	none($node, 'every item of a stream is there once, with none missing', q{
		SELECT coalesce(key, 'k'), count(*), count(DISTINCT item), max((item ->> 'n')::int) FROM torture.line GROUP BY key
		HAVING count(*) <> max((item ->> 'n')::int) OR count(DISTINCT item) <> count(*)});
	none($node, 'no instant of a schedule had two runs', q{SELECT scheduled_at, count(*) FROM sas.runs WHERE schedule = 'often' GROUP BY 1 HAVING count(*) > 1});
	return;
}

sub leftovers
{
	my ($node) = @_;
	my $held = q{SELECT run_id FROM _sas.run WHERE state = 'stopped'};
	foreach my $table (qw(lease answer ready queue_slot concurrency_slot concurrency_key deferred_run deferred_work abandoned_run))
	{
		next if $node->safe_psql('postgres', "SELECT to_regclass('_sas.$table') IS NULL") eq 't';
		my $of_runs = $node->safe_psql('postgres', "SELECT count(*) FROM pg_attribute WHERE attrelid = '_sas.$table'::regclass AND attname = 'run_id'") eq '1';
		none($node, "nothing is left in $table", $of_runs ? "SELECT * FROM _sas.$table WHERE run_id IN ($held)" : "SELECT * FROM _sas.$table");
	}
	none($node, 'no outside place is held', q{SELECT agent_id, place, request_id FROM _sas.external_slot WHERE request_id IS NOT NULL});
	none($node, 'no call is counted in flight', q{SELECT name, in_flight FROM sas.agents WHERE in_flight <> 0});
	return;
}

sub histories
{
	my ($node) = @_;
	none($node, 'no state followed another that sas.transitions does not allow', q{
		SELECT DISTINCT m.subject, m.from_state, m.to_state FROM torture.moved m
		WHERE NOT EXISTS (SELECT FROM sas.transitions t WHERE t.subject = m.subject AND t.from_state = m.from_state AND t.to_state = m.to_state)});
	is($node->safe_psql('postgres', q{SELECT coalesce(sum(value), 0) FROM sas.metrics() WHERE name = 'sas_found_late_total'}), '0', 'nothing was found late');
	return;
}

# A call that was answered is sent again only where the process that held it then died, or was frozen, before it had
# stored the answer; and another process has taken the step from it. That a fault happened meanwhile is not enough.
sub sent_again
{
	my ($node, $books, $struck, $lost) = @_;
	my $boot = time() - (split / /, PostgreSQL::Test::Utils::slurp_file('/proc/uptime'))[0];
	my (%why, @unexplained);
	foreach my $again (@{ $books->{again} })
	{
		my $holders = holders($node, $again, $boot);
		my $why = (grep { $again->{answered} > $_ - 5 && $again->{answered} < $_ + 1 } @{ $lost // [] }) ? 'lost with an asynchronous promotion' : ended_by($again, $holders, $struck);
		if ($why) { $why{$why}++ }
		else { push @unexplained, join "\n", $json->encode({ %$again, holders => $holders, struck => [ grep { $_->[0] < $again->{at} && $_->[1] > $again->{answered} - 1 } @$struck ] }), whereabouts($node, "($again->{id},"), history($node, $again, $boot) }
	}
	is(scalar(@unexplained), 0, 'no call was sent again after it was answered, but where the process that held it died or was frozen') or diag(join "\n", splice(@unexplained, 0, 10));
	note('figure: ' . (grep { $_->[2] !~ /^(?:died|frozen)$/ } @$struck) . " strikes, $books->{requests} requests, sent again after an answer " . @{ $books->{again} }
		. join('', map { ", $_ $why{$_}" } sort keys %why));
	return;
}

# Who held the steps of a run, and when.
sub history
{
	my ($node, $again, $boot) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT format('%s[%s] undo %s held by %s from %s until %s, ended by %s', w.name, h.element, h.undo, h.holder, h.since + $boot, h.until + $boot, h.ended_by)
		FROM torture.known k JOIN _sas.run r USING (run_id) JOIN torture.held h USING (run_id)
		JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = h.step_no AND w.undo = h.undo WHERE k.id = '$again->{id}' ORDER BY h.since});
}

# The processes that held this step when its answer left: [pid, pid of the one that took it from it], ...
sub holders
{
	my ($node, $again, $boot) = @_;
	my $at = $again->{answered} - $boot;
	my $undo = $again->{kind} eq 'undo' ? 'true' : 'false';
	my $element = ($again->{item} // '') =~ /^(\d+)$/ ? "AND h.element = $1" : '';
	return [ map { [ split /\|/ ] } split /\n/, $node->safe_psql('postgres', qq{
		SELECT h.holder, coalesce(h.ended_by, 0) FROM torture.known k JOIN _sas.run r USING (run_id)
		JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.undo = $undo AND w.local_name = '$again->{step}'
		JOIN torture.held h ON h.run_id = k.run_id AND h.step_no = w.step_no AND h.undo = $undo $element
		WHERE k.id = '$again->{id}' AND h.since < $at + 0.1 AND coalesce(h.until, 'infinity') > $at - 0.1}) ];
}

sub ended_by
{
	my ($again, $holders, $struck) = @_;
	foreach my $s (grep { $_->[0] < $again->{at} && $_->[1] > $again->{answered} - 1 } @$struck)
	{
		foreach my $h (grep { $_->[0] != $_->[1] } @$holders)
		{
			return 'its server had crashed' if $s->[2] =~ /^(?:died|crash|upgrade)$/;
			return 'its worker was frozen' if $s->[2] eq 'frozen' && $s->[3] == $h->[0];
		}
	}
	return;
}

# A call that comes long after its undo was sent by a worker that did not know of it: one that was struck.
sub overtaken
{
	my ($books, $struck) = @_;
	my @late = grep {
		my $over = $_;
		$over->{at} > $over->{undone} + 5 && !grep { $_->[0] < $over->{at} && $_->[1] > $over->{undone} - 1 && $_->[2] ne 'quiet' } @$struck
	} @{ $books->{overtaken} };
	is(scalar(@late), 0, 'no call came long after its undo, but where a worker was struck') or diag(join "\n", map { $json->encode($_) } splice(@late, 0, 5));
	note('figure: calls that came after their undo, and were refused ' . @{ $books->{overtaken} }
		. join('', map { sprintf ', %.3f s', $_->{at} - $_->{undone} } @{ $books->{overtaken} }));
	return;
}

1;
