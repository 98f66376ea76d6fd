-- compatible
--
-- Keys that are limited to some jobs, queues and actions, and secrets that are bound to their version.

-- The limits as JSON, with the key's role. `role` is 'worker' in such a row: programs that do not know
-- this column let the key open nothing.
ALTER TABLE daybell.api_key ADD scope text;

-- A sealed value opens only at the version that it was sealed for. So that an older row cannot be put
-- back whole, versions of a name only rise: a deleted secret is a row with an empty value. A value that
-- is bound to its version (the id of its key begins with v2.) is not replaced by one that is not.
CREATE FUNCTION daybell.keep_secret() RETURNS trigger LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.version > OLD.version AND (NEW.tenant, NEW.name) = (OLD.tenant, OLD.name)
    AND (NEW.key_id LIKE 'v2.%' OR OLD.key_id NOT LIKE 'v2.%')
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'a secret is only replaced, by a later version' USING
    ERRCODE = 'insufficient_privilege',
    HINT = 'Use daybell secrets, of the same release everywhere.';
END $$;
CREATE TRIGGER keep_secret BEFORE UPDATE OR DELETE ON daybell.secret
  FOR EACH ROW EXECUTE FUNCTION daybell.keep_secret();
CREATE TRIGGER keep_all_secrets BEFORE TRUNCATE ON daybell.secret
  FOR EACH STATEMENT EXECUTE FUNCTION daybell.keep_secret();
REVOKE ALL ON FUNCTION daybell.keep_secret FROM PUBLIC;
