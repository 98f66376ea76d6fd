-- compatible
--
-- Jobs that depend on jobs. A schedule that fires after others has a cursor of its own, `since`, and
-- no next_at. An execution that waits for dependencies has state 4 and this reason, with a slot of
-- its gate or without.

ALTER TABLE schedule ADD COLUMN since REAL;
CREATE INDEX schedule_after ON schedule (id) WHERE since IS NOT NULL AND is_paused = 0;
CREATE INDEX execution_dependent ON execution (id) WHERE state = 4 AND reason = 'dependencies';
