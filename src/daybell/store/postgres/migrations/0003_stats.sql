-- compatible
--
-- Statistics over time.
--
-- Counts and histograms (`core.monitoring.stats`) by minute and by hour since 1970, of three kinds of subjects:
-- everything (job 0, queue ''), a queue (job 0), and a job in a queue. Minutes are kept for two days.

CREATE TABLE daybell.stat_minute (
  tenant           int NOT NULL,
  job              int NOT NULL,
  at               int NOT NULL,
  enqueued         bigint NOT NULL,
  started          bigint NOT NULL,
  succeeded        bigint NOT NULL,
  dead             bigint NOT NULL,
  cancelled        bigint NOT NULL,
  skipped          bigint NOT NULL,
  failed_attempts  bigint NOT NULL,
  lost             bigint NOT NULL,
  retried          bigint NOT NULL,
  late             bigint NOT NULL,
  queue            text COLLATE "C" NOT NULL,
  run              bytea NOT NULL,
  delay            bytea NOT NULL,
  PRIMARY KEY (tenant, job, queue, at)
) WITH (fillfactor = 50);
CREATE TABLE daybell.stat_hour (LIKE daybell.stat_minute, PRIMARY KEY (tenant, job, queue, at))
  WITH (fillfactor = 50);
-- All that was ever counted (`at` is 0).
CREATE TABLE daybell.stat_total (LIKE daybell.stat_minute, PRIMARY KEY (tenant, job, queue, at))
  WITH (fillfactor = 50);
-- For retention.
CREATE INDEX stat_minute_at ON daybell.stat_minute (at);
CREATE INDEX stat_hour_at ON daybell.stat_hour (at);

-- The transaction that ended an attempt or an execution. A row is counted once, by the first fold whose
-- snapshot sees that transaction, however late it was committed and whatever the clock did meanwhile; so
-- a row that is moved keeps the number. Rows from before this step have none and are not counted.
ALTER TABLE daybell.history ADD ended_by bigint;
ALTER TABLE daybell.history ALTER ended_by SET DEFAULT txid_current();
ALTER TABLE daybell.dead ADD ended_by bigint;
ALTER TABLE daybell.dead ALTER ended_by SET DEFAULT txid_current();
ALTER TABLE daybell.attempt ADD ended_by bigint;
ALTER TABLE daybell.attempt ALTER ended_by SET DEFAULT txid_current();
-- As the execution had them during the attempt. `created_at` is only for the final attempt of a dead
-- letter that was revived: perhaps its end as dead is not counted yet.
ALTER TABLE daybell.attempt ADD run_at float8;
ALTER TABLE daybell.attempt ADD created_at float8;
ALTER TABLE daybell.attempt ADD job int;
ALTER TABLE daybell.attempt ADD lane int;
CREATE INDEX history_ended_by ON daybell.history USING brin (ended_by)
  WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX attempt_ended_by ON daybell.attempt USING brin (ended_by)
  WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX dead_ended_by ON daybell.dead (ended_by);

-- The transactions that are counted: all below `until`, but for those that were open. One row.
CREATE TABLE daybell.stat_fold (
  n      smallint PRIMARY KEY CHECK (n = 1),
  until  bigint NOT NULL,
  open   bigint[] NOT NULL
) WITH (fillfactor = 50);
INSERT INTO daybell.stat_fold (n, until, open) VALUES (1, txid_current(), '{}');
