-- compatible
--
-- Jobs that depend on jobs. A schedule that fires after others has a cursor of its own, `since`, and
-- no next_at. An execution that waits for dependencies is a row in `live` with state 4 and this
-- reason, and in no other table, with the slot of its gate in hand; or it is parked as well, if it
-- has none yet.

ALTER TABLE daybell.schedule ADD since float8;
CREATE INDEX schedule_after ON daybell.schedule (id) WHERE since IS NOT NULL AND NOT is_paused;
CREATE INDEX live_dependent ON daybell.live (id) WHERE state = 4 AND reason = 'dependencies';

-- How jobs stand. Of history, only what had a time of its own, and what has not succeeded: what is
-- enqueued and succeeds is in neither of these, and pays nothing.
CREATE INDEX history_due ON daybell.history
  (job, (coalesce(scheduled_for, CASE WHEN attempt = 1 THEN run_at ELSE created_at END)), id)
  WHERE node IS NULL AND (state <> 9 OR reason IS DISTINCT FROM 'overlap')
    AND (scheduled_for IS NOT NULL OR attempt = 1 AND run_at > created_at);
CREATE INDEX history_failed ON daybell.history (job, finished_at, id)
  WHERE node IS NULL AND (state <> 9 OR reason IS DISTINCT FROM 'overlap') AND state > 6;
CREATE INDEX dead_due ON daybell.dead
  (job, (coalesce(scheduled_for, CASE WHEN attempt = 1 THEN run_at ELSE created_at END)), id);
CREATE INDEX dead_ended ON daybell.dead (job, finished_at, id);
