-- compatible
--
-- What is to know of dead workers. When processes have seen the store's clock run evenly, as JSON (`core.watch`): one row.

CREATE TABLE watch (
    n       INTEGER PRIMARY KEY CHECK (n = 1),
    watched TEXT NOT NULL
) STRICT;

-- The execution that is the only suspect in a worker's hands, if there is just one (`engine.suspects`).
ALTER TABLE worker ADD COLUMN sole BLOB;
