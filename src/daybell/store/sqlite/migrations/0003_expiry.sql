-- compatible
--
-- What nobody starts in time is looked for by its time.

CREATE INDEX execution_expiring ON execution (expires_at) WHERE expires_at IS NOT NULL AND state < 5;
