-- compatible
--
-- What nobody starts in time is looked for by its time.

CREATE INDEX live_expiring ON daybell.live (expires_at) WHERE expires_at IS NOT NULL;
