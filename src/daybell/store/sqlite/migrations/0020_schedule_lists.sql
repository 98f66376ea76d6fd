-- compatible
--
-- A job is shown with its next schedules, and its schedules are listed page by page: each is a walk of one
-- index that stops. Building them reads the table twice; nothing else writes meanwhile.

DROP INDEX schedule_job;
CREATE INDEX schedule_next ON schedule (job, is_declared, ifnull(next_at, 9e999), id);
CREATE INDEX schedule_name ON schedule (job, name, id);
