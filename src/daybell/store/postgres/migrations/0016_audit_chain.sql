-- breaking
--
-- The audit log as a chain per tenant: see `core.audit`. Entries that are older than this have no number and
-- no hash.

ALTER TABLE daybell.audit
  ADD number  bigint,
  ADD hash    bytea;
CREATE UNIQUE INDEX audit_chain ON daybell.audit (tenant, number NULLS FIRST);

CREATE TABLE daybell.audit_head (
  since    float8 NOT NULL DEFAULT daybell.now(),
  number   bigint NOT NULL,            -- of the last entry
  removed  bigint NOT NULL DEFAULT 0,  -- the number of the last entry that retention has removed
  tenant   int PRIMARY KEY REFERENCES daybell.tenant,
  hash     bytea NOT NULL,
  anchor   bytea NOT NULL DEFAULT ''   -- the hash of the last removed entry
) WITH (fillfactor = 50);

-- Append entries with different ids to a tenant's chain, except those that exist. The head stays locked until
-- the end of the transaction: to call this is the last step of one.
CREATE FUNCTION daybell.record_audit(for_tenant int, ids uuid[], actors text[], actions text[],
    targets text[], befores text[], afters text[], sources text[])
  RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  owner text;
  last_number bigint;
  last_hash bytea;
  now float8;
  contents bytea[];
  hashes bytea[];
BEGIN
  LOOP
    SELECT t.name, h.number, h.hash INTO owner, last_number, last_hash
      FROM daybell.audit_head h JOIN daybell.tenant t ON t.key = h.tenant
     WHERE h.tenant = for_tenant FOR NO KEY UPDATE OF h;
    EXIT WHEN FOUND;
    -- A head that was deleted does not bring the numbers back.
    INSERT INTO daybell.audit_head (tenant, number, hash)
    SELECT for_tenant, coalesce(max(a.number), 0), '' FROM daybell.audit a WHERE a.tenant = for_tenant
    ON CONFLICT DO NOTHING;
  END LOOP;
  IF EXISTS (SELECT FROM daybell.audit a WHERE a.id = ANY(ids) AND a.tenant + 0 = for_tenant) THEN
    SELECT array_agg(u.id ORDER BY n), array_agg(u.actor ORDER BY n), array_agg(u.action ORDER BY n),
           array_agg(u.target ORDER BY n), array_agg(u.before ORDER BY n),
           array_agg(u.after ORDER BY n), array_agg(u.source ORDER BY n)
      INTO ids, actors, actions, targets, befores, afters, sources
      FROM unnest(ids, actors, actions, targets, befores, afters, sources) WITH ORDINALITY
           u(id, actor, action, target, before, after, source, n)
     WHERE NOT EXISTS (SELECT FROM daybell.audit a WHERE a.id = u.id AND a.tenant + 0 = for_tenant);
  END IF;
  IF coalesce(cardinality(ids), 0) = 0 THEN
    RETURN;
  END IF;
  now := daybell.now();
  -- `core.audit.link_hash` is the reference.
  contents := ARRAY(
    SELECT convert_to(concat(
             last_number + u.n, ':', (now * 1e6)::bigint, ':', u.id, ':', length(owner), ':',
             length(u.actor), ':', length(u.action), ':', length(u.target), ':',
             coalesce(length(u.before), -1), ':', coalesce(length(u.after), -1), ':',
             length(u.source), ':',
             owner, u.actor, u.action, u.target, u.before, u.after, u.source), 'UTF8')
      FROM unnest(ids, actors, actions, targets, befores, afters, sources) WITH ORDINALITY
           u(id, actor, action, target, before, after, source, n));
  FOR i IN 1 .. cardinality(ids) LOOP
    last_hash := sha256(last_hash || contents[i]);
    hashes[i] := last_hash;
  END LOOP;
  WITH added AS (
    INSERT INTO daybell.audit (at, tenant, id, actor, action, target, before, after, source, hash,
                               number)
    SELECT now, for_tenant, u.id, u.actor, u.action, u.target, u.before, u.after, u.source, u.hash,
           last_number + u.n
      FROM unnest(ids, actors, actions, targets, befores, afters, sources, hashes) WITH ORDINALITY
           u(id, actor, action, target, before, after, source, hash, n))
  UPDATE daybell.audit_head h SET number = last_number + cardinality(ids), hash = last_hash
   WHERE h.tenant = for_tenant;
END $$;

-- Programs that are older than this, and still run, insert entries themselves. A role of `grant_to` must not.
CREATE FUNCTION daybell.chain_audit() RETURNS trigger LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM daybell.record_audit(NEW.tenant, ARRAY[NEW.id], ARRAY[NEW.actor], ARRAY[NEW.action],
                               ARRAY[NEW.target], ARRAY[NEW.before], ARRAY[NEW.after],
                               ARRAY[NEW.source]);
  RETURN NULL;
END $$;
CREATE TRIGGER chain_audit BEFORE INSERT ON daybell.audit
  FOR EACH ROW WHEN (NEW.hash IS NULL) EXECUTE FUNCTION daybell.chain_audit();

-- As before, but from the beginning of each chain, whose head keeps the hash of the last removed entry.
CREATE OR REPLACE FUNCTION daybell.drop_audit(most int) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  bound float8 := daybell.now() - 365 * 86400;
  owner int;
  dropped int;
  removed int := 0;
BEGIN
  FOR owner IN
    SELECT t.key FROM daybell.tenant t
     WHERE EXISTS (SELECT FROM daybell.audit a WHERE a.tenant = t.key AND a.at < bound)
     ORDER BY t.key
  LOOP
    WITH first AS MATERIALIZED (
      SELECT a.ctid AS place, a.at, a.number FROM daybell.audit a WHERE a.tenant = owner
       ORDER BY a.number NULLS FIRST LIMIT most - removed),
    old AS MATERIALIZED (
      SELECT f.place, bool_and(f.at < bound) OVER (PARTITION BY f.number IS NULL
                                                    ORDER BY f.number, f.at) AS is_old
        FROM first f),
    gone AS (
      DELETE FROM daybell.audit a WHERE a.ctid = ANY(ARRAY(SELECT o.place FROM old o WHERE o.is_old))
      RETURNING a.number, a.hash),
    moved AS (
      UPDATE daybell.audit_head h SET removed = g.number, anchor = g.hash
        FROM (SELECT g.number, g.hash FROM gone g WHERE g.number IS NOT NULL
               ORDER BY g.number DESC LIMIT 1) g
       WHERE h.tenant = owner AND h.removed < g.number)
    SELECT count(*) INTO dropped FROM gone;
    removed := removed + dropped;
    EXIT WHEN removed >= most;
  END LOOP;
  RETURN removed;
END $$;
REVOKE ALL ON FUNCTION daybell.record_audit, daybell.chain_audit FROM PUBLIC;

-- As before, but for the audit log, which only these functions write.
CREATE OR REPLACE FUNCTION daybell.grant_to(role name) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA daybell TO %I', role);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON daybell.migration, daybell.audit, daybell.audit_head'
                 ' FROM %I', role);
  EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE EXECUTE ON FUNCTION daybell.grant_to, daybell.grant_enqueue_to FROM %I', role);
END $$;
