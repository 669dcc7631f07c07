# SPDX-License-Identifier: PostgreSQL
#
# Workflows whose runs go through every tick of every actor.
package SasKinds;
use strict;
use warnings;
use Exporter 'import';
use SasService;
use SasTest;

our @EXPORT = qw(define_kinds);

# define_kinds($node, $service, agent => { ... }, all => { ... }): the agents "remote", which is this service, and "outside",
# the queue "narrow", the functions echo, turn and planned, the table item; and the workflows child, planned, all, keyed,
# undone, poor and task. agent and all: what "remote" and the workflow "all" have besides.
sub define_kinds
{
	my ($node, $service, %more) = @_;
	my %recovery = (recovery => { initial => '20 ms', max_failures => 2 });

	make_agent($node, 'remote', $service, %{ $more{agent} // {} });
	$service->script(fail => [ { status => 400 } ], poor => [ { status => 503 } ]);
	$node->safe_psql('postgres', q{
		CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
		CREATE FUNCTION turn(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(coalesce((turn ->> 'cursor')::int, 0) + 1) $$;
		CREATE FUNCTION planned(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"steps": {"x": {"function": "public.echo"}}}'::jsonb $$;
		CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY, item jsonb NOT NULL);
		SELECT sas.create_agent('outside', kind => 'external');
		SELECT sas.create_queue('narrow', 2)});
	define($node, 'child', { steps => { x => { function => 'public.echo' } } });
	define($node, 'planned', { plan => 'public.planned' });
	define($node, 'all', {
		%{ $more{all} // {} },
		steps => {
			call => { agent => 'remote', call => { path => '/quick' } },
			fn => { function => 'public.echo', after => ['call'] },
			timer => { wait => { for => '20 ms' } },
			map => { function => 'public.echo', each => '{{input.ids}}', concurrency => 1 },
			sub => { workflow => 'child' },
			plan => { workflow => 'planned' },
			queued => { function => 'public.echo', queue => 'narrow' } } });
	define($node, 'keyed', { steps => { x => { function => 'public.echo' } }, concurrency => { key => '{{input.key}}', limit => 1 } });
	define($node, 'undone', { %recovery, steps => {
			done => { agent => 'remote', call => { path => '/quick' }, undo => { call => { path => '/quick' } } },
			bad => { agent => 'remote', call => { path => '/fail' }, after => ['done'] } } });
	define($node, 'poor', { %recovery, on_failure => 'fail', steps => { x => { agent => 'remote', call => { path => '/poor' }, retry => { max_attempts => 1 } } } });
	define($node, 'task', { %recovery, on_failure => 'fail', steps => { x => { agent => 'outside', task => {}, complete_in => '200 ms' } } });
	return;
}

1;
