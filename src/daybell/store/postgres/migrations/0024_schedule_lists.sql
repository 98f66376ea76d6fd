-- compatible
--
-- A job is shown with its next schedules, and its schedules are listed page by page: each is a walk of one index that
-- stops. Takes a lock against writes of `schedule` while the table is read twice, about a second for a million rows.

DROP INDEX daybell.schedule_job;
-- Only one of the two begins with the job: the order of the other one is of no use to it.
CREATE INDEX schedule_next ON daybell.schedule (is_declared, job, (coalesce(next_at, 'infinity')), id);
CREATE INDEX schedule_name ON daybell.schedule (job, name COLLATE "C", id);
