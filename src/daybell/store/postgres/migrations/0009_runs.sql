-- compatible
--
-- Runs of workflows. An expanded run is a row in `live` with state 5 that no lease holds, and a row in
-- `run`, whose lock is taken before anything about its nodes is changed: after gates, before `live`;
-- that of an inner run before that of the run around it. `node` has what decides about each node; see
-- core/run.py. A node's execution is a row in `live` with the run as its parent and its label as `node`.

ALTER TABLE daybell.live ADD COLUMN node text COLLATE "C";
ALTER TABLE daybell.history ADD COLUMN node text COLLATE "C";
ALTER TABLE daybell.dead ADD COLUMN node text COLLATE "C";

CREATE TABLE daybell.run (
  id           uuid NOT NULL,
  tenant       int NOT NULL REFERENCES daybell.tenant,
  total        int NOT NULL,
  unended      int NOT NULL,
  running      int NOT NULL DEFAULT 0,
  ready        int NOT NULL DEFAULT 0,
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
  gate         text COLLATE "C",
  schedule     uuid,
  parent       uuid,
  node         text COLLATE "C",
  PRIMARY KEY (id, tenant)
) WITH (fillfactor = 50);
CREATE INDEX run_todo ON daybell.run (id) WHERE is_todo;

CREATE TABLE daybell.node (
  run          uuid NOT NULL,
  tenant       int NOT NULL,
  place        bigint NOT NULL,  -- in the order of the graph
  state        smallint NOT NULL,
  rule         smallint NOT NULL,
  total        int NOT NULL,  -- parents
  succeeded    int NOT NULL DEFAULT 0,
  failed       int NOT NULL DEFAULT 0,
  skipped      int NOT NULL DEFAULT 0,
  told         int NOT NULL DEFAULT 0,
  items        int NOT NULL DEFAULT 0,
  spawned      int NOT NULL DEFAULT 0,
  items_ended  int NOT NULL DEFAULT 0,
  items_lost   int NOT NULL DEFAULT 0,
  is_wanted    boolean NOT NULL,
  is_map       boolean NOT NULL,
  is_todo      boolean NOT NULL,
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
) WITH (fillfactor = 70);
CREATE INDEX node_todo ON daybell.node (run, place) WHERE is_todo;
