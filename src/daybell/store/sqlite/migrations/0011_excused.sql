-- compatible
-- A worker that stopped its work because the store was late, and registered again under another id:
-- no execution is charged with the end of its lease.
ALTER TABLE worker ADD COLUMN is_excused INTEGER NOT NULL DEFAULT 0;
