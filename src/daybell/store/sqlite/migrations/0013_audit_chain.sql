-- breaking
--
-- The audit log as a chain per tenant: see `core.audit`. Entries that are older than this have no number and
-- no hash.

ALTER TABLE audit ADD COLUMN number INTEGER;
ALTER TABLE audit ADD COLUMN hash BLOB;
CREATE UNIQUE INDEX audit_chain ON audit (tenant, number);

CREATE TABLE audit_head (
    tenant  INTEGER PRIMARY KEY,
    since   REAL NOT NULL,
    number  INTEGER NOT NULL,  -- of the last entry
    hash    BLOB NOT NULL,
    removed INTEGER NOT NULL,  -- the number of the last entry that retention has removed
    anchor  BLOB NOT NULL      -- its hash
) STRICT;

CREATE TRIGGER audit_is_chained BEFORE INSERT ON audit WHEN NEW.hash IS NULL
BEGIN
    SELECT raise(ABORT, 'the audit log takes entries with a hash only; upgrade daybell in this process');
END;
