-- What a test database has beside the schema: a clock that a test can set, and a way back to how
-- it was after migration. Deleting the few rows of a test is ten times faster than a new database.

CREATE SCHEMA daybell_test;

CREATE TABLE daybell_test.clock (now float8 NOT NULL);
INSERT INTO daybell_test.clock VALUES (1773230400);  -- START of stores.py
CREATE OR REPLACE FUNCTION daybell.now() RETURNS float8 LANGUAGE sql VOLATILE
  AS 'SELECT now FROM daybell_test.clock';

-- The migration has made the days from today on.
SELECT daybell.drop_days(parent, 'infinity') FROM unnest(ARRAY['history', 'attempt', 'log']) parent;
SELECT daybell.make_days(3);

CREATE VIEW daybell_test.present AS
  SELECT oid, relname FROM pg_class WHERE relnamespace = 'daybell'::regnamespace AND relkind = 'r';
CREATE TABLE daybell_test.expected AS SELECT relname FROM daybell_test.present;

-- Rows that a migration has put there: they come back. The statements that see to it are written
-- out, so that a session which stays plans them once.
DO $$
DECLARE
  name text;
  is_empty boolean;
  undo text := '';
BEGIN
  FOR name IN SELECT relname FROM daybell_test.present LOOP
    undo := undo || format(
      'IF pg_relation_size(%L::regclass) > 1000000 THEN TRUNCATE daybell.%I; ELSE DELETE FROM daybell.%I; END IF; ',
      'daybell.' || quote_ident(name), name, name);
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM daybell.%I)', name) INTO is_empty;
    IF NOT is_empty THEN
      EXECUTE format('CREATE TABLE daybell_test.%I AS TABLE daybell.%I', 'saved_' || name, name);
      undo := undo || format(
        'INSERT INTO daybell.%I OVERRIDING SYSTEM VALUE SELECT * FROM daybell_test.%I; ',
        name, 'saved_' || name);
    END IF;
  END LOOP;
  EXECUTE format('CREATE FUNCTION daybell_test.undo() RETURNS void LANGUAGE plpgsql AS %L',
                 'BEGIN ' || undo || 'END');
END $$;

-- False: the tables are not those that were migrated (a day was made or dropped), so it is no use.
CREATE FUNCTION daybell_test.reset() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT relname FROM daybell_test.present EXCEPT SELECT relname FROM daybell_test.expected)
    OR EXISTS (SELECT relname FROM daybell_test.expected EXCEPT SELECT relname FROM daybell_test.present)
  THEN
    RETURN false;
  END IF;
  PERFORM daybell_test.undo();
  RETURN true;
END $$;
