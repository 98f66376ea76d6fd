-- compatible
--
-- Durable functions: steps that were done, events that came, and who waits for one.

CREATE TABLE step (
    execution   INTEGER NOT NULL,
    n           INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    is_done     INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    started_at  REAL NOT NULL,
    finished_at REAL,
    wake_at     REAL,
    event       INTEGER,  -- that ended this wait
    name        TEXT NOT NULL,
    result      TEXT,
    error       TEXT,
    PRIMARY KEY (execution, n)
) STRICT;

-- Open waits. A row whose execution has ended does no harm, and goes when it is come across, or
-- with its step.
CREATE TABLE wait (
    execution  INTEGER NOT NULL,
    n          INTEGER NOT NULL,
    tenant     INTEGER NOT NULL,
    timeout_at REAL,
    event      TEXT NOT NULL,
    key        TEXT NOT NULL,  -- one of the pairs in `match`, see core/event.py
    match      TEXT NOT NULL,
    PRIMARY KEY (execution, n)
) STRICT;

CREATE INDEX wait_event ON wait (tenant, event, key);
CREATE INDEX wait_timeout ON wait (timeout_at) WHERE timeout_at IS NOT NULL;

-- A number is never given twice: steps remember which event they got.
CREATE TABLE event (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      INTEGER NOT NULL,
    received_at REAL NOT NULL,
    time        REAL,
    execution   BLOB,
    id          TEXT NOT NULL,
    source      TEXT NOT NULL,
    name        TEXT NOT NULL,
    data        TEXT NOT NULL,
    UNIQUE (tenant, source, id)
) STRICT;

CREATE INDEX event_list ON event (tenant, number);

-- The same the other way round: under which keys a wait finds events that came before it.
CREATE TABLE event_key (
    tenant      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    key         TEXT NOT NULL,
    received_at REAL NOT NULL,
    number      INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, key, received_at, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_key_received ON event_key (received_at);
