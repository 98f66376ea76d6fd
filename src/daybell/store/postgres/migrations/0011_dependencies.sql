-- compatible
--
-- Jobs that depend on jobs. A schedule that fires after others has a cursor of its own, `since`, and
-- no next_at. An execution that waits for dependencies is a row in `live` with state 4 and this
-- reason, and in no other table, with the slot of its gate in hand; or it is parked as well, if it
-- has none yet.

ALTER TABLE daybell.schedule ADD since float8;
CREATE INDEX schedule_after ON daybell.schedule (id) WHERE since IS NOT NULL AND NOT is_paused;
CREATE INDEX live_dependent ON daybell.live (id) WHERE state = 4 AND reason = 'dependencies';
