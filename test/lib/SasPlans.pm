# SPDX-License-Identifier: PostgreSQL
#
# SasPlans: rows that statements read only to throw them away, as auto_explain logs them.
package SasPlans;
use strict;
use warnings;
use Exporter 'import';

our @EXPORT = qw(plans_logged thrown_away);

# settings of a server whose log thrown_away() reads
sub plans_logged
{
	return (shared_preload_libraries => 'sas,auto_explain', log_line_prefix => '%m %b[%p] ', 'auto_explain.log_min_duration' => 0,
		'auto_explain.log_nested_statements' => 'on', 'auto_explain.log_analyze' => 'on', 'auto_explain.log_timing' => 'off');
}

# Reads the log of a server from that place on. Returns how many plans of each actor it has, and the parts of plans that have thrown
# away more rows than "most", with their number.
sub thrown_away
{
	my ($node, $from, $most) = @_;
	my (%found, %actors);
	my ($who, $query, $line_of_node, $loops, $removed, $conditions);

	# the part of a plan that has been read, if it has thrown away too much
	my $judge = sub {
		return unless $removed && $removed * $loops > $most;
		my $what = $line_of_node =~ s/^\s*(?:->\s+)?|\s+\(cost=.*//gr;
		# a session may scan a small table, and will not when it is large; workers never do
		return if $who eq 'client backend' && $what =~ /^Seq Scan/;
		my $key = "$who: $what $conditions: " . substr($query =~ s/\s+/ /gr, 0, 150);
		$found{$key} = $removed * $loops if $removed * $loops > ($found{$key} // 0);
		return;
	};
	open(my $log, '<', $node->logfile) or die $!;
	seek($log, $from, 0);
	while (my $line = <$log>)
	{
		if ($line =~ /^\d{4}-\d\d-\d\d /)
		{
			$judge->();
			($who, $query, $removed) = ($line =~ / (sas \w+|client backend)\[\d+\] LOG:  duration: .* plan:/ ? $1 : undef, undef, 0);
			$actors{$who}++ if defined $who;
		}
		elsif (!defined $who) { next }
		elsif ($line =~ /\(actual .*loops=(\d+)\)$/)
		{
			$judge->();
			($line_of_node, $loops, $removed, $conditions) = ($line, $1, 0, '');
		}
		elsif ($line =~ /^\s+Rows Removed by (?:Join )?(?:Filter|Index Recheck): (\d+)/) { $removed += $1 }
		elsif ($line =~ /^\s+((?:Index Cond|Join Filter|Filter): .*)/ && defined $line_of_node) { $conditions .= " $1" }
		elsif ($line =~ /^\s+Query Text: (.*)/) { ($query, $line_of_node) = ($1, undef) }
		elsif (!defined $line_of_node) { $query .= $line }
	}
	$judge->();
	close $log;
	return (\%actors, \%found);
}

1;
