# SPDX-License-Identifier: PostgreSQL
#
# Every C function that SQL can call stands any argument: NULL in each place and
# in all, arrays that are NULL, empty, long, of NULLs or of two dimensions, and
# of other lengths than those beside them, numbers at the ends of their types,
# strings of 1 MB, VARIADIC NULL. The functions are taken from the
# catalogue. Each call is a transaction of its own that is rolled back, once in
# a select list and once in FROM. The session that calls must live to the end,
# with the library preloaded and without. Trigger functions are tried as triggers
# of a table that is not theirs, too.

# Long: only make check-long runs it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

# good and odd values by type; the good ones name what setup() has made
my %good = (
	bool => 'false', bigint => '1', integer => '1', '"char"' => q{'r'}, 'double precision' => '1', interval => q{'1 s'}, jsonb => q{'{}'},
	oid => '10', regrole => '10', regclass => q{'public.strange'}, regprocedure => q{'public.f(jsonb)'}, text => q{'a'}, 'timestamp with time zone' => q{'2030-01-01'},
	uuid => q{'00000000-0000-0000-0000-000000000001'}, boolean => 'false');
# by the name of the argument, where another value would not get far
my %named = (problem => 'NULL', metric => q{'step_wait'}, request => q{'{"path": "/a"}'}, answer => q{'{"headers": {"a": "b"}, "body": {}}'});
my %odd = (
	bigint => [ '0', '-1', '-9223372036854775808', '9223372036854775807' ],
	integer => [ '0', '-1', '-2147483648', '2147483647' ],
	'"char"' => [q{''}],
	'double precision' => [ q{'NaN'}, q{'-infinity'} ],
	interval => [ q{'-1 s'}, q{'100000000 years'} ],
	jsonb => [ q{'null'}, q{'[]'}, q{'1'}, q{'[[]]'}, q{to_jsonb(repeat('x', 1048576))}, q{jsonb_build_object(repeat('x', 1048576), 1)},
		q{(repeat('[', 3000) || repeat(']', 3000))::jsonb}, q{jsonb_build_object('path', repeat('/{{input.a}}', 87381), 'headers', jsonb_build_object('a', repeat('x', 1048576)))} ],
	oid => [ '0', '4294967295' ],
	regrole => ['0'],
	regclass => ['0'],
	regprocedure => ['0'],
	text => [ q{''}, map { "repeat('$_', " . int(1048576 / length $_) . ')' } ('x', '{{a', '[', '/%2e', '* ') ],
	'timestamp with time zone' => [ q{'infinity'}, q{'-infinity'} ],
	anyarray => [ q{'{1,NULL}'::int[]}, q{ARRAY[NULL, ROW(1, 2)::public.moved]}, q{'{}'::public.moved[]} ]);

sub setup
{
	my ($node) = @_;
	$node->safe_psql('postgres', q{
		CREATE FUNCTION public.f(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
		CREATE TABLE public.strange (lane text DEFAULT 'x', rank int, actor text DEFAULT 'x', run_id text DEFAULT 'x');
		INSERT INTO public.strange DEFAULT VALUES;
		CREATE TYPE public.moved_text AS (from_state text, to_state text);
		CREATE TYPE public.moved AS (from_state int, to_state int);
		SELECT sas.create_agent('a', 'http://127.0.0.1:1');
		SELECT sas.create_workflow('a', '{"steps": {"a": {"function": "public.f"}}}');
		SELECT sas.create_queue('a', 1);
		SELECT sas.create_watcher('a', '{"function": "public.f", "every": "1 h"}');
		SELECT sas.watch('a', 'a');
		SELECT run_id FROM sas.submit('a', start_at => '2100-01-01')});
	return;
}

# the C functions of the extension
sub functions
{
	my ($node) = @_;
	return @{ JSON::PP->new->decode($node->safe_psql('postgres', q{
		SELECT jsonb_agg(jsonb_build_object(
			'name', p.oid::regproc, 'told', p.oid::regprocedure, 'public', p.pronamespace = 'sas'::regnamespace, 'variadic', p.provariadic <> 0,
			'types', (SELECT coalesce(jsonb_agg(format_type(t, NULL) ORDER BY n), '[]') FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n)),
			'result', format_type(p.prorettype, NULL), 'names', coalesce(to_jsonb(p.proargnames), '[]'))
			ORDER BY p.oid::regprocedure::text)
		FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND l.lanname = 'c'})) };
}

