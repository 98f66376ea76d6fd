-- compatible
--
-- Durable functions: steps that were done, events that came, and who waits for one.
--
-- Locks come after those of `live`. Before them, who records a wait and who publishes an event take
-- an advisory lock on the event's name, against each other only: otherwise each could look for the
-- other's row just before it is there.

CREATE TABLE daybell.step (
  started_at   float8 NOT NULL,
  finished_at  float8,
  wake_at      float8,
  event        bigint,  -- that ended this wait
  tenant       int NOT NULL,
  n            int NOT NULL,
  failures     int NOT NULL,
  kind         smallint NOT NULL,
  is_done      boolean NOT NULL,
  execution    uuid NOT NULL,
  name         text NOT NULL,
  result       text,
  error        text,
  PRIMARY KEY (execution, n, tenant)
);
CREATE INDEX step_started ON daybell.step (started_at, execution);

-- Open waits. A row whose execution has ended does no harm, and goes with its step.
CREATE TABLE daybell.wait (
  timeout_at  float8,
  tenant      int NOT NULL,
  n           int NOT NULL,
  execution   uuid NOT NULL,
  event       text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,  -- one of the pairs in `match`, see core/event.py
  match       text NOT NULL,
  PRIMARY KEY (execution, n, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX wait_event ON daybell.wait (tenant, event, key);
CREATE INDEX wait_timeout ON daybell.wait (timeout_at) WHERE timeout_at IS NOT NULL;

CREATE TABLE daybell.event (
  received_at  float8 NOT NULL,
  time         float8,
  number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant       int NOT NULL REFERENCES daybell.tenant,
  execution    uuid,
  id           text COLLATE "C" NOT NULL,
  source       text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  data         text NOT NULL,
  UNIQUE (tenant, source, id)
);
CREATE INDEX event_list ON daybell.event (tenant, number);
CREATE INDEX event_received ON daybell.event (received_at);

-- The same the other way round: under which keys a wait finds events that came before it.
CREATE TABLE daybell.event_key (
  received_at  float8 NOT NULL,
  number       bigint NOT NULL,
  tenant       int NOT NULL,
  name         text COLLATE "C" NOT NULL,
  key          text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, name, key, received_at, number)
);
CREATE INDEX event_key_received ON daybell.event_key (received_at);
