-- SPDX-License-Identifier: PostgreSQL
--
-- Roles that may read or write all data of the database (pg_read_all_data, pg_write_all_data), as a program that makes
-- reports or loads data: they have a right on every table and view, and reach nothing of sas by it. Who could write
-- to its tables could have anything run with the rights of a superuser.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE ro_reads LOGIN IN ROLE pg_read_all_data; CREATE ROLE ro_writes LOGIN IN ROLE pg_read_all_data, pg_write_all_data; CREATE ROLE ro_ann LOGIN; CREATE ROLE ro_adm LOGIN;
SELECT sas.grant_usage('ro_ann', 'user'), sas.grant_usage('ro_adm', 'admin') \g /dev/null
SELECT sas.set_secret('ro_secret', 'ro value') \g /dev/null
-- what it is: rows, ok, or the SQLSTATE
CREATE FUNCTION pg_temp.says(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(nullif(x.code, 'ok'), x.said || ' rows') FROM login.as_role(who, statement, keep => statement ~ '^SELECT sas|CREATE|GRANT') x $$;

SELECT FROM login.as_role('ro_ann', $$SELECT sas.create_workflow('ro_w', '{"steps": {"w": {"wait": {"signal": "go"}}}}')$$) \g /dev/null
SELECT said AS run FROM login.as_role('ro_ann', $$SELECT run_id FROM sas.submit('ro_w', '{"card": "4711"}', labels => '{"a": "b"}')$$) \gset

CREATE TEMP TABLE kept AS SELECT c.oid::regclass AS name,
    (xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM %s', c.oid::regclass), false, true, '')))[1]::text::bigint AS n
FROM pg_class c WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r';
SELECT ok(count(*) > 10, 'rows stand in many tables') FROM kept WHERE n > 0;
-- of definitions a table with a policy for who looks through a view shows what stands in no secret
SELECT is(string_agg(format('%s by %s: %s', name, who, said), E'\n'), NULL, 'who may read all data reads no table of sas, but for definitions')
FROM kept, unnest('{ro_reads,ro_writes}'::text[]) who, LATERAL pg_temp.says(who, format('SELECT count(*) FROM %s', name)) said
WHERE said NOT IN ('0 rows', '42501') AND name::text NOT IN ('_sas.workflow', '_sas.workflow_version', '_sas.queue', '_sas.run_dependency');
SELECT is(string_agg(format('%s: %s', name, said), E'\n'), NULL, 'who may write all data deletes nothing')
FROM kept, pg_temp.says('ro_writes', format('DELETE FROM %s', name)) said WHERE said NOT IN ('0 rows', '42501');
SELECT is(string_agg(format('%s: %s', name, said), E'\n'), NULL, 'nor changes anything')
FROM kept, LATERAL (SELECT a.attname FROM pg_attribute a WHERE a.attrelid = name AND a.attnum > 0 AND a.attidentity <> 'a' AND NOT a.attisdropped ORDER BY a.attnum LIMIT 1) a,
     pg_temp.says('ro_writes', format('UPDATE %s SET %I = %2$I', name, attname)) said WHERE said NOT IN ('0 rows', '42501');
SELECT is(string_agg(format('%s: %s', name, said), E'\n'), NULL, 'nor adds a row')
FROM kept, pg_temp.says('ro_writes', format('INSERT INTO %s SELECT x.* FROM (SELECT) o LEFT JOIN %1$s x ON false', name)) said WHERE said NOT IN ('42501', '428C9', '23502', 'XX000');
SELECT is(pg_temp.says('ro_writes', statement), '42501', 'it does not: ' || statement)
FROM unnest(ARRAY[
    $$INSERT INTO _sas.privilege (part, level, signature) VALUES ('verb', 'user', 'pg_catalog.pg_read_file(text)')$$,
    $$INSERT INTO _sas.secret (name, value, changed_at) VALUES ('ro_evil', 'x', now())$$,
    $$INSERT INTO _sas.level_grant VALUES ('ro_writes', 'admin', 'ro_adm', now())$$]) statement;
-- but for one of pg_settings, which has a rule of its own: an UPDATE is a SET
SELECT is(string_agg(c.relname, ' '), NULL, 'no view of sas can be written to')
FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v' AND pg_relation_is_updatable(c.oid, true) <> 0 AND c.relname <> 'settings';
SELECT unalike(pg_temp.says('ro_writes', 'SELECT count(*) FROM sas.' || quote_ident(c.relname) || ' x WHERE x::text LIKE ''%4711%'''), '[1-9]%', 'nor shows it the data of others: sas.' || c.relname)
FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v';

-- Who has a level besides reaches no more than the level shows: neither by the table nor by a view that somebody else
-- has made over it.
CREATE ROLE ro_mon LOGIN IN ROLE pg_read_all_data; CREATE ROLE ro_op LOGIN IN ROLE pg_read_all_data; CREATE ROLE ro_mon_writes LOGIN IN ROLE pg_write_all_data;
CREATE ROLE ro_only_mon LOGIN; CREATE ROLE ro_only_op LOGIN; CREATE ROLE ro_member LOGIN IN ROLE ro_ann, pg_read_all_data;
SELECT sas.grant_usage(role::regrole, level) FROM (VALUES ('ro_mon', 'monitor'), ('ro_op', 'operator'), ('ro_mon_writes', 'monitor'), ('ro_only_mon', 'monitor'),
    ('ro_only_op', 'operator'), ('ro_member', 'user'), ('ro_reads', 'user')) l (role, level) \g /dev/null
SELECT FROM login.as_role('ro_ann', $$SELECT sas.create_workflow('ro_masked', '{"mask": ["input.card"], "steps": {"w": {"wait": {"signal": "go"}}}}')$$) \g /dev/null
SELECT said AS masked FROM login.as_role('ro_ann', $$SELECT run_id FROM sas.submit('ro_masked', '{"card": "4711"}')$$) \gset
CREATE SCHEMA ro_seen; CREATE TABLE ro_seen.kept AS SELECT string_agg(md5(n::text), '') FROM generate_series(1, 120) n; GRANT USAGE ON SCHEMA ro_seen TO PUBLIC; GRANT CREATE ON SCHEMA ro_seen TO ro_reads;
SELECT is(code, 'ok', 'who may read all data makes a view of runs, for all') FROM login.as_role('ro_reads', 'CREATE VIEW ro_seen.whole AS SELECT * FROM _sas.run; GRANT SELECT ON ro_seen.whole TO PUBLIC');
SELECT is(code, 'ok', 'and one with the rights of its reader') FROM login.as_role('ro_reads', 'CREATE VIEW ro_seen.invoked WITH (security_invoker) AS SELECT run_id, input FROM _sas.run; GRANT SELECT ON ro_seen.invoked TO PUBLIC');
SELECT is(string_agg(format('%s by %s: %s', source, who, said), E'\n'), NULL, 'a level beside such a role, or beside a view of such a role, shows no payload more')
FROM unnest('{_sas.run,ro_seen.whole,ro_seen.invoked}'::text[]) source,
     (VALUES ('ro_mon', :run), ('ro_mon', :masked), ('ro_mon_writes', :run), ('ro_only_mon', :run), ('ro_only_mon', :masked),
             ('ro_op', :masked), ('ro_only_op', :masked), ('ro_reads', :run)) w (who, id),
     pg_temp.says(who, format('SELECT count(*) FROM %s x WHERE x.run_id = %s AND x.input::text LIKE ''%%4711%%''', source, id)) said
WHERE said NOT IN ('0 rows', '42501');
SELECT is(pg_temp.says(who, format('SELECT count(*) FROM sas.runs WHERE run_id = %s AND input::text LIKE ''%%4711%%''', id)), n || ' rows', 'sas.runs shows: ' || what)
FROM (VALUES ('ro_op', :run, 1, 'an operator who may read all data the input'), ('ro_only_op', :run, 1, 'an operator the input'),
             ('ro_only_op', :masked, 0, 'an operator no masked one'), ('ro_member', :run, 1, 'a member of the owner the input')) w (who, id, n, what);

-- What a policy does not reach: PostgreSQL stores long values in a table of their own, and samples in the statistics of the planner.
SELECT sas.set_secret('ro_long', 'ro long ' || (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 200) n)) \g /dev/null
SELECT FROM login.as_role('ro_ann', $$SELECT count(*) FROM generate_series(1, 3), sas.submit('ro_w', '{"card": "4711", "long": false}')$$) \g /dev/null
ANALYZE _sas.run; ANALYZE _sas.secret;
CREATE TEMP TABLE toast AS SELECT t.oid::regclass AS name, c.relname FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid WHERE c.relnamespace = '_sas'::regnamespace;
SELECT is((SELECT count(*) FROM toast WHERE relname IN ('run', 'secret', 'former_secret')), 3::bigint, 'long values of runs and secrets have tables of their own');
SELECT is(string_agg(format('%s by %s: %s', relname, who, said), E'\n'), NULL, 'who may read all data reads no long value there')
FROM toast, unnest('{ro_reads,ro_writes,ro_mon,ro_op}'::text[]) who, pg_temp.says(who, format('SELECT count(*) FROM %s', name)) said WHERE said <> '42501';
SELECT is(code, 'ok', 'such a role makes a view of them') FROM toast,
    login.as_role('ro_reads', format('CREATE VIEW ro_seen.long AS SELECT * FROM %s; CREATE VIEW ro_seen.samples AS SELECT stavalues1::text FROM pg_statistic; GRANT SELECT ON ro_seen.long, ro_seen.samples TO PUBLIC', name))
WHERE relname = 'secret';
SELECT is(pg_temp.says(who, statement), '42501', format('no %s: %s', who, statement))
FROM unnest('{ro_reads,ro_writes,ro_only_op,ro_ann}'::text[]) who,
     unnest(ARRAY['SELECT count(*) FROM ro_seen.long', 'SELECT count(*) FROM ro_seen.samples', 'SELECT count(*) FROM pg_statistic', 'SELECT count(stavalues1) FROM (SELECT * FROM pg_statistic OFFSET 0) s'
                  ]) statement;
SELECT is(pg_temp.says(who, 'SELECT count(*) FROM pg_stats WHERE schemaname = ''_sas'' AND (most_common_vals::text ~ ''4711|ro_'' OR histogram_bounds::text ~ ''4711|ro_'')'), '0 rows', 'nor ' || who || ' by pg_stats')
FROM unnest('{ro_reads,ro_ann,ro_mon,ro_only_mon,ro_only_op,ro_adm}'::text[]) who;
SELECT is(pg_temp.says('ro_reads', 'SELECT count(*) FROM ' || name), n, 'it reads as before: ' || name)
FROM (VALUES ('(SELECT FROM pg_stats LIMIT 1) x', '1 rows'), ('ro_seen.kept', '1 rows'), ((SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'ro_seen.kept'::regclass), '2 rows')) x (name, n);
-- as it is granted, not as it may read all
GRANT SELECT ON pg_statistic TO ro_reads;
SELECT alike(pg_temp.says('ro_reads', 'SELECT count(*) FROM pg_statistic'), '% rows', 'who has been granted the statistics reads them');
REVOKE SELECT ON pg_statistic FROM ro_reads;
GRANT SELECT (starelid, stanullfrac) ON pg_statistic TO ro_reads, ro_ann;
SELECT alike(pg_temp.says(who, 'SELECT count(starelid) FROM pg_statistic WHERE stanullfrac = 0'), '% rows', who || ', who has been granted columns of them, reads these')
FROM unnest('{ro_reads,ro_ann}'::text[]) who;
SELECT is(pg_temp.says(who, statement), '42501', format('no more than these: %s, %s', who, statement))
FROM unnest('{ro_reads,ro_ann}'::text[]) who,
     unnest(ARRAY['SELECT count(stavalues1) FROM pg_statistic', 'SELECT count(starelid) FROM pg_statistic WHERE stavalues1 IS NULL', 'SELECT count(s) FROM pg_statistic s', 'SELECT count(s.*) FROM pg_statistic s']) statement;
REVOKE SELECT (starelid, stanullfrac) ON pg_statistic FROM ro_reads, ro_ann;
SELECT is(string_agg(a.attname, ' '), NULL, 'no statistics are made of secrets, for dumps may have them')
FROM pg_statistic s JOIN pg_attribute a ON a.attrelid = s.starelid AND a.attnum = s.staattnum
WHERE s.starelid IN ('_sas.secret'::regclass, '_sas.former_secret'::regclass, '_sas.token_key'::regclass) AND a.attname = 'value';
SELECT is(string_agg(a.attrelid::regclass || '.' || a.attname, ' '), NULL, 'none will be')
FROM pg_attribute a WHERE a.attrelid IN ('_sas.secret'::regclass, '_sas.former_secret'::regclass, '_sas.token_key'::regclass) AND a.attname = 'value' AND a.attstattarget IS DISTINCT FROM 0;

-- as a class: row security everywhere, and no policy but for reading
SELECT is(string_agg(c.relname, ' '), NULL, 'every table of sas has row security')
FROM pg_class c WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relrowsecurity;
SELECT is(string_agg(DISTINCT p.polcmd::text, ' '), 'r', 'its policies are for reading')
FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid WHERE c.relnamespace = '_sas'::regnamespace;

SELECT * FROM finish();
