-- compatible
--
-- What is to know of dead workers. When processes have seen the store's clock run evenly, as JSON (`core.watch`): one row.

CREATE TABLE daybell.watch (
  n       smallint PRIMARY KEY CHECK (n = 1),
  watched text NOT NULL
) WITH (fillfactor = 50);

-- The execution that is the only suspect in a worker's hands, if there is just one (`engine.suspects`).
ALTER TABLE daybell.worker ADD sole uuid;
