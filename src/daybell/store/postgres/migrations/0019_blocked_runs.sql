-- compatible
--
-- Runs whose nodes wait for room in the quota of their tenant.

ALTER TABLE daybell.run ADD COLUMN is_blocked boolean NOT NULL DEFAULT false;
CREATE INDEX run_blocked ON daybell.run (tenant, id) WHERE is_blocked;
