-- compatible
--
-- Jobs that go when nothing is left of them: deleted ones, and those made to run once. `over_at` says from when on
-- that is looked at, `unused_at` since when nothing of the job is left.

ALTER TABLE job ADD COLUMN over_at REAL;
ALTER TABLE job ADD COLUMN unused_at REAL;
UPDATE job SET over_at = 0 WHERE is_deleted = 1;
CREATE INDEX job_over ON job (over_at) WHERE over_at IS NOT NULL;
