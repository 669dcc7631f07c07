# SPDX-License-Identifier: PostgreSQL
#
# What ALTER DATABASE ... SET and ALTER ROLE ... SET say reaches background workers, too. The same work (SasOperations)
# is done in a database as it comes and in others whose settings change what statements mean, what may be written, how
# values look and how statements are planned: nothing that is answered or stored differs. The functions of users see the
# settings of their database. Nor does anything differ under another collation.
#
# By itself: all settings at once, of the database, then of the roles; the sessions of clients then have none of them.
# SAS_LONG=1: each alone, and those of a family, too, of the database and then of the roles; the sessions of clients have
# them as well, where PostgreSQL lets a session work under them at all. SETTINGS="TimeZone jit,jit_above_cost": these
# alone, instead of all; a comma joins what is set together. What is not done after 55 minutes is named as not run.
# Takes about 40 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use SasOperations;
use SasService;
use SasTest;
use Test::More;

my $enough = time() + 55 * 60;	# tools/check gives a file an hour
my $node = new_node('main', _extension => 0, 'sas.function_workers' => 2, max_worker_processes => 30, allow_in_place_tablespaces => 'on');
my $service = SasService->new;
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
$node->safe_psql('postgres', $_) foreach 'CREATE ROLE stranger NOLOGIN', 'CREATE ROLE sas_app LOGIN', q{CREATE TABLESPACE elsewhere LOCATION ''},
  'GRANT CREATE ON TABLESPACE elsewhere TO sas_app';

# what ends every session that waits, or makes it another's, or keeps it from writing, or from reading what has a policy, or views:
# workers go on, clients cannot
my %closed = map { $_ => 1 } qw(row_security role session_authorization default_transaction_read_only default_transaction_isolation
  statement_timeout lock_timeout transaction_timeout idle_in_transaction_session_timeout idle_session_timeout exit_on_error
  restrict_nonsystem_relation_kind);
# what workers set for functions of users, too, and what these may not read
my %own = map { $_ => 1 } qw(role session_authorization search_path exit_on_error default_transaction_read_only default_transaction_isolation
  default_transaction_deferrable row_security client_min_messages synchronous_commit restrict_nonsystem_relation_kind application_name session_preload_libraries);
