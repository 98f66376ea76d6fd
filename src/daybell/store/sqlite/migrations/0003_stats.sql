-- compatible
--
-- Statistics over time.
--
-- Counts and histograms (`core.monitoring.stats`) by minute and by hour since 1970, of three kinds of subjects:
-- everything (job 0, queue ''), a queue (job 0), and a job in a queue. Minutes are kept for two days.

CREATE TABLE stat_minute (
    tenant          INTEGER NOT NULL,
    job             INTEGER NOT NULL,
    queue           TEXT NOT NULL,
    at              INTEGER NOT NULL,
    enqueued        INTEGER NOT NULL,
    started         INTEGER NOT NULL,
    succeeded       INTEGER NOT NULL,
    dead            INTEGER NOT NULL,
    cancelled       INTEGER NOT NULL,
    skipped         INTEGER NOT NULL,
    failed_attempts INTEGER NOT NULL,
    lost            INTEGER NOT NULL,
    retried         INTEGER NOT NULL,
    late            INTEGER NOT NULL,
    run             BLOB NOT NULL,
    delay           BLOB NOT NULL,
    PRIMARY KEY (tenant, job, queue, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX stat_minute_at ON stat_minute (at);

CREATE TABLE stat_hour (
    tenant          INTEGER NOT NULL,
    job             INTEGER NOT NULL,
    queue           TEXT NOT NULL,
    at              INTEGER NOT NULL,
    enqueued        INTEGER NOT NULL,
    started         INTEGER NOT NULL,
    succeeded       INTEGER NOT NULL,
    dead            INTEGER NOT NULL,
    cancelled       INTEGER NOT NULL,
    skipped         INTEGER NOT NULL,
    failed_attempts INTEGER NOT NULL,
    lost            INTEGER NOT NULL,
    retried         INTEGER NOT NULL,
    late            INTEGER NOT NULL,
    run             BLOB NOT NULL,
    delay           BLOB NOT NULL,
    PRIMARY KEY (tenant, job, queue, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX stat_hour_at ON stat_hour (at);

-- All that was ever counted (`at` is 0).
CREATE TABLE stat_total (
    tenant          INTEGER NOT NULL,
    job             INTEGER NOT NULL,
    queue           TEXT NOT NULL,
    at              INTEGER NOT NULL,
    enqueued        INTEGER NOT NULL,
    started         INTEGER NOT NULL,
    succeeded       INTEGER NOT NULL,
    dead            INTEGER NOT NULL,
    cancelled       INTEGER NOT NULL,
    skipped         INTEGER NOT NULL,
    failed_attempts INTEGER NOT NULL,
    lost            INTEGER NOT NULL,
    retried         INTEGER NOT NULL,
    late            INTEGER NOT NULL,
    run             BLOB NOT NULL,
    delay           BLOB NOT NULL,
    PRIMARY KEY (tenant, job, queue, at)
) STRICT, WITHOUT ROWID;

-- Ends that are not in the statistics yet: of an execution (attempt NULL), or of an attempt after which
-- it goes on. Folding removes the rows in the transaction that counts them. An append and a removal cost
-- less than an index of ended executions by time, and do not depend on a clock that only moves forward.
CREATE TABLE ended (
    n         INTEGER PRIMARY KEY,  -- the order of the ends
    execution INTEGER NOT NULL,
    attempt   INTEGER,
    run_at    REAL  -- of the attempt: when it could start
) STRICT;

CREATE TRIGGER execution_ended AFTER UPDATE OF state ON execution
WHEN NEW.state > 5 AND OLD.state <= 5
BEGIN
    INSERT INTO ended (execution) VALUES (NEW.n);
END;
CREATE TRIGGER execution_skipped AFTER INSERT ON execution WHEN NEW.state > 5
BEGIN
    INSERT INTO ended (execution) VALUES (NEW.n);
END;
-- The final attempt of a dead letter that is revived is logged after the state has changed; it was
-- counted with the end.
CREATE TRIGGER attempt_logged AFTER INSERT ON attempt
BEGIN
    INSERT INTO ended (execution, attempt, run_at)
    SELECT n, NEW.attempt, run_at FROM execution WHERE n = NEW.execution AND state = 5;
END;
