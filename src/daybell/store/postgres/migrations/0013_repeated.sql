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
