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
--           ├─ gate                        overlap rules: one at a time
--           ├─ flow_limit ── bucket ── holder, waiter   limits: so many at a time, or in a time
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
    running_max    INTEGER,
    weight         REAL NOT NULL DEFAULT 1,  -- its part of the workers that serve several tenants
    keep           TEXT  -- how long its executions are kept, as JSON of `core.options.Keep`; NULL: as the cluster says
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

-- Executions with limits or shares enter a queue by a lane that no worker claims from (`limited:task`),
-- and are claimed from another (`admitted:task`). Between them are those of work with a share: one for
-- each key that has work (`shares:7:task`), and one for that whose turn it is (`ordered:task`). `entry` of
-- these is the first one.
CREATE TABLE lane (
    n        INTEGER PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    queue    TEXT NOT NULL,
    kind     TEXT NOT NULL,
    entry    INTEGER,
    ordered  INTEGER,
    admitted INTEGER,
    UNIQUE (tenant, queue, kind)
) STRICT;
CREATE TRIGGER lane_limited AFTER INSERT ON lane WHEN substr(NEW.kind, 1, 8) = 'limited:' BEGIN
    INSERT INTO lane (tenant, queue, kind, entry)
    VALUES (NEW.tenant, NEW.queue, 'admitted:' || substr(NEW.kind, 9), NEW.n);
    UPDATE lane SET admitted = last_insert_rowid() WHERE n = NEW.n;
    INSERT INTO lane (tenant, queue, kind, entry, admitted)
    SELECT tenant, queue, 'ordered:' || substr(kind, 9), n, admitted FROM lane WHERE n = NEW.n;
    UPDATE lane SET ordered = last_insert_rowid() WHERE n = NEW.n;
END;

-- Fair shares: see core/flow/shares.py. A tree for each entry lane, whose leaves have lanes. A node without
-- work below it is removed when it would be its turn; `share_slot` has the lanes that are free again.
CREATE TABLE share (
    n      INTEGER PRIMARY KEY,
    entry  INTEGER NOT NULL,
    parent INTEGER NOT NULL,  -- 0: a root
    used   REAL NOT NULL,
    clock  REAL NOT NULL DEFAULT 0,
    weight REAL NOT NULL,
    lane   INTEGER,
    is_full INTEGER NOT NULL DEFAULT 0,  -- so many of its executions wait for limits that no more may
    path   TEXT NOT NULL,
    UNIQUE (entry, path)
) STRICT;
CREATE INDEX share_order ON share (parent, used, n) WHERE is_full = 0;
CREATE TABLE share_slot (
    lane  INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL
) STRICT;
CREATE INDEX share_slot_entry ON share_slot (entry);

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

