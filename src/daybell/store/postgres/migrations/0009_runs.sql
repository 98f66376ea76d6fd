-- compatible
--
-- Runs of workflows. An expanded run is a row in `live` with state 5 that no lease holds, and a row in
-- `run`, whose lock is taken before anything about its nodes is read or changed: after gates, before
-- `live`; that of an inner run before that of the run around it. `node` has what decides about each
-- node; see core/run.py. A node's execution is a row in `live` with the run as its parent and its label
-- as `node`. When it ends, it goes to history, dead or not: if need be, the run is the dead letter.
--
--   live = agenda + leases + parked + waiting + expanded runs, without overlap

ALTER TABLE daybell.live ADD COLUMN node text COLLATE "C";
ALTER TABLE daybell.history ADD COLUMN node text COLLATE "C";
ALTER TABLE daybell.dead ADD COLUMN node text COLLATE "C";
CREATE INDEX live_expanded ON daybell.live (tenant, id) WHERE state = 5;

-- People look at runs and not at their nodes, of which there may be ten thousand for each. Whoever
-- looks for one that may be a node says so, and asks for both kinds.
DROP INDEX daybell.history_state;
DROP INDEX daybell.history_job;
CREATE INDEX history_state ON daybell.history (tenant, state, id) WHERE node IS NULL;
CREATE INDEX history_job ON daybell.history (job, id) WHERE node IS NULL;
CREATE INDEX history_node ON daybell.history (tenant, state, id) WHERE node IS NOT NULL;

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

-- What most updates change is in no index, so that they need not touch any; the start and the end of
-- a node find room beside it.
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
