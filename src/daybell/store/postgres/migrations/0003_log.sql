-- compatible
--
-- What tasks said, in parts; a part is lines of JSON. The last part of an attempt came with its end,
-- and is kept there: a row of its own would cost as much again as the end. The others are kept by the
-- day, like history. There is no key that forbids the same part twice, which would have to hold within
-- a day only and cost every write: a part that was sent again is left out by who reads.

ALTER TABLE daybell.history ADD COLUMN log text;
ALTER TABLE daybell.dead ADD COLUMN log text;
ALTER TABLE daybell.attempt ADD COLUMN log text;

CREATE TABLE daybell.log (
  written_at  float8 NOT NULL,
  tenant      int NOT NULL,
  attempt     int NOT NULL,
  number      int NOT NULL,
  id          uuid NOT NULL,
  text        text NOT NULL
) PARTITION BY RANGE (written_at);
CREATE INDEX log_execution ON daybell.log (id);
CREATE TABLE daybell.log_rest PARTITION OF daybell.log DEFAULT;

-- The functions of 0001, for one table more.

CREATE OR REPLACE FUNCTION daybell.make_day(parent text, day date) RETURNS boolean LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
  part text := parent || '_' || to_char(day, 'YYYYMMDD');
  low float8 := date_part('epoch', day::timestamp);
  high float8 := low + 86400;
  key text := CASE parent WHEN 'history' THEN 'finished_at' WHEN 'attempt' THEN 'ended_at'
                          WHEN 'log' THEN 'written_at' END;
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

CREATE OR REPLACE FUNCTION daybell.make_days(ahead int) RETURNS int LANGUAGE sql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*) FILTER (WHERE daybell.make_day(parent, day))::int
    FROM unnest(ARRAY['history', 'attempt', 'log']) parent,
         generate_series(0, least(ahead, 30)) n,
         LATERAL (SELECT (to_timestamp(daybell.now()) AT TIME ZONE 'UTC')::date + n AS day) d
$$;

CREATE OR REPLACE FUNCTION daybell.drop_days(parent text, before float8) RETURNS int LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
  part text;
  dropped int := 0;
BEGIN
  IF parent NOT IN ('history', 'attempt', 'log') THEN
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

SELECT daybell.make_days(3);
