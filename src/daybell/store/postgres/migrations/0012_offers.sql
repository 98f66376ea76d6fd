-- compatible
--
-- Workers say which tasks their code has, as JSON: the queue that each is meant for, by name. NULL
-- where a worker of an earlier version does not say.

ALTER TABLE daybell.worker ADD tasks text;
