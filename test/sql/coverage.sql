-- SPDX-License-Identifier: PostgreSQL
--
-- Every legal change of state was made by one of the tests before, and no
-- other: what stands in the list has a way to happen.
SELECT t.subject, t.from_state, t.to_state, t.comment AS never_made
FROM sas.transitions t WHERE NOT EXISTS (SELECT FROM t.seen s WHERE (s.subject, s.from_state, s.to_state) = (t.subject, t.from_state, t.to_state))
ORDER BY 1, 2, 3;
SELECT s.* FROM t.seen s WHERE NOT EXISTS (SELECT FROM sas.transitions t WHERE (s.subject, s.from_state, s.to_state) = (t.subject, t.from_state, t.to_state));
