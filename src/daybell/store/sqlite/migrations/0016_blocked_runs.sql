-- compatible
--
-- Runs whose nodes wait for room in the quota of their tenant.

ALTER TABLE run ADD COLUMN is_blocked INTEGER NOT NULL DEFAULT 0;
CREATE INDEX run_blocked ON run (execution) WHERE is_blocked = 1;
