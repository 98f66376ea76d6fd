-- compatible
--
-- Lists of what waits for its next try are read in the order of ids. Takes a lock against writes of `live` while the
-- table is read once, about a second for two million rows.

DROP INDEX daybell.live_retrying;
CREATE INDEX live_retrying ON daybell.live (tenant, id) WHERE state = 3;
