-- compatible
--
-- Jobs that go when nothing is left of them: deleted ones, and those made to run once. `over_at` says from when on
-- that is looked at, `unused_at` since when nothing of the job is left.

ALTER TABLE daybell.job ADD over_at float8, ADD unused_at float8;
UPDATE daybell.job SET over_at = deleted_at WHERE deleted_at IS NOT NULL;
CREATE INDEX job_over ON daybell.job (over_at) WHERE over_at IS NOT NULL;
