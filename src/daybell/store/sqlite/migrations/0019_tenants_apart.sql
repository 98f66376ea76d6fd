-- compatible
--
-- Views count what waits, and runs of workflows that have begun, by tenant. A plain execution enters
-- neither index: it does not wait, and a worker has it while it runs. Building them reads the table once
-- each; nothing else writes meanwhile.

CREATE INDEX execution_waiting_of ON execution (tenant, state, id) WHERE state = 4;
CREATE INDEX execution_begun_of ON execution (tenant, state, id) WHERE state = 5 AND worker IS NULL;
