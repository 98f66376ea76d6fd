-- breaking
--
-- The schema of the PostgreSQL store. Reading order:
--
--   catalog      tenants, jobs and their versions, lanes, templates
--   queue        live, agenda, workers, leases, gates; history, dead letters, attempts, logs
--   schedules    schedules and their ticks
--   runs         runs of workflows and their nodes
--   steps        durable functions: steps, waits, events
--   admin        keys, requests, secrets, the audit log
--   cluster      leaders, and the clock that processes watch
--   functions    of upkeep, of enqueueing in SQL, of rights
--
-- An unfinished execution is one wide row in `live`. If it can be claimed, now or later, it also has
-- a narrow row in `agenda`, which the claim deletes: a claim never writes `live`. One `lease` row per
-- batch names the claimed executions. An ended execution leaves `live` for `history` (insert-only, one
-- partition per day) or, if a person has to decide, for `dead`.
--
--   live = agenda + leases + parked + waiting + expanded runs, without overlap
--
-- The fence is (id, attempt): every way back to the agenda raises live.attempt, so a late report of
-- an older attempt matches no row. Locks are taken in the order worker, schedule, gate, run (an inner
-- run before the run around it), live (ids sorted), parked/agenda, lease, step/wait/event.
-- agenda.run_at equals live.run_at and is never in the past when it is written; so the agenda's key is
-- known from live, and claimers may keep a moving lower bound.
--
-- Times are seconds since 1970 by the database's clock. args, results and errors are JSON text: jsonb
-- costs a fifth of the enqueue rate and refuses \u0000. Codes of states, outcomes and decisions are
-- in store/codes.py. Columns of frequent rows are in the order of their alignment, widest first.

-- The only clock. A function, so that tests can move it; the planner inlines it away.
CREATE FUNCTION daybell.now() RETURNS float8 LANGUAGE sql VOLATILE PARALLEL SAFE
  AS $$ SELECT date_part('epoch', clock_timestamp()) $$;


-- Catalog.

-- Quotas are NULL where there is no limit.
CREATE TABLE daybell.tenant (
  key             int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name            text COLLATE "C" NOT NULL UNIQUE,
  created_at      float8 NOT NULL DEFAULT daybell.now(),
  jobs_max        bigint,
  queued_max      bigint,
  per_minute_max  bigint,
  running_max     bigint,
  weight          float8 NOT NULL DEFAULT 1,  -- its part of the workers that serve several tenants
  keep            text  -- how long its executions are kept, as JSON of `core.options.Keep`; NULL: as the cluster says
);
INSERT INTO daybell.tenant (name) VALUES ('default');

-- The number of executions that a tenant with a quota has enqueued in a minute.
CREATE TABLE daybell.tenant_minute (
  minute    bigint NOT NULL,  -- since 1970
  tenant    int NOT NULL REFERENCES daybell.tenant,
  enqueued  bigint NOT NULL,
  PRIMARY KEY (tenant, minute)
) WITH (fillfactor = 50);

-- A row for each name. Queue, user and words repeat the current definition, for claims and lists.
CREATE TABLE daybell.job (
  key         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id          uuid NOT NULL UNIQUE,
  tenant      int NOT NULL REFERENCES daybell.tenant,
  name        text COLLATE "C" NOT NULL,
  version     int NOT NULL,  -- the current one
  queue       text COLLATE "C" NOT NULL,
  user_id     text COLLATE "C",
  words       text COLLATE "C" NOT NULL DEFAULT '',  -- name and description, case-folded, for search
  paused_at   float8,
  pause_note  text NOT NULL DEFAULT '',
  deleted_at  float8,
  over_at     float8,    -- of a deleted job, or of one made to run once: removal is checked from then on
  unused_at   float8,    -- nothing of the job is left since then
  UNIQUE (tenant, name)
);
CREATE INDEX job_user ON daybell.job (tenant, user_id, name) WHERE user_id IS NOT NULL;
CREATE INDEX job_over ON daybell.job (over_at) WHERE over_at IS NOT NULL;

CREATE TABLE daybell.job_version (
  job         int NOT NULL REFERENCES daybell.job,
  version     int NOT NULL,
  definition  text NOT NULL,
  author      text NOT NULL,
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  PRIMARY KEY (job, version)
);

CREATE TABLE daybell.template (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  updated_at  float8 NOT NULL DEFAULT daybell.now(),
  tenant      int NOT NULL REFERENCES daybell.tenant,
  version     int NOT NULL,
  name        text COLLATE "C" NOT NULL,
  author      text NOT NULL,
  definition  text NOT NULL,
  PRIMARY KEY (tenant, name)
);

-- The requirements of an execution as one number: tenant, queue and needs (a job kind, or more of a
-- worker than that).
CREATE TABLE daybell.lane (
  key         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant      int NOT NULL REFERENCES daybell.tenant,
  entry       int,
  ordered     int,
  admitted    int,
  queue       text COLLATE "C" NOT NULL,
  needs       text COLLATE "C" NOT NULL,
  UNIQUE (tenant, queue, needs)
);

-- Executions with limits or shares enter a queue by a lane that no worker claims from (`limited:task`),
-- and are claimed from another (`admitted:task`). Between them are those of work with a share: one for
-- each key that has work (`shares:7:task`), and one for that whose turn it is (`ordered:task`). `entry` of
-- these is the first one.
CREATE FUNCTION daybell.add_admitted_lane() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WITH a AS (
    INSERT INTO daybell.lane (tenant, queue, needs, entry)
    VALUES (NEW.tenant, NEW.queue, 'admitted:' || substr(NEW.needs, 9), NEW.key) RETURNING key),
  o AS (
    INSERT INTO daybell.lane (tenant, queue, needs, entry, admitted)
    SELECT NEW.tenant, NEW.queue, 'ordered:' || substr(NEW.needs, 9), NEW.key, a.key FROM a
    RETURNING key, admitted)
  UPDATE daybell.lane l SET ordered = o.key, admitted = o.admitted FROM o WHERE l.key = NEW.key;
  RETURN NULL;
END $$;
CREATE TRIGGER lane_limited AFTER INSERT ON daybell.lane FOR EACH ROW
  WHEN (starts_with(NEW.needs, 'limited:')) EXECUTE FUNCTION daybell.add_admitted_lane();

CREATE TABLE daybell.paused_queue (
  tenant      int NOT NULL REFERENCES daybell.tenant,
  queue       text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, queue)
);


-- Queue.

CREATE TABLE daybell.live (
  created_at           float8 NOT NULL,
  run_at               float8 NOT NULL,
  tenant               int NOT NULL,
  job                  int NOT NULL,
  version              int NOT NULL,
  lane                 int NOT NULL,
  attempt              int NOT NULL DEFAULT 1,
  state                smallint NOT NULL,  -- why it waits; running and due follow from the agenda
  priority             smallint NOT NULL,
  failures             smallint NOT NULL DEFAULT 0,
  crashes              smallint NOT NULL DEFAULT 0,
  id                   uuid NOT NULL,
  args                 text NOT NULL,
  unique_key           text,
  gate                 text,
  retries              int,
  timeout              float8,
  scheduled_for        float8,
  expires_at           float8,
  schedule             uuid,
  parent               uuid,  -- of a node: its run
  started_at           float8,
  cancel_requested_at  float8,
  progress             float8,
  note                 text,
  checkpoint           text,
  error                text,
  reason               text,
  node                 text COLLATE "C",  -- the label of a node
  PRIMARY KEY (id, tenant)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0);
