-- compatible
--
-- Alerts: rules, and the incidents that they open.

CREATE TABLE alert_rule (
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    author     TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

-- A rule is named here, not referred to: `notifications` of a job are rules without a row.
CREATE TABLE incident (
    id              BLOB NOT NULL,
    tenant          INTEGER NOT NULL,
    version         INTEGER NOT NULL DEFAULT 1,  -- each change compares and raises it
    is_event        INTEGER NOT NULL,            -- opened and closed at once
    opened_at       REAL NOT NULL,
    notified_at     REAL,
    closed_at       REAL,
    acknowledged_at REAL,
    rule            TEXT NOT NULL,
    subject         TEXT NOT NULL,
    mark            TEXT NOT NULL,
    detail          TEXT NOT NULL,
    acknowledged_by TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE UNIQUE INDEX incident_open ON incident (tenant, rule, subject) WHERE closed_at IS NULL;
CREATE UNIQUE INDEX incident_event ON incident (tenant, rule, subject, mark) WHERE is_event = 1;
CREATE INDEX incident_closed ON incident (tenant, rule, subject, closed_at)
    WHERE closed_at IS NOT NULL;
CREATE INDEX incident_old ON incident (closed_at) WHERE closed_at IS NOT NULL;

-- The definitions of jobs that are rules by themselves.
CREATE INDEX job_version_notifies ON job_version (n)
    WHERE instr(definition, '"notifications":[{') > 0;
