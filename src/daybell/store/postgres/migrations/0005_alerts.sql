-- compatible
--
-- Alerts: rules, and the incidents that they open.

CREATE TABLE daybell.alert_rule (
  created_at  float8 NOT NULL DEFAULT daybell.now(),
  updated_at  float8 NOT NULL DEFAULT daybell.now(),
  tenant      int NOT NULL REFERENCES daybell.tenant,
  version     int NOT NULL,
  name        text COLLATE "C" NOT NULL,
  author      text NOT NULL,
  definition  text NOT NULL,
  PRIMARY KEY (tenant, name)
);

-- A rule is named here, not referred to: `notifications` of a job are rules without a row.
CREATE TABLE daybell.incident (
  id               uuid NOT NULL,
  opened_at        float8 NOT NULL,
  notified_at      float8,
  closed_at        float8,
  acknowledged_at  float8,
  tenant           int NOT NULL REFERENCES daybell.tenant,
  version          int NOT NULL DEFAULT 1,  -- each change compares and raises it
  is_event         boolean NOT NULL,        -- opened and closed at once
  rule             text COLLATE "C" NOT NULL,
  subject          text COLLATE "C" NOT NULL,
  mark             text COLLATE "C" NOT NULL,
  detail           text NOT NULL,
  acknowledged_by  text NOT NULL DEFAULT '',
  PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX incident_open ON daybell.incident (tenant, rule, subject)
  WHERE closed_at IS NULL;
CREATE UNIQUE INDEX incident_event ON daybell.incident (tenant, rule, subject, mark) WHERE is_event;
CREATE INDEX incident_closed ON daybell.incident (tenant, rule, subject, closed_at)
  WHERE closed_at IS NOT NULL;
CREATE INDEX incident_old ON daybell.incident (closed_at) WHERE closed_at IS NOT NULL;

-- The definitions of jobs that are rules by themselves.
CREATE INDEX job_version_notifies ON daybell.job_version (job, version)
  WHERE strpos(definition, '"notifications":[{') > 0;
