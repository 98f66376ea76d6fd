-- compatible
--
-- One file, one table of executions that are updated in place.
--
--   tenant ─┬─ job ── job_version          what can run, each version as it was
--           ├─ lane                        (queue, kind): what a claim asks for
--           ├─ execution ── attempt        what runs; its ended attempts but the last
--           ├─ worker, lease               who runs it, under which claim
--           ├─ schedule ── tick            when it runs by itself, and what became of each time
--           ├─ gate                        how many at a time
--           └─ paused_queue
--   leader, migration                      for the whole file
--
-- `id` is a UUID in 16 bytes, known outside. `n` is a small number that never leaves the file and
-- keeps indexes narrow. Times are seconds since 1970; codes of states, outcomes and decisions are
-- in store/codes.py. Foreign keys are not declared: a check per row would cost every enqueue and
-- finish, and nothing that is referred to is ever deleted before what refers to it.

CREATE TABLE tenant (
    n    INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

INSERT INTO tenant (n, name) VALUES (1, 'default');

CREATE TABLE job (
    n          INTEGER PRIMARY KEY,
    id         BLOB NOT NULL,
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,  -- job_version.n of the current one
    is_deleted INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, name)
) STRICT;

CREATE TABLE job_version (
    n          INTEGER PRIMARY KEY,
    job        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    definition TEXT NOT NULL,
    author     TEXT NOT NULL,
    created_at REAL NOT NULL,
    UNIQUE (job, version)
) STRICT;

CREATE TABLE lane (
    n      INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    queue  TEXT NOT NULL,
    kind   TEXT NOT NULL,
    UNIQUE (tenant, queue, kind)
) STRICT;

CREATE TABLE paused_queue (
    tenant INTEGER NOT NULL,
    name   TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- A rowid table with a unique index costs 5 to 10 % less per lifecycle than one WITHOUT ROWID
-- under (tenant, id): every other index then carries 19 bytes of key instead of 4, and large
-- arguments would sit in the interior pages of the tree. Wide texts come last, so that reading
-- the front of a row does not follow its overflow pages.
CREATE TABLE execution (
    n                   INTEGER PRIMARY KEY,
    tenant              INTEGER NOT NULL,
    id                  BLOB NOT NULL,
    job                 INTEGER NOT NULL,
    version             INTEGER NOT NULL,  -- job_version.n
    lane                INTEGER NOT NULL,
    priority            INTEGER NOT NULL,
    state               INTEGER NOT NULL,
    attempt             INTEGER NOT NULL DEFAULT 1,
    failures            INTEGER NOT NULL DEFAULT 0,
    crashes             INTEGER NOT NULL DEFAULT 0,
    created_at          REAL NOT NULL,
    run_at              REAL NOT NULL,
    worker              BLOB,  -- while running, and of the last attempt once finished
    lease               BLOB,  -- while running
    started_at          REAL,
    finished_at         REAL,
    outcome             INTEGER,
    expires_at          REAL,
    scheduled_for       REAL,
    retries             INTEGER,
    timeout             REAL,
    gate                INTEGER,
    slot                INTEGER,  -- NULL: no gate; 0: not let in, or out again; 1: inside
    schedule            BLOB,
    parent              BLOB,
    cancel_requested_at REAL,
    is_discarded        INTEGER NOT NULL DEFAULT 0,
    progress            REAL,
    reason              TEXT,
    note                TEXT,
    unique_key          TEXT,
    args                TEXT NOT NULL,
    result              TEXT,
    error               TEXT,
    checkpoint          TEXT
) STRICT;

-- Every row is in these two: who has this id, newest first; and the list of one job.
CREATE UNIQUE INDEX execution_id ON execution (tenant, id);
CREATE INDEX execution_job ON execution (job, id);

-- The rest are partial: a row is in them only while it is of that kind. What a successful
-- execution pays is entering and leaving `claimable` and `running`. There is none on finished_at:
-- it would cost 5 to 10 % of a finish, and retention can walk the table in the order of n. With
-- these, no list or count of states has to read what has succeeded, which is nearly everything.
-- `state` is in `claimable` only so that queues can be counted without reading the rows.
CREATE INDEX execution_claimable ON execution (lane, priority, run_at, id, state)
    WHERE state <= 3;
CREATE INDEX execution_waiting ON execution (slot, gate, priority, run_at, id) WHERE state = 4;
CREATE INDEX execution_running ON execution (worker, lease) WHERE state = 5;
CREATE INDEX execution_ended_otherwise ON execution (tenant, state, id) WHERE state >= 7;
CREATE UNIQUE INDEX execution_key ON execution (job, unique_key)
    WHERE unique_key IS NOT NULL AND state <= 5;
CREATE INDEX execution_schedule ON execution (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX execution_parent ON execution (parent, id) WHERE parent IS NOT NULL;

-- Ended attempts; the final one of a finished execution is in its own row.
CREATE TABLE attempt (
    n          INTEGER PRIMARY KEY,
    execution  INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    outcome    INTEGER NOT NULL,
    worker     BLOB,
    started_at REAL,
    ended_at   REAL NOT NULL,
    error      TEXT,
    UNIQUE (execution, attempt)
) STRICT;

CREATE INDEX attempt_ended ON attempt (ended_at);

CREATE TABLE worker (
    tenant      INTEGER NOT NULL,
    id          BLOB NOT NULL,
    state       INTEGER NOT NULL,
    started_at  REAL NOT NULL,
    renewed_at  REAL NOT NULL,
    lease_until REAL NOT NULL,
    about       TEXT NOT NULL,  -- JSON: how it introduced itself
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

-- Claims that took something, so that one that is asked again takes nothing more.
CREATE TABLE lease (
    n          INTEGER PRIMARY KEY,  -- the order in which they were made
    id         BLOB NOT NULL UNIQUE,
    claimed_at REAL NOT NULL
) STRICT;

CREATE TABLE schedule (
    tenant    INTEGER NOT NULL,
    id        BLOB NOT NULL,
    job       INTEGER NOT NULL,
    rule      TEXT NOT NULL,
    next_at   REAL,
    last_at   REAL,
    fired     INTEGER NOT NULL DEFAULT 0,
    is_paused INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_due ON schedule (next_at, id) WHERE next_at IS NOT NULL AND is_paused = 0;
CREATE INDEX schedule_job ON schedule (job);

CREATE TABLE tick (
    tenant    INTEGER NOT NULL,
    schedule  BLOB NOT NULL,
    at        REAL NOT NULL,
    decision  INTEGER NOT NULL,
    reason    TEXT,
    until     REAL,
    execution BLOB,
    PRIMARY KEY (tenant, schedule, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX tick_at ON tick (at);

CREATE TABLE gate (
    n        INTEGER PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    name     TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    holders  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, name)
) STRICT;

CREATE TABLE leader (
    name   TEXT PRIMARY KEY,
    holder BLOB NOT NULL,
    epoch  INTEGER NOT NULL,
    until  REAL NOT NULL
) STRICT, WITHOUT ROWID;
