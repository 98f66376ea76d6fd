-- compatible
--
-- How an execution is kept. An unfinished one is one wide row in `live`. If it can be claimed, now or
-- later, it also has a narrow row in `agenda`, which the claim deletes: a claim never writes `live`.
-- What was claimed is named by one `lease` row per batch. An ended one leaves `live` for `history`
-- (insert-only, one partition per day) or, if a person has to decide, for `dead`.
--
--   live = agenda + leases + parked + waiting, without overlap
--
-- The fence is (id, attempt): every way back to the agenda raises live.attempt, so a late report of
-- an older attempt matches no row. Locks are taken in the order worker, schedule, gate, live (ids
-- sorted), parked/agenda, lease. agenda.run_at equals live.run_at and is never in the past when it is
-- written; so the agenda's key is known from live, and claimers may keep a moving lower bound.
-- Times are seconds since 1970 by the database's clock. args, results and errors are JSON text:
-- jsonb costs a fifth of the enqueue rate and refuses \u0000.

-- The only clock. A function, so that tests can move it; the planner inlines it away.
CREATE FUNCTION daybell.now() RETURNS float8 LANGUAGE sql VOLATILE PARALLEL SAFE
  AS $$ SELECT date_part('epoch', clock_timestamp()) $$;

CREATE TABLE daybell.tenant (
  key         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name        text COLLATE "C" NOT NULL UNIQUE,
  created_at  float8 NOT NULL DEFAULT daybell.now()
);
INSERT INTO daybell.tenant (name) VALUES ('default');

CREATE TABLE daybell.job (
  key         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id          uuid NOT NULL UNIQUE,
  tenant      int NOT NULL REFERENCES daybell.tenant,
  name        text COLLATE "C" NOT NULL,
  version     int NOT NULL,
  queue       text COLLATE "C" NOT NULL,  -- of the current version
  deleted_at  float8,
  UNIQUE (tenant, name)
);
CREATE TABLE daybell.job_version (
  job         int NOT NULL REFERENCES daybell.job,
  version     int NOT NULL,
  definition  text NOT NULL,
  author      text NOT NULL,
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  PRIMARY KEY (job, version)
);

-- What a worker must offer to run an execution, as one number: tenant, queue and needs (a job kind).
CREATE TABLE daybell.lane (
  key         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant      int NOT NULL REFERENCES daybell.tenant,
  queue       text COLLATE "C" NOT NULL,
  needs       text COLLATE "C" NOT NULL,
  UNIQUE (tenant, queue, needs)
);
CREATE TABLE daybell.paused_queue (
  tenant      int NOT NULL REFERENCES daybell.tenant,
  queue       text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, queue)
);

CREATE TABLE daybell.live (
  created_at           float8 NOT NULL,
  run_at               float8 NOT NULL,
  tenant               int NOT NULL,
  job                  int NOT NULL,
  version              int NOT NULL,
  lane                 int NOT NULL,
  attempt              int NOT NULL DEFAULT 1,
  state                smallint NOT NULL,  -- why it waits; running and due are seen from the agenda
  priority             smallint NOT NULL,
  failures             smallint NOT NULL DEFAULT 0,
  crashes              smallint NOT NULL DEFAULT 0,
  id                   uuid NOT NULL,
  args                 text NOT NULL,
  unique_key           text,
  gate                 text,
  retries              int,
  timeout              float8,
  scheduled_for        float8,
  expires_at           float8,
  schedule             uuid,
  parent               uuid,
  started_at           float8,
  cancel_requested_at  float8,
  progress             float8,
  note                 text,
  checkpoint           text,
  error                text,
  reason               text,
  PRIMARY KEY (id, tenant)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0);
