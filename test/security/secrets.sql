-- SPDX-License-Identifier: PostgreSQL
--
-- Secrets of superusers: an admin is no superuser, so it has no such secret sent to a host of its own, neither by a
-- new agent nor by an old one, and neither changes nor drops it. t/421_secret_files has those in files.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE sk_adm LOGIN; CREATE ROLE se_other LOGIN; CREATE ROLE se_boss LOGIN SUPERUSER;
SELECT sas.grant_usage('sk_adm', 'admin'), sas.grant_usage('se_other', 'admin') \g /dev/null
-- done, or the SQLSTATE and the place
CREATE FUNCTION pg_temp.says(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE x.code WHEN 'ok' THEN 'done' ELSE x.code || ' ' || x.place END FROM login.as_role(who, statement) x $$;
-- what an agent sends, as workers see it
CREATE FUNCTION pg_temp.sends(agent text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', a.enabled, a.headers, a.options) FROM _sas.agents_for_workers('{}', '{}') a WHERE a.name = agent $$;

SELECT sas.set_secret('se_key', 'superuser-hunter2'), sas.create_agent('se_pay', 'https://127.0.0.1:1', headers => '{"Authorization": "Bearer {{secret.se_key}}"}', max_in_flight => 3),
       sas.create_agent('se_plain', 'https://127.0.0.1:1', options => '{"query": {"a": "b"}}') \g /dev/null

-- a new agent, or another one
SELECT is(pg_temp.says('sk_adm', s), '42501 At ' || place || '.', 'an admin does not: ' || s)
FROM (VALUES ($$SELECT sas.create_agent('se_evil', 'https://127.0.0.1:2', headers => '{"X": "{{secret.se_key}}"}')$$, '/headers/X'),
             ($$SELECT sas.create_agent('se_evil', 'https://127.0.0.1:2', options => '{"query": {"x": "{{secret.se_key}}"}}')$$, '/options/query/x'),
             ($$SELECT sas.create_agent('se_evil', 'https://127.0.0.1:2', options => '{"oauth2": {"token_url": "https://127.0.0.1:2/t", "client_id": "x", "client_secret": "{{secret.se_key}}"}}')$$, '/options/oauth2/client_secret'),
             ($$SELECT sas.create_agent('se_evil', 'https://127.0.0.1:2', options => '{"sign": {"scheme": "hmac-sha256", "header": "X-Sign", "secret": "{{secret.se_key}}"}}')$$, '/options/sign/secret'),
             ($$SELECT sas.alter_agent('se_plain', headers => '{"X": "{{secret.se_key}}"}')$$, '/headers/X'),
             ($$SELECT sas.alter_agent('se_pay', base_url => 'https://127.0.0.1:2')$$, '/headers/Authorization'),
             ($$SELECT sas.alter_agent('se_pay', options => '{"proxy": "http://127.0.0.1:2"}')$$, '/headers/Authorization'),
             ($$SELECT sas.alter_agent('se_pay', options => '{"follow_redirects": true}')$$, '/headers/Authorization'),
             ($$SELECT sas.alter_agent('se_pay', headers => '{"Authorization": "{{secret.se_key}}", "X": "y"}')$$, '/headers/Authorization'),
             ($$SELECT sas.create_agent('se_pay', 'https://127.0.0.1:2', headers => '{"Authorization": "Bearer {{secret.se_key}}"}')$$, '/headers/Authorization'),
             ($$SELECT sas.set_secret('se_key', 'mine')$$, '/name'), ($$SELECT sas.drop_secret('se_key')$$, '/name')) v (s, place);
SELECT is(pg_temp.says('sk_adm', s), 'done', 'but it does: ' || s)
FROM unnest(ARRAY[$$SELECT sas.alter_agent('se_pay', max_in_flight => 5, rate_limit => '9/s', enabled => false)$$, $$SELECT sas.alter_agent('se_pay', enabled => true)$$,
    $$SELECT sas.alter_agent('se_pay', options => '{"max_response": "1 MB", "connect_timeout": "1 s"}')$$,
    $$SELECT sas.create_agent('se_pay', 'https://127.0.0.1:1', headers => '{"Authorization": "Bearer {{secret.se_key}}"}')$$,
    $$SELECT sas.grant_agent('se_pay', 'sk_adm')$$]) s;
SELECT is(pg_temp.sends('se_pay'), 't {"Authorization": "Bearer superuser-hunter2"} {}', 'and the agent still sends it, to the service of the superuser');
SELECT is(pg_temp.says('se_boss', s), 'done', 'another superuser does: ' || s)
FROM unnest(ARRAY[$$SELECT sas.set_secret('se_key', 'superuser-hunter3')$$, $$SELECT sas.alter_agent('se_pay', base_url => 'https://127.0.0.1:3')$$]) s;
SELECT is(pg_temp.says('sk_adm', s), 'done', 'without the secret it is an agent of admins: ' || s)
FROM unnest(ARRAY[$$SELECT sas.alter_agent('se_pay', reset => '{headers}')$$, $$SELECT sas.alter_agent('se_pay', base_url => 'https://127.0.0.1:2')$$]) s;
SELECT is(pg_temp.says('sk_adm', $$SELECT sas.alter_agent('se_pay', headers => '{"X": "{{secret.se_key}}"}')$$), '42501 At /headers/X.', 'and does not get it back');
SELECT sas.alter_agent('se_pay', 'https://127.0.0.1:3', headers => '{"Authorization": "Bearer {{secret.se_key}}"}') \g /dev/null

-- what admins set belongs to them all; a superuser may use it
SELECT is(pg_temp.says(who, s), 'done', format('%s: %s', who, s))
FROM (VALUES (1, 'sk_adm', $$SELECT sas.set_secret('se_theirs', 'admin-hunter2')$$), (2, 'sk_adm', $$SELECT sas.create_agent('se_their', 'https://127.0.0.1:2', headers => '{"X": "{{secret.se_theirs}}"}')$$),
             (3, 'se_other', $$SELECT sas.alter_agent('se_their', base_url => 'https://127.0.0.1:4')$$), (4, 'se_other', $$SELECT sas.set_secret('se_theirs', 'admin-hunter3')$$),
             (5, 'se_boss', $$SELECT sas.create_agent('se_uses', 'https://127.0.0.1:1', headers => '{"X": "{{secret.se_theirs}}"}')$$)) v (n, who, s) ORDER BY n;
-- a name that an admin has taken before: the superuser's value does not go where that admin wants it
SELECT is(pg_temp.says('se_boss', $$SELECT sas.set_secret('se_theirs', 'superuser-hunter2')$$),
          '55000 You are a superuser, and a role that is none determines where this agent sends it.', 'a superuser is told where an admin would have it sent');
SELECT is(pg_temp.sends('se_their'), 't {"X": "admin-hunter3"} {}', 'and it is not sent there');
SELECT is(pg_temp.says('se_boss', $$SELECT sas.alter_agent('se_their', headers => '{"X": "{{secret.se_theirs}}"}')$$), 'done', 'the superuser says where it goes');
SELECT is(pg_temp.says('se_boss', $$SELECT sas.set_secret('se_theirs', 'superuser-hunter2')$$), 'done', 'and sets it');
SELECT is(pg_temp.says('sk_adm', $$SELECT sas.alter_agent('se_their', base_url => 'https://127.0.0.1:2')$$), '42501 At /headers/X.', 'from then on it is the superuser''s');
-- whatever the rows say, as after a race: a worker sends it for no agent of an admin
UPDATE _sas.agent SET by_superuser = false WHERE name = 'se_their';
SELECT unalike(coalesce(pg_temp.sends('se_their'), ''), '%hunter%', 'a worker does not fill it in for an agent of an admin');
SELECT alike(pg_temp.sends('se_their'), 'f%', 'and makes no call for it');


-- an answer that repeats a secret is masked; no call has it compressed, so that it would not be found
SELECT is(pg_temp.says('sk_adm', format($$SELECT sas.create_workflow('se_w', '%s')$$, replace(definition, 'CALL', call))), '22023 At ' || place || '/headers/' || name || '.',
          format('no call asks for an encoded answer: %s in %s', call, place))
FROM (VALUES ('{"steps": {"a": {"agent": "se_plain", "call": CALL}}}', '/steps/a/call'),
             ('{"steps": {"a": {"agent": "se_plain", "call": {}, "undo": {"call": CALL}}}}', '/steps/a/undo/call'),
             ('{"steps": {"a": {"agent": "se_plain", "call": {}, "poll": {"until": "$.output.status == 200", "call": CALL}}}}', '/steps/a/poll/call'),
             ('{"steps": {"a": {"agent": "se_plain", "call": {}, "fallback": {"call": CALL}}}}', '/steps/a/fallback/call'),
             ('{"steps": {}, "hooks": [{"on": "success", "agent": "se_plain", "call": CALL}]}', '/hooks/0/call')) d (definition, place),
     (VALUES ('Accept-Encoding', 'gzip'), ('accept-encoding', '{{input.x}}'), ('TE', 'gzip'), ('Accept_Encoding', 'gzip'), ('A-IM', 'gzip'), ('Accept-Encoding', 'identity, gzip;q=0.5')) h (name, value),
     LATERAL (SELECT jsonb_build_object('headers', jsonb_build_object(name, value))::text) c (call);
SELECT is(pg_temp.says('sk_adm', $$SELECT sas.create_watcher('se_watch', '{"agent": "se_plain", "poll": {"call": {"headers": {"Accept-Encoding": "br"}}, "every": "1 s"}, "items": {"table": "pg_temp.x"}}')$$),
          '22023 At /poll/call/headers/Accept-Encoding.', 'nor does a watcher');
SELECT is(pg_temp.says('sk_adm', $$SELECT sas.create_agent('se_gzip', 'https://127.0.0.1:2', headers => '{"Accept-Encoding": "gzip"}')$$), '22023 At /headers/Accept-Encoding.', 'nor does an agent');
SELECT is(pg_temp.says('sk_adm', $$SELECT sas.create_agent('se_gzip', 'https://127.0.0.1:2', headers => '{"Accept-Encoding": "identity"}')$$), 'done', 'it may ask for a plain one');

SELECT * FROM finish();
