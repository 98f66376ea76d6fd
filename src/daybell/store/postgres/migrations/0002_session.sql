-- compatible
-- Sessions of browsers, and links that open one: keys that end with another key.
ALTER TABLE daybell.api_key
  ADD COLUMN kind text NOT NULL DEFAULT 'key',  -- session, login
  ADD COLUMN parent uuid;  -- the id of the key that it ends with
