-- SPDX-License-Identifier: PostgreSQL
--
-- Console: what its pages have in common: the head with its links, and forms for the verbs. A form is shown
-- if the user may execute the verb; the verb itself checks it again.

-- _sas.newest_run(): the highest run id, so that parts which show recent runs need not read all.
CREATE FUNCTION _sas.newest_run() RETURNS bigint
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.newest_run_as(caller): the body of _sas.newest_run; 0: there is no run.
CREATE FUNCTION _sas.newest_run_as(caller oid) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(max(r.run_id), 0) FROM _sas.run r
$$;

-- _sas.recent(): how many of the newest runs are counted where ended runs are.
CREATE FUNCTION _sas.recent() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC SELECT 5000; END;

-- _sas.oldest_recent(): the lowest run id of the recent runs. Write BETWEEN this AND the largest bigint, so
-- that the planner knows that these are few.
CREATE FUNCTION _sas.oldest_recent() RETURNS bigint LANGUAGE sql STABLE
BEGIN ATOMIC SELECT _sas.newest_run() - _sas.recent() + 1; END;

-- _sas.tried_runs(): the recent runs whose attempts are counted: together they have 20,000 steps and failed
-- attempts at most. Runs with more than 200 of them do not count among these, so that they hide no smaller
-- runs; they have another 20,000. The newest of them counts even if it has more: then of its elements up to
-- 20,000.
CREATE FUNCTION _sas.tried_runs() RETURNS SETOF bigint
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.tried_runs_as(caller): the body of _sas.tried_runs.
CREATE FUNCTION _sas.tried_runs_as(caller oid) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH newest AS (SELECT r.run_id FROM _sas.run r ORDER BY r.run_id DESC LIMIT _sas.recent()),
    measured AS MATERIALIZED (
        SELECT n.run_id,
               (SELECT count(*) FROM (SELECT FROM _sas.step s WHERE s.run_id = n.run_id LIMIT 201) x)
               + (SELECT count(*) FROM (SELECT FROM _sas.attempt t WHERE t.run_id = n.run_id LIMIT 201) x)
               AS size
        FROM newest n),
    -- the first large run that has no place any more
    left_out AS (
        SELECT l.run_id FROM (SELECT m.run_id FROM measured m WHERE m.size > 200 ORDER BY m.run_id DESC) l
        CROSS JOIN LATERAL (SELECT FROM _sas.step s WHERE s.run_id = l.run_id
                            UNION ALL SELECT FROM _sas.attempt t WHERE t.run_id = l.run_id) x
        ORDER BY l.run_id DESC OFFSET 20000 LIMIT 1)
    SELECT m.run_id
    FROM (SELECT m.run_id, m.size > 200 AS large, row_number() OVER w AS n, sum(m.size) OVER w AS total
          FROM measured m WINDOW w AS (PARTITION BY m.size > 200 ORDER BY m.run_id DESC)) m
    WHERE CASE WHEN m.large THEN m.n = 1 OR m.run_id > coalesce((SELECT l.run_id FROM left_out l), 0)
          ELSE m.total <= 20000 END
$$;

