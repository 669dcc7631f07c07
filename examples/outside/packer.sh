#!/bin/bash
# SPDX-License-Identifier: PostgreSQL
#
# packer.sh NAME [SECONDS]: a program that works on the tasks of agent "packer", one
# at a time, wherever psql reaches the database (PGHOST, PGDATABASE ...). Any
# number may run, here or on other machines; any may be killed at any time.
#
# A task is an order of several pages, {"order": 7, "pages": 3}; a page takes
# SECONDS (0.05). What is done is told by a checkpoint after each page, so that
# whoever takes the task over goes on with the next. The result is written
# in one transaction with sas.complete, so an order is in table "packed" once.
#
#	SELECT sas.create_agent('packer', kind => 'external');
#	CREATE TABLE packed (order_id bigint PRIMARY KEY, worker text, pages int);
#	SELECT sas.create_workflow('pack', '{"steps": {"pack": {"agent": "packer", "task": {}}}}');
#	SELECT * FROM sas.submit('pack', '{"order": 7, "pages": 3}');
#
# A program with a driver would LISTEN sas_agent_packer instead of looking
# every tenth of a second, and look once a minute all the same.

set -uo pipefail

me=$1
page_takes=${2:-0.05}
lease='3 s'						# of each claim and heartbeat; longer than a page takes

sql()							# sql VARIABLE=VALUE ... : what stands on the input; columns come apart by tabs
{
	local options=() v
	for v in "$@"; do options+=(-v "$v"); done
	psql -XqAt -F $'\t' -v ON_ERROR_STOP=1 "${options[@]}" -f -
}

claim()
{
	sql me="$me" lease="$lease" <<-'END'
		SELECT request_id, request ->> 'order', request ->> 'pages', coalesce(checkpoint ->> 'page', '0')
		FROM sas.claim('packer', :'me', 1, :'lease')
	END
}

heartbeat()						# heartbeat REQUEST_ID PAGE PAGES
{
	sql id="$1" page="$2" pages="$3" <<-'END'
		SELECT sas.heartbeat(:'id', progress => :page / :pages::float8, checkpoint => jsonb_build_object('page', :page))
	END
}

complete()						# complete REQUEST_ID ORDER PAGES: in one transaction, or not at all
{
	sql id="$1" order="$2" pages="$3" me="$me" <<-'END'
		BEGIN;
		SELECT sas.complete(:'id', jsonb_build_object('box', :order)) AS taken \gset
		\if :taken
			INSERT INTO packed VALUES (:order, :'me', :pages);
			COMMIT;
		\else
			ROLLBACK;
		\endif
	END
}

while true; do
	if ! task=$(claim) || [ -z "$task" ]; then
		sleep 0.1				# nothing there, or the server is away
		continue
	fi
	IFS=$'\t' read -r id order pages page <<<"$task"
	echo "$me: order $order from page $((page + 1))"
	answer=go
	while [ "$page" -lt "$pages" ]; do
		sleep "$page_takes"		# the work
		page=$((page + 1))
		echo "$me: order $order page $page"
		answer=$(heartbeat "$id" "$page" "$pages") || answer=away
		case $answer in
			cancel) sql id="$id" <<<"SELECT sas.hand_back(:'id')" >/dev/null; break ;;
			lost) break ;;
		esac
	done
	[ "$answer" = cancel ] || [ "$answer" = lost ] || complete "$id" "$order" "$pages"
done
