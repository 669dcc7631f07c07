-- SPDX-License-Identifier: PostgreSQL
--
-- One line: done, undone, running, waiting, paused. What tools/demo shows once
-- a second.

SELECT count(*) FILTER (WHERE state = 'stopped' AND result IN ('success', 'warning')),
       count(*) FILTER (WHERE state = 'stopped' AND result NOT IN ('success', 'warning')),
       count(*) FILTER (WHERE state IN ('running', 'compensating')),
       count(*) FILTER (WHERE state IN ('scheduled', 'pending')),
       count(*) FILTER (WHERE state = 'paused')
FROM sas.runs WHERE workflow = 'order';
