-- compatible
--
-- Schedules that know how to fire: by times, after a fixed delay, or when the first scheduler starts.
-- What an older program leaves out has a default; the sweep sets fixed delays whose end it did not
-- report.

ALTER TABLE daybell.job
  ADD COLUMN paused_at   float8,
  ADD COLUMN pause_note  text NOT NULL DEFAULT '';

ALTER TABLE daybell.schedule
  ADD COLUMN name           text NOT NULL DEFAULT '',
  ADD COLUMN args           text NOT NULL DEFAULT '{}',
  ADD COLUMN misfire        text NOT NULL DEFAULT '',
  ADD COLUMN delay          float8,                          -- fixed: the end of each sets the next
  ADD COLUMN is_reboot      boolean NOT NULL DEFAULT false,
  ADD COLUMN is_declared    boolean NOT NULL DEFAULT false,  -- by the job's definition
  ADD COLUMN pause_after    int,
  ADD COLUMN succeeded_for  float8,
  ADD COLUMN skipped        bigint NOT NULL DEFAULT 0,
  ADD COLUMN missed         bigint NOT NULL DEFAULT 0,
  ADD COLUMN failures       int NOT NULL DEFAULT 0,          -- since one succeeded
  ALTER COLUMN is_paused SET DEFAULT false;
-- In the order in which they are fired.
DROP INDEX daybell.schedule_due;
CREATE INDEX schedule_due ON daybell.schedule (next_at, id) WHERE NOT is_paused AND next_at IS NOT NULL;
CREATE INDEX schedule_awaiting ON daybell.schedule (id) WHERE delay IS NOT NULL AND next_at IS NULL;

-- Executions of a scheduled job pass its gate.
INSERT INTO daybell.gate (tenant, key, capacity)
SELECT DISTINCT j.tenant, 'job:' || j.name, 1
  FROM daybell.schedule s JOIN daybell.job j ON j.key = s.job
ON CONFLICT DO NOTHING;

ALTER TABLE daybell.tick ADD COLUMN count int NOT NULL DEFAULT 1;
ALTER TABLE daybell.leader ADD COLUMN renewed_at float8 NOT NULL DEFAULT '-infinity';

-- As before, and a job's overlap rule is obeyed. Its executions pass a gate with one slot: all are
-- parked there, and those that fit are let in. What it says is what core/overlap.py says.
CREATE OR REPLACE FUNCTION daybell.enqueue_many(job text, args text[], options jsonb DEFAULT '{}',
                                     parent uuid DEFAULT NULL)
  RETURNS TABLE (id uuid, created boolean) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  asked record;
  spec record;
  bad record;
  stamp bigint;
  ids uuid[];
  lane int;
  now float8;
  due float8;
  rows int;
  holder uuid;
  gate text;
