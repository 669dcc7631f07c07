-- SPDX-License-Identifier: PostgreSQL
--
-- Nobody has read a reply queue for long: whoever reads a message of it now does not read all of them.
SELECT t.clean() \g /dev/null
SELECT t.workflow('quick', '{}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('quick', array_fill('{}'::jsonb, '{2000}'), reply_to => 'late');
CREATE ROLE replies_other;
INSERT INTO _sas.reply (queue, owner, event, run_id, workflow, created_at)
SELECT q, 'replies_other'::regrole, 'completed', g, 'quick', sas.now() FROM generate_series(1, 500) g, unnest('{late,further}'::text[]) q;
SELECT count(*) FROM _sas.reply;
SELECT count(*) FROM sas.read_replies('none');	-- plans are made
BEGIN;
CREATE FUNCTION t.read() RETURNS bigint LANGUAGE sql AS
$$ SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = '_sas.reply'::regclass $$;
SELECT t.read() AS before \gset
SELECT event, run_id - (SELECT min(run_id) FROM _sas.run) AS n FROM sas.read_replies('late', 3);
SELECT t.read() - :before AS rows \gset
SELECT :rows < 20 AS few_rows_were_read;
COMMIT;
DROP FUNCTION t.read();
-- in the order of all owners
SELECT count(*), min(run_id) < max(run_id) AS several FROM sas.read_replies('late', 2000);
SELECT count(*) FROM sas.read_replies('late', 1000);
SELECT count(*) FROM sas.read_replies('late', 0);
SELECT count(*) FROM sas.read_replies('further', 1000);
SELECT count(*) FROM _sas.reply;
SELECT t.clean() \g /dev/null
DROP ROLE replies_other;