sub typed { my ($value, $type) = @_; return $value =~ /::/ ? $value : $type =~ /^any/ ? "$value" : "$value\::$type" }

# a good value of a type
sub good
{
	my ($type) = @_;
	return q{ARRAY[ROW('a', 'b')::public.moved_text]} if $type eq 'anyarray';
	return q{'a'::text} if $type eq '"any"';
	return 'NULL' if $type eq 'internal';
	return 'ARRAY[' . good($1) . ']' if $type =~ /^(.*)\[\]$/;
	die "no value of type $type is known here" unless defined $good{$type};
	return typed($good{$type}, $type);
}

# the odd values of a type, NULL first
sub odd
{
	my ($type) = @_;
	my @values = ($type eq 'anyarray' ? 'NULL::int[]' : $type =~ /^"any|internal/ ? 'NULL' : "NULL::$type");
	push @values, map { typed($_, $type) } @{ $odd{$type} // [] };
	push @values, "'{}'::$type", "array_fill(" . good($1) . ", ARRAY[20000])", "ARRAY[NULL]::$type", 'ARRAY[' . good($1) . ", NULL]::$type", "ARRAY[ARRAY[NULL], ARRAY[" . good($1) . "]]::$type",
	  (map { "ARRAY[$_]::$type" } @{ $odd{$1} // [] })
	  if $type =~ /^(.*)\[\]$/;
	return @values;
}

# all the calls of a function
sub calls
{
	my ($function) = @_;
	my @types = @{ $function->{types} };
	my @names = @{ $function->{names} };
	my @good = map { my $named = $named{ $names[$_] // '' }; defined $named ? typed($named, $types[$_]) : good($types[$_]) } 0 .. $#types;
	my @calls = ([@good], [ map { (odd($_))[0] } @types ]);
	foreach my $i (0 .. $#types)
	{
		push @calls, map { my @with = @good; $with[$i] = $_; \@with } odd($types[$i]);
	}
	if ($function->{variadic})
	{
		push @calls, map { [ @good[ 0 .. $#good - 1 ], "VARIADIC $_" ] }
		  (map { ("NULL::$_", "'{}'::$_", "'{NULL}'::$_") } qw(int[] text[] jsonb[])), q{'{{a,b},{c,NULL}}'::text[]}, 'NULL';
		push @calls, [ 'NULL', q{'a'::text} ], [ q{'a'::text}, 'NULL::jsonb' ], [ 'NULL::int', 'NULL::text' ];
	}
	return map { "$function->{name}(" . join(', ', @$_) . ')' } @calls;
}

# statements that have functions called as triggers
sub as_triggers
{
	my (@triggers) = @_;
	my $n = 0;
	my @statements;
	foreach my $trigger (@triggers)
	{
		foreach my $arguments ('', q{''}, q{'r'}, q{'d'}, q{'y'}, q{'r', 'd'})
		{
			foreach my $when ('BEFORE INSERT', 'AFTER DELETE')
			{
				$n++;
				push @statements, "CREATE TRIGGER t$n $when ON public.strange FOR EACH ROW EXECUTE FUNCTION $trigger->{name}($arguments);"
				  . ($when =~ /INSERT/ ? 'INSERT INTO public.strange VALUES (NULL)' : 'DELETE FROM public.strange');
			}
		}
	}
	return @statements;
}

# Calls them in a session, from number $first on. What each statement ended with: [statement, sqlstate, message];
# sqlstate is empty when it succeeded, and lost when the session did not live.
sub call_from
{
	my ($node, $first, @statements) = @_;
	my $script = "\\set VERBOSITY verbose\nSET statement_timeout = '60 s';\n";
	$script .= "\\warn call $_\nBEGIN;\n" . ($statements[$_] =~ /sas\.wait\(/ ? "SET LOCAL statement_timeout = 100;\n" : '') . "$statements[$_] \\g /dev/null\nROLLBACK;\n" foreach $first .. $#statements;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/calls.sql';
	append_to_file($file, $script . "\\warn end\n");
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-f', $file ], '>', \$out, '2>', \$err);
	my @told;
	my $ended = 0;
	foreach (split /\n/, $err)
	{
		if (/^call (\d+)$/) { push @told, [ $statements[$1], '', '' ] }
		elsif (/^end$/) { $ended = 1 }
		elsif (/\b(?:ERROR|FATAL|PANIC):\s+([0-9A-Z]{5}): (.*)/ && @told && $told[-1][1] eq '') { @{ $told[-1] }[ 1, 2 ] = ($1, $2) }
	}
	@{ $told[-1] }[ 1, 2 ] = ('lost', $err =~ /([^\n]*)\n*$/) if @told && !$ended;
	return @told;
}

# Calls all of them; a session that is lost is told once, and another goes on.
sub call_all
{
	my ($node, @statements) = @_;
	my @told;
	while (@told < @statements)
	{
		my @more = call_from($node, scalar @told, @statements);
		push @told, @more;
		# also when the server had not noticed yet that it crashed
		last unless wait_until(sub { IPC::Run::run([ 'psql', '-Xq', '-d', $node->connstr('postgres'), '-c', 'SELECT 1' ], '>', '/dev/null', '2>', '/dev/null') });
	}
	return @told;
}

foreach my $preload ('sas', '')
{
	my $how = $preload ? 'preloaded' : 'without preload';
	my $node = new_node($preload ? 'main' : 'bare', shared_preload_libraries => $preload, log_min_messages => 'log', log_statement => 'none');
	setup($node);
	my @functions = functions($node);
	my $all = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
		WHERE l.lanname = 'c' AND p.probin LIKE '%/sas'});
	cmp_ok(scalar @functions, '>', 100, "$how: the C functions are found");
	is(scalar @functions, $all, "$how: all of them");
	my @statements = ((map { ("SELECT $_", "SELECT * FROM $_ AS r") } map { calls($_) } @functions), as_triggers(grep { $_->{result} eq 'trigger' } @functions));
	my $log = -s $node->logfile;
	my @told = call_all($node, @statements);
	my @lost = grep { $_->[1] eq 'lost' } @told;
	is(scalar @lost, 0, "$how: none of " . @statements . ' calls loses its session') or diag(map { "$_->[0]\n" } @lost);
	is(scalar(() = slurp_file($node->logfile, $log) =~ /terminated by signal|PANIC/g), 0, "$how: no process is ended by a signal");
	my @long = grep { $_->[1] eq '57014' && $_->[0] !~ /sas\.wait\(/ } @told;
	is(scalar @long, 0, "$how: none goes on for ever") or diag(map { "$_->[0]\n" } @long);
	my %public = map { $_->{name} => $_->{public} } @functions;
	my @internal = grep { $_->[1] eq 'XX000' && $_->[0] =~ /^SELECT (?:\* FROM )?([\w.]+)/ && $public{$1} } @told;
	is(scalar @internal, 0, "$how: no public function ends with an internal error") or diag(map { "$_->[0]: $_->[2]\n" } @internal[ 0 .. ($#internal < 20 ? $#internal : 20) ]);
	my %states;
	$states{ $_->[1] || 'done' }++ foreach @told;
	note("$how: " . join(', ', map { "$_ $states{$_}" } sort keys %states));
	$node->stop;
}
done_testing();
