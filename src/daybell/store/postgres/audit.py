"""The audit log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from daybell.core.audit import ALL_ENTRIES, Entry, EntryFilter, Head, Link, NewEntry, Stretch
from daybell.core.view import Page, bytes_of, cut_page
from daybell.store import checks, recording
from daybell.store.postgres.columns import within_page
from daybell.store.postgres.connection import Row
from daybell.store.postgres.gates import Connected
from daybell.store.postgres.recorded import record


class Auditing(Connected):
    """Who did what."""

    def auditing(self, tenant: str, entry: NewEntry) -> AbstractContextManager[None]:
        return recording.auditing(self.db, tenant, entry)

    async def write_audit(self, tenant: str, entries: Sequence[NewEntry]) -> None:
        for entry in entries:
            checks.check_entry(entry)
        async with self.db.link() as link:
            await record(link, await self.names.tenant(link, tenant), entries)

    # The planner cannot know how many entries an actor has; in this order it reads from the newest
    # on until the page is full. `+ 0` keeps it from finding one entry among all of a tenant's.
    LIST_AUDIT = within_page(
        """
    SELECT a.id, a.at, a.actor, a.action, a.target, a.before, a.after, a.source
      FROM daybell.audit a
     WHERE a.tenant = $1
       AND ($2::text IS NULL OR a.actor = $2)
       AND ($3::text IS NULL OR $3 IN (a.action, split_part(a.action, '.', 1)))
       AND ($4::text IS NULL OR a.target = $4)
       AND a.at >= coalesce($5::float8, '-infinity') AND a.at < coalesce($6::float8, 'infinity')
       AND ($7::uuid IS NULL
            OR (a.at, a.id) < (SELECT b.at, b.id FROM daybell.audit b
                                WHERE b.id = $7 AND b.tenant + 0 = $1))
     ORDER BY a.at DESC, a.id DESC LIMIT $8
    """,
        "coalesce(octet_length(before), 0) + coalesce(octet_length(after), 0)",
        "at DESC, id DESC",
    )

    async def list_audit(
        self,
        tenant: str,
        where: EntryFilter = ALL_ENTRIES,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Entry]:
        checks.check_limit(limit)
        last = checks.check_cursor(cursor)
        wanted = (where.actor, where.action, where.target, where.since, where.until)
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            rows = await link.fetch(self.LIST_AUDIT, owner, *wanted, last, limit + 1)
        columns = ({k: v for k, v in row.items() if k != "bytes_before"} for row in rows)
        found = (Entry(tenant=tenant, **one) for one in columns)
        return cut_page(
            found,
            limit,
            size=lambda one: bytes_of(one.before, one.after),
            cursor=lambda one: str(one.id),
        )

    # One statement, so that the head and the entries are of one snapshot.
    READ_CHAIN = """
    SELECT t.name AS tenant, h.number AS head, h.hash AS head_hash, h.removed, h.anchor, a.*
      FROM daybell.tenant t
      LEFT JOIN daybell.audit_head h ON h.tenant = t.key
      LEFT JOIN LATERAL (
        SELECT a.number, a.hash, a.id, a.at, a.actor, a.action, a.target, a.before, a.after,
               a.source
          FROM daybell.audit a WHERE a.tenant = $1 AND a.number > $2
         ORDER BY a.number NULLS FIRST LIMIT $3) a ON true
     WHERE t.key = $1 ORDER BY a.number
    """
    # Younger than the chain is what was inserted while its trigger was disabled.
    UNCHAINED = """
    SELECT count(*) AS unchained, min(a.id::text) FILTER (WHERE a.at >= h.since)::uuid AS stray
      FROM daybell.audit a LEFT JOIN daybell.audit_head h ON h.tenant = a.tenant
     WHERE a.tenant = $1 AND a.number IS NULL
    """

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> Stretch:
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            older = None if after else await link.fetchrow(self.UNCHAINED, owner)
            rows = await link.fetch(self.READ_CHAIN, owner, after, limit)
        first = rows[0]
        head = Head()
        if first["head"] is not None:
            head = Head(
                number=first["head"],
                hash=first["head_hash"],
                removed=first["removed"],
                anchor=first["anchor"],
            )
        return Stretch(
            head=head,
            links=tuple(_link(row) for row in rows if row["number"] is not None),
            **({} if older is None else dict(older)),
        )


def _link(row: Row) -> Link:
    fields = ("tenant", "id", "at", "actor", "action", "target", "before", "after", "source")
    entry = Entry(**{field: row[field] for field in fields})
    return Link(number=row["number"], hash=row["hash"] or b"", entry=entry)
