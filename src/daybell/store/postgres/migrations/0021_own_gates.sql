-- compatible
--
-- The overlap rule compares the executions of a schedule made at run time with each other only: it has a
-- gate of its own. Schedules of this kind that are there already get theirs.
-- Locks daybell.schedule for the time of writing each of these rows once: about 1 s for 100,000. No other
-- table is locked.

ALTER TABLE daybell.schedule ADD own_gate boolean NOT NULL DEFAULT false;
UPDATE daybell.schedule SET own_gate = true WHERE NOT is_declared;
INSERT INTO daybell.gate (tenant, key, capacity)
SELECT s.tenant, 'job:' || j.name || '/' || replace(s.id::text, '-', ''), 1
  FROM daybell.schedule s JOIN daybell.job j ON j.key = s.job
 WHERE s.own_gate
    ON CONFLICT DO NOTHING;
