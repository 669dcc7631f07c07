-- SPDX-License-Identifier: PostgreSQL
--
-- The legal changes of state.

CREATE TABLE _sas.transition (
    subject text NOT NULL CHECK (subject IN ('run', 'step', 'watch')),
    from_state text NOT NULL,
    to_state text NOT NULL,
    comment text NOT NULL,
    PRIMARY KEY (subject, from_state, to_state)
);
COMMENT ON TABLE _sas.transition IS 'The legal changes of state.';