BEGIN
  SELECT * INTO asked FROM daybell.read_options(coalesce(enqueue_many.options, '{}'));
  IF args IS NULL OR cardinality(args) > 10000 THEN
    RAISE EXCEPTION '% executions at once; the limit is 10,000', coalesce(cardinality(args)::text, 'NULL')
      USING ERRCODE = 'program_limit_exceeded', HINT = 'Call it several times in the same transaction.';
  ELSIF asked.unique_key IS NOT NULL AND cardinality(args) > 1 THEN
    RAISE EXCEPTION 'a unique_key is for one execution, not for %', cardinality(args)
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Enqueue them one by one.';
  END IF;
  SELECT u.place, f.fault INTO bad
    FROM unnest(enqueue_many.args) WITH ORDINALITY u(args, place), daybell.args_fault(u.args) f(fault)
   WHERE f.fault IS NOT NULL ORDER BY u.place LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'args%: %', CASE WHEN cardinality(args) > 1 THEN format('[%s]', bad.place) ELSE '' END,
                    bad.fault
      USING ERRCODE = CASE WHEN bad.fault ~ 'limit' THEN 'program_limit_exceeded' ELSE 'invalid_parameter_value' END,
            HINT = 'Arguments are a JSON object of at most 1 MiB. Store more elsewhere and pass its address.';
  END IF;

  -- A NUL in a description would stop the whole definition from being read.
  SELECT t.key AS tenant, j.key AS job, j.version, coalesce(asked.queue, j.queue) AS queue,
         coalesce(d.kind, 'task') AS kind, coalesce(asked.priority, d.priority, 2) AS priority,
         coalesce(asked.expires, d.expires) AS expires,
         coalesce(d.overlap, CASE WHEN json_array_length(d.schedules) > 0 THEN 'skip' ELSE 'allow' END)
           AS overlap
    INTO spec
    FROM daybell.tenant t
    JOIN daybell.job j ON j.tenant = t.key AND j.name = enqueue_many.job AND j.deleted_at IS NULL
    JOIN daybell.job_version v ON v.job = j.key AND v.version = j.version,
         json_to_record(replace(v.definition, E'\\u0000', E'\\ufffd')::json)
           d(kind text, priority smallint, expires float8, overlap text, schedules json)
   WHERE t.name = asked.tenant;
  IF NOT FOUND THEN
    IF NOT EXISTS (SELECT FROM daybell.tenant t WHERE t.name = asked.tenant) THEN
      RAISE EXCEPTION 'no tenant named %', quote_literal(left(asked.tenant, 60))
        USING ERRCODE = 'undefined_object', HINT = 'Names are compared as they are written.';
    END IF;
    RAISE EXCEPTION 'no job named %', coalesce(quote_literal(left(enqueue_many.job, 60)), 'NULL')
      USING ERRCODE = 'undefined_object',
            HINT = 'A job is defined when an App with that task connects: start a worker, or await app.open().';
  END IF;
  -- What letters there are beyond ASCII only Python knows; a queue in use has been checked by it.
  IF asked.queue IS NOT NULL
     AND (length(asked.queue) > 100 OR asked.queue COLLATE "C" !~
            '^[A-Za-z0-9_]([A-Za-z0-9_.:@+ -]*[A-Za-z0-9_.:@+-])?$')
     AND NOT EXISTS (SELECT FROM daybell.lane l WHERE l.tenant = spec.tenant AND l.queue = asked.queue) THEN
    RAISE EXCEPTION 'no queue named %, and it cannot be made here', quote_literal(left(asked.queue, 60))
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A new one has at most 100 ASCII letters, digits, spaces and _ . : @ + -, and begins with a letter, a digit or _.';
  END IF;
  IF cardinality(args) = 0 THEN
    RETURN;
  END IF;

  lane := daybell.take_lane(spec.tenant, spec.queue, spec.kind);
  now := daybell.now();
  IF spec.overlap <> 'allow' THEN
    gate := 'job:' || enqueue_many.job;
    PERFORM daybell.open_gate(spec.tenant, spec.job, gate, spec.overlap,
      CASE WHEN greatest(asked.at, now + asked.delay) > now THEN 0 ELSE cardinality(args) END);
  END IF;
  stamp := date_part('epoch', clock_timestamp()) * 4096000;
  ids := ARRAY(SELECT daybell.mint(stamp + n) FROM generate_series(1, cardinality(args)) n);
  LOOP
    now := daybell.now();
    due := greatest(now, coalesce(asked.at, now + asked.delay, now));
    -- Waits for a holder of the key that is not committed, and for one that is about to end.
    WITH l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
             args, expires_at, unique_key, retries, timeout, parent, gate, reason)
      SELECT spec.tenant, u.id, spec.job, spec.version, lane, spec.priority,
             CASE WHEN gate IS NOT NULL THEN 4 WHEN due > now THEN 2 ELSE 1 END, now, due,
             coalesce(u.args, '{}'), due + spec.expires, asked.unique_key, asked.retries,
             asked.timeout, enqueue_many.parent, gate, CASE WHEN gate IS NOT NULL THEN 'overlap' END
        FROM unnest(ids, enqueue_many.args) u(id, args)
      ON CONFLICT (job, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
      RETURNING tenant, run_at, lane, priority, id, gate),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT l.run_at, l.lane, l.priority, l.id FROM l WHERE l.gate IS NULL),
    p AS (
      INSERT INTO daybell.parked (tenant, gate, priority, run_at, id)
      SELECT l.tenant, l.gate, l.priority, l.run_at, l.id FROM l WHERE l.gate IS NOT NULL)
    SELECT count(*) INTO rows FROM l;
    EXIT WHEN rows > 0;
    SELECT v.id INTO holder FROM daybell.live v
     WHERE v.job = spec.job AND v.unique_key = asked.unique_key;
    IF FOUND THEN
      RETURN QUERY SELECT holder, false;
      RETURN;
    END IF;
    -- The holder ended between the two looks, and the key is free: once more.
  END LOOP;
  IF gate IS NOT NULL THEN
    PERFORM daybell.let_in(spec.tenant, gate);
  END IF;
  -- As store/postgres/listener.py says it; heard when the caller commits, once for all that are alike.
  PERFORM pg_notify('daybell', spec.tenant || ':' || spec.queue);
  RETURN QUERY SELECT u.id, true FROM unnest(ids) u(id);