-- For lists. Statements that look rows up say `tenant + 0 = $1 AND id = ANY(…)`, which keeps them off
-- this index: before 17, the planner may use it for the tenant alone and read all of its rows.
CREATE INDEX live_tenant ON daybell.live (tenant, id);
-- The job's own executions, and those of nodes: of these there may be ten thousand for each of the others.
CREATE INDEX live_job ON daybell.live (job, num_nonnulls(node), id);
CREATE UNIQUE INDEX live_unique_key ON daybell.live (job, unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX live_schedule ON daybell.live (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX live_parent ON daybell.live (parent, id) WHERE parent IS NOT NULL;
-- Lists and counts of states. Without run_at, which changes with every move: an update that touches no
-- index is cheaper.
CREATE INDEX live_waiting ON daybell.live (tenant, id) WHERE state = 4;
CREATE INDEX live_retrying ON daybell.live (tenant, id) WHERE state = 3;
CREATE INDEX live_cancelling ON daybell.live (tenant, id) WHERE cancel_requested_at IS NOT NULL;
-- Runs of workflows that have begun: state 5 without a lease.
CREATE INDEX live_expanded ON daybell.live (tenant, id) WHERE state = 5;
-- Executions that wait for dependencies. They hold the slot of their gate; without one, they are also
-- parked. No other table has them.
CREATE INDEX live_dependent ON daybell.live (id) WHERE state = 4 AND reason = 'dependencies';
CREATE INDEX live_expiring ON daybell.live (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE daybell.agenda (
  run_at      float8 NOT NULL,
  lane        int NOT NULL,
  priority    smallint NOT NULL,
  id          uuid NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX agenda_order ON daybell.agenda (lane, priority, run_at, id);

CREATE TABLE daybell.worker (
  started_at   float8 NOT NULL,
  renewed_at   float8 NOT NULL,
  lease_until  float8 NOT NULL,
  tenant       int NOT NULL,  -- 0: it serves several
  pid          int NOT NULL,
  capacity     int NOT NULL,
  state        smallint NOT NULL,
  -- The worker stopped its work because the store was late, and registered again under another id: no
  -- execution is charged with the end of its lease.
  is_excused   boolean NOT NULL DEFAULT false,
  id           uuid NOT NULL,
  sole         uuid,  -- the only suspect among its executions (`engine.suspects`)
  name         text NOT NULL,
  host         text NOT NULL,
  version      text NOT NULL,
  queues       text[] NOT NULL,
  kinds        text[] NOT NULL,
  labels       text NOT NULL,
  resources    text NOT NULL,
  tasks        text,  -- JSON: the tasks of its code, and the queue that each is meant for
  tenants      int[],  -- that it serves, if several; empty: all
  PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

CREATE TABLE daybell.lease (
  id          uuid PRIMARY KEY,  -- made by the worker, so that a lost answer can be asked for again
  worker      uuid NOT NULL,
  tenant      int NOT NULL,
  ids         uuid[] NOT NULL,
  attempts    int[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- Random bytes do not compress: do not try.
ALTER TABLE daybell.lease ALTER ids SET STORAGE EXTERNAL;
CREATE INDEX lease_worker ON daybell.lease (worker);

CREATE TABLE daybell.gate (
  tenant    int NOT NULL REFERENCES daybell.tenant,
  key       text COLLATE "C" NOT NULL,
  capacity  int NOT NULL,
  holders   int NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, key)
) WITH (fillfactor = 50);
CREATE TABLE daybell.parked (
  tenant    int NOT NULL,
  gate      text COLLATE "C" NOT NULL,
  priority  smallint NOT NULL,
  run_at    float8 NOT NULL,
  id        uuid NOT NULL,
  PRIMARY KEY (tenant, gate, priority, run_at, id)
);


-- Limits.

-- The numbers of a limit, as JSON of `core.flow.Terms`: as the first job that used its name declares
-- them, and as they were set since. `paused_until` stops all of its buckets.
CREATE TABLE daybell.flow_limit (
  paused_until  float8 NOT NULL DEFAULT 0,
  tenant        int NOT NULL REFERENCES daybell.tenant,
  job           int NOT NULL,
  name          text COLLATE "C" NOT NULL,
  declared      text NOT NULL,
  changed       text,
  PRIMARY KEY (tenant, name)
);

-- A limit for one value of its key. `log` has the starts that its windows still see. From `wake_at` on
-- it is to be checked for room. Whoever changes its holders or waiters locks its row first; several are
-- locked in the order of name and item. They come before executions in the order of locks.
CREATE TABLE daybell.bucket (
  key           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  paused_until  float8 NOT NULL DEFAULT 0,
  wake_at       float8,
  quiet_at      float8 NOT NULL,  -- from then on its log is empty: it can be removed
  tenant        int NOT NULL,
  name          text COLLATE "C" NOT NULL,
  item          text COLLATE "C" NOT NULL,
  log           text NOT NULL DEFAULT '[]',
  UNIQUE (tenant, name, item)
) WITH (fillfactor = 50);
CREATE INDEX bucket_wake ON daybell.bucket (tenant, wake_at) WHERE wake_at IS NOT NULL;

-- An attempt that has a slot of a bucket. It is over when the execution has another attempt, or ended.
CREATE TABLE daybell.holder (
  since      float8 NOT NULL,
  bucket     bigint NOT NULL,
  tenant     int NOT NULL,
  attempt    int NOT NULL,
  cost       int NOT NULL,
  is_logged  boolean NOT NULL,
  id         uuid NOT NULL,
  PRIMARY KEY (bucket, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX holder_id ON daybell.holder (id);
CREATE INDEX holder_unlogged ON daybell.holder (bucket) WHERE NOT is_logged;

-- An execution waits at one of its buckets, with state 4 and the reason `limit`.
CREATE TABLE daybell.waiter (
  bucket    bigint NOT NULL,
  run_at    float8 NOT NULL,
  tenant    int NOT NULL,
  attempt   int NOT NULL,
  priority  smallint NOT NULL,
  id        uuid NOT NULL,
  on_full   text NOT NULL,
  buckets   bigint[] NOT NULL,  -- all that it needs
  costs     int[] NOT NULL,
  share     bigint,  -- its leaf, if it takes turns
  PRIMARY KEY (bucket, priority, run_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX waiter_id ON daybell.waiter (id);
CREATE INDEX waiter_share ON daybell.waiter (share) WHERE share IS NOT NULL;

-- Fair shares: see core/flow/shares.py. A tree for each entry lane, whose leaves have lanes. Changes of a
-- tree are made under the lock of its root, which comes before buckets. An enqueue holds its leaves
-- (FOR KEY SHARE): no leaf is removed while work for it is on its way. `share_slot` has the lanes that
-- are free again.
CREATE TABLE daybell.share (
  key      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  parent   bigint NOT NULL,  -- 0: a root
  used     float8 NOT NULL,
  clock    float8 NOT NULL DEFAULT 0,
  weight   float8 NOT NULL,
  entry    int NOT NULL,
  lane     int,
  is_full  boolean NOT NULL DEFAULT false,  -- so many of its executions wait for limits that no more may
  path     text COLLATE "C" NOT NULL,
  UNIQUE (entry, path)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX share_order ON daybell.share (parent, used, key) WHERE NOT is_full;
CREATE TABLE daybell.share_slot (
  lane   int PRIMARY KEY,
  entry  int NOT NULL
);
CREATE INDEX share_slot_entry ON daybell.share_slot (entry);

-- Executions that a repeated request has created. A first request that arrives after its own repeat
-- finds its ids free if they have ended meanwhile, and does not search the history. It finds them
-- here instead. The table is empty unless answers get lost. Rows are removed after a day, and the
-- first of them that is dead brings a vacuum, which gives the table's pages back: an enqueue looks for
-- rows only if there are pages.
CREATE TABLE daybell.repeated (
  at      float8 NOT NULL DEFAULT daybell.now(),
  tenant  int NOT NULL,
  id      uuid NOT NULL,
  PRIMARY KEY (id, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 0);
CREATE INDEX repeated_at ON daybell.repeated (at);
-- Has a value as long as there are rows in `repeated`. A sequence knows no snapshots: statements that
-- began before a repeat see its value at once. To raise it does no harm.
CREATE SEQUENCE daybell.repeats;
GRANT USAGE, SELECT ON SEQUENCE daybell.repeats TO PUBLIC;


-- The latest execution of each key of a job whose requests collapse: see core/collapse.py. Decisions about
-- a key are made under the lock of its row, which is taken between those of gates and of `live`.
CREATE TABLE daybell.collapsed (
  keep_until  float8 NOT NULL,
  tenant      int NOT NULL,
  job         int NOT NULL,
  execution   uuid,
  key         text COLLATE "C" NOT NULL,
  starts      float8[] NOT NULL DEFAULT '{}',  -- of a throttle: when the latest were created
  PRIMARY KEY (job, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX collapsed_over ON daybell.collapsed (keep_until);
-- Debounced requests that gave an execution their arguments: a request that is repeated changes nothing.
CREATE TABLE daybell.merged (
  at         float8 NOT NULL,
  tenant     int NOT NULL,
  request    uuid NOT NULL,
  execution  uuid NOT NULL,
  PRIMARY KEY (request, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX merged_at ON daybell.merged (at);


-- Queue: what has ended.

CREATE TABLE daybell.history (
  LIKE daybell.live,
  finished_at  float8 NOT NULL,
  outcome      smallint,
  worker       uuid,
  result       text,
  log          text,  -- the last part of the final attempt's log
  -- The transaction that ended it. A row is counted once, by the first fold whose snapshot sees that
  -- transaction, however late it was committed and whatever the clock did meanwhile; so a row that is
  -- moved keeps the number.
  ended_by     bigint DEFAULT txid_current()
) PARTITION BY RANGE (finished_at);
-- Lists show runs and not their nodes, of which there may be ten thousand for each. A search that may
-- find a node reads both kinds.
CREATE INDEX history_state ON daybell.history (tenant, state, id) WHERE node IS NULL;
CREATE INDEX history_job ON daybell.history (job, id) WHERE node IS NULL;
CREATE INDEX history_node ON daybell.history (tenant, state, id) WHERE node IS NOT NULL;
CREATE INDEX history_schedule ON daybell.history (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX history_parent ON daybell.history (parent, id) WHERE parent IS NOT NULL;
-- The status of jobs and their dependencies: only executions with a time of their own, and those that
-- have not succeeded. An execution that is enqueued and succeeds enters neither index.
CREATE INDEX history_due ON daybell.history
  (job, (coalesce(scheduled_for, CASE WHEN attempt = 1 THEN run_at ELSE created_at END)), id)
  WHERE node IS NULL AND (state <> 9 OR reason IS DISTINCT FROM 'overlap')
    AND (scheduled_for IS NOT NULL OR attempt = 1 AND run_at > created_at);
CREATE INDEX history_failed ON daybell.history (job, finished_at, id)
  WHERE node IS NULL AND (state <> 9 OR reason IS DISTINCT FROM 'overlap') AND state > 6;
CREATE INDEX history_ended_by ON daybell.history USING brin (ended_by)
  WITH (pages_per_range = 32, autosummarize = on);
-- A safety net: without the partition of a day, executions of that day still end.
CREATE TABLE daybell.history_rest PARTITION OF daybell.history DEFAULT;

-- Dead letters stay until a person decides, so they are not part of what is dropped by the day.
CREATE TABLE daybell.dead (LIKE daybell.history INCLUDING DEFAULTS, PRIMARY KEY (id, tenant));
CREATE INDEX dead_tenant ON daybell.dead (tenant, id);
CREATE INDEX dead_job ON daybell.dead (job, id);
CREATE INDEX dead_schedule ON daybell.dead (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX dead_parent ON daybell.dead (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX dead_due ON daybell.dead
  (job, (coalesce(scheduled_for, CASE WHEN attempt = 1 THEN run_at ELSE created_at END)), id);
CREATE INDEX dead_ended ON daybell.dead (job, finished_at, id);
-- For the recent failures of `daybell top`.
CREATE INDEX dead_finished ON daybell.dead (tenant, finished_at);
CREATE INDEX dead_ended_by ON daybell.dead (ended_by);

-- Ended attempts, but for the final one, which is in history or dead.
CREATE TABLE daybell.attempt (
  started_at  float8,
  ended_at    float8 NOT NULL,
  tenant      int NOT NULL,
  attempt     int NOT NULL,
  outcome     smallint NOT NULL,
  id          uuid NOT NULL,
  worker      uuid,
  error       text,
  log         text,
  ended_by    bigint DEFAULT txid_current(),  -- as of history
  -- As the execution had them during the attempt. `created_at` is only for the final attempt of a dead
  -- letter that was revived: perhaps its end as dead is not counted yet.
  run_at      float8,
  created_at  float8,
  job         int,
  lane        int
) PARTITION BY RANGE (ended_at);
CREATE INDEX attempt_execution ON daybell.attempt (id);
-- For the recent failures of `daybell top`.
CREATE INDEX attempt_ended ON daybell.attempt (tenant, ended_at);
CREATE INDEX attempt_ended_by ON daybell.attempt USING brin (ended_by)
  WITH (pages_per_range = 32, autosummarize = on);
CREATE TABLE daybell.attempt_rest PARTITION OF daybell.attempt DEFAULT;

-- The contexts of traces of executions that were enqueued with one.
CREATE TABLE daybell.trace (
  created_at  float8 NOT NULL,
  tenant      int NOT NULL,
  id          uuid NOT NULL,  -- of the execution
  context     text NOT NULL,
  PRIMARY KEY (id, tenant)
);
CREATE INDEX trace_created ON daybell.trace (created_at);

-- Logs of tasks, in parts; a part is lines of JSON. The last part of an attempt is kept with its end: a
-- row of its own would cost as much again as the end. The others are kept by the day, like history.
-- There is no key that forbids the same part twice, which would have to hold within a day only and cost
-- every write: a reader leaves out a part that was sent again.
CREATE TABLE daybell.log (
  written_at  float8 NOT NULL,
  tenant      int NOT NULL,
  attempt     int NOT NULL,
  number      int NOT NULL,
  id          uuid NOT NULL,
  text        text NOT NULL
) PARTITION BY RANGE (written_at);
CREATE INDEX log_execution ON daybell.log (id);
CREATE TABLE daybell.log_rest PARTITION OF daybell.log DEFAULT;


-- Schedules.

-- A schedule fires by times (next_at), after a fixed delay (delay), when the first scheduler starts
-- (is_reboot), after other jobs (since, its own cursor), or with events of a name (event). Each tick
-- writes the row twice: when it fires, and when its execution ends. Half of each page is left free for that, so that both versions
-- stay on the page and the second write changes no index.
CREATE TABLE daybell.schedule (
  tenant         int NOT NULL REFERENCES daybell.tenant,
  id             uuid NOT NULL,
  job            int NOT NULL REFERENCES daybell.job,
  rule           text NOT NULL,
  next_at        float8,
  last_at        float8,
  moved_at       float8,  -- when the cursor was set; in the future: the clock was set back since
  delay          float8,  -- fixed: the end of each execution sets the next time
  since          float8,
  succeeded_for  float8,
  fired          bigint NOT NULL DEFAULT 0,
  skipped        bigint NOT NULL DEFAULT 0,
  missed         bigint NOT NULL DEFAULT 0,
  failures       int NOT NULL DEFAULT 0,          -- since one succeeded
  pause_after    int,
  is_paused      boolean NOT NULL DEFAULT false,
  is_reboot      boolean NOT NULL DEFAULT false,
  is_declared    boolean NOT NULL DEFAULT false,  -- by the job's definition
  -- Made at run time: the overlap rule compares its executions with each other only.
  own_gate       boolean NOT NULL DEFAULT false,
  event          text COLLATE "C",
  name           text NOT NULL DEFAULT '',
  args           text NOT NULL DEFAULT '{}',
  misfire        text NOT NULL DEFAULT '',
  PRIMARY KEY (tenant, id)
) WITH (fillfactor = 45);
-- In the order in which they are fired.
CREATE INDEX schedule_due ON daybell.schedule (next_at, id) WHERE NOT is_paused AND next_at IS NOT NULL;
-- A job is shown with its next schedules, and they are listed page by page: a walk of this index. Each tick
-- writes all indexes of the table: one in the order of names made a tick 16 % dearer.
CREATE INDEX schedule_next ON daybell.schedule (job, (NOT is_declared), (coalesce(next_at, 'infinity')), id);
CREATE INDEX schedule_awaiting ON daybell.schedule (id) WHERE delay IS NOT NULL AND next_at IS NULL;
CREATE INDEX schedule_after ON daybell.schedule (id) WHERE since IS NOT NULL AND NOT is_paused;
-- The event comes first: no other index begins with it, so that none of them is taken in its place.
CREATE INDEX schedule_event ON daybell.schedule (event, tenant, id) WHERE event IS NOT NULL;

-- Files that have fired, as they were then.
CREATE TABLE daybell.watched_file (
  size        bigint NOT NULL,
  changed_at  bigint NOT NULL,  -- nanoseconds
  tenant      int NOT NULL REFERENCES daybell.tenant,
  inode       text NOT NULL,  -- may have 64 bits
  root        text COLLATE "C" NOT NULL,
  path        text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, root, path)
);

-- Times of a schedule, and the decision about each. A row may stand for several missed times. The
-- tick of an event has its number, and the time at which it was received, or just after the last
-- tick.
CREATE TABLE daybell.tick (
  schedule   uuid NOT NULL,
  at         float8 NOT NULL,
  until      float8,
  tenant     int NOT NULL,
  count      int NOT NULL DEFAULT 1,
  decision   smallint NOT NULL,
  reason     text,
  execution  uuid,
  event      bigint,
  PRIMARY KEY (tenant, schedule, at)
);
CREATE INDEX tick_at ON daybell.tick (at);
CREATE INDEX tick_event ON daybell.tick (event) WHERE event IS NOT NULL;


-- Runs of workflows.

-- An expanded run is a row in `live` with state 5 that no lease holds, and a row in `run`, whose lock is
-- taken before anything about its nodes is read or changed.
CREATE TABLE daybell.run (
  id           uuid NOT NULL,
  tenant       int NOT NULL REFERENCES daybell.tenant,
  total        int NOT NULL,
  unended      int NOT NULL,
  running      int NOT NULL,
  ready        int NOT NULL,
  lost_leaves  int NOT NULL DEFAULT 0,
  max_running  int,
  fail_fast    boolean NOT NULL,
  is_todo      boolean NOT NULL,
  is_blocked   boolean NOT NULL DEFAULT false,  -- its nodes wait for room in the tenant's quota
  stopping     text,
  failed       text,
  finished_at  float8,
  -- As the run's own execution has them; they never change.
  job          int NOT NULL,
  version      int NOT NULL,
  lane         int NOT NULL,
  priority     smallint NOT NULL,
  depth        int NOT NULL,  -- how many runs are around it
  gate         text COLLATE "C",
  schedule     uuid,
  parent       uuid,  -- the run around it
  node         text COLLATE "C",
  PRIMARY KEY (id, tenant)
) WITH (fillfactor = 50);
CREATE INDEX run_todo ON daybell.run (id) WHERE is_todo;
CREATE INDEX run_stopping ON daybell.run (id) WHERE stopping = 'cancel' AND finished_at IS NULL;
CREATE INDEX run_finished ON daybell.run (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX run_blocked ON daybell.run (tenant, id) WHERE is_blocked;

-- The state of each node of a run; see core/run.py. A node's execution is a row in `live` with the run as
-- its parent and its label as `node`. When it ends, it goes to history, dead or not: the run may be the
-- dead letter. The columns that most updates change are in no index, so that these touch none; the start
-- and the end of a node find room beside it.
CREATE TABLE daybell.node (
  run          uuid NOT NULL,
  tenant       int NOT NULL,
  place        bigint NOT NULL DEFAULT 0,  -- in the order of the graph
  state        smallint NOT NULL,
  rule         smallint NOT NULL,
  total        int NOT NULL DEFAULT 0,  -- parents
  succeeded    int NOT NULL DEFAULT 0,
  failed       int NOT NULL DEFAULT 0,
  skipped      int NOT NULL DEFAULT 0,
  told         int NOT NULL DEFAULT 0,
  items        int NOT NULL DEFAULT 0,
  spawned      int NOT NULL DEFAULT 0,
  items_ended  int NOT NULL DEFAULT 0,
  items_lost   int NOT NULL DEFAULT 0,
  is_wanted    boolean NOT NULL DEFAULT false,
  is_map       boolean NOT NULL DEFAULT false,
  is_todo      boolean NOT NULL DEFAULT false,
  is_ready     boolean NOT NULL DEFAULT false,
  started_at   float8,
  finished_at  float8,
  execution    uuid,
  label        text COLLATE "C" NOT NULL,
  of           text COLLATE "C",  -- an item's node
  reason       text,
  edges        text NOT NULL,
  spec         text NOT NULL,
  input        text,
  result       text,
  PRIMARY KEY (run, label, tenant)
) WITH (fillfactor = 50);
CREATE INDEX node_order ON daybell.node (run, place) WHERE of IS NULL;
CREATE INDEX node_todo ON daybell.node (run, place) WHERE is_todo;
CREATE INDEX node_ready ON daybell.node (run, place) WHERE is_ready;


-- Steps of durable functions.
--
-- Before these locks, recording a wait and publishing an event take an advisory lock on the event's name,
-- against each other only: otherwise each could look for the other's row just before it is there.

CREATE TABLE daybell.step (
  started_at   float8 NOT NULL,
  finished_at  float8,
  wake_at      float8,
  event        bigint,  -- that ended this wait
  tenant       int NOT NULL,
  n            int NOT NULL,
  failures     int NOT NULL,
  kind         smallint NOT NULL,
  is_done      boolean NOT NULL,
  execution    uuid NOT NULL,
  name         text NOT NULL,
  result       text,
  error        text,
  PRIMARY KEY (execution, n, tenant)
);
CREATE INDEX step_started ON daybell.step (started_at, execution);

-- Open waits. A row whose execution has ended does no harm, and goes with its step.
CREATE TABLE daybell.wait (
  timeout_at  float8,
  tenant      int NOT NULL,
  n           int NOT NULL,
  execution   uuid NOT NULL,
  event       text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,  -- one of the pairs in `match`, see core/event.py
  match       text NOT NULL,
  PRIMARY KEY (execution, n, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX wait_event ON daybell.wait (tenant, event, key);
CREATE INDEX wait_timeout ON daybell.wait (timeout_at) WHERE timeout_at IS NOT NULL;

CREATE TABLE daybell.event (
  received_at  float8 NOT NULL,
  time         float8,
  number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant       int NOT NULL REFERENCES daybell.tenant,
  execution    uuid,
  id           text COLLATE "C" NOT NULL,
  source       text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  data         text NOT NULL,
  UNIQUE (tenant, source, id)
);
CREATE INDEX event_list ON daybell.event (tenant, number);
CREATE INDEX event_received ON daybell.event (received_at);

-- The keys under which a wait finds events that came before it.
CREATE TABLE daybell.event_key (
  received_at  float8 NOT NULL,
  number       bigint NOT NULL,
  tenant       int NOT NULL,
  name         text COLLATE "C" NOT NULL,
  key          text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, name, key, received_at, number)
);
CREATE INDEX event_key_received ON daybell.event_key (received_at);


-- Admin.

CREATE TABLE daybell.api_key (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  expires_at  float8,
  used_at     float8,
  revoked_at  float8,
  tenant      int NOT NULL REFERENCES daybell.tenant,
  id          uuid NOT NULL,
  digest      bytea NOT NULL UNIQUE,  -- SHA-256; the token itself is shown once and never kept
  role        text NOT NULL,
  name        text NOT NULL,
  hint        text NOT NULL,
  created_by  text NOT NULL,
  scope       text,  -- JSON: the jobs, queues and actions that the key is limited to
  kind        text NOT NULL DEFAULT 'key',  -- of browsers: session, or login, a link that opens one; hook
  hook        text,  -- JSON: the job of a webhook, and the rule for its signatures
  parent      uuid,  -- the id of the key that it ends with
  PRIMARY KEY (id, tenant)
);
CREATE INDEX api_key_tenant ON daybell.api_key (tenant, id);

-- Requests that may be sent twice, and their answers.
CREATE TABLE daybell.idempotency (
  at      float8 NOT NULL DEFAULT daybell.now(),
  tenant  int NOT NULL REFERENCES daybell.tenant,
  status  smallint,
  id      uuid NOT NULL,
  digest  bytea NOT NULL,
  key     text COLLATE "C" NOT NULL,
  answer  text,
  PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_at ON daybell.idempotency (at);

-- Sealed values. The database cannot open them: workers have the keys.
CREATE TABLE daybell.secret (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  updated_at  float8 NOT NULL DEFAULT daybell.now(),
  tenant      int NOT NULL REFERENCES daybell.tenant,
  version     int NOT NULL DEFAULT 1,
  name        text COLLATE "C" NOT NULL,
  key_id      text NOT NULL,
  author      text NOT NULL,
  sealed      bytea NOT NULL,
  PRIMARY KEY (tenant, name)
);
-- A sealed value opens only at the version that it was sealed for. So that an older row cannot be put
-- back whole, versions of a name only rise: a deleted secret is a row with an empty value.
CREATE FUNCTION daybell.keep_secret() RETURNS trigger LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.version > OLD.version AND (NEW.tenant, NEW.name) = (OLD.tenant, OLD.name) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'a secret is only replaced, by a later version' USING
    ERRCODE = 'insufficient_privilege',
    HINT = 'Use daybell secrets.';
END $$;
CREATE TRIGGER keep_secret BEFORE UPDATE OR DELETE ON daybell.secret
  FOR EACH ROW EXECUTE FUNCTION daybell.keep_secret();
CREATE TRIGGER keep_all_secrets BEFORE TRUNCATE ON daybell.secret
  FOR EACH STATEMENT EXECUTE FUNCTION daybell.keep_secret();

-- The audit log is a chain per tenant: see `core.audit`.
CREATE TABLE daybell.audit (
  at      float8 NOT NULL DEFAULT daybell.now(),
  number  bigint NOT NULL,
  tenant  int NOT NULL REFERENCES daybell.tenant,
  id      uuid NOT NULL,
  hash    bytea NOT NULL,
  actor   text NOT NULL,
  action  text NOT NULL,
  target  text NOT NULL,
  before  text,
  after   text,
  source  text NOT NULL,
  PRIMARY KEY (id, tenant)
);
CREATE UNIQUE INDEX audit_chain ON daybell.audit (tenant, number);
CREATE INDEX audit_order ON daybell.audit (tenant, at, id);
CREATE INDEX audit_at ON daybell.audit USING brin (at);  -- for retention

CREATE TABLE daybell.audit_head (
  number   bigint NOT NULL,            -- of the last entry
  removed  bigint NOT NULL DEFAULT 0,  -- the number of the last entry that retention has removed
  tenant   int PRIMARY KEY REFERENCES daybell.tenant,
  hash     bytea NOT NULL,
  anchor   bytea NOT NULL DEFAULT ''   -- the hash of the last removed entry
) WITH (fillfactor = 50);

-- Append entries with different ids to a tenant's chain, except those that exist. The head stays locked until
-- the end of the transaction: to call this is the last step of one.
CREATE FUNCTION daybell.record_audit(for_tenant int, ids uuid[], actors text[], actions text[],
    targets text[], befores text[], afters text[], sources text[])
  RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  owner text;
  last_number bigint;
  last_hash bytea;
  now float8;
  contents bytea[];
  hashes bytea[];
BEGIN
  LOOP
    SELECT t.name, h.number, h.hash INTO owner, last_number, last_hash
      FROM daybell.audit_head h JOIN daybell.tenant t ON t.key = h.tenant
     WHERE h.tenant = for_tenant FOR NO KEY UPDATE OF h;
    EXIT WHEN FOUND;
    -- A head that was deleted does not bring the numbers back.
    INSERT INTO daybell.audit_head (tenant, number, hash)
    SELECT for_tenant, coalesce(max(a.number), 0), '' FROM daybell.audit a WHERE a.tenant = for_tenant
    ON CONFLICT DO NOTHING;
  END LOOP;
  IF EXISTS (SELECT FROM daybell.audit a WHERE a.id = ANY(ids) AND a.tenant + 0 = for_tenant) THEN
    SELECT array_agg(u.id ORDER BY n), array_agg(u.actor ORDER BY n), array_agg(u.action ORDER BY n),
           array_agg(u.target ORDER BY n), array_agg(u.before ORDER BY n),
           array_agg(u.after ORDER BY n), array_agg(u.source ORDER BY n)
      INTO ids, actors, actions, targets, befores, afters, sources
      FROM unnest(ids, actors, actions, targets, befores, afters, sources) WITH ORDINALITY
           u(id, actor, action, target, before, after, source, n)
     WHERE NOT EXISTS (SELECT FROM daybell.audit a WHERE a.id = u.id AND a.tenant + 0 = for_tenant);
  END IF;
  IF coalesce(cardinality(ids), 0) = 0 THEN
    RETURN;
  END IF;
  now := daybell.now();
  -- `core.audit.link_hash` is the reference.
  contents := ARRAY(
    SELECT convert_to(concat(
             last_number + u.n, ':', (now * 1e6)::bigint, ':', u.id, ':', length(owner), ':',
             length(u.actor), ':', length(u.action), ':', length(u.target), ':',
             coalesce(length(u.before), -1), ':', coalesce(length(u.after), -1), ':',
             length(u.source), ':',
             owner, u.actor, u.action, u.target, u.before, u.after, u.source), 'UTF8')
      FROM unnest(ids, actors, actions, targets, befores, afters, sources) WITH ORDINALITY
           u(id, actor, action, target, before, after, source, n));
  FOR i IN 1 .. cardinality(ids) LOOP
    last_hash := sha256(last_hash || contents[i]);
    hashes[i] := last_hash;
  END LOOP;
  WITH added AS (
    INSERT INTO daybell.audit (at, tenant, id, actor, action, target, before, after, source, hash,
                               number)
    SELECT now, for_tenant, u.id, u.actor, u.action, u.target, u.before, u.after, u.source, u.hash,
           last_number + u.n
      FROM unnest(ids, actors, actions, targets, befores, afters, sources, hashes) WITH ORDINALITY
           u(id, actor, action, target, before, after, source, hash, n))
  UPDATE daybell.audit_head h SET number = last_number + cardinality(ids), hash = last_hash
   WHERE h.tenant = for_tenant;
END $$;

-- No role can change or remove an entry, the owner neither. Entries that are older than a year are removed
-- by `drop_audit`, from the beginning of each chain, whose head keeps the hash of the last removed entry.
CREATE FUNCTION daybell.keep_audit() RETURNS trigger LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'DELETE' AND OLD.at < daybell.now() - 365 * 86400 THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER keep_audit BEFORE UPDATE OR DELETE ON daybell.audit
  FOR EACH ROW EXECUTE FUNCTION daybell.keep_audit();
CREATE TRIGGER keep_all_audit BEFORE TRUNCATE ON daybell.audit
  FOR EACH STATEMENT EXECUTE FUNCTION daybell.keep_audit();

CREATE FUNCTION daybell.drop_audit(most int) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  bound float8 := daybell.now() - 365 * 86400;
  owner int;
  dropped int;
  removed int := 0;
BEGIN
  FOR owner IN
    SELECT t.key FROM daybell.tenant t
     WHERE EXISTS (SELECT FROM daybell.audit a WHERE a.tenant = t.key AND a.at < bound)
     ORDER BY t.key
  LOOP
    WITH first AS MATERIALIZED (
      SELECT a.ctid AS place, a.at, a.number FROM daybell.audit a WHERE a.tenant = owner
       ORDER BY a.number LIMIT most - removed),
    old AS MATERIALIZED (
      SELECT f.place, bool_and(f.at < bound) OVER (ORDER BY f.number) AS is_old FROM first f),
    gone AS (
      DELETE FROM daybell.audit a WHERE a.ctid = ANY(ARRAY(SELECT o.place FROM old o WHERE o.is_old))
      RETURNING a.number, a.hash),
    moved AS (
      UPDATE daybell.audit_head h SET removed = g.number, anchor = g.hash
        FROM (SELECT g.number, g.hash FROM gone g ORDER BY g.number DESC LIMIT 1) g
       WHERE h.tenant = owner AND h.removed < g.number)
    SELECT count(*) INTO dropped FROM gone;
    removed := removed + dropped;
    EXIT WHEN removed >= most;
  END LOOP;
  RETURN removed;
END $$;


-- Cluster.

CREATE TABLE daybell.leader (
  name        text PRIMARY KEY,
  holder      uuid NOT NULL,
  epoch       bigint NOT NULL,
  until       float8 NOT NULL,
  renewed_at  float8 NOT NULL DEFAULT '-infinity'
);

-- When processes have seen the store's clock run evenly, as JSON (`core.watch`): one row.
CREATE TABLE daybell.watch (
  n        smallint PRIMARY KEY CHECK (n = 1),
  watched  text NOT NULL
) WITH (fillfactor = 50);


-- Statistics over time.

-- Counts and histograms (`core.monitoring.stats`) by minute and by hour since 1970, of three kinds of subjects:
-- everything (job 0, queue ''), a queue (job 0), and a job in a queue. Minutes are kept for two days.

CREATE TABLE daybell.stat_minute (
  tenant           int NOT NULL,
  job              int NOT NULL,
  at               int NOT NULL,
  enqueued         bigint NOT NULL,
  started          bigint NOT NULL,
  succeeded        bigint NOT NULL,
  dead             bigint NOT NULL,
  cancelled        bigint NOT NULL,
  skipped          bigint NOT NULL,
  failed_attempts  bigint NOT NULL,
  lost             bigint NOT NULL,
  retried          bigint NOT NULL,
  late             bigint NOT NULL,
  missed           bigint NOT NULL,
  queue            text COLLATE "C" NOT NULL,
  run              bytea NOT NULL,
  delay            bytea NOT NULL,
  PRIMARY KEY (tenant, job, queue, at)
) WITH (fillfactor = 50);
CREATE TABLE daybell.stat_hour (LIKE daybell.stat_minute, PRIMARY KEY (tenant, job, queue, at))
  WITH (fillfactor = 50);
-- All that was ever counted (`at` is 0).
CREATE TABLE daybell.stat_total (LIKE daybell.stat_minute, PRIMARY KEY (tenant, job, queue, at))
  WITH (fillfactor = 50);
-- For retention.
CREATE INDEX stat_minute_at ON daybell.stat_minute (at);
CREATE INDEX stat_hour_at ON daybell.stat_hour (at);

-- The transactions that are counted: all below `until`, but for those that were open. One row.
CREATE TABLE daybell.stat_fold (
  n      smallint PRIMARY KEY CHECK (n = 1),
  until  bigint NOT NULL,
  open   bigint[] NOT NULL
) WITH (fillfactor = 50);
INSERT INTO daybell.stat_fold (n, until, open) VALUES (1, txid_current(), '{}');

-- Missed times of schedules that are not in the statistics yet. Folding removes the rows.
CREATE TABLE daybell.missed (
  tenant  int NOT NULL,
  job     int NOT NULL,
  minute  int NOT NULL,  -- since 1970
  number  int NOT NULL
);


-- Alerts: rules, and the incidents that they open.

CREATE TABLE daybell.alert_rule (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  updated_at  float8 NOT NULL DEFAULT daybell.now(),
  tenant      int NOT NULL REFERENCES daybell.tenant,
  version     int NOT NULL,
  name        text COLLATE "C" NOT NULL,
  author      text NOT NULL,
  definition  text NOT NULL,
  PRIMARY KEY (tenant, name)
);

-- A rule is named here, not referred to: `notifications` of a job are rules without a row.
CREATE TABLE daybell.incident (
  id               uuid NOT NULL,
  opened_at        float8 NOT NULL,
  notified_at      float8,
  closed_at        float8,
  acknowledged_at  float8,
  tenant           int NOT NULL REFERENCES daybell.tenant,
  version          int NOT NULL DEFAULT 1,  -- each change compares and raises it
  is_event         boolean NOT NULL,        -- opened and closed at once
  rule             text COLLATE "C" NOT NULL,
  subject          text COLLATE "C" NOT NULL,
  mark             text COLLATE "C" NOT NULL,
  detail           text NOT NULL,
  acknowledged_by  text NOT NULL DEFAULT '',
  PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX incident_open ON daybell.incident (tenant, rule, subject)
  WHERE closed_at IS NULL;
CREATE UNIQUE INDEX incident_event ON daybell.incident (tenant, rule, subject, mark) WHERE is_event;
CREATE INDEX incident_closed ON daybell.incident (tenant, rule, subject, closed_at)
  WHERE closed_at IS NOT NULL;
CREATE INDEX incident_old ON daybell.incident (closed_at) WHERE closed_at IS NOT NULL;

-- How far each repeated export has come: retention keeps what ended later.
CREATE TABLE daybell.export_policy (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  updated_at  float8 NOT NULL DEFAULT daybell.now(),
  tenant      int NOT NULL REFERENCES daybell.tenant,
  version     int NOT NULL,
  name        text COLLATE "C" NOT NULL,
  author      text NOT NULL,
  definition  text NOT NULL,
  PRIMARY KEY (tenant, name)
);

-- Outgoing events: subscriptions, and the events that are not enqueued for delivery yet.

CREATE TABLE daybell.subscription (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  updated_at  float8 NOT NULL DEFAULT daybell.now(),
  tenant      int NOT NULL REFERENCES daybell.tenant,
  version     int NOT NULL,
  name        text COLLATE "C" NOT NULL,
  author      text NOT NULL,
  definition  text NOT NULL,
  PRIMARY KEY (tenant, name)
);

-- The ends of executions come from the rows with `ended_by`, in the transaction that counts them: they
-- were recorded in the transaction of the end, at no further cost. Other changes come from triggers.
CREATE TABLE daybell.outbox (
  number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         float8 NOT NULL DEFAULT daybell.now(),
  tenant     int NOT NULL,
  attempt    int,
  execution  uuid,
  type       text NOT NULL,
  job        text,
  queue      text,
  data       text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE FUNCTION daybell.tell_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO daybell.outbox (tenant, type, job, data)
  SELECT NEW.tenant, 'job.changed', NEW.name,
         json_build_object('change', CASE WHEN NEW.deleted_at IS NOT NULL THEN 'deleted'
                                          WHEN OLD.version = 0 OR OLD.deleted_at IS NOT NULL THEN 'created'
                                          WHEN OLD.version <> NEW.version THEN 'updated'
                                          WHEN NEW.paused_at IS NULL THEN 'resumed'
                                          ELSE 'paused' END,
                           'version', NEW.version, 'job_id', NEW.id)::text
   WHERE EXISTS (SELECT FROM daybell.subscription s WHERE s.tenant = NEW.tenant);
  RETURN NULL;
END $$;
CREATE TRIGGER job_changed AFTER UPDATE OF version, paused_at, deleted_at ON daybell.job FOR EACH ROW
  WHEN (OLD.version <> NEW.version OR OLD.paused_at IS DISTINCT FROM NEW.paused_at
        OR OLD.deleted_at IS DISTINCT FROM NEW.deleted_at)
  EXECUTE FUNCTION daybell.tell_job();

CREATE FUNCTION daybell.tell_tick() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO daybell.missed (tenant, job, minute, number)
  SELECT NEW.tenant, s.job, floor(NEW.at / 60)::int, NEW.count
    FROM daybell.schedule s WHERE s.tenant = NEW.tenant AND s.id = NEW.schedule;
  INSERT INTO daybell.outbox (tenant, type, job, data)
  SELECT NEW.tenant, 'schedule.missed', j.name,
         json_build_object('schedule_id', NEW.schedule, 'at', NEW.at, 'until', NEW.until,
                           'count', NEW.count)::text
    FROM daybell.schedule s JOIN daybell.job j ON j.key = s.job
   WHERE s.tenant = NEW.tenant AND s.id = NEW.schedule
     AND EXISTS (SELECT FROM daybell.subscription b WHERE b.tenant = NEW.tenant);
  RETURN NULL;
END $$;
CREATE TRIGGER tick_missed AFTER INSERT ON daybell.tick FOR EACH ROW WHEN (NEW.decision = 3)
  EXECUTE FUNCTION daybell.tell_tick();

-- The definitions of jobs that are rules by themselves.
CREATE INDEX job_version_notifies ON daybell.job_version (job, version)
  WHERE strpos(definition, '"notifications":[{') > 0;


-- Functions of upkeep.
--
-- Days are made and dropped by functions of the schema's owner, so that the role which Daybell runs
-- under needs no right to create or drop anything. pg_temp is named last, or it would be searched
-- first, and a caller could put a table of his own in front of the catalogue.

CREATE FUNCTION daybell.make_day(parent text, day date) RETURNS boolean LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
  part text := parent || '_' || to_char(day, 'YYYYMMDD');
  low float8 := date_part('epoch', day::timestamp);
  high float8 := low + 86400;
  key text := CASE parent WHEN 'history' THEN 'finished_at' WHEN 'attempt' THEN 'ended_at'
                          WHEN 'log' THEN 'written_at' END;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('daybell.days'));  -- one maker at a time
  IF key IS NULL OR to_regclass('daybell.' || part) IS NOT NULL THEN
    RETURN false;
  END IF;
  -- Built apart and attached: unlike PARTITION OF, that lets reading and writing of other days go on.
  EXECUTE format('CREATE TABLE daybell.%I (LIKE daybell.%I INCLUDING STORAGE,
                  CONSTRAINT day CHECK (%I >= %L::float8 AND %I < %L::float8))',
                 part, parent, key, low, key, high);
  -- Attaching takes this lock anyway. Taken here, it leaves no row behind that is just being written.
  EXECUTE format('LOCK TABLE daybell.%I IN ACCESS EXCLUSIVE MODE', parent || '_rest');
  EXECUTE format('WITH moved AS (DELETE FROM daybell.%I WHERE %I >= %L::float8 AND %I < %L::float8
                  RETURNING *) INSERT INTO daybell.%I SELECT * FROM moved',
                 parent || '_rest', key, low, key, high, part);
  EXECUTE format('ALTER TABLE daybell.%I ATTACH PARTITION daybell.%I FOR VALUES FROM (%L) TO (%L)',
                 parent, part, low, high);
  EXECUTE format('ALTER TABLE daybell.%I DROP CONSTRAINT day', part);
  RETURN true;
END $$;

CREATE FUNCTION daybell.make_days(ahead int) RETURNS int LANGUAGE sql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*) FILTER (WHERE daybell.make_day(parent, day))::int
    FROM unnest(ARRAY['history', 'attempt', 'log']) parent,
         generate_series(0, least(ahead, 30)) n,
         LATERAL (SELECT (to_timestamp(daybell.now()) AT TIME ZONE 'UTC')::date + n AS day) d
$$;
SELECT daybell.make_days(3);

CREATE FUNCTION daybell.drop_days(parent text, before float8) RETURNS int LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
  part text;
  dropped int := 0;
BEGIN
  IF parent NOT IN ('history', 'attempt', 'log') THEN
    RETURN 0;
  END IF;
  PERFORM pg_advisory_xact_lock(hashtext('daybell.days'));
  FOR part IN
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = ('daybell.' || parent)::regclass AND c.relname ~ ('^' || parent || '_\d{8}$')
       AND date_part('epoch', to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp) + 86400 <= before
     ORDER BY 1
  LOOP
    EXECUTE format('DROP TABLE daybell.%I', part);
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END $$;

-- Take the value of `repeats` away when there are no rows. No repeat is between its row and its value
-- meanwhile: it writes the row first, and keeps the lock on the table until its commit.
CREATE FUNCTION daybell.rest_repeats() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF pg_sequence_last_value('daybell.repeats') IS NULL OR EXISTS (SELECT FROM daybell.repeated) THEN
    RETURN;
  END IF;
  LOCK TABLE daybell.repeated IN SHARE ROW EXCLUSIVE MODE NOWAIT;
  IF NOT EXISTS (SELECT FROM daybell.repeated) THEN
    PERFORM setval('daybell.repeats', 1, false);
  END IF;
EXCEPTION WHEN lock_not_available THEN
  NULL;  -- at the next time, then
END $$;

-- Refuse ids that a repeated request has created; return true otherwise. The caller has inserted its
-- rows: their number is an argument so that they are counted first. From then on no repeat can create
-- them. Each query of a volatile function has a snapshot of its own, so this sees rows that were
-- committed while the caller's statement was under way.
CREATE FUNCTION daybell.refuse_repeated(for_tenant int, ids uuid[], inserted bigint) RETURNS boolean
  LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF EXISTS (SELECT FROM daybell.repeated r WHERE r.id = ANY(ids) AND r.tenant = for_tenant) THEN
    RAISE EXCEPTION 'some of these executions exist: a repeat of this request has created them'
      USING ERRCODE = 'unique_violation';
  END IF;
  RETURN true;
END $$;

-- Count executions that were enqueued just now; return their number in this minute.
CREATE FUNCTION daybell.count_enqueued(for_tenant int, made int) RETURNS bigint
  LANGUAGE sql VOLATILE AS $$
  INSERT INTO daybell.tenant_minute AS m (tenant, minute, enqueued)
  VALUES (for_tenant, floor(daybell.now() / 60)::bigint, made)
  ON CONFLICT (tenant, minute) DO UPDATE SET enqueued = m.enqueued + excluded.enqueued
  RETURNING enqueued
$$;

-- The same for a tenant with quotas, in the transaction that has made them: return the quota that they
-- exceed, if any. The lock comes last, and the count under it sees earlier commits: of two at a time,
-- the second counts the executions of the first.
CREATE FUNCTION daybell.charge(for_tenant int, made int, OUT quota text, OUT most bigint,
    OUT wait float8) LANGUAGE plpgsql VOLATILE
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  limits record;
  now float8;
BEGIN
  SELECT t.queued_max, t.per_minute_max INTO limits
    FROM daybell.tenant t WHERE t.key = for_tenant FOR NO KEY UPDATE;
  IF limits.queued_max IS NOT NULL AND limits.queued_max < (
       SELECT count(*) FROM (SELECT FROM daybell.live l WHERE l.tenant = for_tenant
                              LIMIT limits.queued_max + 1) u) THEN
    quota := 'queued';
    most := limits.queued_max;
    wait := 10;
  ELSIF limits.per_minute_max IS NOT NULL
        AND limits.per_minute_max < daybell.count_enqueued(for_tenant, made) THEN
    now := daybell.now();
    quota := 'per_minute';
    most := limits.per_minute_max;
    wait := 60 * (floor(now / 60) + 1) - now;
  END IF;
END $$;


-- Functions of enqueueing from a caller's own transaction, in any language:
--
--   SELECT daybell.enqueue('send_email', '{"to": "ada@example.org"}', '{"delay": "5m"}')
--
-- It writes the rows that the store's own enqueue writes (store/postgres/enqueue.py), and a test
-- compares the two. The settings of a caller must not matter here: the search path is pinned, with
-- pg_temp last; tables and functions are named with their schema; literals with a backslash are E'…'.
-- Limits are those of core/limits.py.

-- Ids are UUID version 7. uuidv7() came with PostgreSQL 18; this one is the same on all of them. A
-- stamp counts 1/4096 of a millisecond since 1970, so a batch rises by adding 1. The rest is that of
-- a random uuid, which has its variant bits in the same place.
CREATE FUNCTION daybell.mint(stamp bigint) RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT (lpad(to_hex(stamp >> 12), 12, '0') || '7' || lpad(to_hex(stamp & 4095), 3, '0')
          || substr(replace(gen_random_uuid()::text, '-', ''), 17))::uuid
$$;

-- Durations as core/duration.py reads them: seconds, "1h30m", "PT5M".
CREATE FUNCTION daybell.read_seconds(value jsonb, what text) RETURNS float8 LANGUAGE plpgsql STABLE
AS $$
DECLARE
  said text := btrim(value #>> '{}', E' \t\n\r\f\v');
  number text := '([0-9]+(?:[.][0-9]+)?|[.][0-9]+)';
  units text := '^(?:%1$s ?w(?!s) ?)?(?:%1$s ?d(?!s) ?)?(?:%1$s ?h(?!s) ?)?(?:%1$s ?m(?!s) ?)?'
                || '(?:%1$s ?s(?!s) ?)?(?:%1$s ?ms ?)?(?:%1$s ?us ?)?$';
  iso text := '^P(?:%1$sW)?(?:%1$sD)?(?:T(?=[0-9])(?:%1$sH)?(?:%1$sM)?(?:%1$sS)?)?$';
  counts text[];
  seconds numeric;
BEGIN
  IF jsonb_typeof(value) = 'number' THEN
    seconds := said::numeric;
  ELSIF jsonb_typeof(value) = 'string' AND length(said) BETWEEN 1 AND 64 THEN
    IF said ~ ('^' || number || '$') THEN
      seconds := said::numeric;
    ELSE
      counts := coalesce(regexp_match(said, format(units, number)),
                         regexp_match(said, format(iso, '([0-9]+(?:[.,][0-9]+)?)')));
      seconds := (SELECT sum(replace(u.count, ',', '.')::numeric * u.unit)
                    FROM unnest(counts, ARRAY[604800, 86400, 3600, 60, 1, 0.001, 0.000001])
                         u(count, unit));
    END IF;
  END IF;
  IF seconds IS NULL OR seconds NOT BETWEEN 0 AND 315619200 THEN
    RAISE EXCEPTION '% % is not a length of time up to ten years', what, left(value::text, 60)
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A duration is a number of seconds, or text like "90s", "5m", "1h30m", "2d", "PT5M".';
  END IF;
  RETURN round(seconds, 6);
END $$;

CREATE FUNCTION daybell.read_instant(value jsonb, what text) RETURNS float8 LANGUAGE plpgsql STABLE
AS $$
DECLARE
  said text := value #>> '{}';
  instant float8;
BEGIN
  BEGIN
    IF jsonb_typeof(value) = 'number' THEN
      instant := said::float8;
    -- With its offset written out, so that no setting of the session has a say.
    ELSIF said ~ ('^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?'
                  || '(Z|[+-][0-9]{2}(:?[0-9]{2})?)$') THEN
      instant := extract(epoch FROM said::timestamptz);  -- exact, unlike date_part
    END IF;
  -- 1e400, the 30th of February, an offset of 99 hours.
  EXCEPTION WHEN numeric_value_out_of_range OR datetime_field_overflow OR invalid_datetime_format
              OR invalid_time_zone_displacement_value THEN
    instant := NULL;
  END;
  IF instant IS NULL OR instant NOT BETWEEN 0 AND 253402300799 THEN
    RAISE EXCEPTION '% % is not a time between 1970 and 9999', what, left(value::text, 60)
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Write ISO 8601 with an offset, such as "2026-12-24T18:00:00+01:00", or seconds since 1970.';
  END IF;
  RETURN instant;
END $$;

CREATE FUNCTION daybell.read_priority(value jsonb) RETURNS smallint LANGUAGE plpgsql STABLE AS $$
DECLARE
  said text := lower(btrim(value #>> '{}', E' \t\n\r\f\v'));
  place int;
BEGIN
  IF jsonb_typeof(value) = 'string' THEN
    said := CASE said WHEN 'medium' THEN 'normal' ELSE said END;
    place := array_position(ARRAY['critical', 'high', 'normal', 'low'], said) - 1;
  ELSIF jsonb_typeof(value) = 'number' THEN
    place := array_position(ARRAY['0', '1', '2', '3'], said) - 1;
  END IF;
  IF place IS NULL THEN
    RAISE EXCEPTION '% is not a priority', left(value::text, 60)
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Use critical, high, normal (or medium) or low.';
  END IF;
  RETURN place;
END $$;

CREATE FUNCTION daybell.read_text(value jsonb, what text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF jsonb_typeof(value) <> 'string' OR value = '""' THEN
    RAISE EXCEPTION '% % is not text with something in it', what, left(value::text, 60)
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out to have none.';
  END IF;
  RETURN value #>> '{}';
END $$;

-- The options of one enqueue. An option that is left out, or null, is NULL here: as the job says.
CREATE FUNCTION daybell.read_options(options jsonb, OUT tenant text, OUT queue text,
    OUT priority smallint, OUT delay float8, OUT at float8, OUT expires float8,
    OUT unique_key text, OUT retries int, OUT timeout float8, OUT refresh boolean,
    OUT traceparent text) LANGUAGE plpgsql STABLE AS $$
DECLARE
  known text[] := ARRAY['at', 'cache', 'delay', 'expires', 'priority', 'queue', 'retries', 'tenant',
                        'timeout', 'traceparent', 'unique_key'];
  stray text;
  given record;
BEGIN
  IF jsonb_typeof(options) <> 'object' THEN
    RAISE EXCEPTION 'options must be a JSON object, not %', left(options::text, 60)
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Such as {"delay": "5m"}.';
  END IF;
  SELECT k INTO stray FROM jsonb_object_keys(options) k WHERE k <> ALL (known) LIMIT 1;
  IF stray IS NOT NULL THEN
    RAISE EXCEPTION 'there is no option %', quote_literal(left(stray, 60))
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'There are ' || array_to_string(known, ', ') || '.';
  END IF;
  FOR given IN SELECT o.key, o.value FROM jsonb_each(options) o WHERE o.value <> 'null' LOOP
    CASE given.key
      WHEN 'tenant' THEN tenant := daybell.read_text(given.value, given.key);
      WHEN 'queue' THEN queue := daybell.read_text(given.value, given.key);
      WHEN 'unique_key' THEN unique_key := daybell.read_text(given.value, given.key);
      WHEN 'priority' THEN priority := daybell.read_priority(given.value);
      WHEN 'cache' THEN
        IF given.value <> '"refresh"' THEN
          RAISE EXCEPTION 'cache % is not the word refresh', left(given.value::text, 60)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out to use a cached result.';
        END IF;
        refresh := true;
      WHEN 'at' THEN at := daybell.read_instant(given.value, given.key);
      WHEN 'delay' THEN delay := daybell.read_seconds(given.value, given.key);
      WHEN 'expires' THEN expires := daybell.read_seconds(given.value, given.key);
      WHEN 'timeout' THEN timeout := daybell.read_seconds(given.value, given.key);
      WHEN 'traceparent' THEN
        traceparent := given.value #>> '{}';
        IF traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN
          RAISE EXCEPTION 'traceparent % is not a W3C trace context', left(given.value::text, 60)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.';
        END IF;
      WHEN 'retries' THEN
        IF jsonb_typeof(given.value) <> 'number' OR given.value::text !~ '^[0-9]{1,4}$'
           OR given.value > '1000' THEN
          RAISE EXCEPTION 'retries % is not a whole number from 0 to 1,000', left(given.value::text, 60)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out for what the job says.';
        END IF;
        retries := given.value::int;
    END CASE;
  END LOOP;
  IF delay IS NOT NULL AND at IS NOT NULL THEN
    RAISE EXCEPTION 'delay and at are two ways to say the same'
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one of them.';
  END IF;
  IF expires = 0 OR timeout = 0 THEN
    RAISE EXCEPTION '% is no time at all', CASE WHEN expires = 0 THEN 'expires 0' ELSE 'timeout 0' END
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out for what the job says.';
  END IF;
  IF octet_length(unique_key) > 500 THEN
    RAISE EXCEPTION 'unique_key has % bytes; the limit is 500', octet_length(unique_key)
      USING ERRCODE = 'program_limit_exceeded', HINT = 'Use a digest of it.';
  END IF;
  tenant := coalesce(tenant, 'default');
END $$;

-- Return why arguments cannot be kept, or could not be read by a worker; NULL if they can. Text that is
-- no JSON at all ends in the server's own error.
CREATE FUNCTION daybell.args_fault(args text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  bare text;
BEGIN
  IF octet_length(args) > 1048576 THEN
    RETURN format('%s bytes of JSON; the limit is 1,048,576', octet_length(args));
  ELSIF json_typeof(args::json) <> 'object' THEN
    RETURN 'arguments are given by name, as a JSON object';
  ELSIF length(args) <= 64 THEN
    RETURN NULL;
  END IF;
  -- Without its strings, and only where there may be something to find.
  IF length(args) - length(translate(args, '[{', '')) > 64
     OR strpos(translate(args, '123456789', '000000000'), repeat('0', 4301)) > 0 THEN
    bare := regexp_replace(args, E'"[^"\\\\]*(?:\\\\.[^"\\\\]*)*"', '""', 'g');
    IF strpos(translate(bare, '123456789', '000000000'), repeat('0', 4301)) > 0 THEN
      RETURN 'an integer of more than 4,300 digits; pass it as text';
    END IF;
    bare := translate(regexp_replace(bare, '[^][{}]', '', 'g'), '{}', '[]');
    FOR level IN 1..64 LOOP
      bare := replace(bare, '[]', '');  -- takes one level off the inside
    END LOOP;
    IF bare <> '' THEN
      RETURN 'nested deeper than 64 levels';
    END IF;
  END IF;
  RETURN NULL;
END $$;

-- The number of a lane, which is made if there is none. Until the caller commits, other transactions that
-- need a new one wait here; so the lanes of jobs' own queues are made when they are defined.
CREATE FUNCTION daybell.take_lane(for_tenant int, for_queue text, for_needs text) RETURNS int
  LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  found int;
BEGIN
  LOOP
    SELECT l.key INTO found FROM daybell.lane l
     WHERE l.tenant = for_tenant AND l.queue = for_queue AND l.needs = for_needs;
    EXIT WHEN found IS NOT NULL;
    INSERT INTO daybell.lane (tenant, queue, needs) VALUES (for_tenant, for_queue, for_needs)
    ON CONFLICT DO NOTHING RETURNING key INTO found;
    EXIT WHEN found IS NOT NULL;
  END LOOP;
  RETURN found;
END $$;

-- Lock a job's gate, and refuse so many more executions if the rule does not let them in.
CREATE FUNCTION daybell.open_gate(for_tenant int, for_job int, for_gate text, rule text, asked int)
  RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  inside int;
  outside int;
  other uuid;
  allowed int;
BEGIN
  IF rule = 'replace' THEN
    RAISE EXCEPTION 'the overlap rule of this job is replace, which cancels what runs; that cannot be done from here'
      USING ERRCODE = 'feature_not_supported',
            HINT = 'Enqueue it outside of your transaction: from Python, the command line or the API.';
  END IF;
  INSERT INTO daybell.gate (tenant, key, capacity) VALUES (for_tenant, for_gate, 1)
  ON CONFLICT DO NOTHING;
  SELECT g.holders INTO inside FROM daybell.gate g
   WHERE g.tenant = for_tenant AND g.key = for_gate FOR UPDATE;
  SELECT count(*) INTO outside FROM daybell.parked p
   WHERE p.tenant = for_tenant AND p.gate = for_gate AND p.run_at <= daybell.now();
  allowed := CASE WHEN inside + outside = 0 THEN 1 ELSE 0 END
             + CASE WHEN rule = 'queue_all' THEN asked
                    WHEN rule = 'queue' AND outside = 0 THEN 1 ELSE 0 END;
  IF asked > allowed THEN
    SELECT v.id INTO other FROM daybell.live v WHERE v.job = for_job AND v.gate = for_gate
     ORDER BY v.id LIMIT 1;
    RAISE EXCEPTION 'the job has not finished %, and its overlap rule is %',
                    coalesce('execution ' || other, 'the one before it'), rule
      USING ERRCODE = 'object_in_use', HINT = 'Wait for it, or cancel it.';
  END IF;
END $$;

-- Let in as store/postgres/gates.py does; the gate is locked.
CREATE FUNCTION daybell.let_in(for_tenant int, for_gate text) RETURNS void LANGUAGE sql VOLATILE AS $$
  WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
  p AS (
    DELETE FROM daybell.parked WHERE ctid = ANY(ARRAY(
      SELECT p.ctid FROM daybell.gate g, LATERAL (
        SELECT x.ctid FROM daybell.parked x
         WHERE x.tenant = g.tenant AND x.gate = g.key AND x.run_at <= (SELECT now FROM t)
         ORDER BY x.priority, x.run_at, x.id LIMIT greatest(g.capacity - g.holders, 0)) p
       WHERE g.tenant = for_tenant AND g.key = for_gate)) RETURNING id),
  v AS (
    UPDATE daybell.live v SET state = 1, reason = NULL, run_at = (SELECT now FROM t)
     WHERE v.tenant + 0 = for_tenant AND v.id = ANY(ARRAY(SELECT id FROM p))
    RETURNING v.run_at, v.lane, v.priority, v.id),
  a AS (
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM v)
  UPDATE daybell.gate SET holders = holders + n
    FROM (SELECT count(*) AS n FROM v) c WHERE tenant = for_tenant AND key = for_gate AND n > 0
$$;

-- The key of a request by the collapse rule of its job, as `CollapseRule.key_of` makes it.
CREATE FUNCTION daybell.collapse_key(rule json, args text, unique_key text) RETURNS text
  LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  key text := '';
  given jsonb;
  part json;
BEGIN
  IF rule -> 'key' IS NULL AND rule ->> 'kind' <> 'cache' THEN
    key := coalesce(unique_key, '');
  ELSE
    given := replace(args, E'\\u0000', E'\\ufffd')::jsonb;
    IF rule -> 'key' IS NULL THEN
      key := given::text;
    END IF;
    FOR part IN SELECT * FROM json_array_elements(rule -> 'key') LOOP
      key := key || CASE WHEN json_typeof(part) = 'string' THEN part #>> '{}'
                         ELSE coalesce(given #>> ARRAY(SELECT json_array_elements_text(part)), 'null') END;
    END LOOP;
  END IF;
  IF octet_length(key) > 200 THEN
    key := encode(sha256(convert_to(key, 'UTF8')), 'hex');
  END IF;
  RETURN coalesce(rule ->> 'version', '') || ':' || key;
END $$;

-- The decision about one request of a key: core/collapse.py has its words. `batch` are the executions that
-- this transaction is about to create: they are not in `live` yet.
CREATE FUNCTION daybell.collapse(for_tenant int, for_job int, for_version int, rule json, for_key text,
    for_request uuid, args text, at float8, delay float8, expires float8, is_forced boolean,
    batch uuid[], OUT verb text, OUT holder uuid)
  LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  now float8 := daybell.now();
  kept float8 := greatest(coalesce((rule ->> 'period')::float8, 0), coalesce((rule ->> 'keep')::float8, 0)) + 86400;
  latest record;
  held record;
  due float8;
  is_there boolean;
  is_waiting boolean := false;
  conflict text := coalesce(rule ->> 'conflict', 'return');
BEGIN
  -- The lock. An update of the time is for the removal of keys only; an hour more or less keeps it from
  -- writing an index each time.
  INSERT INTO daybell.collapsed AS c (tenant, job, key, keep_until)
  VALUES (for_tenant, for_job, for_key, now + kept)
  ON CONFLICT (job, key) DO UPDATE SET keep_until =
    CASE WHEN c.keep_until < excluded.keep_until - 3600 THEN excluded.keep_until ELSE c.keep_until END
  RETURNING c.execution, c.starts INTO latest;
  IF NOT EXISTS (SELECT FROM daybell.job j WHERE j.key = for_job AND j.version = for_version
                    AND j.deleted_at IS NULL) THEN
    verb := 'outdated';
    RETURN;
  END IF;
  SELECT m.execution INTO holder FROM daybell.merged m
   WHERE m.request = for_request AND m.tenant + 0 = for_tenant;
  IF FOUND THEN
    verb := 'held';
    RETURN;
  END IF;
  holder := latest.execution;
  SELECT v.* INTO held FROM daybell.live v
   WHERE v.tenant + 0 = for_tenant AND v.id = latest.execution AND v.cancel_requested_at IS NULL FOR UPDATE;
  is_there := FOUND OR latest.execution = ANY(batch);
  IF FOUND THEN
    is_waiting := held.state = 4 OR EXISTS (
      SELECT FROM daybell.agenda a WHERE a.lane = held.lane AND a.priority = held.priority
         AND a.run_at = held.run_at AND a.id = held.id);
  ELSE
    is_waiting := is_there;
  END IF;
  IF is_forced OR latest.execution IS NULL THEN
    verb := 'new';
  ELSIF rule ->> 'kind' = 'throttle' THEN
    latest.starts := ARRAY(SELECT s FROM unnest(latest.starts) s WHERE s > now - (rule ->> 'period')::float8 ORDER BY s);
    verb := CASE WHEN cardinality(latest.starts) >= coalesce((rule ->> 'limit')::int, 1) THEN 'held' ELSE 'new' END;
  ELSIF rule ->> 'kind' = 'cache' THEN
    verb := CASE WHEN is_there OR EXISTS (
        SELECT FROM daybell.history h WHERE h.tenant = for_tenant AND h.state = 6 AND h.node IS NULL
           AND h.id = latest.execution AND h.finished_at > now - (rule ->> 'keep')::float8) OR EXISTS (
        SELECT FROM daybell.history h WHERE h.tenant = for_tenant AND h.state = 6 AND h.node IS NOT NULL
           AND h.id = latest.execution AND h.finished_at > now - (rule ->> 'keep')::float8)
      THEN 'held' ELSE 'new' END;
  ELSIF NOT coalesce(is_there, false) THEN
    verb := 'new';
  ELSIF rule ->> 'kind' = 'debounce' THEN
    verb := 'new';
    IF held.id IS NULL THEN
      verb := 'moved';  -- of this batch
    ELSIF held.attempt = 1 AND is_waiting THEN
      due := greatest(now, coalesce(at, now + coalesce(delay, (rule ->> 'wait')::float8)));
      due := greatest(now, least(due, held.created_at + (rule ->> 'most')::float8));
      -- A claim that is about to take it is waited for. A new row: a claim that does not see these
      -- arguments does not see it either.
      DELETE FROM daybell.agenda a WHERE a.lane = held.lane AND a.priority = held.priority
         AND a.run_at = held.run_at AND a.id = held.id;
      IF FOUND THEN
        INSERT INTO daybell.agenda (run_at, lane, priority, id)
        VALUES (due, held.lane, held.priority, held.id);
        verb := 'moved';
      ELSIF held.state = 4 THEN
        UPDATE daybell.parked p SET run_at = due WHERE p.tenant = held.tenant AND p.gate = held.gate
           AND p.priority = held.priority AND p.run_at = held.run_at AND p.id = held.id;
        verb := 'moved';
      END IF;
    END IF;
    IF verb = 'moved' THEN
      UPDATE daybell.live v
         SET args = collapse.args, version = for_version, run_at = due, expires_at = due + expires,
             state = CASE WHEN state = 4 THEN 4 WHEN due > now THEN 2 ELSE 1 END
       WHERE v.tenant + 0 = for_tenant AND v.id = held.id;
      INSERT INTO daybell.merged (at, tenant, request, execution)
      VALUES (now, for_tenant, for_request, latest.execution) ON CONFLICT DO NOTHING;
    END IF;
  ELSE
    verb := CASE WHEN conflict = 'return'
                   OR (rule ->> 'scope' = 'running' AND is_waiting) THEN 'held'
                 WHEN conflict = 'replace' THEN 'replace'
                 WHEN conflict = 'cancel' THEN 'cancelled' ELSE 'refused' END;
    IF verb = 'replace' AND held.id IS NULL THEN
      verb := 'moved';
    END IF;
  END IF;
  IF verb = 'new' THEN
    UPDATE daybell.collapsed c
       SET execution = for_request,
           starts = CASE WHEN rule ->> 'kind' = 'throttle' THEN latest.starts || now ELSE '{}' END
     WHERE c.job = for_job AND c.key = for_key;
  END IF;
END $$;

-- One execution per element of `args`, each a JSON object as text; all alike but for that. Text,
-- because jsonb would refuse \u0000 and change the text. A unique_key is for one execution. The overlap
-- rule of the job is that of core/overlap.py: its executions pass a gate with one slot, are parked
-- there, and those that fit are let in. Quotas are not checked.
CREATE FUNCTION daybell.enqueue_freely(job text, args text[], options jsonb DEFAULT '{}',
                                       parent uuid DEFAULT NULL)
  RETURNS TABLE (id uuid, created boolean) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  asked record;
  spec record;
  bad record;
  stamp bigint;
  ids uuid[];
  lane int;
  now float8;
  due float8;
  rows int;
  holder uuid;
  gate text;
  met record;
BEGIN
  SELECT * INTO asked FROM daybell.read_options(coalesce(enqueue_freely.options, '{}'));
  IF args IS NULL OR cardinality(args) > 10000 THEN
    RAISE EXCEPTION '% executions at once; the limit is 10,000', coalesce(cardinality(args)::text, 'NULL')
      USING ERRCODE = 'program_limit_exceeded', HINT = 'Call it several times in the same transaction.';
  ELSIF asked.unique_key IS NOT NULL AND cardinality(args) > 1 THEN
    RAISE EXCEPTION 'a unique_key is for one execution, not for %', cardinality(args)
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Enqueue them one by one.';
  END IF;
  SELECT u.place, f.fault INTO bad
    FROM unnest(enqueue_freely.args) WITH ORDINALITY u(args, place), daybell.args_fault(u.args) f(fault)
   WHERE f.fault IS NOT NULL ORDER BY u.place LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'args%: %', CASE WHEN cardinality(args) > 1 THEN format('[%s]', bad.place) ELSE '' END,
                    bad.fault
      USING ERRCODE = CASE WHEN bad.fault ~ 'limit' THEN 'program_limit_exceeded' ELSE 'invalid_parameter_value' END,
            HINT = 'Arguments are a JSON object of at most 1 MiB. Store more elsewhere and pass its address.';
  END IF;

  -- A NUL in a description would stop the whole definition from being read.
  SELECT t.key AS tenant, j.key AS job, j.version, coalesce(asked.queue, j.queue) AS queue,
         coalesce(d.needs, d.kind, 'task') AS kind, coalesce(asked.priority, d.priority, 2) AS priority,
         coalesce(asked.expires, d.expires) AS expires,
         coalesce(d.overlap, CASE WHEN json_array_length(d.schedules) > 0 THEN 'skip' ELSE 'allow' END)
           AS overlap, d.collapse AS collapse
    INTO spec
    FROM daybell.tenant t
    JOIN daybell.job j ON j.tenant = t.key AND j.name = enqueue_freely.job AND j.deleted_at IS NULL
    JOIN daybell.job_version v ON v.job = j.key AND v.version = j.version,
         json_to_record(replace(v.definition, E'\\u0000', E'\\ufffd')::json)
           d(kind text, needs text, priority smallint, expires float8, overlap text, schedules json,
             collapse json)
   WHERE t.name = asked.tenant;
  IF NOT FOUND THEN
    IF NOT EXISTS (SELECT FROM daybell.tenant t WHERE t.name = asked.tenant) THEN
      RAISE EXCEPTION 'no tenant named %', quote_literal(left(asked.tenant, 60))
        USING ERRCODE = 'undefined_object', HINT = 'Names are compared as they are written.';
    END IF;
    RAISE EXCEPTION 'no job named %', coalesce(quote_literal(left(enqueue_freely.job, 60)), 'NULL')
      USING ERRCODE = 'undefined_object',
            HINT = 'A job is defined when an App with that task connects: start a worker, or await app.open().';
  END IF;
  -- What letters there are beyond ASCII only Python knows; a queue in use has been checked by it.
  IF asked.queue IS NOT NULL
     AND (length(asked.queue) > 100 OR asked.queue COLLATE "C" !~
            '^[A-Za-z0-9_]([A-Za-z0-9_.:@+ -]*[A-Za-z0-9_.:@+-])?$')
     AND NOT EXISTS (SELECT FROM daybell.lane l WHERE l.tenant = spec.tenant AND l.queue = asked.queue) THEN
    RAISE EXCEPTION 'no queue named %, and it cannot be made here', quote_literal(left(asked.queue, 60))
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A new one has at most 100 ASCII letters, digits, spaces and _ . : @ + -, and begins with a letter, a digit or _.';
  END IF;
  IF cardinality(args) = 0 THEN
    RETURN;
  ELSIF spec.collapse IS NOT NULL AND cardinality(args) > 1 THEN
    -- In the order of their keys, as all others lock them.
    RETURN QUERY SELECT e.id, e.created FROM (
      SELECT e.id, e.created, u.place
        FROM (SELECT u.args, u.place FROM unnest(enqueue_freely.args) WITH ORDINALITY u(args, place)
               ORDER BY daybell.collapse_key(spec.collapse, u.args, NULL), u.place) u,
             LATERAL daybell.enqueue_freely(enqueue_freely.job, ARRAY[u.args], enqueue_freely.options,
                                            enqueue_freely.parent) e) e
     ORDER BY e.place;
    RETURN;
  END IF;

  lane := daybell.take_lane(spec.tenant, spec.queue, spec.kind);
  stamp := date_part('epoch', clock_timestamp()) * 4096000;
  ids := ARRAY(SELECT daybell.mint(stamp + n) FROM generate_series(1, cardinality(args)) n);
  IF spec.collapse IS NOT NULL THEN
    PERFORM FROM daybell.gate g
      WHERE g.tenant = spec.tenant AND g.key = 'job:' || enqueue_freely.job FOR UPDATE;
    SELECT c.* INTO met
      FROM daybell.collapse(spec.tenant, spec.job, spec.version, spec.collapse,
             daybell.collapse_key(spec.collapse, args[1], asked.unique_key), ids[1], args[1], asked.at,
             asked.delay, spec.expires, coalesce(asked.refresh, false), '{}') c;
    IF met.verb IN ('held', 'moved') THEN
      RETURN QUERY SELECT met.holder, false;
      RETURN;
    ELSIF met.verb <> 'new' THEN
      RAISE EXCEPTION 'the job is a singleton, and has not finished execution %', met.holder
        USING ERRCODE = 'object_in_use', HINT = CASE met.verb
          WHEN 'refused' THEN 'Wait for it, or cancel it.'
          WHEN 'outdated' THEN 'The job was changed at this moment: try again.'
          ELSE 'Enqueue it outside of your transaction, where another execution can be cancelled: from Python, the command line or the API.' END;
    END IF;
    IF spec.collapse -> 'key' IS NULL AND spec.collapse ->> 'kind' <> 'cache' THEN
      asked.unique_key := NULL;
    END IF;
    IF asked.at IS NULL THEN
      asked.delay := coalesce(asked.delay, (spec.collapse ->> 'wait')::float8);
    END IF;
  END IF;
  now := daybell.now();
  IF spec.overlap <> 'allow' THEN
    gate := 'job:' || enqueue_freely.job;
    PERFORM daybell.open_gate(spec.tenant, spec.job, gate, spec.overlap,
      CASE WHEN greatest(asked.at, now + asked.delay) > now THEN 0 ELSE cardinality(args) END);
  END IF;
  LOOP
    now := daybell.now();
    due := greatest(now, coalesce(asked.at, now + asked.delay, now));
    -- Waits for a holder of the key that is not committed, and for one that is about to end.
    WITH l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
             args, expires_at, unique_key, retries, timeout, parent, gate, reason)
      SELECT spec.tenant, u.id, spec.job, spec.version, lane, spec.priority,
             CASE WHEN gate IS NOT NULL THEN 4 WHEN due > now THEN 2 ELSE 1 END, now, due,
             coalesce(u.args, '{}'), due + spec.expires, asked.unique_key, asked.retries,
             asked.timeout, enqueue_freely.parent, gate, CASE WHEN gate IS NOT NULL THEN 'overlap' END
        FROM unnest(ids, enqueue_freely.args) u(id, args)
      ON CONFLICT (job, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
      RETURNING tenant, run_at, lane, priority, id, gate),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT l.run_at, l.lane, l.priority, l.id FROM l WHERE l.gate IS NULL),
    p AS (
      INSERT INTO daybell.parked (tenant, gate, priority, run_at, id)
      SELECT l.tenant, l.gate, l.priority, l.run_at, l.id FROM l WHERE l.gate IS NOT NULL)
    SELECT count(*) INTO rows FROM l;
    EXIT WHEN rows > 0;
    SELECT v.id INTO holder FROM daybell.live v
     WHERE v.job = spec.job AND v.unique_key = asked.unique_key;
    IF FOUND THEN
      RETURN QUERY SELECT holder, false;
      RETURN;
    END IF;
    -- The holder ended between the two looks, and the key is free: once more.
  END LOOP;
  IF asked.traceparent IS NOT NULL THEN
    INSERT INTO daybell.trace (created_at, tenant, id, context)
    SELECT now, spec.tenant, u.id, asked.traceparent FROM unnest(ids) u(id);
  END IF;
  IF gate IS NOT NULL THEN
    PERFORM daybell.let_in(spec.tenant, gate);
  END IF;
  -- As store/postgres/listener.py says it; heard when the caller commits, once for all that are alike.
  PERFORM pg_notify('daybell', spec.tenant || ':' || spec.queue);
  RETURN QUERY SELECT u.id, true FROM unnest(ids) u(id);
END $$;

-- The same within the tenant's quotas.
CREATE FUNCTION daybell.enqueue_many(job text, args text[], options jsonb DEFAULT '{}',
                                     parent uuid DEFAULT NULL)
  RETURNS TABLE (id uuid, created boolean) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  owner record;
  made record;
  over record;
BEGIN
  SELECT t.key, t.name INTO owner FROM daybell.tenant t
   WHERE t.name = coalesce(enqueue_many.options ->> 'tenant', 'default')
     AND (t.queued_max IS NOT NULL OR t.per_minute_max IS NOT NULL);
  IF NOT FOUND THEN
    RETURN QUERY SELECT e.id, e.created FROM daybell.enqueue_freely(job, args, options, parent) e;
    RETURN;
  END IF;
  SELECT array_agg(e.id) AS ids, array_agg(e.created) AS news,
         count(*) FILTER (WHERE e.created) AS count
    INTO made FROM daybell.enqueue_freely(job, args, options, parent) e;
  IF made.count > 0 THEN
    SELECT c.quota, c.most, c.wait INTO over FROM daybell.charge(owner.key, made.count::int) c;
    IF over.quota IS NOT NULL THEN
      RAISE EXCEPTION 'tenant % exceeds its quota %, which is %', quote_literal(left(owner.name, 60)),
                      over.quota, over.most
        USING ERRCODE = 'configuration_limit_exceeded',
              HINT = format('Try again in %s seconds, or have the quota raised.', ceil(over.wait));
    END IF;
  END IF;
  RETURN QUERY SELECT u.* FROM unnest(made.ids, made.news) u;
END $$;

CREATE FUNCTION daybell.enqueue(job text, args jsonb DEFAULT '{}', options jsonb DEFAULT '{}')
  RETURNS uuid LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT e.id FROM daybell.enqueue_many(job, ARRAY[coalesce(args, '{}')::text], options) e
$$;
COMMENT ON FUNCTION daybell.enqueue IS
  'Ask for one execution of a job, in this transaction; answers its id, or that of the unfinished holder of the unique_key. options: delay, at, expires, priority, queue, unique_key, retries, timeout, cache, tenant, traceparent';


-- Functions of rights, for the owner to call.

-- The rights of the role that Daybell runs under, and no more. Only functions write the audit log.
CREATE FUNCTION daybell.grant_to(role name) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA daybell TO %I', role);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON daybell.migration, daybell.audit, daybell.audit_head'
                 ' FROM %I', role);
  EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE EXECUTE ON FUNCTION daybell.grant_to, daybell.grant_enqueue_to FROM %I', role);
END $$;

-- The rights of a role that only enqueues, and no more.
CREATE FUNCTION daybell.grant_enqueue_to(role name) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA daybell TO %I', role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION daybell.enqueue, daybell.enqueue_many TO %I', role);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA daybell FROM PUBLIC;
GRANT EXECUTE ON FUNCTION daybell.now TO PUBLIC;
