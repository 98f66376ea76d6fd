-- compatible
--
-- Executions that a repeated request has created. A first request that arrives after its own repeat
-- finds its ids free if they have ended meanwhile, and does not search the history. It finds them
-- here instead. The table is empty unless answers get lost. Rows are removed after a day, and the
-- first of them that is dead brings a vacuum, which gives the table's pages back: an enqueue looks for
-- rows only if there are pages.

CREATE TABLE daybell.repeated (
  at      float8 NOT NULL DEFAULT daybell.now(),
  tenant  int NOT NULL,
  id      uuid NOT NULL,
  PRIMARY KEY (id, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 0);
CREATE INDEX repeated_at ON daybell.repeated (at);

-- Has a value as long as there are rows in `repeated`. A sequence knows no snapshots: what a repeat has
-- said is seen at once, by statements that began before it, too. To raise it does no harm.
CREATE SEQUENCE daybell.repeats;
GRANT USAGE, SELECT ON SEQUENCE daybell.repeats TO PUBLIC;

-- Take the value away when there are no rows. No repeat is between its row and its word meanwhile: it
-- writes the row first, and keeps the lock on the table until its commit.
CREATE FUNCTION daybell.rest_repeats() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF pg_sequence_last_value('daybell.repeats') IS NULL OR EXISTS (SELECT FROM daybell.repeated) THEN
    RETURN;
  END IF;
  LOCK TABLE daybell.repeated IN SHARE ROW EXCLUSIVE MODE NOWAIT;
  IF NOT EXISTS (SELECT FROM daybell.repeated) THEN
    PERFORM setval('daybell.repeats', 1, false);
  END IF;
EXCEPTION WHEN lock_not_available THEN
  NULL;  -- at the next time, then
END $$;
REVOKE ALL ON FUNCTION daybell.rest_repeats FROM PUBLIC;

-- Refuse ids that a repeated request has created; return true otherwise. The caller has inserted its
-- rows: their number is an argument so that they are counted first. From then on no repeat can create
-- them. Each query of a volatile function has a snapshot of its own, so this sees what was committed
-- while the caller's statement was under way.
CREATE FUNCTION daybell.refuse_repeated(for_tenant int, ids uuid[], inserted bigint) RETURNS boolean
  LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF EXISTS (SELECT FROM daybell.repeated r WHERE r.id = ANY(ids) AND r.tenant = for_tenant) THEN
    RAISE EXCEPTION 'some of these executions exist: a repeat of this request has created them'
      USING ERRCODE = 'unique_violation';
  END IF;
  RETURN true;
END $$;
REVOKE ALL ON FUNCTION daybell.refuse_repeated FROM PUBLIC;
