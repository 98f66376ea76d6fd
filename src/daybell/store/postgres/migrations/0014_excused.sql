-- compatible
-- A worker that stopped its work because the store was late, and registered again under another id:
-- no execution is charged with the end of its lease.
ALTER TABLE daybell.worker ADD COLUMN IF NOT EXISTS is_excused boolean NOT NULL DEFAULT false;