-- For lists. Statements that look rows up say `tenant + 0 = $1 AND id = ANY(…)`, which keeps them off
-- this index: before 17, the planner may use it for the tenant alone and read all of its rows.
CREATE INDEX live_tenant ON daybell.live (tenant, id);
CREATE INDEX live_job ON daybell.live (job, id);
CREATE UNIQUE INDEX live_unique_key ON daybell.live (job, unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX live_schedule ON daybell.live (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX live_parent ON daybell.live (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX live_waiting ON daybell.live (tenant, id) WHERE state = 4;
CREATE INDEX live_cancelling ON daybell.live (tenant, id) WHERE cancel_requested_at IS NOT NULL;

CREATE TABLE daybell.agenda (
  run_at      float8 NOT NULL,
  lane        int NOT NULL,
  priority    smallint NOT NULL,
  id          uuid NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX agenda_order ON daybell.agenda (lane, priority, run_at, id);

CREATE TABLE daybell.worker (
  started_at   float8 NOT NULL,
  renewed_at   float8 NOT NULL,
  lease_until  float8 NOT NULL,
  tenant       int NOT NULL REFERENCES daybell.tenant,
  pid          int NOT NULL,
  capacity     int NOT NULL,
  state        smallint NOT NULL,
  id           uuid NOT NULL,
  name         text NOT NULL,
  host         text NOT NULL,
  version      text NOT NULL,
  queues       text[] NOT NULL,
  kinds        text[] NOT NULL,
  labels       text NOT NULL,
  PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

CREATE TABLE daybell.lease (
  id          uuid PRIMARY KEY,  -- made by the worker, so that a lost answer can be asked for again
  worker      uuid NOT NULL,
  tenant      int NOT NULL,
  ids         uuid[] NOT NULL,
  attempts    int[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- Random bytes do not compress: do not try.
ALTER TABLE daybell.lease ALTER ids SET STORAGE EXTERNAL;
CREATE INDEX lease_worker ON daybell.lease (worker);

CREATE TABLE daybell.history (
  LIKE daybell.live,
  finished_at  float8 NOT NULL,
  outcome      smallint,
  worker       uuid,
  result       text
) PARTITION BY RANGE (finished_at);
CREATE INDEX history_state ON daybell.history (tenant, state, id);
CREATE INDEX history_job ON daybell.history (job, id);
CREATE INDEX history_schedule ON daybell.history (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX history_parent ON daybell.history (parent, id) WHERE parent IS NOT NULL;
-- A safety net: a day whose partition was not made in time must not stop anybody from finishing.
CREATE TABLE daybell.history_rest PARTITION OF daybell.history DEFAULT;

-- Dead letters stay until a person decides, so they are not part of what is dropped by the day.
CREATE TABLE daybell.dead (LIKE daybell.history, PRIMARY KEY (id, tenant));
CREATE INDEX dead_tenant ON daybell.dead (tenant, id);
CREATE INDEX dead_job ON daybell.dead (job, id);
CREATE INDEX dead_schedule ON daybell.dead (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX dead_parent ON daybell.dead (parent, id) WHERE parent IS NOT NULL;

-- Ended attempts, but for the final one, which is in history or dead.
CREATE TABLE daybell.attempt (
  started_at  float8,
  ended_at    float8 NOT NULL,
  tenant      int NOT NULL,
  attempt     int NOT NULL,
  outcome     smallint NOT NULL,
  id          uuid NOT NULL,
  worker      uuid,
  error       text
) PARTITION BY RANGE (ended_at);
CREATE INDEX attempt_execution ON daybell.attempt (id);
CREATE TABLE daybell.attempt_rest PARTITION OF daybell.attempt DEFAULT;

CREATE TABLE daybell.schedule (
  tenant     int NOT NULL REFERENCES daybell.tenant,
  id         uuid NOT NULL,
  job        int NOT NULL REFERENCES daybell.job,
  rule       text NOT NULL,
  next_at    float8,
  last_at    float8,
  fired      bigint NOT NULL DEFAULT 0,
  is_paused  boolean NOT NULL,
  PRIMARY KEY (tenant, id)
) WITH (fillfactor = 80);
CREATE INDEX schedule_due ON daybell.schedule (next_at) WHERE NOT is_paused AND next_at IS NOT NULL;
CREATE INDEX schedule_job ON daybell.schedule (job);

CREATE TABLE daybell.tick (
  schedule   uuid NOT NULL,
  at         float8 NOT NULL,
  until      float8,
  tenant     int NOT NULL,
  decision   smallint NOT NULL,
  reason     text,
  execution  uuid,
  PRIMARY KEY (tenant, schedule, at)
);
CREATE INDEX tick_at ON daybell.tick (at);

CREATE TABLE daybell.gate (
  tenant    int NOT NULL REFERENCES daybell.tenant,
  key       text COLLATE "C" NOT NULL,
  capacity  int NOT NULL,
  holders   int NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, key)
) WITH (fillfactor = 50);
CREATE TABLE daybell.parked (
  tenant    int NOT NULL,
  gate      text COLLATE "C" NOT NULL,
  priority  smallint NOT NULL,
  run_at    float8 NOT NULL,
  id        uuid NOT NULL,
  PRIMARY KEY (tenant, gate, priority, run_at, id)
);

CREATE TABLE daybell.leader (
  name    text PRIMARY KEY,
  holder  uuid NOT NULL,
  epoch   bigint NOT NULL,
  until   float8 NOT NULL
);

-- Days are made and dropped by functions of the schema's owner, so that the role which Daybell runs
-- under needs no right to create or drop anything. pg_temp is named last, or it would be searched
-- first, and a caller could put a table of his own in front of the catalogue.

CREATE FUNCTION daybell.make_day(parent text, day date) RETURNS boolean LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
  part text := parent || '_' || to_char(day, 'YYYYMMDD');
  low float8 := date_part('epoch', day::timestamp);
  high float8 := low + 86400;
  key text := CASE parent WHEN 'history' THEN 'finished_at' WHEN 'attempt' THEN 'ended_at' END;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('daybell.days'));  -- one maker at a time
  IF key IS NULL OR to_regclass('daybell.' || part) IS NOT NULL THEN
    RETURN false;
  END IF;
  -- Built apart and attached: unlike PARTITION OF, that lets reading and writing of other days go on.
  EXECUTE format('CREATE TABLE daybell.%I (LIKE daybell.%I INCLUDING STORAGE,
                  CONSTRAINT day CHECK (%I >= %L::float8 AND %I < %L::float8))',
                 part, parent, key, low, key, high);
  -- Attaching takes this lock anyway. Taken here, it leaves no row behind that is just being written.
  EXECUTE format('LOCK TABLE daybell.%I IN ACCESS EXCLUSIVE MODE', parent || '_rest');
  EXECUTE format('WITH moved AS (DELETE FROM daybell.%I WHERE %I >= %L::float8 AND %I < %L::float8
                  RETURNING *) INSERT INTO daybell.%I SELECT * FROM moved',
                 parent || '_rest', key, low, key, high, part);
  EXECUTE format('ALTER TABLE daybell.%I ATTACH PARTITION daybell.%I FOR VALUES FROM (%L) TO (%L)',
                 parent, part, low, high);
  EXECUTE format('ALTER TABLE daybell.%I DROP CONSTRAINT day', part);
  RETURN true;
END $$;

CREATE FUNCTION daybell.make_days(ahead int) RETURNS int LANGUAGE sql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*) FILTER (WHERE daybell.make_day(parent, day))::int
    FROM unnest(ARRAY['history', 'attempt']) parent,
         generate_series(0, least(ahead, 30)) n,
         LATERAL (SELECT (to_timestamp(daybell.now()) AT TIME ZONE 'UTC')::date + n AS day) d
$$;

CREATE FUNCTION daybell.drop_days(parent text, before float8) RETURNS int LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
  part text;
  dropped int := 0;
BEGIN
  IF parent NOT IN ('history', 'attempt') THEN
    RETURN 0;
  END IF;
  PERFORM pg_advisory_xact_lock(hashtext('daybell.days'));
  FOR part IN
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = ('daybell.' || parent)::regclass AND c.relname ~ ('^' || parent || '_\d{8}$')
       AND date_part('epoch', to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp) + 86400 <= before
     ORDER BY 1
  LOOP
    EXECUTE format('DROP TABLE daybell.%I', part);
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END $$;

REVOKE ALL ON FUNCTION daybell.make_day, daybell.make_days, daybell.drop_days FROM PUBLIC;
SELECT daybell.make_days(3);

-- What the role that Daybell runs under needs, and no more. For the owner to call.
CREATE FUNCTION daybell.grant_to(role name) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, daybell AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA daybell TO %I', role);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON daybell.migration FROM %I', role);
  EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE EXECUTE ON FUNCTION daybell.grant_to FROM %I', role);
END $$;
REVOKE ALL ON FUNCTION daybell.grant_to FROM PUBLIC;
