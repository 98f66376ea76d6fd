-- compatible
--
-- Runs of workflows. An expanded run is a running execution without a worker and a lease, and a row in
-- `run`. `node` has what decides about each of its nodes; see core/run.py. A node's execution has the
-- run as its parent and its label as `node`.

ALTER TABLE execution ADD COLUMN node TEXT;

-- The list of a job is without the nodes of its runs, and so are counts of states.
DROP INDEX execution_job;
CREATE INDEX execution_job ON execution (job, id, node) WHERE node IS NULL;
DROP INDEX execution_claimable;
CREATE INDEX execution_claimable ON execution (lane, priority, run_at, id, state, node)
    WHERE state <= 3;
DROP INDEX execution_ended_otherwise;
CREATE INDEX execution_ended_otherwise ON execution (tenant, state, id, node) WHERE state >= 7;

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
    stopping    TEXT,
    failed      TEXT
) STRICT;

CREATE INDEX run_todo ON run (execution) WHERE is_todo = 1;

-- Short rows, because each is written several times, and there may be a hundred thousand of them.
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