-- _sas.html_meter(used, places): "used of places", with a bar.
CREATE FUNCTION _sas.html_meter(used bigint, places bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('<span class="meter"><i style="width: %s%%"></i></span>%s of %s',
                  least(100, 100 * used / greatest(places, 1)), used, places);
END;

-- _sas.console_top(look, here, html): the links to all pages, and the title of this one.
CREATE FUNCTION _sas.console_top(look _sas.look, here text, html text) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN look.root IS NULL THEN '' ELSE '<a class="skip" href="#top">To the content</a>'
                                                  '<nav aria-label="pages">' || (
               SELECT string_agg(format('<a href="%s" accesskey="%s"%s>%s</a>',
                                        _sas.html_escape(look.root || p.path), p.letter,
                                        CASE WHEN p.path = here THEN ' aria-current="page"' END, p.title),
                                 '' ORDER BY p.n)
               FROM (VALUES (1, '/', 'o', 'Overview'), (2, '/runs', 'r', 'Runs'),
                            (3, '/workflows', 'f', 'Workflows'), (4, '/agents', 'a', 'Agents'),
                            (5, '/queues', 'q', 'Queues'), (6, '/schedules', 's', 'Schedules'),
                            (7, '/watches', 't', 'Watches'), (8, '/alerts', 'l', 'Alerts'),
                            (9, '/workers', 'w', 'Workers')) AS p (n, path, letter, title))
               || CASE WHEN look.token IS NULL THEN ''
                  ELSE format('<form method="post" action="%s/logout"><input type="hidden" name="token" '
                              'value="%s"/><button>Log out</button></form>', _sas.html_escape(look.root),
                              _sas.html_escape(look.token)) END || E'</nav>\n' END
           || format(E'<header id="top" tabindex="-1">%s<span class="dim">%s, %s, as %s</span></header>\n',
                     html,
                     _sas.html_escape(current_database()), to_char(look.now, 'YYYY-MM-DD HH24:MI:SS TZ'),
                     _sas.html_escape(current_user::text));
END;

-- _sas.console_run_link(look, run_id): the link to the page of a run.
CREATE FUNCTION _sas.console_run_link(look _sas.look, run_id bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.html_link(look, '/runs/' || run_id, run_id::text);
END;

-- _sas.may_do(verb): may the current user execute this public function?
CREATE FUNCTION _sas.may_do(verb text) RETURNS boolean
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(has_function_privilege(current_user, to_regproc('sas.' || verb), 'EXECUTE'), false);
END;

-- _sas.console_form(look, path, label, fields, inputs): a form that the user opens first; it asks for a
-- reason and a confirmation. fields: what it sends; inputs: html of further inputs.
CREATE FUNCTION _sas.console_form(look _sas.look, path text, label text, fields jsonb, inputs text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('<details class="act"><summary>%1$s</summary><form method="post" action="%2$s">%3$s%4$s'
                  '<label>reason<input name="reason" required="" maxlength="500" size="30"/></label>'
                  '<label class="yes"><input type="checkbox" name="confirm" value="yes" required=""/>'
                  'Yes, do it</label><button>%1$s</button></form></details>', _sas.html_escape(label),
                  _sas.html_escape(look.root || path), (
                      SELECT string_agg(format('<input type="hidden" name="%s" value="%s"/>',
                                               _sas.html_escape(key), _sas.html_escape(value)), ''
                                        ORDER BY key)
                      FROM jsonb_each_text(fields || jsonb_build_object('token', look.token))), inputs);
END;

-- _sas.console_act(look, verb, label, fields, inputs): such a form for one verb, if the user may call it.
CREATE FUNCTION _sas.console_act(look _sas.look, verb text, label text, fields jsonb, inputs text DEFAULT '')
RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN look.root IS NULL OR look.token IS NULL OR NOT _sas.may_do(verb) THEN ''
           ELSE _sas.console_form(look, '/do/' || verb, label, fields, inputs) END;
END;

-- _sas.console_acts(html): forms beside each other; empty without forms.
CREATE FUNCTION _sas.console_acts(html text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN html <> '' THEN '<div class="acts">' || html || E'</div>\n' ELSE '' END;
END;

-- _sas.console_agent_acts(look, agent, enabled): the verbs for an agent.
CREATE FUNCTION _sas.console_agent_acts(look _sas.look, agent text, enabled boolean) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.console_acts(string_agg(_sas.console_act(look, v.verb, v.label,
                                                         jsonb_build_object('name', agent)), '' ORDER BY v.n))
    FROM (VALUES (1, 'reset_agent', 'Reset', true), (2, 'pause_agent', 'Pause', enabled),
                 (3, 'resume_agent', 'Resume', NOT enabled)) AS v (n, verb, label, fits)
    WHERE v.fits;
END;

-- _sas.console_run_acts(look, run_id, state): the verbs that apply to a run in this state.
CREATE FUNCTION _sas.console_run_acts(look _sas.look, run_id bigint, state text) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.console_acts(string_agg(_sas.console_act(look, v.verb, v.label,
                                 jsonb_build_object('run_id', run_id), v.inputs), '' ORDER BY v.n))
    FROM (VALUES (1, 'pause', 'Pause', '', '{scheduled,pending,running,compensating}'::text[]),
                 (2, 'resume', 'Resume', '', '{paused}'),
                 (3, 'retry', 'Retry what failed', '<label class="yes"><input type="checkbox" name="new_key" '
                  'value="yes"/>under a new key</label>', '{paused,running,pending}'),
                 (4, 'cancel', 'Cancel', '', '{scheduled,pending,running,paused,compensating}'),
                 (5, 'compensate', 'Undo', '', '{scheduled,pending,running,paused}'),
                 (6, 'halt', 'Halt', '', '{scheduled,pending,running,paused,compensating}'),
                 (7, 'rerun', 'Run again', '', '{stopped}'),
                 (8, 'set_priority', 'Set priority', '<label>priority<input name="priority" type="number" '
                  'min="-1000" max="1000" required=""/></label>',
                  '{scheduled,pending,running,paused,compensating}'),
                 (9, 'signal', 'Signal', '<label>name<input name="name" required="" maxlength="200"/></label>'
                  '<label>payload (JSON)<textarea name="payload" rows="2" cols="30">{}</textarea></label>',
                  '{scheduled,pending,running,paused}'),
                 (10, 'set_start_at', 'Set start', '<label>start at<input name="start_at" required="" '
                  'maxlength="40" placeholder="2030-01-31 08:00"/></label>', '{scheduled}'),
                 (11, 'set_version', 'Set version', '<label>version (empty: the current one)'
                  '<input name="version" type="number" min="1"/></label>',
                  '{scheduled,pending,running,paused,compensating}')) AS v (n, verb, label, inputs, states)
    WHERE $3 = ANY (v.states);
END;

-- _sas.console_step_acts(look, s): the verbs that apply to this step of an open run; resting: it cools off.
CREATE FUNCTION _sas.console_step_acts(look _sas.look, s sas.steps) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.console_acts(string_agg(_sas.console_act(look, v.verb, v.label,
                                 jsonb_build_object('run_id', s.run_id, 'step', s.step), v.inputs), ''
                                        ORDER BY v.n))
    FROM (VALUES (1, 'retry', 'Retry', '<label class="yes"><input type="checkbox" name="new_key" '
                  'value="yes"/>under a new key</label>', '{failed,resting,compensating}'::text[]),
                 (2, 'skip', 'Skip', '<label>output (JSON; empty: steps that need it are skipped, too)'
                  '<textarea name="output" rows="2" cols="30"></textarea></label>',
                  '{ready,resting,suspended,failed,compensating}'),
                 (3, 'force_complete', 'Complete', '<label>output (JSON)<textarea name="output" rows="2" '
                  'cols="30">null</textarea></label>',
                  '{ready,resting,running,suspended,failed,compensating}'),
                 (4, 'set_input', 'Set input', '<label>input (JSON)<textarea name="input" rows="2" '
                  'cols="30">{}</textarea></label>', '{ready,resting,failed}'))
         AS v (n, verb, label, inputs, states)
    WHERE CASE WHEN s.state = 'ready' AND s.waiting_kind = 'cool_off' THEN 'resting'
               ELSE s.state END = ANY (v.states)
      AND (s.state <> 'compensating' OR s.locked_by IS NULL);
END;