END $$;

-- Lock a job's gate, and refuse so many more executions if the rule does not let them in.
CREATE FUNCTION daybell.open_gate(for_tenant int, for_job int, for_gate text, rule text, asked int)
  RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  inside int;
  outside int;
  other uuid;
  allowed int;
BEGIN
  IF rule = 'replace' THEN
    RAISE EXCEPTION 'the overlap rule of this job is replace, which cancels what runs; that cannot be done from here'
      USING ERRCODE = 'feature_not_supported',
            HINT = 'Enqueue it outside of your transaction: from Python, the command line or the API.';
  END IF;
  INSERT INTO daybell.gate (tenant, key, capacity) VALUES (for_tenant, for_gate, 1)
  ON CONFLICT DO NOTHING;
  SELECT g.holders INTO inside FROM daybell.gate g
   WHERE g.tenant = for_tenant AND g.key = for_gate FOR UPDATE;
  SELECT count(*) INTO outside FROM daybell.parked p
   WHERE p.tenant = for_tenant AND p.gate = for_gate AND p.run_at <= daybell.now();
  allowed := CASE WHEN inside + outside = 0 THEN 1 ELSE 0 END
             + CASE WHEN rule = 'queue_all' THEN asked
                    WHEN rule = 'queue' AND outside = 0 THEN 1 ELSE 0 END;
  IF asked > allowed THEN
    SELECT v.id INTO other FROM daybell.live v WHERE v.job = for_job AND v.gate = for_gate
     ORDER BY v.id LIMIT 1;
    RAISE EXCEPTION 'the job has not finished %, and its overlap rule is %',
                    coalesce('execution ' || other, 'the one before it'), rule
      USING ERRCODE = 'object_in_use', HINT = 'Wait for it, or cancel it.';
  END IF;
END $$;

-- What store/postgres/gates.py does to let in what fits; the gate is locked.
CREATE FUNCTION daybell.let_in(for_tenant int, for_gate text) RETURNS void LANGUAGE sql VOLATILE AS $$
  WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
  p AS (
    DELETE FROM daybell.parked WHERE ctid = ANY(ARRAY(
      SELECT p.ctid FROM daybell.gate g, LATERAL (
        SELECT x.ctid FROM daybell.parked x
         WHERE x.tenant = g.tenant AND x.gate = g.key AND x.run_at <= (SELECT now FROM t)
         ORDER BY x.priority, x.run_at, x.id LIMIT greatest(g.capacity - g.holders, 0)) p
       WHERE g.tenant = for_tenant AND g.key = for_gate)) RETURNING id),
  v AS (
    UPDATE daybell.live v SET state = 1, reason = NULL, run_at = (SELECT now FROM t)
     WHERE v.tenant + 0 = for_tenant AND v.id = ANY(ARRAY(SELECT id FROM p))
    RETURNING v.run_at, v.lane, v.priority, v.id),
  a AS (
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM v)
  UPDATE daybell.gate SET holders = holders + n
    FROM (SELECT count(*) AS n FROM v) c WHERE tenant = for_tenant AND key = for_gate AND n > 0
$$;

REVOKE ALL ON FUNCTION daybell.open_gate, daybell.let_in FROM PUBLIC;
