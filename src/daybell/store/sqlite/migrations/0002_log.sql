-- compatible
--
-- What tasks said, in parts; a part is lines of JSON. The last part of an attempt came with its end,
-- and is kept there.

ALTER TABLE execution ADD COLUMN log TEXT;
ALTER TABLE attempt ADD COLUMN log TEXT;

CREATE TABLE log (
    n          INTEGER PRIMARY KEY,  -- the order in which they were written
    execution  INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    written_at REAL NOT NULL,
    text       TEXT NOT NULL,
    UNIQUE (execution, attempt, number)
) STRICT;
