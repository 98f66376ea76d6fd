-- breaking
--
-- The schema of the SQLite store: one file, one table of executions that are updated in place.
--
--   tenant ─┬─ job ── job_version          what can run, each version as it was
--           ├─ lane                        (queue, kind): what a claim asks for
--           ├─ execution ── attempt, log   what runs; its ended attempts but the last
--           │      ├─ run ── node          workflows
--           │      └─ step, wait           durable functions
--           ├─ event ── event_key          what waits and schedules listen to
--           ├─ worker, lease               who runs it, under which claim
--           ├─ schedule ── tick            when it runs by itself, and what became of each time
--           ├─ gate                        how many at a time
--           ├─ paused_queue, template
--           └─ api_key, secret, audit, idempotency, tenant_minute
--   leader, watch, migration               for the whole file
--
-- `id` is a UUID in 16 bytes, known outside. `n` is a small number that never leaves the file and
-- keeps indexes narrow. Times are seconds since 1970; codes of states, outcomes and decisions are
-- in store/codes.py. Foreign keys are not declared: a check per row would cost every enqueue and
-- finish, and a row is never deleted before those that refer to it.


-- Catalog.

-- Quotas are NULL where there is no limit.
CREATE TABLE tenant (
    n              INTEGER PRIMARY KEY,
    name           TEXT NOT NULL UNIQUE,
    created_at     REAL NOT NULL,
    jobs_max       INTEGER,
    queued_max     INTEGER,
    per_minute_max INTEGER,
    running_max    INTEGER
) STRICT;
INSERT INTO tenant (n, name, created_at) SELECT 1, 'default', max(applied_at) FROM migration;

-- The number of executions that a tenant with a quota has enqueued in a minute since 1970.
CREATE TABLE tenant_minute (
    tenant   INTEGER NOT NULL,
    minute   INTEGER NOT NULL,
    enqueued INTEGER NOT NULL,
    PRIMARY KEY (tenant, minute)
) STRICT, WITHOUT ROWID;

-- A row for each name. User and words repeat the current definition, for lists.
CREATE TABLE job (
    n          INTEGER PRIMARY KEY,
    id         BLOB NOT NULL,
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,  -- job_version.n of the current one
    is_deleted INTEGER NOT NULL DEFAULT 0,
    paused_at  REAL,
    pause_note TEXT NOT NULL DEFAULT '',
    user_id    TEXT,
    words      TEXT NOT NULL DEFAULT '',  -- name and description, case-folded, for search
    over_at    REAL,  -- of a deleted job, or of one made to run once: removal is checked from then on
    unused_at  REAL,  -- nothing of the job is left since then
    UNIQUE (tenant, name)
) STRICT;
CREATE UNIQUE INDEX job_id ON job (id);
CREATE INDEX job_user ON job (tenant, user_id, name) WHERE user_id IS NOT NULL;
CREATE INDEX job_over ON job (over_at) WHERE over_at IS NOT NULL;

CREATE TABLE job_version (
    n          INTEGER PRIMARY KEY,
    job        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    definition TEXT NOT NULL,
    author     TEXT NOT NULL,
    created_at REAL NOT NULL,
    UNIQUE (job, version)
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


-- Queue.

-- A rowid table with a unique index costs 5 to 10 % less per lifecycle than one WITHOUT ROWID
-- under (tenant, id): every other index then carries 19 bytes of key instead of 4, and large
-- arguments would sit in the interior pages of the tree. Wide texts come last, so that reading
-- the front of a row does not follow its overflow pages.
--
-- A node of a run has the run as its parent and its label as `node`. An expanded run is a running
-- execution without a worker and a lease. An execution that waits for dependencies has state 4 and
-- that reason, with a slot of its gate or without.
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
    node                TEXT,
    args                TEXT NOT NULL,
    result              TEXT,
    error               TEXT,
    checkpoint          TEXT,
    log                 TEXT  -- the last part of the final attempt's log
) STRICT;

-- Every row is in the first of these two: it finds an id, newest first. The second is the list of
-- one job, without the nodes of its runs.
CREATE UNIQUE INDEX execution_id ON execution (tenant, id);
CREATE INDEX execution_job ON execution (job, id, node) WHERE node IS NULL;