my %hostile = (
	role => 'stranger',
	session_authorization => 'stranger',
	search_path => 'strange, pg_temp',
	standard_conforming_strings => 'off',
	backslash_quote => 'on',
	escape_string_warning => 'off',
	array_nulls => 'off',
	transform_null_equals => 'on',
	quote_all_identifiers => 'on',
	check_function_bodies => 'off',
	exit_on_error => 'on',
	default_transaction_read_only => 'on',
	default_transaction_isolation => 'serializable',
	default_transaction_deferrable => 'on',
	statement_timeout => '1ms',
	lock_timeout => '1ms',
	transaction_timeout => '10ms',
	idle_in_transaction_session_timeout => '1ms',
	idle_session_timeout => '1ms',
	deadlock_timeout => '1ms',
	row_security => 'off',
	session_replication_role => 'replica',
	restrict_nonsystem_relation_kind => 'view',
	allow_system_table_mods => 'on',
	event_triggers => 'off',
	DateStyle => 'German, DMY',
	IntervalStyle => 'sql_standard',
	TimeZone => 'Australia/Lord_Howe',
	timezone_abbreviations => 'India',
	extra_float_digits => '-15',
	bytea_output => 'escape',
	xmlbinary => 'hex',
	xmloption => 'document',
	client_encoding => 'LATIN1',
	default_text_search_config => 'pg_catalog.simple',
	jit => 'on',
	jit_above_cost => '0',
	jit_inline_above_cost => '0',
	jit_optimize_above_cost => '0',
	plan_cache_mode => 'force_custom_plan',
	enable_seqscan => 'on',
	enable_indexscan => 'off',
	enable_indexonlyscan => 'off',
	enable_bitmapscan => 'off',
	enable_tidscan => 'off',
	enable_nestloop => 'off',
	enable_hashjoin => 'off',
	enable_mergejoin => 'off',
	enable_sort => 'off',
	enable_incremental_sort => 'off',
	enable_hashagg => 'off',
	enable_material => 'off',
	enable_memoize => 'off',
	enable_partition_pruning => 'off',
	enable_partitionwise_join => 'on',
	enable_partitionwise_aggregate => 'on',
	enable_gathermerge => 'off',
	enable_parallel_append => 'off',
	enable_parallel_hash => 'off',
	enable_presorted_aggregate => 'off',
	enable_group_by_reordering => 'off',
	enable_distinct_reordering => 'off',
	enable_self_join_elimination => 'off',
	constraint_exclusion => 'on',
	from_collapse_limit => '1',
	join_collapse_limit => '1',
	geqo_threshold => '2',
	geqo_seed => '1',
	geqo_effort => '1',
	geqo_pool_size => '2',
	geqo_generations => '1',
	geqo_selection_bias => '1.5',
	cursor_tuple_fraction => '1',
	seq_page_cost => '1000',
	random_page_cost => '1000',
	cpu_tuple_cost => '100',
	cpu_index_tuple_cost => '100',
	cpu_operator_cost => '100',
	effective_cache_size => '8kB',
	recursive_worktable_factor => '1000',
	parallel_setup_cost => '0',
	parallel_tuple_cost => '0',
	parallel_leader_participation => 'off',
	min_parallel_table_scan_size => '0',
	min_parallel_index_scan_size => '0',
	max_parallel_workers_per_gather => '4',
	debug_parallel_query => 'on',
	force_parallel_mode => 'on',
	work_mem => '64kB',
	hash_mem_multiplier => '1',
	temp_buffers => '800kB',
	temp_file_limit => '0',
	gin_fuzzy_search_limit => '1',
	default_tablespace => 'elsewhere',
	temp_tablespaces => 'elsewhere',
	synchronous_commit => 'off',
	client_min_messages => 'error',
	log_min_messages => 'panic',
	log_statement => 'all',
	lc_messages => 'de_DE.UTF-8',
	lc_monetary => 'de_DE.UTF-8',
	lc_numeric => 'de_DE.UTF-8',
	lc_time => 'de_DE.UTF-8',
	max_stack_depth => '100kB',
	default_toast_compression => 'lz4',
	track_activities => 'off',
	track_counts => 'off',
	track_functions => 'all',
	track_io_timing => 'on',
	stats_fetch_consistency => 'snapshot',
	application_name => 'strange',
	session_preload_libraries => 'auto_explain',
	'plpgsql.variable_conflict' => 'use_column',
	'plpgsql.print_strict_params' => 'on',
	'plpgsql.check_asserts' => 'off',
	'plpgsql.extra_errors' => 'all',
	'plpgsql.extra_warnings' => 'all');

# not every server has these, nor every machine this language
delete $hostile{max_stack_depth} if memory_checked();
delete $hostile{session_preload_libraries} unless -e $node->config_data('--pkglibdir') . '/auto_explain.so';
foreach my $name (grep { /^lc_|^default_toast_compression$/ } keys %hostile) { delete $hostile{$name} if $node->psql('postgres', "SET $name = '$hostile{$name}'") != 0 }

# of the settings of this server, each with its default, as an option of a session
my %default = map { /^(.*?)=(.*)$/s } split /\n/, $node->safe_psql('postgres', q{LOAD 'plpgsql'; SELECT name || '=' || reset_val FROM pg_settings});
$default{client_encoding} = 'UTF8';
# which no list shows
my %odd = map { $_ => 1 } qw(role session_authorization);
my @names = grep { $odd{$_} || exists $default{$_} } sort { lc $a cmp lc $b } keys %hostile;
sub option { my ($name) = @_; return "-c $name=" . ($default{$name} =~ s/([\\ ])/\\$1/gr) }
$SasOperations::calm = join(' ', map { option($_) } grep { !$odd{$_} && !/^session_preload_libraries$/ } @names);

# a session that is not a superuser's begins with the same options
$node->safe_psql('postgres', join ';', map { "GRANT SET ON PARAMETER $_ TO sas_app" } grep { !$odd{$_} } @names);

sub alter
{
	my ($what, $name) = @_;
	my $list = $name =~ /^(?:search_path|temp_tablespaces|session_preload_libraries)$/;
	return "ALTER $what SET $name = " . ($list ? $hostile{$name} : "'$hostile{$name}'");
}

