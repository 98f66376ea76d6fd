-- compatible
--
-- Keys, quotas, the audit log, and requests that may come twice.

CREATE TABLE api_key (
    id         BLOB NOT NULL,
    tenant     INTEGER NOT NULL,
    digest     BLOB NOT NULL UNIQUE,  -- SHA-256; the token itself is shown once and never kept
    role       TEXT NOT NULL,
    name       TEXT NOT NULL,
    hint       TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    used_at    REAL,
    revoked_at REAL,
    PRIMARY KEY (id, tenant)
) STRICT;
CREATE INDEX api_key_tenant ON api_key (tenant, id);

ALTER TABLE tenant ADD COLUMN created_at REAL NOT NULL DEFAULT 0;
UPDATE tenant SET created_at = ifnull((SELECT min(applied_at) FROM migration), 0);
ALTER TABLE tenant ADD COLUMN jobs_max INTEGER;
ALTER TABLE tenant ADD COLUMN queued_max INTEGER;
ALTER TABLE tenant ADD COLUMN per_minute_max INTEGER;
ALTER TABLE tenant ADD COLUMN running_max INTEGER;

-- How many executions a tenant with a quota has enqueued in a minute since 1970.
CREATE TABLE tenant_minute (
    tenant   INTEGER NOT NULL,
    minute   INTEGER NOT NULL,
    enqueued INTEGER NOT NULL,
    PRIMARY KEY (tenant, minute)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id     BLOB NOT NULL,
    tenant INTEGER NOT NULL,
    at     REAL NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    before TEXT,
    after  TEXT,
    source TEXT NOT NULL,
    PRIMARY KEY (id, tenant)
) STRICT;
CREATE INDEX audit_order ON audit (tenant, at, id);

-- Nobody changes an entry by mistake. Retention moves this bound to a year ago, and then takes what
-- is older.
CREATE TABLE audit_bound (since REAL NOT NULL) STRICT;
INSERT INTO audit_bound (since) VALUES (0);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN
    SELECT raise(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER audit_is_not_removed BEFORE DELETE ON audit
WHEN OLD.at >= (SELECT since FROM audit_bound)
BEGIN
    SELECT raise(ABORT, 'the audit log is append-only');
END;

CREATE TABLE idempotency (
    tenant INTEGER NOT NULL,
    key    TEXT NOT NULL,
    id     BLOB NOT NULL,
    digest BLOB NOT NULL,
    at     REAL NOT NULL,
    status INTEGER,
    answer TEXT,
    PRIMARY KEY (tenant, key)
) STRICT;
CREATE INDEX idempotency_at ON idempotency (at);

-- Whose job it is, for lists; the definition says the same. And what a search looks in: the name
-- and the description, in small letters.
ALTER TABLE job ADD COLUMN user_id TEXT;
ALTER TABLE job ADD COLUMN words TEXT NOT NULL DEFAULT '';
UPDATE job SET (user_id, words) = (
    SELECT v.definition ->> 'user_id',
           lower(job.name || char(10) || ifnull(v.definition ->> 'description', ''))
      FROM job_version v WHERE v.n = job.version
);
CREATE INDEX job_user ON job (tenant, user_id, name) WHERE user_id IS NOT NULL;
CREATE UNIQUE INDEX job_id ON job (id);
