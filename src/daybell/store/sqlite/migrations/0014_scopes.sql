-- compatible
--
-- Keys that are limited to some jobs, queues and actions, and secrets that are bound to their version.

-- The limits as JSON, with the key's role. `role` is 'worker' in such a row: programs that do not know
-- this column let the key open nothing.
ALTER TABLE api_key ADD COLUMN scope TEXT;

-- A sealed value opens only at the version that it was sealed for. So that an older row cannot be put
-- back whole, versions of a name only rise: a deleted secret is a row with an empty value. A value that
-- is bound to its version (the id of its key begins with v2.) is not replaced by one that is not.
CREATE TRIGGER secret_version_rises BEFORE UPDATE ON secret
WHEN NEW.version <= OLD.version OR NEW.tenant <> OLD.tenant OR NEW.name <> OLD.name
  OR (OLD.key_id GLOB 'v2.*' AND NEW.key_id NOT GLOB 'v2.*')
BEGIN
    SELECT raise(ABORT, 'a secret is only replaced, by a later version');
END;
CREATE TRIGGER secret_is_not_removed BEFORE DELETE ON secret
BEGIN
    SELECT raise(ABORT, 'a secret is only replaced, by a later version');
END;
