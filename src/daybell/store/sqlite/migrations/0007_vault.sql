-- compatible
--
-- Secrets and templates.

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