-- The contexts of traces of executions that were enqueued with one.
CREATE TABLE trace (
    tenant     INTEGER NOT NULL,
    id         BLOB NOT NULL,  -- of the execution
    created_at REAL NOT NULL,
    context    TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX trace_created ON trace (created_at);

CREATE TABLE worker (
    tenant      INTEGER NOT NULL,  -- 0: it serves several
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
    tenants     TEXT,           -- that it serves, if several: a JSON list of numbers; empty: all
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

-- Claims that took something, so that one that is asked again takes nothing more.
CREATE TABLE lease (
    n          INTEGER PRIMARY KEY,  -- the order in which they were made
    id         BLOB NOT NULL UNIQUE,
    claimed_at REAL NOT NULL
) STRICT;

-- The latest execution of each key of a job whose requests collapse: see core/collapse.py.
CREATE TABLE collapsed (
    job        INTEGER NOT NULL,
    key        TEXT NOT NULL,
    tenant     INTEGER NOT NULL,
    keep_until REAL NOT NULL,
    execution  BLOB NOT NULL,
    starts     TEXT NOT NULL,  -- JSON, of a throttle: when the latest were created
    PRIMARY KEY (job, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX collapsed_over ON collapsed (keep_until);
-- Debounced requests that gave an execution their arguments: a request that is repeated changes nothing.
CREATE TABLE merged (
    tenant    INTEGER NOT NULL,
    request   BLOB NOT NULL,
    execution BLOB NOT NULL,
    at        REAL NOT NULL,
    PRIMARY KEY (tenant, request)
) STRICT, WITHOUT ROWID;
CREATE INDEX merged_at ON merged (at);

CREATE TABLE gate (
    n        INTEGER PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    name     TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    holders  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, name)
) STRICT;


-- Limits.

-- The numbers of a limit, as JSON of `core.flow.Terms`: as the first job that used its name declares
-- them, and as they were set since. `paused_until` stops all of its buckets.
CREATE TABLE flow_limit (
    tenant       INTEGER NOT NULL,
    name         TEXT NOT NULL,
    declared     TEXT NOT NULL,
    changed      TEXT,
    job          INTEGER NOT NULL,
    paused_until REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- A limit for one value of its key. `log` has the starts that its windows still see. From `wake_at` on
-- it is to be checked for room.
CREATE TABLE bucket (
    n            INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    name         TEXT NOT NULL,
    item         TEXT NOT NULL,
    paused_until REAL NOT NULL DEFAULT 0,
    wake_at      REAL,
    quiet_at     REAL NOT NULL,  -- from then on its log is empty: it can be removed
    log          TEXT NOT NULL DEFAULT '[]',
    UNIQUE (tenant, name, item)
) STRICT;
CREATE INDEX bucket_wake ON bucket (tenant, wake_at) WHERE wake_at IS NOT NULL;

-- An attempt that has a slot of a bucket. It is over when the execution has another attempt, or ended.
CREATE TABLE holder (
    bucket     INTEGER NOT NULL,
    id         BLOB NOT NULL,
    tenant     INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    cost       INTEGER NOT NULL,
    since      REAL NOT NULL,
    started_at REAL,
    is_logged  INTEGER NOT NULL DEFAULT 0,
    is_over    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (bucket, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX holder_id ON holder (id);
CREATE INDEX holder_over ON holder (tenant) WHERE is_over = 1;

-- An execution waits at one of its buckets, with state 4 and the reason `limit`. `takes` are all of
-- them, as JSON of pairs of bucket and cost.
CREATE TABLE waiter (
    bucket   INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    run_at   REAL NOT NULL,
    id       BLOB NOT NULL,
    tenant   INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    on_full  TEXT NOT NULL,
    takes    TEXT NOT NULL,
    share    INTEGER,  -- its leaf, if it takes turns
    PRIMARY KEY (bucket, priority, run_at, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX waiter_id ON waiter (id);
CREATE INDEX waiter_share ON waiter (share) WHERE share IS NOT NULL;


-- Schedules.

-- A schedule fires by times (next_at), after a fixed delay (delay), when the first scheduler starts
-- (is_reboot), after other jobs (since, its own cursor), or with events of a name (event).
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
    event         TEXT,
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
CREATE INDEX schedule_event ON schedule (tenant, event, id) WHERE event IS NOT NULL;

-- Files that have fired, as they were then.
CREATE TABLE watched_file (
    tenant     INTEGER NOT NULL,
    root       TEXT NOT NULL,
    path       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,  -- nanoseconds
    inode      TEXT NOT NULL,     -- may have 64 bits
    PRIMARY KEY (tenant, root, path)
) STRICT, WITHOUT ROWID;

-- Times of a schedule, and the decision about each. A row may stand for several missed times. The
-- tick of an event has its number, and the time at which it was received, or just after the last
-- tick.
CREATE TABLE tick (
    tenant    INTEGER NOT NULL,
    schedule  BLOB NOT NULL,
    at        REAL NOT NULL,
    until     REAL,
    count     INTEGER NOT NULL DEFAULT 1,
    decision  INTEGER NOT NULL,
    reason    TEXT,
    execution BLOB,
    event     INTEGER,
    PRIMARY KEY (tenant, schedule, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX tick_at ON tick (at);
CREATE INDEX tick_event ON tick (event) WHERE event IS NOT NULL;


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
    kind       TEXT NOT NULL DEFAULT 'key',  -- of browsers: session, or login, a link that opens one; hook
    hook       TEXT,  -- JSON: the job of a webhook, and the rule for its signatures
    parent     BLOB,  -- the id of the key that it ends with
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


-- Statistics over time.

-- Counts and histograms (`core.monitoring.stats`) by minute and by hour since 1970, of three kinds of subjects:
-- everything (job 0, queue ''), a queue (job 0), and a job in a queue. Minutes are kept for two days.

CREATE TABLE stat_minute (
    tenant          INTEGER NOT NULL,
    job             INTEGER NOT NULL,
    queue           TEXT NOT NULL,
    at              INTEGER NOT NULL,
    enqueued        INTEGER NOT NULL,
    started         INTEGER NOT NULL,
    succeeded       INTEGER NOT NULL,
    dead            INTEGER NOT NULL,
    cancelled       INTEGER NOT NULL,
    skipped         INTEGER NOT NULL,
    failed_attempts INTEGER NOT NULL,
    lost            INTEGER NOT NULL,
    retried         INTEGER NOT NULL,
    late            INTEGER NOT NULL,
    missed          INTEGER NOT NULL,
    run             BLOB NOT NULL,
    delay           BLOB NOT NULL,
    PRIMARY KEY (tenant, job, queue, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX stat_minute_at ON stat_minute (at);

CREATE TABLE stat_hour (
    tenant          INTEGER NOT NULL,
    job             INTEGER NOT NULL,
    queue           TEXT NOT NULL,
    at              INTEGER NOT NULL,
    enqueued        INTEGER NOT NULL,
    started         INTEGER NOT NULL,
    succeeded       INTEGER NOT NULL,
    dead            INTEGER NOT NULL,
    cancelled       INTEGER NOT NULL,
    skipped         INTEGER NOT NULL,
    failed_attempts INTEGER NOT NULL,
    lost            INTEGER NOT NULL,
    retried         INTEGER NOT NULL,
    late            INTEGER NOT NULL,
    missed          INTEGER NOT NULL,
    run             BLOB NOT NULL,
    delay           BLOB NOT NULL,
    PRIMARY KEY (tenant, job, queue, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX stat_hour_at ON stat_hour (at);

-- All that was ever counted (`at` is 0).
CREATE TABLE stat_total (
    tenant          INTEGER NOT NULL,
    job             INTEGER NOT NULL,
    queue           TEXT NOT NULL,
    at              INTEGER NOT NULL,
    enqueued        INTEGER NOT NULL,
    started         INTEGER NOT NULL,
    succeeded       INTEGER NOT NULL,
    dead            INTEGER NOT NULL,
    cancelled       INTEGER NOT NULL,
    skipped         INTEGER NOT NULL,
    failed_attempts INTEGER NOT NULL,
    lost            INTEGER NOT NULL,
    retried         INTEGER NOT NULL,
    late            INTEGER NOT NULL,
    missed          INTEGER NOT NULL,
    run             BLOB NOT NULL,
    delay           BLOB NOT NULL,
    PRIMARY KEY (tenant, job, queue, at)
) STRICT, WITHOUT ROWID;

-- Ends that are not in the statistics yet: of an execution (attempt NULL), of an attempt after which it
-- goes on, or of a batch that is counted already. Folding removes the rows in the transaction that counts
-- them. An append and a removal cost less than an index of ended executions by time, and do not depend on
-- a clock that only moves forward. A trigger on `execution` would cost more than both, for each row that is
-- written, whether it ends or not.
CREATE TABLE ended (
    n         INTEGER PRIMARY KEY,  -- the order of the ends
    execution INTEGER,
    attempt   INTEGER,
    run_at    REAL,  -- of the attempt: when it could start
    counts    TEXT   -- of a batch: `stats.EndKey` and numbers, as JSON
) STRICT;

-- Missed times of schedules that are not in the statistics yet. Folding removes the rows, too.
CREATE TABLE missed (
    n      INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    job    INTEGER NOT NULL,
    minute INTEGER NOT NULL,  -- since 1970
    number INTEGER NOT NULL
) STRICT;

-- The final attempt of a dead letter that is revived is logged after the state has changed; it was
-- counted with the end.
CREATE TRIGGER attempt_logged AFTER INSERT ON attempt
BEGIN
    INSERT INTO ended (execution, attempt, run_at)
    SELECT n, NEW.attempt, run_at FROM execution WHERE n = NEW.execution AND state = 5;
END;


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

-- How far each repeated export has come: retention keeps what ended later.
CREATE TABLE export_policy (
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    author     TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

-- Outgoing events: subscriptions, and the events that are not enqueued for delivery yet.

CREATE TABLE subscription (
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    author     TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

-- The ends of executions come from `ended`, in the transaction that removes them there: they were
-- recorded in the transaction of the end, at no further cost. Other changes come from triggers.
CREATE TABLE outbox (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice: ids of events have it
    tenant    INTEGER NOT NULL,
    at        REAL,  -- NULL: not known; when it is read
    type      TEXT NOT NULL,
    execution BLOB,
    attempt   INTEGER,
    job       TEXT,
    queue     TEXT,
    data      TEXT NOT NULL
) STRICT;

-- A trigger may not call JSON functions: the schema is not trusted with them.
CREATE TRIGGER job_changed AFTER UPDATE OF version, paused_at, is_deleted ON job
WHEN (OLD.version <> NEW.version AND NEW.is_deleted = 0 OR OLD.paused_at IS NOT NEW.paused_at
      OR OLD.is_deleted <> NEW.is_deleted)
     AND EXISTS (SELECT 1 FROM subscription WHERE tenant = NEW.tenant)
BEGIN
    INSERT INTO outbox (tenant, type, job, data)
    SELECT NEW.tenant, 'job.changed', NEW.name,
           '{"change":"' || CASE WHEN NEW.is_deleted THEN 'deleted'
                                 WHEN OLD.version = 0 OR OLD.is_deleted THEN 'created'
                                 WHEN OLD.version <> NEW.version THEN 'updated'
                                 WHEN NEW.paused_at IS NULL THEN 'resumed'
                                 ELSE 'paused' END
           || '","version":' || (SELECT version FROM job_version WHERE n = NEW.version)
           || ',"job_id":"' || lower(hex(NEW.id)) || '"}';
END;
CREATE TRIGGER tick_missed AFTER INSERT ON tick WHEN NEW.decision = 3
BEGIN
    INSERT INTO missed (tenant, job, minute, number)
    SELECT NEW.tenant, s.job, CAST(NEW.at / 60 AS INTEGER), NEW.count
      FROM schedule s WHERE s.tenant = NEW.tenant AND s.id = NEW.schedule;
    INSERT INTO outbox (tenant, type, job, data)
    SELECT NEW.tenant, 'schedule.missed', j.name,
           '{"schedule_id":"' || lower(hex(NEW.schedule)) || '","at":' || NEW.at || ',"until":'
           || ifnull(NEW.until, 'null') || ',"count":' || NEW.count || '}'
      FROM schedule s JOIN job j ON j.n = s.job
     WHERE s.tenant = NEW.tenant AND s.id = NEW.schedule
       AND EXISTS (SELECT 1 FROM subscription WHERE tenant = NEW.tenant);
END;

-- The definitions of jobs that are rules by themselves.
CREATE INDEX job_version_notifies ON job_version (n)
    WHERE instr(definition, '"notifications":[{') > 0;
