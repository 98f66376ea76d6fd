-- compatible
--
-- When processes have seen the store's clock run evenly, as JSON (`core.watch`): one row.

CREATE TABLE daybell.watch (
  n       smallint PRIMARY KEY CHECK (n = 1),
  watched text NOT NULL
) WITH (fillfactor = 50);
