-- compatible
--
-- What tasks said, in parts; a part is lines of JSON.

CREATE TABLE log (
    n          INTEGER PRIMARY KEY,  -- the order in which they were written
    execution  INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    written_at REAL NOT NULL,
    text       TEXT NOT NULL,
    UNIQUE (execution, attempt, number)
) STRICT;
