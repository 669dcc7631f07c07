-- SPDX-License-Identifier: PostgreSQL
--
-- The legal changes of state of runs and steps, with a comment each. Shown in sas.transitions.

-- _sas.announce_transitions(): the legal changes of state have changed: every process looks them up again.
CREATE FUNCTION _sas.announce_transitions() RETURNS trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_announce_transitions';
CREATE TRIGGER announce AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON _sas.transition
    FOR EACH STATEMENT EXECUTE FUNCTION _sas.announce_transitions();
ALTER TABLE _sas.transition ENABLE ALWAYS TRIGGER announce;

-- _sas.legal_state(subject, from_state, to_state): to_state, if this change is in _sas.transition; else null.
-- What a process has looked up it keeps until the table changes (src/store/transitions.c).
CREATE FUNCTION _sas.legal_state(subject text, from_state text, to_state text) RETURNS text
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_legal_state';

INSERT INTO _sas.transition VALUES
    ('run', 'none', 'scheduled', 'submitted, and something keeps it from beginning'),
    ('run', 'none', 'pending', 'submitted, its first steps are ready'),
    ('run', 'scheduled', 'pending', 'nothing keeps it from beginning any more'),
    ('run', 'scheduled', 'compensating',
     'cancelled, too late, or a run that it waits for ended with another result'),
    ('run', 'scheduled', 'paused', 'an operator paused it before it began'),
    ('run', 'pending', 'running', 'a worker holds its first step'),
    ('run', 'pending', 'paused', 'an operator or a rule paused it'),
    ('run', 'pending', 'compensating', 'it cannot go on, what is done is undone'),
    ('run', 'running', 'paused', 'an operator or a rule paused it'),
    ('run', 'running', 'compensating', 'it cannot go on, what is done is undone'),
    ('run', 'running', 'stopped', 'all steps have ended, or an operator halted it'),
    ('run', 'paused', 'scheduled', 'resumed, what it waits for is checked again'),
    ('run', 'paused', 'pending', 'resumed before its first claim'),
    ('run', 'paused', 'running', 'resumed'),
    ('run', 'paused', 'compensating', 'cancelled while paused, or its undo is resumed'),
    ('run', 'compensating', 'paused', 'an undo failed for good'),
    ('run', 'compensating', 'stopped', 'everything is undone, or an operator halted it'),
    ('run', 'scheduled', 'stopped', 'an operator halted it'),
    ('run', 'pending', 'stopped', 'an operator halted it'),
    ('run', 'paused', 'stopped', 'an operator halted it'),
    ('run', 'stopped', 'compensating',
     'its parent run is being undone, or an operator has it undone'),
    ('step', 'none', 'waiting', 'one of several steps that it waits for has ended'),
    ('step', 'none', 'ready', 'ready, but its run is paused'),
    ('step', 'none', 'running', 'claimed for the first time'),
    ('step', 'none', 'suspended', 'begins by waiting: for a signal, a time, its elements or a child run'),
    ('step', 'none', 'succeeded', 'needs no worker: an end of an include, or a point between the parts of a '
                                  'flow'),
    ('step', 'none', 'skipped', 'its condition is false, or a step before it was skipped with all that '
                                'follows, or with what needs its output'),
    ('step', 'none', 'failed', 'it cannot begin'),
    ('step', 'none', 'cancelled', 'its run ended before it was claimed'),
    ('step', 'waiting', 'ready', 'the last step that it waited for has ended'),
    ('step', 'waiting', 'waiting', 'another step that it waits for has ended'),
    ('step', 'waiting', 'skipped', 'a step before it was skipped with all that follows, or with what needs '
                                   'its output'),
    ('step', 'waiting', 'cancelled', 'its run cannot go on'),
    ('step', 'waiting', 'failed', 'its run cannot go on and it is in doubt or a poll that has not finished'),
    ('step', 'ready', 'running', 'claimed'),
    ('step', 'ready', 'ready', 'deferred while its run is paused'),
    ('step', 'ready', 'waiting', 'a step before it that was skipped is run after all'),
    ('step', 'ready', 'suspended', 'begins by waiting: for a signal, a time, its elements or a child run'),
    ('step', 'ready', 'succeeded', 'needs no worker: an end of an include, or a point between the parts of a '
                                   'flow; or an operator completes it'),
    ('step', 'ready', 'skipped', 'its condition is false, or an operator skips it'),
    ('step', 'ready', 'cancelled', 'its run cannot go on'),
    ('step', 'ready', 'failed',
     'it cannot begin, or its run cannot go on and it is in doubt or a poll that has not finished'),
    ('step', 'running', 'succeeded', 'its worker reported success in time, or an operator completes it'),
    ('step', 'running', 'cancelled', 'its run was cancelled or halted, and its function, or an unsent call'),
    ('step', 'running', 'failed', 'its worker reported failure, died or was silent past complete-by, or its '
                                  'call was stopped'),
    ('step', 'running', 'ready', 'given back by its worker; no failure counts'),
    ('step', 'running', 'suspended',
     'given back by its worker until later; no failure counts; or a poll between two requests'),
    ('step', 'failed', 'suspended', 'cools off before another window, or its fallback takes over'),
    ('step', 'failed', 'waiting', 'an element of a map that has run through waits to be tried again'),
    ('step', 'failed', 'ready', 'an operator retries it, or its outcome is asked again before the undo'),
    ('step', 'failed', 'skipped', 'its failure is skipped'),
    ('step', 'failed', 'succeeded', 'an operator completes it'),
    ('step', 'failed', 'failed', 'its failure is final'),
    ('step', 'failed', 'compensating', 'in doubt, or a poll that has not finished, so it is undone'),
    ('step', 'skipped', 'compensating', 'in doubt when its failure was skipped, so it is undone'),
    ('step', 'skipped', 'ready', 'an operator has it run after all; or in doubt when its failure was '
                                 'skipped, and its outcome is asked before the undo'),
    ('step', 'skipped', 'waiting', 'a step whose output it needs is run after all'),
    ('step', 'suspended', 'ready', 'its time has come'),
    ('step', 'suspended', 'succeeded', 'what it waited for has come, or an operator completes it'),
    ('step', 'suspended', 'skipped', 'an operator skips it'),
    ('step', 'suspended', 'failed',
     'what it waited for failed or did not come in time, or its run cannot go on and it is in doubt or a '
     'poll that has not finished'),
    ('step', 'suspended', 'cancelled', 'its run cannot go on'),
    ('step', 'cancelled', 'waiting', 'its run is paused before anything is undone'),
    ('step', 'cancelled', 'ready', 'its run is paused before anything is undone'),
    ('step', 'cancelled', 'suspended', 'its run is paused before anything is undone'),
    ('step', 'compensating', 'succeeded', 'its run is paused before its undo has begun'),
    ('step', 'compensating', 'failed', 'in doubt, and its run is paused before its undo has begun'),
    ('step', 'succeeded', 'compensating', 'its undo is due'),
    ('step', 'compensating', 'compensating', 'its undo is claimed, failed, polls or comes again'),
    ('step', 'compensating', 'compensated', 'its undo succeeded, or an operator completes it'),
    ('step', 'compensating', 'skipped', 'an operator skips its undo, or halts its run: what it did stands'),
    ('step', 'compensated', 'suspended', 'undone so that its fallback can be tried');
