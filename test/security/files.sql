-- SPDX-License-Identifier: PostgreSQL
--
-- Files: workers read the files that an agent names as the user of the server. So an admin who may not read the
-- server's files names none of them. t/421_secret_files has those of secrets.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE fi_adm LOGIN; CREATE ROLE fi_reads LOGIN IN ROLE pg_read_server_files;
SELECT sas.grant_usage('fi_adm', 'admin'), sas.grant_usage('fi_reads', 'admin') \g /dev/null
CREATE FUNCTION pg_temp.refusal(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE x.code WHEN 'ok' THEN 'done' ELSE x.code || ' ' || x.place END FROM login.as_role(who, statement) x $$;
SELECT sas.create_agent('fi_old', 'https://127.0.0.1:1', options => '{"ca_file": "/etc/old.pem"}'), sas.create_agent('fi_plain', 'https://127.0.0.1:1') \g /dev/null
SELECT is(pg_temp.refusal('fi_adm', s), '42501 At /options/' || k || '.', 'an admin does not: ' || s)
FROM unnest('{ca_file,cert}'::text[]) k, unnest('{/etc/passwd,server.key,../x,base/1/1259}'::text[]) f,
     unnest(ARRAY[format($$SELECT sas.create_agent('fi_new', 'https://127.0.0.1:1', options => '{"%s": "%s"}')$$, k, f),
                  format($$SELECT sas.create_agent('fi_plain', 'https://127.0.0.1:1', options => '{"%s": "%s"}')$$, k, f),
                  format($$SELECT sas.alter_agent('fi_plain', options => '{"%s": "%s"}')$$, k, f)]) s;
SELECT is(pg_temp.refusal('fi_adm', $$SELECT sas.alter_agent('fi_old', options => '{"ca_file": "/etc/other.pem"}')$$), '42501 At /options/ca_file.', 'nor names another file than a superuser did');
SELECT is(pg_temp.refusal('fi_adm', $$SELECT sas.alter_agent('fi_old', max_in_flight => 3, options => '{"ca_file": "/etc/old.pem", "max_response": "1 MB"}')$$), 'done', 'what a superuser has named stays when an admin alters the rest');
SELECT is(pg_temp.refusal('fi_adm', $$SELECT sas.alter_agent('fi_old', options => '{}')$$), 'done', 'or is taken out');
SELECT is(pg_temp.refusal('fi_reads', $$SELECT sas.alter_agent('fi_plain', options => '{"cert": "/etc/client.pem"}')$$), 'done', 'who may read files of the server names them');

SELECT * FROM finish();
