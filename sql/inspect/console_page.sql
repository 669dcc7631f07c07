-- SPDX-License-Identifier: PostgreSQL
--
-- Console: pages by their path. sas renders the HTML; a server in front of it logs users in, sends the
-- pages, and receives the forms (examples/console).

-- _sas.console_watches(look): watchers and infinite tasks, failing ones first.
CREATE FUNCTION _sas.console_watches(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('watches', 'Infinite tasks',
        _sas.html_table('{watcher,key,state,owner,node,since,#restarts,#items,#waiting,last item,#failures,'
                        'error}', array_agg(ARRAY[
            '<b>' || _sas.html_escape(w.watcher) || '</b>', _sas.html_escape(w.key),
            _sas.html_badge(w.state) || _sas.console_acts(
                _sas.console_act(look, v.verb || '_watch', initcap(v.verb),
                                 jsonb_build_object('name', w.watcher, 'key', w.key))
                || _sas.console_act(look, 'unwatch', 'Stop for good',
                                    jsonb_build_object('name', w.watcher, 'key', w.key))),
            _sas.html_escape(w.owner::text), _sas.html_escape(w.node), _sas.html_time(w.since, look.now),
            w.restarts::text, w.items::text, w.waiting::text, _sas.html_time(w.last_item_at, look.now),
            w.failures::text, _sas.html_escape(w.last_error ->> 'title')]
            ORDER BY w.failures > 0 DESC, w.watcher, w.key), 'There are none.')
        || _sas.html_more(max(w.total), 200, 'sas.watches'))
    FROM (SELECT x.*, count(*) OVER () AS total FROM sas.watches x WHERE x.state <> 'deleted'
          ORDER BY x.failures > 0 DESC, x.watcher, x.key LIMIT 200) w
    CROSS JOIN LATERAL (SELECT CASE WHEN w.state LIKE '%paus%' THEN 'resume' ELSE 'pause' END AS verb) v;
END;

-- _sas.console_nodes(look): the nodes that host infinite tasks.
CREATE FUNCTION _sas.console_nodes(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('nodes', 'Nodes',
        _sas.html_table('{#node,name,kind,version,tasks,#pid,since,ended}', array_agg(ARRAY[
            n.node_id::text, _sas.html_escape(n.name), _sas.html_escape(n.kind), _sas.html_escape(n.version),
            _sas.html_meter(n.watches, n.capacity), n.pid::text, _sas.html_time(n.created_at, look.now),
            _sas.html_time(n.ended_at, look.now) || ' ' || _sas.html_escape(n.ended_for)]
            ORDER BY n.is_deleted, n.node_id DESC), 'There are none.'))
    FROM (SELECT * FROM sas.nodes x ORDER BY x.is_deleted, x.node_id DESC LIMIT 100) n;
END;

-- _sas.console_error(look, args): a page that says what was refused.
CREATE FUNCTION _sas.console_error(look _sas.look, args jsonb) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_page(look, 'sas: refused', _sas.console_top(look, '', '<h1>Refused</h1>')
        || _sas.html_section('error', coalesce(args ->> 'message', 'It was refused.'), _sas.html_facts(
               '{detail,hint,SQLSTATE}', ARRAY[
                   _sas.html_escape(args ->> 'detail'), _sas.html_escape(args ->> 'hint'),
                   _sas.html_escape(args ->> 'code')])));
END;

-- _sas.check_page(path, args): the name of the page for this path; raises an error if there is none, or if
-- args has a key that the page does not know.
CREATE FUNCTION _sas.check_page(path text, args jsonb) RETURNS text
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.check_page_as(caller, path, args): the body of _sas.check_page.
CREATE FUNCTION _sas.check_page_as(caller oid, path text, args jsonb) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    word text := split_part(btrim(path, '/'), '/', 1);
    p _sas.problem;
BEGIN
    IF word = '' THEN
        word := 'overview';
    ELSIF word = 'runs' AND btrim(path, '/') ~ '^runs/[0-9]{1,18}$' THEN
        word := 'run';
    ELSIF btrim(path, '/') <> word THEN
        word := NULL;
    END IF;
    IF word IS NULL OR word <> ALL ('{overview,runs,run,workflows,agents,queues,schedules,watches,alerts,'
                                    'workers,error}'::text[]) THEN
        PERFORM _sas.refuse('22023', coalesce('there is no page "' || left(path, 200) || '"',
                                              'the path must not be null'),
                            'At /path.', 'The pages are /, /runs, /runs/ and a run_id, /workflows, /agents, '
                            '/queues, /schedules, /watches, /alerts and /workers.');
    END IF;
    FOR p IN
        SELECT * FROM _sas.check_keys(args, '', '{root,token,notice}'::text[] || CASE word
            WHEN 'runs' THEN '{run_id,workflow,key,labels,state,result,submitted_by,text,created_after,'
                             'created_before,finished_after,finished_before,before}'::text[]
            WHEN 'run' THEN '{run_id,step,state,after}' WHEN 'error' THEN '{message,detail,hint,code}'
            ELSE '{}' END)
        UNION ALL
        SELECT '/before', 'before is no run_id', 'It is the last run_id of the page before.', '22023'
        WHERE word = 'runs' AND args ->> 'before' !~ '^([0-9]{1,18})?$'
        UNION ALL
        SELECT '/after', 'after is no element', 'It is the last element of the page before.', '22023'
        WHERE word = 'run' AND args ->> 'after' !~ '^([0-9]{1,9})?$'
        UNION ALL
        SELECT '/root', 'root is no path', 'Write what links begin with, such as "" or "/sas".', '22023'
        WHERE args ->> 'root' !~ '^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$' LOOP
        PERFORM _sas.raise(p);
    END LOOP;
    IF word = 'run' AND btrim(path, '/') = 'run' AND coalesce(args ->> 'run_id', '') !~ '^[0-9]{1,18}$' THEN
        PERFORM _sas.refuse('22023', 'run_id is missing', 'At /run_id.', 'Write /runs/ and a run_id.');
    END IF;
    RETURN word;
END $$;

-- _sas.page_look(word, root, token, notice): how the page of that name is requested.
CREATE FUNCTION _sas.page_look(word text, root text, token text, notice text) RETURNS _sas.look
LANGUAGE sql STABLE
BEGIN ATOMIC
    -- once for the page: there may be very many open runs
    SELECT ROW(sas.now(), root, token, notice,
               CASE WHEN word IN ('overview', 'runs', 'workflows')
               THEN ARRAY(SELECT _sas.open_groups()) END)::_sas.look;
END;

-- _sas.page(look, word, path, args): the page of that name.
CREATE FUNCTION _sas.page(look _sas.look, word text, path text, args jsonb) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE word
        WHEN 'overview' THEN _sas.console_all(look)
        WHEN 'runs' THEN _sas.console_runs(look, args)
        WHEN 'run' THEN _sas.console_run(
            look, coalesce(args ->> 'run_id', split_part(btrim(path, '/'), '/', 2))::bigint, args)
        WHEN 'schedules' THEN _sas.console_schedules_page(look)
        WHEN 'error' THEN _sas.console_error(look, args)
        ELSE _sas.html_page(look, format('sas: %s of %s', word, current_database()),
            _sas.console_top(look, '/' || word, format('<h1>%s</h1>', initcap(word))) || CASE word
                WHEN 'workflows' THEN _sas.console_workflows(look)
                WHEN 'agents' THEN _sas.console_agents(look) || _sas.console_errors(look)
                WHEN 'queues' THEN coalesce(_sas.console_queues(look),
                                            _sas.html_section('queues', 'Queues',
                                                              '<p class="none">There are none.</p>'))
                WHEN 'watches' THEN _sas.console_watches(look) || _sas.console_nodes(look)
                WHEN 'alerts' THEN _sas.console_alerts(look, true, 200)
                ELSE _sas.html_section('health', 'Health', _sas.console_health())
                     || _sas.console_workers(look) END)
        END;
END;

CREATE FUNCTION sas.console_page(path text, args jsonb DEFAULT '{}') RETURNS text
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    SELECT _sas.check_page($1, coalesce($2, '{}'));
    -- from PostgreSQL 18 on, a cast of constants beside WHERE is done by the planner, whatever WHERE says
    SELECT CASE WHEN btrim($1, '/') ~ '^runs?/' OR btrim($1, '/') = 'run'
        THEN _sas.visible_run(coalesce($2 ->> 'run_id', split_part(btrim($1, '/'), '/', 2))::bigint) END;
    SELECT _sas.page(_sas.page_look(w.word, coalesce($2 ->> 'root', ''), $2 ->> 'token', $2 ->> 'notice'),
                     w.word, $1, coalesce($2, '{}') - '{root,token,notice}'::text[])
    FROM (SELECT _sas.check_page($1, coalesce($2, '{}')) AS word) w;
END;
COMMENT ON FUNCTION sas.console_page IS
    'One HTML page of the console with links to the others: /, /runs, /runs/7, /workflows, /agents, '
    '/queues, /schedules, /watches, /alerts or /workers. args: for /runs what sas.find_runs searches, and '
    'before; for /runs/7 step, state and after, which choose elements; root, token and notice from the '
    'server that sends the page.';

CREATE FUNCTION sas.console(run_id bigint DEFAULT NULL) RETURNS text
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    SELECT _sas.visible_run($1) WHERE $1 IS NOT NULL;
    SELECT _sas.page(_sas.page_look(w.word, NULL, NULL, NULL), w.word, '',
                     jsonb_build_object('run_id', $1))
    FROM (SELECT CASE WHEN $1 IS NULL THEN 'overview' ELSE 'run' END AS word) w;
END;
COMMENT ON FUNCTION sas.console IS
    'One HTML page that loads nothing else: of all runs, agents and workers, or with run_id of that run. It '
    'shows what the calling role may see.';

CREATE FUNCTION sas.console_schedules() RETURNS text
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    SELECT _sas.page(_sas.page_look('schedules', NULL, NULL, NULL), 'schedules', '', '{}');
END;
COMMENT ON FUNCTION sas.console_schedules IS
    'One HTML page of the schedules that the calling role may see, and of what they run within a day.';
