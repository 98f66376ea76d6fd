-- compatible
--
-- For `daybell top`: what has died lately. Only those that do pay.

CREATE INDEX execution_died ON execution (tenant, finished_at) WHERE state = 7 AND is_discarded = 0;
