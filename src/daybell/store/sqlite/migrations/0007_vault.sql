-- compatible
--
-- Secrets and templates; and jobs that need more of a worker than their kind.

-- What the values are, nobody can tell here: the keys that open them are the workers'.
CREATE TABLE secret (
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    key_id     TEXT NOT NULL,
    author     TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    sealed     BLOB NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

CREATE TABLE template (
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    author     TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

-- Where earlier programs put what needs more than its kind. Nobody asks for these; they are emptied
-- from time to time.
CREATE INDEX lane_of_kind ON lane (tenant, queue) WHERE kind = 'sql';
