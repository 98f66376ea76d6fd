-- compatible
--
-- For `daybell top`: what has failed lately, and what waits for its next try. Only failures pay.

CREATE INDEX attempt_ended ON daybell.attempt (tenant, ended_at);
CREATE INDEX dead_finished ON daybell.dead (tenant, finished_at);
-- Without run_at, which changes with every move: an update that touches no index is cheaper.
CREATE INDEX live_retrying ON daybell.live (tenant, lane) WHERE state = 3;
