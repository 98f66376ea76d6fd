-- compatible
--
-- Secrets and templates; and jobs that need more of a worker than their kind.

-- What the values are, nobody can tell here: the keys that open them are the workers'.
CREATE TABLE daybell.secret (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  updated_at  float8 NOT NULL DEFAULT daybell.now(),
  tenant      int NOT NULL REFERENCES daybell.tenant,
  version     int NOT NULL DEFAULT 1,
  name        text COLLATE "C" NOT NULL,
  key_id      text NOT NULL,
  author      text NOT NULL,
  sealed      bytea NOT NULL,
  PRIMARY KEY (tenant, name)
);

CREATE TABLE daybell.template (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  updated_at  float8 NOT NULL DEFAULT daybell.now(),
  tenant      int NOT NULL REFERENCES daybell.tenant,
  version     int NOT NULL,
  name        text COLLATE "C" NOT NULL,
  author      text NOT NULL,
  definition  text NOT NULL,
  PRIMARY KEY (tenant, name)
);

-- A definition says what it needs where that is not its kind alone, and goes to a lane of that name.
-- The rest of the function stays as it is, and so does who may call it.
DO $$
DECLARE
  old text := pg_get_functiondef('daybell.enqueue_freely'::regproc);
  new text := replace(replace(old, 'coalesce(d.kind, ''task'') AS kind',
                                   'coalesce(d.needs, d.kind, ''task'') AS kind'),
                      'd(kind text, ', 'd(kind text, needs text, ');
BEGIN
  ASSERT strpos(new, 'd.needs') > 0 AND strpos(new, 'needs text') > 0, 'enqueue_freely is another one';
  EXECUTE new;
END $$;

-- Where earlier programs put what needs more than its kind. Nobody asks for these; they are emptied
-- from time to time.
CREATE INDEX lane_of_kind ON daybell.lane (key) WHERE needs = 'sql';
