"""What one node does for all: retention, and a look at the database's own state."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.core.instant import Instant
from daybell.core.limits import EVENT_SECONDS_KEPT, REPEAT_SECONDS_KEPT
from daybell.core.view import Check, Health, Removed, Retention
from daybell.core.worker import WorkerState
from daybell.errors import SchemaError, Unavailable
from daybell.store.checks import KEY_KEPT_SECONDS, MINUTE_KEPT_SECONDS
from daybell.store.codes import WORKER_CODES
from daybell.store.migrate import Applied, Migration, check, known_migrations, pending
from daybell.store.postgres.connection import Link
from daybell.store.postgres.forgetting import Forgetting
from daybell.store.postgres.leader import Leading
from daybell.store.postgres.sweeping import Sweeping
from daybell.store.postgres.timeouts import Pace
from daybell.store.postgres.words import FILLED_MAX, Wording
from daybell.store.wakeups import pause

REMOVED_ROWS_MAX: Final = 10_000
DAYS_AHEAD: Final = 3
MIGRATIONS: Final = "daybell.store.postgres"
MIGRATE_LOCK_SECONDS: Final = 2
MIGRATE_PAUSE_SECONDS: Final = 1.0
MIGRATE_TRIES: Final = 20
IN_THE_WAY: Final = (
    "a transaction of others keeps a table of Daybell from being changed, and nothing was; see"
    " pg_stat_activity for an old one (a dump, a forgotten psql), let it end and migrate again"
)
DEAD: Final = WORKER_CODES[WorkerState.DEAD]
# What this program reads and writes by name. A newer schema may have more, which it can do without.
TABLES: Final = (
    "agenda", "api_key", "attempt", "attempt_rest", "dead", "event", "event_key", "gate", "history",
    "history_rest", "idempotency", "job", "job_version", "lane", "leader", "lease", "live", "log",
    "log_rest", "node", "parked", "paused_queue", "repeated", "run", "schedule", "secret", "step",
    "template", "tenant", "tenant_minute", "tick", "wait", "watch", "worker",
)  # fmt: skip
READ_ONLY: Final = ("audit", "audit_head")  # functions write them
FUNCTIONS: Final = (
    "charge", "count_enqueued", "drop_audit", "drop_days", "make_days", "now", "record_audit",
    "refuse_repeated", "rest_repeats",
)  # fmt: skip


class Maintaining(Leading, Sweeping, Wording, Forgetting):
    """Retention, schema and health."""

    async def retain(self, policy: Retention) -> Removed:
        with self.db.at_pace(Pace.LONG):
            return await self._retain(policy)

    async def _retain(self, policy: Retention) -> Removed:
        async with self.db.link() as link:
            now: Instant = await link.fetchval("SELECT daybell.now()")
            await link.execute("SELECT daybell.make_days($1)", DAYS_AHEAD)
        before = now - policy.finished
        partitions = 0
        for parent in ("history", "attempt", "log"):
            async with self.db.link() as link:
                partitions += await link.fetchval(
                    "SELECT daybell.drop_days($1, $2)", parent, before
                )
        async with self.db.link() as link:
            executions = await self._remove(link, "history_rest", "finished_at < $1", before)
            attempts = await self._remove(link, "attempt_rest", "ended_at < $1", before)
            parts = await self._remove(link, "log_rest", "written_at < $1", before)
            ticks = await self._remove(link, "tick", "at < $1", now - policy.ticks)
            workers = await self._remove(
                link,
                "worker w",
                f"state = {DEAD} AND renewed_at < $1"
                " AND NOT EXISTS (SELECT FROM daybell.lease l WHERE l.worker = w.id)",
                now - policy.workers,
            )
            others = await self._remove_others(link, now, before)
            steps, has_more_steps = await self.forget_steps(link, before)
        gates = await self.remove_gates(now)
        jobs, has_more_jobs = await self.forget_jobs(before)
        filled = await self.fill_words()
        counts = (executions, attempts, parts, ticks, workers, gates, *others)
        return Removed(
            executions=executions,
            attempts=attempts,
            ticks=ticks,
            workers=workers,
            log_parts=parts,
            gates=gates,
            jobs=jobs,
            partitions=partitions,
            others=sum(others) + steps,
            is_complete=max(counts) < REMOVED_ROWS_MAX
            and filled < FILLED_MAX
            and not has_more_steps
            and not has_more_jobs,
        )

    # Runs end before their executions are removed, and some come back from the dead. As scalars,
    # the subqueries are one probe for each.
    OLD_RUNS = f"""
    SELECT r.id FROM daybell.run r WHERE r.finished_at < $1
       AND (SELECT true FROM daybell.live v WHERE v.id = r.id AND v.tenant + 0 = r.tenant) IS NULL
       AND (SELECT true FROM daybell.dead d WHERE d.id = r.id AND d.tenant + 0 = r.tenant) IS NULL
     ORDER BY r.finished_at LIMIT {REMOVED_ROWS_MAX}
    """

    async def _remove_runs(self, link: Link, before: Instant) -> list[int]:
        """Nodes of old runs, then the runs whose nodes are gone."""
        runs = [row["id"] for row in await link.fetch(self.OLD_RUNS, before)]
        if not runs:
            return []
        nodes = await link.execute(
            "DELETE FROM daybell.node WHERE ctid = ANY(ARRAY(SELECT n.ctid FROM daybell.node n"
            f" WHERE n.run = ANY($1::uuid[]) LIMIT {REMOVED_ROWS_MAX}))",
            runs,
        )
        removed = await link.execute(
            "DELETE FROM daybell.run r WHERE r.id = ANY($1::uuid[])"
            " AND NOT EXISTS (SELECT FROM daybell.node n WHERE n.run = r.id)",
            runs,
        )
        return [int(answer.rpartition(" ")[2]) for answer in (nodes, removed)]

    async def _remove_others(self, link: Link, now: Instant, before: Instant) -> list[int]:
        """What is kept for a time of its own, and what belongs to executions."""
        removed = [
            *await self._remove_runs(link, before),
            await self._remove(link, "idempotency", "at < $1", now - REPEAT_SECONDS_KEPT),
            await self._remove(link, "repeated", "at < $1", now - REPEAT_SECONDS_KEPT),
            await self._remove(
                link, "tenant_minute", "minute * 60 < $1", now - MINUTE_KEPT_SECONDS
            ),
            await self._remove(
                link, "api_key", "least(revoked_at, expires_at) < $1", now - KEY_KEPT_SECONDS
            ),
            await link.fetchval("SELECT daybell.drop_audit($1)", REMOVED_ROWS_MAX),
            # Before the events, so that none is looked for in vain.
            await self._remove(link, "event_key", "received_at < $1", now - EVENT_SECONDS_KEPT),
            await self._remove(link, "event", "received_at < $1", now - EVENT_SECONDS_KEPT),
        ]
        await link.execute("SELECT daybell.rest_repeats()")
        return removed

    async def _remove(self, link: Link, table: str, condition: str, before: Instant) -> int:
        name = table.split()[0]
        answer = await link.execute(
            f"DELETE FROM daybell.{name} WHERE ctid = ANY(ARRAY("
            f"SELECT ctid FROM daybell.{table} WHERE {condition} LIMIT {REMOVED_ROWS_MAX}))",
            before,
        )
        return int(answer.rpartition(" ")[2])

    APPLIED = "SELECT version, name, checksum, is_breaking FROM daybell.migration ORDER BY version"

    async def _applied(self, link: Link) -> list[Applied]:
        exists = await link.fetchval("SELECT to_regclass('daybell.migration') IS NOT NULL")
        if not exists:
            return []
        return [Applied(*row.values()) for row in await link.fetch(self.APPLIED)]

    MISSING_RIGHTS = """
    SELECT current_user AS role, m.verb, m.name FROM (
      SELECT CASE WHEN bool_or(r.word <> 'SELECT') THEN 'write' ELSE 'read' END AS verb, t.name
        FROM unnest($1::text[] || $3::text[]) t(name),
             unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r(word)
       WHERE NOT (t.name = ANY($3::text[]) AND r.word <> 'SELECT')
         AND NOT has_table_privilege('daybell.' || t.name, r.word)
       GROUP BY t.name
      UNION ALL
      SELECT 'call', p.proname FROM pg_proc p
       WHERE p.pronamespace = 'daybell'::regnamespace AND p.proname = ANY($2::text[])
         AND NOT has_function_privilege(p.oid, 'EXECUTE')) m
     ORDER BY m.verb DESC, m.name
    """

    def fits(self) -> str:
        """A condition that holds if this program can work on the schema, and may. If it does not,
        `check_schema` says why.
        """
        known = known_migrations(MIGRATIONS)
        steps = ", ".join(f"({one.version}, '{one.checksum}')" for one in known)
        missing = self.MISSING_RIGHTS
        for number, names in enumerate((TABLES, FUNCTIONS, READ_ONLY), start=1):
            words = ", ".join(f"'{name}'" for name in names)
            missing = missing.replace(f"${number}::text[]", f"ARRAY[{words}]::text[]")
        return f"""NOT EXISTS (
          SELECT FROM daybell.migration m
            FULL JOIN (VALUES {steps}) k(version, checksum) ON k.version = m.version
           WHERE k.checksum IS DISTINCT FROM m.checksum
             AND (k.version IS NOT NULL OR m.is_breaking))
        AND NOT EXISTS ({missing})"""

    async def check_schema(self) -> int:
        """The schema's version, if this program can work on it, and may."""
        async with self.db.link() as link:
            version = check(known_migrations(MIGRATIONS), await self._applied(link))
        async with self.db.link() as link:
            missing = await link.fetch(self.MISSING_RIGHTS, TABLES, FUNCTIONS, READ_ONLY)
        if missing:
            names: dict[str, list[str]] = {}
            for row in missing:
                names.setdefault(row["verb"], []).append(f"daybell.{row['name']}")
            what = " or ".join(f"{verb} {', '.join(some)}" for verb, some in names.items())
            role = missing[0]["role"]
            raise SchemaError(
                f"role {role} may not {what}; run `daybell migrate --grant {shlex.quote(role)}`"
                " as the owner"
            )
        return version

    async def pending_migrations(self) -> tuple[str, ...]:
        await self.db.open()
        async with self.db.link() as link:
            missing = pending(known_migrations(MIGRATIONS), await self._applied(link))
        return tuple(_name(migration) for migration in missing)

    CREATE = """
    CREATE SCHEMA IF NOT EXISTS daybell;
    CREATE TABLE IF NOT EXISTS daybell.migration (
      version      int PRIMARY KEY,
      name         text NOT NULL,
      checksum     text NOT NULL,
      is_breaking  boolean NOT NULL,
      applied_at   timestamptz NOT NULL DEFAULT now()
    )
    """

    RECORD_MIGRATION = """
    INSERT INTO daybell.migration (version, name, checksum, is_breaking) VALUES ($1, $2, $3, $4)
    """

    # A role that may do all with executions and call what only `grant_to` lets it call has its
    # rights from there. Who was given less by hand is not given more here.
    GRANTED = """
    SELECT r.rolname FROM pg_roles r
     WHERE r.oid IN (
             SELECT a.grantee FROM pg_class c, aclexplode(c.relacl) a
              WHERE c.oid = to_regclass('daybell.live') AND a.grantee <> c.relowner
              GROUP BY a.grantee
             HAVING array_agg(a.privilege_type) @> ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'])
       AND r.oid IN (
             SELECT a.grantee FROM pg_proc p, aclexplode(p.proacl) a
              WHERE p.pronamespace = 'daybell'::regnamespace AND p.proname = 'drop_days')
     ORDER BY 1
    """

    GRANTED_ENQUEUE = """
    SELECT DISTINCT r.rolname
      FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
     WHERE p.pronamespace = 'daybell'::regnamespace AND p.proname = 'enqueue'
       AND a.grantee <> p.proowner
     ORDER BY 1
    """

    async def migrate(self) -> tuple[str, ...]:
        """Make the missing steps. Roles that were granted rights have them on what is new, too."""
        await self.db.open()
        known = known_migrations(MIGRATIONS)
        async with self.db.link() as link:
            if not pending(known, await self._applied(link)):
                return ()  # a role without the right to create anything may ask, too
        tries = 0
        while True:
            try:
                return await self._migrate(known)
            except Unavailable as error:
                tries += 1
                if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise
                if tries == MIGRATE_TRIES:
                    raise Unavailable(IN_THE_WAY) from error
            await pause(MIGRATE_PAUSE_SECONDS)

    async def _migrate(self, known: Sequence[Migration]) -> tuple[str, ...]:
        async with self.db.apart(Pace.MIGRATION) as link:
            # A step may take as long as it takes, and others who migrate wait for it here; the
            # lock goes with the transaction, so poolers are fine.
            await link.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
            await link.execute("SELECT pg_advisory_xact_lock(hashtext('daybell.migrate'))")
            # But no step waits long for a table that somebody reads: all who use it would queue up
            # behind, and workers that cannot renew lose their leases.
            await link.execute(f"SET LOCAL lock_timeout = '{MIGRATE_LOCK_SECONDS}s'")
            await link.execute(self.CREATE)
            missing = pending(known, await self._applied(link))
            # Looked up before: a step may replace what the rights were on.
            runners = await link.fetch(self.GRANTED)
            enqueuers = await link.fetch(self.GRANTED_ENQUEUE)
            for migration in missing:
                await link.execute(migration.sql)
                fields = (
                    migration.version,
                    migration.name,
                    migration.checksum,
                    migration.is_breaking,
                )
                await link.execute(self.RECORD_MIGRATION, *fields)
            for row in runners:
                await link.execute("SELECT daybell.grant_to($1)", row["rolname"])
            for row in enqueuers:
                await link.execute("SELECT daybell.grant_enqueue_to($1)", row["rolname"])
        return tuple(_name(migration) for migration in missing)

    async def grant(self, role: str) -> None:
        """Give a role the rights that running needs, and none to change the schema."""
        async with self.db.link() as link:
            await link.execute("SELECT daybell.grant_to($1)", role)

    HEALTH = """
    SELECT daybell.now() AS now, current_setting('server_version') AS version,
           current_setting('fsync') AS fsync,
           current_setting('full_page_writes') AS full_page_writes,
           current_setting('synchronous_commit') AS synchronous_commit,
           current_setting('server_version_num')::int AS number,
           (SELECT count(*) FROM (SELECT FROM daybell.history_rest LIMIT 1000) r) AS unplaced,
           (SELECT max(date_part('epoch', clock_timestamp() - xact_start)) FROM pg_stat_activity
             WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
               AND backend_type = 'client backend') AS oldest
    """

    async def check_writable(self) -> None:
        # Room that runs out needs no write to be found: a server that cannot write its log stops.
        async with self.db.link() as link:
            if await link.fetchval("SELECT current_setting('transaction_read_only')") == "on":
                raise asyncpg.ReadOnlySQLTransactionError("the server takes no writes")

    async def health(self) -> Health:
        schema = await self.check_schema()
        async with self.db.link() as link:
            row = await link.fetchrow(self.HEALTH)
        assert row is not None
        lossy = [
            f"{name} = {row[name]}"
            for name in ("fsync", "full_page_writes", "synchronous_commit")
            if row[name] == "off"
        ]
        oldest = row["oldest"] or 0.0
        checks = (
            Check(name="schema", is_ok=True, found=f"version {schema}"),
            Check(
                name="server version",
                is_ok=row["number"] >= 150000,
                found=f"PostgreSQL {row['version']}",
                advice="Daybell is made for PostgreSQL 15 and later",
            ),
            Check(
                name="durability",
                is_ok=not lossy,
                found=", ".join(lossy) or "every commit is on disk before it is answered",
                advice="a crash can lose acknowledged work; turn these on in postgresql.conf",
            ),
            Check(
                name="old transactions",
                is_ok=oldest < 600,
                found=f"the oldest open transaction is {oldest:.0f} s old",
                advice="it keeps dead rows from being cleaned away; see pg_stat_activity",
            ),
            Check(
                name="partitions",
                is_ok=row["unplaced"] == 0,
                found=f"{row['unplaced']} finished executions outside the day partitions",
                advice="days were not prepared in time; a running scheduler puts this right",
            ),
            Check(
                name="pooler",
                is_ok=True,
                found="a pooler in transaction mode, so polling"
                if self.db.is_pooled
                else "a pooler in session mode"
                if self.db.is_session_pooled
                else "direct connection",
            ),
        )
        return Health(
            product=f"PostgreSQL {row['version']}", now=row["now"], schema=schema, checks=checks
        )


def _name(migration: Migration) -> str:
    return f"{migration.version:04}_{migration.name}"
