-- compatible
--
-- Jobs that depend on jobs. A schedule that fires after others has a cursor of its own, `since`, and
-- no next_at. An execution that waits for dependencies has state 4 and this reason, with a slot of
-- its gate or without.

ALTER TABLE schedule ADD COLUMN since REAL;
CREATE INDEX schedule_after ON schedule (id) WHERE since IS NOT NULL AND is_paused = 0;
CREATE INDEX execution_dependent ON execution (id) WHERE state = 4 AND reason = 'dependencies';

-- How jobs stand: only what had a time of its own, and what has not succeeded. What is enqueued and
-- succeeds is in neither of these, and pays nothing.
CREATE INDEX execution_due ON execution
    (job, ifnull(scheduled_for, iif(attempt = 1, run_at, created_at)), id)
    WHERE state > 5 AND node IS NULL AND NOT (state = 9 AND reason IS 'overlap')
      AND (scheduled_for IS NOT NULL OR attempt = 1 AND run_at > created_at);
CREATE INDEX execution_failed ON execution (job, finished_at, id)
    WHERE state > 5 AND node IS NULL AND NOT (state = 9 AND reason IS 'overlap') AND state > 6;
