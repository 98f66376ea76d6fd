-- compatible
-- Sessions of browsers, and links that open one: keys that end with another key.
ALTER TABLE api_key ADD COLUMN kind TEXT NOT NULL DEFAULT 'key';  -- session, login
ALTER TABLE api_key ADD COLUMN parent BLOB;  -- the id of the key that it ends with
