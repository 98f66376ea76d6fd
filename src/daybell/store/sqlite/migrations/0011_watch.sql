-- compatible
--
-- When processes have seen the store's clock run evenly, as JSON (`core.watch`): one row.

CREATE TABLE watch (
    n       INTEGER PRIMARY KEY CHECK (n = 1),
    watched TEXT NOT NULL
) STRICT;
