-- compatible
-- How long the executions of a tenant are kept, as JSON of `core.options.Keep`; NULL: as the cluster says.
ALTER TABLE daybell.tenant ADD COLUMN keep text;