-- The rest are partial: a row is in them only while it is of that kind. A successful execution pays
-- for entering and leaving `claimable` and `running`. There is none on finished_at: it would cost 5 to
-- 10 % of a finish, and retention can walk the table in the order of n. With these, no list or count
-- of states has to read the executions that have succeeded, which are nearly all. `state` and `node`
-- are in `claimable` only so that queues can be counted without reading the rows.
CREATE INDEX execution_claimable ON execution (lane, priority, run_at, id, state, node)
    WHERE state <= 3;
CREATE INDEX execution_waiting ON execution (slot, gate, priority, run_at, id) WHERE state = 4;
CREATE INDEX execution_running ON execution (worker, lease) WHERE state = 5;
CREATE INDEX execution_ended_otherwise ON execution (tenant, state, id, node) WHERE state >= 7;
CREATE UNIQUE INDEX execution_key ON execution (job, unique_key)
    WHERE unique_key IS NOT NULL AND state <= 5;
CREATE INDEX execution_parent ON execution (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX execution_expiring ON execution (expires_at) WHERE expires_at IS NOT NULL AND state < 5;
-- For the recent failures of `daybell top`.
CREATE INDEX execution_died ON execution (tenant, finished_at) WHERE state = 7 AND is_discarded = 0;

-- Views count waiting executions and begun runs of workflows by tenant. A plain execution enters
-- neither index: it does not wait, and a worker has it while it runs.
CREATE INDEX execution_waiting_of ON execution (tenant, state, id) WHERE state = 4;
CREATE INDEX execution_begun_of ON execution (tenant, state, id) WHERE state = 5 AND worker IS NULL;

-- Only executions of schedules, at gates, or with dependencies pay for these.
CREATE INDEX execution_schedule ON execution (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX execution_tick ON execution (schedule, scheduled_for) WHERE schedule IS NOT NULL;
CREATE INDEX execution_unfinished ON execution (schedule) WHERE schedule IS NOT NULL AND state <= 5;
CREATE INDEX execution_inside ON execution (gate, id) WHERE slot = 1;
CREATE INDEX execution_dependent ON execution (id) WHERE state = 4 AND reason = 'dependencies';

-- The status of jobs and their dependencies: only executions with a time of their own, and those that
-- have not succeeded. An execution that is enqueued and succeeds enters neither index.
CREATE INDEX execution_due ON execution
    (job, ifnull(scheduled_for, iif(attempt = 1, run_at, created_at)), id)
    WHERE state > 5 AND node IS NULL AND NOT (state = 9 AND reason IS 'overlap')
      AND (scheduled_for IS NOT NULL OR attempt = 1 AND run_at > created_at);
CREATE INDEX execution_failed ON execution (job, finished_at, id)
    WHERE state > 5 AND node IS NULL AND NOT (state = 9 AND reason IS 'overlap') AND state > 6;

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
    log        TEXT,
    UNIQUE (execution, attempt)
) STRICT;
CREATE INDEX attempt_ended ON attempt (ended_at);

-- Logs of tasks, in parts; a part is lines of JSON. The last part of an attempt is kept with its end.
CREATE TABLE log (
    n          INTEGER PRIMARY KEY,  -- the order in which they were written
    execution  INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    written_at REAL NOT NULL,
    text       TEXT NOT NULL,
    UNIQUE (execution, attempt, number)
) STRICT;

CREATE TABLE worker (
    tenant      INTEGER NOT NULL,
    id          BLOB NOT NULL,
    state       INTEGER NOT NULL,
    started_at  REAL NOT NULL,
    renewed_at  REAL NOT NULL,
    lease_until REAL NOT NULL,
    -- The worker stopped its work because the store was late, and registered again under another id:
    -- no execution is charged with the end of its lease.
    is_excused  INTEGER NOT NULL DEFAULT 0,
    sole        BLOB,           -- the only suspect among its executions (`engine.suspects`)
    about       TEXT NOT NULL,  -- JSON: how it introduced itself
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

-- Claims that took something, so that one that is asked again takes nothing more.
CREATE TABLE lease (
    n          INTEGER PRIMARY KEY,  -- the order in which they were made
    id         BLOB NOT NULL UNIQUE,
    claimed_at REAL NOT NULL
) STRICT;

CREATE TABLE gate (
    n        INTEGER PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    name     TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    holders  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, name)
) STRICT;


-- Schedules.

-- A schedule fires by times (next_at), after a fixed delay (delay), when the first scheduler starts
-- (is_reboot), or after other jobs (since, its own cursor).
CREATE TABLE schedule (
    tenant        INTEGER NOT NULL,
    id            BLOB NOT NULL,
    job           INTEGER NOT NULL,
    rule          TEXT NOT NULL,
    next_at       REAL,
    last_at       REAL,
    moved_at      REAL,  -- when the cursor was set; in the future: the clock was set back since
    delay         REAL,  -- fixed: the end of each execution sets the next time
    since         REAL,
    succeeded_for REAL,
    fired         INTEGER NOT NULL DEFAULT 0,
    skipped       INTEGER NOT NULL DEFAULT 0,
    missed        INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,  -- since one succeeded
    pause_after   INTEGER,
    is_paused     INTEGER NOT NULL,
    is_reboot     INTEGER NOT NULL DEFAULT 0,
    is_declared   INTEGER NOT NULL DEFAULT 0,  -- by the job's definition
    -- Made at run time: the overlap rule compares its executions with each other only. The gate is
    -- made when the schedule fires.
    own_gate      INTEGER NOT NULL DEFAULT 0,
    name          TEXT NOT NULL DEFAULT '',
    args          TEXT NOT NULL DEFAULT '{}',
    misfire       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_due ON schedule (next_at, id) WHERE next_at IS NOT NULL AND is_paused = 0;
-- A job is shown with its next schedules, and they are listed page by page: a walk of this index. Each tick
-- writes all indexes of the table, so there is none in another order.
CREATE INDEX schedule_next ON schedule (job, is_declared, ifnull(next_at, 9e999), id);
-- Few rows are in these: fixed delays whose execution runs, schedules that wait for the first
-- scheduler, and those after other jobs.
CREATE INDEX schedule_unarmed ON schedule (tenant, id) WHERE delay IS NOT NULL AND next_at IS NULL;
CREATE INDEX schedule_reboot ON schedule (tenant, id) WHERE is_reboot = 1;
CREATE INDEX schedule_after ON schedule (id) WHERE since IS NOT NULL AND is_paused = 0;

-- Times of a schedule, and the decision about each. A row may stand for several missed times.
CREATE TABLE tick (
    tenant    INTEGER NOT NULL,
    schedule  BLOB NOT NULL,
    at        REAL NOT NULL,
    until     REAL,
    count     INTEGER NOT NULL DEFAULT 1,
    decision  INTEGER NOT NULL,
    reason    TEXT,
    execution BLOB,
    PRIMARY KEY (tenant, schedule, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX tick_at ON tick (at);


-- Runs of workflows.

CREATE TABLE run (
    execution   INTEGER PRIMARY KEY,  -- execution.n
    total       INTEGER NOT NULL,
    unended     INTEGER NOT NULL,
    running     INTEGER NOT NULL DEFAULT 0,
    ready       INTEGER NOT NULL DEFAULT 0,
    lost_leaves INTEGER NOT NULL DEFAULT 0,
    max_running INTEGER,
    fail_fast   INTEGER NOT NULL,
    is_todo     INTEGER NOT NULL,
    is_blocked  INTEGER NOT NULL DEFAULT 0,  -- its nodes wait for room in the tenant's quota
    stopping    TEXT,
    failed      TEXT
) STRICT;
CREATE INDEX run_todo ON run (execution) WHERE is_todo = 1;
CREATE INDEX run_blocked ON run (execution) WHERE is_blocked = 1;

-- The state of each node of a run; see core/run.py. Short rows, because each is written several times,
-- and there may be a hundred thousand of them.
CREATE TABLE node (
    n           INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL,  -- execution.n
    label       TEXT NOT NULL,
    place       INTEGER NOT NULL,  -- in the order of the graph
    state       INTEGER NOT NULL,
    rule        INTEGER NOT NULL,
    total       INTEGER NOT NULL,  -- parents
    succeeded   INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    skipped     INTEGER NOT NULL DEFAULT 0,
    told        INTEGER NOT NULL DEFAULT 0,
    items       INTEGER NOT NULL DEFAULT 0,
    spawned     INTEGER NOT NULL DEFAULT 0,
    items_ended INTEGER NOT NULL DEFAULT 0,
    items_lost  INTEGER NOT NULL DEFAULT 0,
    is_wanted   INTEGER NOT NULL,
    is_map      INTEGER NOT NULL,
    is_todo     INTEGER NOT NULL DEFAULT 0,
    edges       INTEGER,           -- node_text.n; NULL: none
    spec        INTEGER NOT NULL,  -- node_text.n
    started_at  REAL,
    finished_at REAL,
    execution   BLOB,
    of          TEXT,  -- an item's node
    reason      TEXT,
    input       TEXT,
    result      TEXT
) STRICT;
CREATE UNIQUE INDEX node_label ON node (run, label);
CREATE INDEX node_todo ON node (run, place) WHERE is_todo = 1;
CREATE INDEX node_ready ON node (run, place) WHERE state = 2;

-- Texts of nodes that never change. Many nodes have the same.
CREATE TABLE node_text (
    n    INTEGER PRIMARY KEY,
    run  INTEGER NOT NULL,  -- execution.n
    text TEXT NOT NULL
) STRICT;
CREATE INDEX node_text_run ON node_text (run);


-- Steps of durable functions, and events.

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

-- The keys under which a wait finds events that came before it.
CREATE TABLE event_key (
    tenant      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    key         TEXT NOT NULL,
    received_at REAL NOT NULL,
    number      INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, key, received_at, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_key_received ON event_key (received_at);


-- Admin.

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
    scope      TEXT,  -- JSON: the jobs, queues and actions that the key is limited to
    PRIMARY KEY (id, tenant)
) STRICT;
CREATE INDEX api_key_tenant ON api_key (tenant, id);

-- Requests that may be sent twice, and their answers.
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

-- Sealed values. The database cannot open them: workers have the keys.
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
-- A sealed value opens only at the version that it was sealed for. So that an older row cannot be put
-- back whole, versions of a name only rise: a deleted secret is a row with an empty value.
CREATE TRIGGER secret_version_rises BEFORE UPDATE ON secret
WHEN NEW.version <= OLD.version OR NEW.tenant <> OLD.tenant OR NEW.name <> OLD.name
BEGIN
    SELECT raise(ABORT, 'a secret is only replaced, by a later version');
END;
CREATE TRIGGER secret_is_not_removed BEFORE DELETE ON secret
BEGIN
    SELECT raise(ABORT, 'a secret is only replaced, by a later version');
END;

-- The audit log is a chain per tenant: see `core.audit`.
CREATE TABLE audit (
    id     BLOB NOT NULL,
    tenant INTEGER NOT NULL,
    number INTEGER NOT NULL,
    hash   BLOB NOT NULL,
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
CREATE UNIQUE INDEX audit_chain ON audit (tenant, number);

CREATE TABLE audit_head (
    tenant  INTEGER PRIMARY KEY,
    number  INTEGER NOT NULL,  -- of the last entry
    hash    BLOB NOT NULL,
    removed INTEGER NOT NULL,  -- the number of the last entry that retention has removed
    anchor  BLOB NOT NULL      -- its hash
) STRICT;

-- Entries are not changed by mistake. Retention moves this bound to a year ago, and then removes older
-- entries.
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


-- The whole file.

CREATE TABLE leader (
    name       TEXT PRIMARY KEY,
    holder     BLOB NOT NULL,
    epoch      INTEGER NOT NULL,
    until      REAL NOT NULL,
    renewed_at REAL NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- When processes have seen the store's clock run evenly, as JSON (`core.watch`): one row.
CREATE TABLE watch (
    n       INTEGER PRIMARY KEY CHECK (n = 1),
    watched TEXT NOT NULL
) STRICT;
