-- compatible
--
-- The overlap rule compares the executions of a schedule made at run time with each other only: it has a
-- gate of its own, made when it fires. Schedules of this kind that are there already get theirs, too.

ALTER TABLE schedule ADD own_gate INTEGER NOT NULL DEFAULT 0;
UPDATE schedule SET own_gate = 1 WHERE is_declared = 0;
