-- compatible
--
-- Keys, quotas, the audit log, and requests that may come twice.

CREATE TABLE daybell.api_key (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  expires_at  float8,
  used_at     float8,
  revoked_at  float8,
  tenant      int NOT NULL REFERENCES daybell.tenant,
  id          uuid NOT NULL,
  digest      bytea NOT NULL UNIQUE,  -- SHA-256; the token itself is shown once and never kept
  role        text NOT NULL,
  name        text NOT NULL,
  hint        text NOT NULL,
  created_by  text NOT NULL,
  PRIMARY KEY (id, tenant)
);
CREATE INDEX api_key_tenant ON daybell.api_key (tenant, id);

ALTER TABLE daybell.tenant
  ADD jobs_max        bigint,
  ADD queued_max      bigint,
  ADD per_minute_max  bigint,
  ADD running_max     bigint;

-- How many executions a tenant with a quota has enqueued in a minute.
CREATE TABLE daybell.tenant_minute (
  minute    bigint NOT NULL,  -- since 1970
  tenant    int NOT NULL REFERENCES daybell.tenant,
  enqueued  bigint NOT NULL,
  PRIMARY KEY (tenant, minute)
) WITH (fillfactor = 50);

-- Count executions that were enqueued just now; answers how many they are in this minute.
CREATE FUNCTION daybell.count_enqueued(for_tenant int, made int) RETURNS bigint
  LANGUAGE sql VOLATILE AS $$
  INSERT INTO daybell.tenant_minute AS m (tenant, minute, enqueued)
  VALUES (for_tenant, floor(daybell.now() / 60)::bigint, made)
  ON CONFLICT (tenant, minute) DO UPDATE SET enqueued = m.enqueued + excluded.enqueued
  RETURNING enqueued
$$;

-- The same for a tenant with quotas, by whoever has made them in this transaction: says which quota
-- they exceed, if any. The lock comes last, and what is counted under it is what others have
-- committed before: of two at a time, the second counts what the first has made.
CREATE FUNCTION daybell.charge(for_tenant int, made int, OUT quota text, OUT most bigint,
    OUT wait float8) LANGUAGE plpgsql VOLATILE
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  limits record;
  now float8;
BEGIN
  SELECT t.queued_max, t.per_minute_max INTO limits
    FROM daybell.tenant t WHERE t.key = for_tenant FOR NO KEY UPDATE;
  IF limits.queued_max IS NOT NULL AND limits.queued_max < (
       SELECT count(*) FROM (SELECT FROM daybell.live l WHERE l.tenant = for_tenant
                              LIMIT limits.queued_max + 1) u) THEN
    quota := 'queued';
    most := limits.queued_max;
    wait := 10;
  ELSIF limits.per_minute_max IS NOT NULL
        AND limits.per_minute_max < daybell.count_enqueued(for_tenant, made) THEN
    now := daybell.now();
    quota := 'per_minute';
    most := limits.per_minute_max;
    wait := 60 * (floor(now / 60) + 1) - now;
  END IF;
END $$;

-- What `enqueue_many` did so far goes by another name, which its body uses as well; that one now does
-- the same within the tenant's quotas, for whoever could call it.
DO $$
BEGIN
  EXECUTE replace(pg_get_functiondef('daybell.enqueue_many'::regproc), 'enqueue_many', 'enqueue_freely');
END $$;
CREATE OR REPLACE FUNCTION daybell.enqueue_many(job text, args text[], options jsonb DEFAULT '{}',
                                     parent uuid DEFAULT NULL)
  RETURNS TABLE (id uuid, created boolean) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  owner record;
  made record;
  over record;
