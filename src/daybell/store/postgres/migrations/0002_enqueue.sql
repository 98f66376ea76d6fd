-- compatible
--
-- Enqueueing from a caller's own transaction, in any language:
--
--   SELECT daybell.enqueue('send_email', '{"to": "ada@example.org"}', '{"delay": "5m"}')
--
-- It writes what the store's own enqueue writes (store/postgres/enqueue.py), and a test compares the
-- two. What a caller may have set must not matter here: the search path is pinned, with pg_temp last;
-- tables and functions are named with their schema; literals with a backslash are E'…'. Limits are
-- those of core/limits.py.

-- Ids are UUID version 7. uuidv7() came with PostgreSQL 18; this one is the same on all of them. A
-- stamp counts 1/4096 of a millisecond since 1970, so a batch rises by adding 1. The rest is that of
-- a random uuid, which has its variant bits in the same place.
CREATE FUNCTION daybell.mint(stamp bigint) RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT (lpad(to_hex(stamp >> 12), 12, '0') || '7' || lpad(to_hex(stamp & 4095), 3, '0')
          || substr(replace(gen_random_uuid()::text, '-', ''), 17))::uuid
$$;

-- What people write as core/duration.py reads it: seconds, "1h30m", "PT5M".
CREATE FUNCTION daybell.read_seconds(value jsonb, what text) RETURNS float8 LANGUAGE plpgsql STABLE
AS $$
DECLARE
  said text := btrim(value #>> '{}', E' \t\n\r\f\v');
  number text := '([0-9]+(?:[.][0-9]+)?|[.][0-9]+)';
  units text := '^(?:%1$s ?w(?!s) ?)?(?:%1$s ?d(?!s) ?)?(?:%1$s ?h(?!s) ?)?(?:%1$s ?m(?!s) ?)?'
                || '(?:%1$s ?s(?!s) ?)?(?:%1$s ?ms ?)?(?:%1$s ?us ?)?$';
  iso text := '^P(?:%1$sW)?(?:%1$sD)?(?:T(?=[0-9])(?:%1$sH)?(?:%1$sM)?(?:%1$sS)?)?$';
  counts text[];
  seconds numeric;
BEGIN
  IF jsonb_typeof(value) = 'number' THEN
    seconds := said::numeric;
  ELSIF jsonb_typeof(value) = 'string' AND length(said) BETWEEN 1 AND 64 THEN
    IF said ~ ('^' || number || '$') THEN
      seconds := said::numeric;
    ELSE
      counts := coalesce(regexp_match(said, format(units, number)),
                         regexp_match(said, format(iso, '([0-9]+(?:[.,][0-9]+)?)')));
      seconds := (SELECT sum(replace(u.count, ',', '.')::numeric * u.unit)
                    FROM unnest(counts, ARRAY[604800, 86400, 3600, 60, 1, 0.001, 0.000001])
                         u(count, unit));
    END IF;
  END IF;
  IF seconds IS NULL OR seconds NOT BETWEEN 0 AND 315619200 THEN
    RAISE EXCEPTION '% % is not a length of time up to ten years', what, left(value::text, 60)
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'A duration is a number of seconds, or text like "90s", "5m", "1h30m", "2d", "PT5M".';
  END IF;
  RETURN round(seconds, 6);
END $$;

CREATE FUNCTION daybell.read_instant(value jsonb, what text) RETURNS float8 LANGUAGE plpgsql STABLE
AS $$
DECLARE
  said text := value #>> '{}';
  instant float8;
BEGIN
  BEGIN
    IF jsonb_typeof(value) = 'number' THEN
      instant := said::float8;
    -- With its offset written out, so that no setting of the session has a say.
    ELSIF said ~ ('^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?'
                  || '(Z|[+-][0-9]{2}(:?[0-9]{2})?)$') THEN
      instant := extract(epoch FROM said::timestamptz);  -- exact, unlike date_part
    END IF;
  -- 1e400, the 30th of February, an offset of 99 hours.
  EXCEPTION WHEN numeric_value_out_of_range OR datetime_field_overflow OR invalid_datetime_format
              OR invalid_time_zone_displacement_value THEN
    instant := NULL;
  END;
  IF instant IS NULL OR instant NOT BETWEEN 0 AND 253402300799 THEN
    RAISE EXCEPTION '% % is not a time between 1970 and 9999', what, left(value::text, 60)
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Write ISO 8601 with an offset, such as "2026-12-24T18:00:00+01:00", or seconds since 1970.';
  END IF;
  RETURN instant;
END $$;

CREATE FUNCTION daybell.read_priority(value jsonb) RETURNS smallint LANGUAGE plpgsql STABLE AS $$
DECLARE
  said text := lower(btrim(value #>> '{}', E' \t\n\r\f\v'));
  place int;
BEGIN
  IF jsonb_typeof(value) = 'string' THEN
    said := CASE said WHEN 'medium' THEN 'normal' ELSE said END;
    place := array_position(ARRAY['critical', 'high', 'normal', 'low'], said) - 1;
  ELSIF jsonb_typeof(value) = 'number' THEN
    place := array_position(ARRAY['0', '1', '2', '3'], said) - 1;
  END IF;
  IF place IS NULL THEN
    RAISE EXCEPTION '% is not a priority', left(value::text, 60)
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Use critical, high, normal (or medium) or low.';
  END IF;
  RETURN place;
END $$;

CREATE FUNCTION daybell.read_text(value jsonb, what text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF jsonb_typeof(value) <> 'string' OR value = '""' THEN
    RAISE EXCEPTION '% % is not text with something in it', what, left(value::text, 60)
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out to have none.';
  END IF;
  RETURN value #>> '{}';
END $$;

-- The options of one enqueue. What is left out, or null, is NULL here: as the job says.
CREATE FUNCTION daybell.read_options(options jsonb, OUT tenant text, OUT queue text,
    OUT priority smallint, OUT delay float8, OUT at float8, OUT expires float8,
    OUT unique_key text, OUT retries int, OUT timeout float8) LANGUAGE plpgsql STABLE AS $$
DECLARE
  known text[] := ARRAY['at', 'delay', 'expires', 'priority', 'queue', 'retries', 'tenant',
                        'timeout', 'unique_key'];
  stray text;
  given record;
BEGIN
  IF jsonb_typeof(options) <> 'object' THEN
    RAISE EXCEPTION 'options must be a JSON object, not %', left(options::text, 60)
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Such as {"delay": "5m"}.';
  END IF;
  SELECT k INTO stray FROM jsonb_object_keys(options) k WHERE k <> ALL (known) LIMIT 1;
  IF stray IS NOT NULL THEN
    RAISE EXCEPTION 'there is no option %', quote_literal(left(stray, 60))
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'There are ' || array_to_string(known, ', ') || '.';
  END IF;
  FOR given IN SELECT o.key, o.value FROM jsonb_each(options) o WHERE o.value <> 'null' LOOP
    CASE given.key
      WHEN 'tenant' THEN tenant := daybell.read_text(given.value, given.key);
      WHEN 'queue' THEN queue := daybell.read_text(given.value, given.key);
      WHEN 'unique_key' THEN unique_key := daybell.read_text(given.value, given.key);
      WHEN 'priority' THEN priority := daybell.read_priority(given.value);
      WHEN 'at' THEN at := daybell.read_instant(given.value, given.key);
      WHEN 'delay' THEN delay := daybell.read_seconds(given.value, given.key);
      WHEN 'expires' THEN expires := daybell.read_seconds(given.value, given.key);
      WHEN 'timeout' THEN timeout := daybell.read_seconds(given.value, given.key);
      WHEN 'retries' THEN
        IF jsonb_typeof(given.value) <> 'number' OR given.value::text !~ '^[0-9]{1,4}$'
           OR given.value > '1000' THEN
          RAISE EXCEPTION 'retries % is not a whole number from 0 to 1,000', left(given.value::text, 60)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out for what the job says.';
        END IF;
        retries := given.value::int;
    END CASE;
  END LOOP;
  IF delay IS NOT NULL AND at IS NOT NULL THEN
    RAISE EXCEPTION 'delay and at are two ways to say the same'
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one of them.';
  END IF;
  IF expires = 0 OR timeout = 0 THEN
    RAISE EXCEPTION '% is no time at all', CASE WHEN expires = 0 THEN 'expires 0' ELSE 'timeout 0' END
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out for what the job says.';
  END IF;
  IF octet_length(unique_key) > 500 THEN
    RAISE EXCEPTION 'unique_key has % bytes; the limit is 500', octet_length(unique_key)
      USING ERRCODE = 'program_limit_exceeded', HINT = 'Use a digest of it.';
  END IF;
  tenant := coalesce(tenant, 'default');
END $$;

-- Say why arguments cannot be kept, or could not be read by a worker; NULL if they can. Text that is
-- no JSON at all ends in the server's own error.
CREATE FUNCTION daybell.args_fault(args text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  bare text;
BEGIN
  IF octet_length(args) > 1048576 THEN
    RETURN format('%s bytes of JSON; the limit is 1,048,576', octet_length(args));
  ELSIF json_typeof(args::json) <> 'object' THEN
    RETURN 'arguments are given by name, as a JSON object';
  ELSIF length(args) <= 64 THEN
    RETURN NULL;
  END IF;
  -- Without its strings, and only where there may be something to find.
  IF length(args) - length(translate(args, '[{', '')) > 64
     OR strpos(translate(args, '123456789', '000000000'), repeat('0', 4301)) > 0 THEN
    bare := regexp_replace(args, E'"[^"\\\\]*(?:\\\\.[^"\\\\]*)*"', '""', 'g');
    IF strpos(translate(bare, '123456789', '000000000'), repeat('0', 4301)) > 0 THEN
      RETURN 'an integer of more than 4,300 digits; pass it as text';
    END IF;
    bare := translate(regexp_replace(bare, '[^][{}]', '', 'g'), '{}', '[]');
    FOR level IN 1..64 LOOP
      bare := replace(bare, '[]', '');  -- takes one level off the inside
    END LOOP;
    IF bare <> '' THEN
      RETURN 'nested deeper than 64 levels';
    END IF;
  END IF;
  RETURN NULL;
END $$;

-- The number of a lane, which is made if there is none. Until the caller commits, others who need a
-- new one wait here; so the lanes of jobs' own queues are made when they are defined.
CREATE FUNCTION daybell.take_lane(for_tenant int, for_queue text, for_needs text) RETURNS int
  LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  found int;
BEGIN
  LOOP
    SELECT l.key INTO found FROM daybell.lane l
     WHERE l.tenant = for_tenant AND l.queue = for_queue AND l.needs = for_needs;
    EXIT WHEN found IS NOT NULL;
    INSERT INTO daybell.lane (tenant, queue, needs) VALUES (for_tenant, for_queue, for_needs)
    ON CONFLICT DO NOTHING RETURNING key INTO found;
    EXIT WHEN found IS NOT NULL;
  END LOOP;
  RETURN found;
END $$;

-- One execution per element of `args`, each a JSON object as text; all alike but for that. Text,
-- because jsonb would refuse \u0000 and change what it keeps. A unique_key is for one execution.
CREATE FUNCTION daybell.enqueue_many(job text, args text[], options jsonb DEFAULT '{}',
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
         coalesce(asked.expires, d.expires) AS expires
    INTO spec
    FROM daybell.tenant t
    JOIN daybell.job j ON j.tenant = t.key AND j.name = enqueue_many.job AND j.deleted_at IS NULL
    JOIN daybell.job_version v ON v.job = j.key AND v.version = j.version,
         json_to_record(replace(v.definition, E'\\u0000', E'\\ufffd')::json)
           d(kind text, priority smallint, expires float8)
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
  stamp := date_part('epoch', clock_timestamp()) * 4096000;
  ids := ARRAY(SELECT daybell.mint(stamp + n) FROM generate_series(1, cardinality(args)) n);
  LOOP
    now := daybell.now();
    due := greatest(now, coalesce(asked.at, now + asked.delay, now));
    -- Waits for a holder of the key that is not committed, and for one that is about to end.
    WITH l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
             args, expires_at, unique_key, retries, timeout, parent)
      SELECT spec.tenant, u.id, spec.job, spec.version, lane, spec.priority,
             CASE WHEN due > now THEN 2 ELSE 1 END, now, due, coalesce(u.args, '{}'),
             due + spec.expires, asked.unique_key, asked.retries, asked.timeout, enqueue_many.parent
        FROM unnest(ids, enqueue_many.args) u(id, args)
      ON CONFLICT (job, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
      RETURNING run_at, lane, priority, id)
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT l.run_at, l.lane, l.priority, l.id FROM l;
    GET DIAGNOSTICS rows = ROW_COUNT;
    EXIT WHEN rows > 0;
    SELECT v.id INTO holder FROM daybell.live v
     WHERE v.job = spec.job AND v.unique_key = asked.unique_key;
    IF FOUND THEN
      RETURN QUERY SELECT holder, false;
      RETURN;
    END IF;
    -- The holder ended between the two looks, and the key is free: once more.
  END LOOP;
  -- As store/postgres/listener.py says it; heard when the caller commits, once for all that are alike.
  PERFORM pg_notify('daybell', spec.tenant || ':' || spec.queue);
  RETURN QUERY SELECT u.id, true FROM unnest(ids) u(id);
END $$;

CREATE FUNCTION daybell.enqueue(job text, args jsonb DEFAULT '{}', options jsonb DEFAULT '{}')
  RETURNS uuid LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT e.id FROM daybell.enqueue_many(job, ARRAY[coalesce(args, '{}')::text], options) e
$$;
COMMENT ON FUNCTION daybell.enqueue IS
  'Ask for one execution of a job, in this transaction; answers its id, or that of the unfinished holder of the unique_key. options: delay, at, expires, priority, queue, unique_key, retries, timeout, tenant';

REVOKE ALL ON FUNCTION daybell.mint, daybell.read_seconds, daybell.read_instant,
  daybell.read_priority, daybell.read_text, daybell.read_options, daybell.args_fault,
  daybell.take_lane, daybell.enqueue_many, daybell.enqueue FROM PUBLIC;

INSERT INTO daybell.lane (tenant, queue, needs)
SELECT DISTINCT j.tenant, j.queue,
       coalesce(replace(v.definition, E'\\u0000', E'\\ufffd')::json ->> 'kind', 'task')
  FROM daybell.job j JOIN daybell.job_version v ON v.job = j.key AND v.version = j.version
ON CONFLICT DO NOTHING;

-- What a role needs that only enqueues, and no more. For the owner to call.
CREATE FUNCTION daybell.grant_enqueue_to(role name) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA daybell TO %I', role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION daybell.enqueue, daybell.enqueue_many TO %I', role);
END $$;
REVOKE ALL ON FUNCTION daybell.grant_enqueue_to FROM PUBLIC;

-- As before, and rights are not for that role to give.
CREATE OR REPLACE FUNCTION daybell.grant_to(role name) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA daybell TO %I', role);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON daybell.migration FROM %I', role);
  EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE EXECUTE ON FUNCTION daybell.grant_to, daybell.grant_enqueue_to FROM %I', role);
END $$;