sub calmly
{
	my ($sql, $database, $role) = @_;
	local $ENV{PGOPTIONS} = SasOperations::as($SasOperations::calm, $role // $superuser);
	return $node->safe_psql($database // 'postgres', $sql, extra_params => [ '-U', $role // $superuser ]);
}

my $databases = 0;
sub database { my ($locale) = @_; my $name = 'd' . ++$databases; calmly("CREATE DATABASE $name TEMPLATE template0 ENCODING 'UTF8' " . ($locale // '')); return $name }

# how a function of a user sees these settings of its database, but for those that are the worker's own, where that is
# not as the database says
sub misled
{
	my ($database, @settings) = @_;
	my $input = JSON::PP->new->canonical->encode({ names => \@settings });
	my $run = calmly("SELECT run_id FROM sas.submit('settings', '$input')", $database, 'sas_app');
	my $seen = JSON::PP->new->decode(calmly("SELECT output FROM sas.wait($run, '60 s')", $database, 'sas_app') || '{}');
	return join '', map { lc($seen->{$_} // '') eq lc $hostile{$_} ? '' : "a function sees $_ as " . ($seen->{$_} // 'null') . "\n" } @settings;
}

# what is different under these settings of the database or of the roles
my %usual;
sub differs
{
	my ($level, @settings) = @_;
	my $database = database();
	my @what = $level eq 'database' ? ("DATABASE $database") : ('ROLE sas_app', "ROLE $superuser");
	foreach my $what (@what) { calmly(alter($what, $_)) foreach @settings }
	my $text = eval {
		my %seen = SasOperations::perform($node, $database, $service);
		my @told = grep { !$own{$_} && !/_timeout$/ } @settings;
		return SasOperations::difference(\%usual, \%seen) . ($level eq 'database' && @told ? misled($database, @told) : '');
	} // "died: $@";
	foreach my $what (@what) { calmly("ALTER $what RESET ALL") }
	calmly("DROP DATABASE $database WITH (FORCE)");
	return $text;
}

# -- as it comes --------------------------------------------------------------------------------------

%usual = SasOperations::perform($node, database(), $service);
foreach my $what (sort keys %usual) { cmp_ok(scalar @{ $usual{$what} }, '>', 0, "there are $what") }
is(SasOperations::difference({ answers => [ sort 'f', 't', ('go') x 3, 'go', 't' ] }, { answers => $usual{answers} }), '', 'what is to be answered is answered');
my %results;
/"result": "(\w+)"/ and $results{$1}++ foreach @{ $usual{runs} };
is(join(' ', sort keys %results), 'cancelled compensated error success warning', 'runs end as they should');
my $again = { SasOperations::perform($node, database(), $service) };
is(SasOperations::difference(\%usual, $again), '', 'the same work is seen in the same way in another database');
# lower('I') is no i, digits are compared as numbers, and punctuation counts for nothing
$again = { SasOperations::perform($node, database(q{LOCALE_PROVIDER icu ICU_LOCALE 'tr-u-kn-true-ka-shifted' LOCALE 'C'}), $service) };
is(SasOperations::difference(\%usual, $again), '', 'and in one that compares and folds text in another way');
is(calmly(q{SELECT lower('I') = 'i', '10' < '9'}, "d$databases"), 'f|f', 'which it does');

# -- under others -------------------------------------------------------------------------------------

cmp_ok(scalar @names, '>=', 60, 'there are settings');
{
	local $SasOperations::working = $SasOperations::calm;
	# PostgreSQL starts a parallel worker of a user's function under the timeout of the database, before it has the worker's
	my @together = grep { $_ ne 'transaction_timeout' } @names;
	foreach my $level (qw(database role)) { is(differs($level, @together), '', "all settings at once, of the $level: nothing differs") }
}
if ($ENV{SAS_LONG})
{
	# what changes plans only together
	my @families = map { my $family = $_; join ',', grep { /$family/ } @names } qr/parallel/, qr/^jit/, qr/^geqo/, qr/_cost$/, qr/^enable_/;
	my @some = $ENV{SETTINGS} ? split(/ /, $ENV{SETTINGS}) : (@names, @families);
	foreach my $some (@some)
	{
		my @set = split /,/, $some;
		local $SasOperations::working = join ' ', map { option($_) } grep { $closed{$_} && !$odd{$_} } @set;
		my $text = join ', ', map { "$_ = $hostile{$_}" } @set;
		foreach my $level (qw(database role))
		{
		  SKIP:
			{
				skip("no time was left for SETTINGS=\"$some\", of the $level", 1) if time() >= $enough;
				is(differs($level, @set), '', "$text, of the $level: nothing differs");
			}
		}
	}
}
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/sas (?:agent|scheduler|supervisor)\[\d+\] ERROR/, 'no turn of a worker failed');
done_testing();