BEGIN
  SELECT t.key, t.name INTO owner FROM daybell.tenant t
   WHERE t.name = coalesce(enqueue_many.options ->> 'tenant', 'default')
     AND (t.queued_max IS NOT NULL OR t.per_minute_max IS NOT NULL);
  IF NOT FOUND THEN
    RETURN QUERY SELECT e.id, e.created FROM daybell.enqueue_freely(job, args, options, parent) e;
    RETURN;
  END IF;
  SELECT array_agg(e.id) AS ids, array_agg(e.created) AS news,
         count(*) FILTER (WHERE e.created) AS count
    INTO made FROM daybell.enqueue_freely(job, args, options, parent) e;
  IF made.count > 0 THEN
    SELECT c.quota, c.most, c.wait INTO over FROM daybell.charge(owner.key, made.count::int) c;
    IF over.quota IS NOT NULL THEN
      RAISE EXCEPTION 'tenant % exceeds its quota %, which is %', quote_literal(left(owner.name, 60)),
                      over.quota, over.most
        USING ERRCODE = 'configuration_limit_exceeded',
              HINT = format('Try again in %s seconds, or have the quota raised.', ceil(over.wait));
    END IF;
  END IF;
  RETURN QUERY SELECT u.* FROM unnest(made.ids, made.news) u;
END $$;
REVOKE ALL ON FUNCTION daybell.count_enqueued, daybell.charge, daybell.enqueue_freely FROM PUBLIC;

CREATE TABLE daybell.audit (
  at      float8 NOT NULL DEFAULT daybell.now(),
  tenant  int NOT NULL REFERENCES daybell.tenant,
  id      uuid NOT NULL,
  actor   text NOT NULL,
  action  text NOT NULL,
  target  text NOT NULL,
  before  text,
  after   text,
  source  text NOT NULL,
  PRIMARY KEY (id, tenant)
);
CREATE INDEX audit_order ON daybell.audit (tenant, at, id);
CREATE INDEX audit_at ON daybell.audit USING brin (at);  -- for retention

-- Whoever may write entries cannot unwrite them, the owner neither; those that are older than a year
-- are taken by this function, which anybody may call who runs Daybell.
CREATE FUNCTION daybell.keep_audit() RETURNS trigger LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'DELETE' AND OLD.at < daybell.now() - 365 * 86400 THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER keep_audit BEFORE UPDATE OR DELETE ON daybell.audit
  FOR EACH ROW EXECUTE FUNCTION daybell.keep_audit();
CREATE TRIGGER keep_all_audit BEFORE TRUNCATE ON daybell.audit
  FOR EACH STATEMENT EXECUTE FUNCTION daybell.keep_audit();
CREATE FUNCTION daybell.drop_audit(most int) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  removed int;
BEGIN
  DELETE FROM daybell.audit WHERE ctid = ANY(ARRAY(
    SELECT a.ctid FROM daybell.audit a WHERE a.at < daybell.now() - 365 * 86400 LIMIT most));
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN removed;
END $$;
REVOKE ALL ON FUNCTION daybell.keep_audit, daybell.drop_audit FROM PUBLIC;

-- As before, but for the audit log, which can only be added to.
CREATE OR REPLACE FUNCTION daybell.grant_to(role name) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA daybell TO %I', role);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON daybell.migration FROM %I', role);
  EXECUTE format('REVOKE UPDATE, DELETE ON daybell.audit FROM %I', role);
  EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA daybell TO %I', role);
  EXECUTE format('REVOKE EXECUTE ON FUNCTION daybell.grant_to, daybell.grant_enqueue_to FROM %I', role);
END $$;

CREATE TABLE daybell.idempotency (
  at      float8 NOT NULL DEFAULT daybell.now(),
  tenant  int NOT NULL REFERENCES daybell.tenant,
  status  smallint,
  id      uuid NOT NULL,
  digest  bytea NOT NULL,
  key     text COLLATE "C" NOT NULL,
  answer  text,
  PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_at ON daybell.idempotency (at);

-- Whose job it is, for lists; the definition says the same. And what a search looks in: the name
-- and the description, in small letters. What JSON has as \u0000 cannot be text here.
ALTER TABLE daybell.job
  ADD user_id  text COLLATE "C",
  ADD words    text COLLATE "C" NOT NULL DEFAULT '';
UPDATE daybell.job j SET words = lower(j.name);
UPDATE daybell.job j
   SET user_id = v.definition::json ->> 'user_id',
       words = lower(j.name || E'\n' || coalesce(v.definition::json ->> 'description', ''))
  FROM daybell.job_version v
 WHERE v.job = j.key AND v.version = j.version AND strpos(v.definition, '\u0000') = 0;
CREATE INDEX job_user ON daybell.job (tenant, user_id, name) WHERE user_id IS NOT NULL;
