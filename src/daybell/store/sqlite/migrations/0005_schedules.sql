-- compatible
--
-- Schedules that mind what becomes of their executions; jobs that are paused, and run one at a time.

ALTER TABLE job ADD COLUMN paused_at REAL;
ALTER TABLE job ADD COLUMN pause_note TEXT NOT NULL DEFAULT '';

ALTER TABLE schedule ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE schedule ADD COLUMN args TEXT NOT NULL DEFAULT '{}';
ALTER TABLE schedule ADD COLUMN misfire TEXT NOT NULL DEFAULT '';
ALTER TABLE schedule ADD COLUMN delay REAL;
ALTER TABLE schedule ADD COLUMN is_reboot INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schedule ADD COLUMN pause_after INTEGER;
ALTER TABLE schedule ADD COLUMN is_declared INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schedule ADD COLUMN succeeded_for REAL;
ALTER TABLE schedule ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schedule ADD COLUMN missed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schedule ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;

ALTER TABLE tick ADD COLUMN count INTEGER NOT NULL DEFAULT 1;

ALTER TABLE leader ADD COLUMN renewed_at REAL NOT NULL DEFAULT 0;

-- Few rows are in these: fixed delays whose execution runs, and what waits for the first scheduler.
CREATE INDEX schedule_unarmed ON schedule (tenant, id) WHERE delay IS NOT NULL AND next_at IS NULL;
CREATE INDEX schedule_reboot ON schedule (tenant, id) WHERE is_reboot = 1;

-- Only executions of schedules, or at gates, pay for these.
CREATE INDEX execution_tick ON execution (schedule, scheduled_for) WHERE schedule IS NOT NULL;
CREATE INDEX execution_unfinished ON execution (schedule) WHERE schedule IS NOT NULL AND state <= 5;
CREATE INDEX execution_inside ON execution (gate, id) WHERE slot = 1;
