"""Keys, tenants, idempotent requests, the audit log, secrets, records by name, and incidents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from msgspec.structs import asdict

from daybell.core import checks
from daybell.core.access import (
    ALL_ENTRIES,
    NO_QUOTAS,
    SESSIONS_MAX,
    AuditEntry,
    AuditFilter,
    ChainHead,
    ChainLink,
    ChainSegment,
    Key,
    KeyKind,
    NewAuditEntry,
    NewKey,
    NewRequest,
    NewSecret,
    NewSession,
    Quotas,
    Request,
    Role,
    SealedSecret,
    Secret,
    Tenant,
    read_hook,
    read_scope,
    write_hook,
    write_scope,
)
from daybell.core.alerts.incidents import (
    INCIDENT_SECONDS_KEPT,
    OPEN_MAX,
    AlertWork,
    Incident,
    IncidentMove,
    MoveKind,
)
from daybell.core.alerts.rules import ALERT_RULES
from daybell.core.job import NewT, RecordKind, StoredT, version_conflict
from daybell.core.limits import REPEAT_SECONDS_KEPT, check_name
from daybell.core.options import Keep
from daybell.core.references import check_secret_name
from daybell.core.subscription import (
    OUTBOX_BATCH_MAX,
    SUBSCRIPTIONS,
    Dispatch,
    OutboxWork,
    OutgoingEvent,
    place_behind,
)
from daybell.core.units import Instant, Seconds
from daybell.core.views import Page, bytes_of, cut_page
from daybell.errors import (
    DuplicateKey,
    NotFound,
    SecretNotFound,
    TenantNotFound,
    shown,
)
from daybell.store.codec import RECORD_COLUMNS
from daybell.store.postgres.catalog import launch_if, read_job
from daybell.store.postgres.connection import SNAPSHOT, Link, Row, record_entries
from daybell.store.postgres.context import StoreContext, Tx
from daybell.store.postgres.names import read_quotas, within_page

# LIMIT keeps the planner from a hash join that reads all keys.
KEYS = """
    SELECT k.id, t.name AS tenant, k.name, k.role, k.hint, k.kind, k.parent, k.created_at,
           k.created_by, least(k.expires_at, p.expires_at) AS expires_at, k.used_at,
           coalesce(k.revoked_at, p.revoked_at) AS revoked_at, k.scope, k.hook, daybell.now() AS now
      FROM daybell.api_key k JOIN daybell.tenant t ON t.key = k.tenant
      LEFT JOIN LATERAL (
        SELECT expires_at, revoked_at FROM daybell.api_key
         WHERE id = k.parent AND tenant = k.tenant LIMIT 1) p ON true"""
TENANT_COLUMNS = "name, created_at, jobs_max, queued_max, per_minute_max, running_max, keep, weight"
TENANTS = f"SELECT {TENANT_COLUMNS} FROM daybell.tenant"


ADD_KEY: Final = """
    INSERT INTO daybell.api_key (tenant, id, digest, kind, parent, role, scope, name, hint,
                                 created_by, hook, created_at, expires_at)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $12, now, now + $11::float8
      FROM daybell.now() t(now)
    ON CONFLICT DO NOTHING
    """
ONE_KEY: Final = f"{KEYS} WHERE k.tenant = $1 AND k.id = $2"


async def add_key(pg: StoreContext, tenant: str, key: NewKey) -> Key:
    checks.check_new_key(key)
    async with pg.db.transaction() as link:
        return await _insert_key(link, await pg.names.tenant(link, tenant), key)


async def _insert_key(link: Link, owner: int, key: NewKey) -> Key:
    about = (
        key.id,
        key.digest,
        key.kind,
        key.parent,
        key.role,
        write_scope(key.scope),
        key.name,
        key.hint,
        key.created_by,
    )
    await link.execute(ADD_KEY, owner, *about, key.expires_in, write_hook(key.hook))
    row = await link.fetchrow(ONE_KEY, owner, key.id)
    if row is None:
        raise DuplicateKey("this token is that of another key already; make a new one")
    return _key(row)


# Two uses of one link at the same time run one after the other; the second finds no link.
OPENER: Final = f"{KEYS} WHERE k.tenant = $1 AND k.digest = $2 FOR UPDATE OF k"
USE_UP: Final = "DELETE FROM daybell.api_key WHERE tenant = $1 AND id = $2 AND kind = 'login'"
# Sessions and links of a revoked key are removed when their own time is over.
FORGET_ENDED: Final = """
    DELETE FROM daybell.api_key
     WHERE tenant = $1 AND kind IN ('session', 'login')
       AND (revoked_at IS NOT NULL OR expires_at <= daybell.now())
    """
END_OLDEST: Final = """
    DELETE FROM daybell.api_key
     WHERE tenant = $1 AND kind = 'session' AND parent IS NOT DISTINCT FROM $2 AND id NOT IN (
       SELECT id FROM daybell.api_key
        WHERE tenant = $1 AND kind = 'session' AND parent IS NOT DISTINCT FROM $2
        ORDER BY id DESC LIMIT $3)
    """


async def add_session(pg: StoreContext, tenant: str, digest: bytes, session: NewSession) -> Key:
    async with pg.db.transaction() as link:
        owner = await pg.names.tenant(link, tenant)
        row = await link.fetchrow(OPENER, owner, digest)
        opener = None if row is None else _key(row)
        new = None if row is None or opener is None else opener.open_session(session, row["now"])
        if opener is None or new is None:
            raise checks.opens_no_session()
        await link.execute(USE_UP, owner, opener.id)
        await link.execute(FORGET_ENDED, owner)
        made = await _insert_key(link, owner, new)
        await link.execute(END_OLDEST, owner, new.parent, SESSIONS_MAX)
    return made


FIND_KEY: Final = f"{KEYS} WHERE k.digest = $1"


async def find_key(pg: StoreContext, digest: bytes) -> tuple[Key, Instant] | None:
    async with pg.db.link() as link:
        row = await link.fetchrow(FIND_KEY, digest)
    return None if row is None else (_key(row), row["now"])


HAS_KEYS: Final = """
    SELECT EXISTS (SELECT FROM daybell.api_key
                    WHERE kind = 'key' AND revoked_at IS NULL
                      AND (expires_at IS NULL OR expires_at > (SELECT daybell.now())))
    """


async def has_keys(pg: StoreContext) -> bool:
    async with pg.db.link() as link:
        return await link.fetchval(HAS_KEYS)


async def list_keys(pg: StoreContext, tenant: str) -> list[Key]:
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        rows = await link.fetch(f"{KEYS} WHERE k.tenant = $1 ORDER BY k.id DESC", owner)
    return [_key(row) for row in rows]


REVOKE: Final = """
    UPDATE daybell.api_key SET revoked_at = daybell.now()
     WHERE tenant = $1 AND id = $2 AND revoked_at IS NULL
    """


END_AT: Final = """
    UPDATE daybell.api_key SET expires_at = least(expires_at, daybell.now() + $3::float8)
     WHERE tenant = $1 AND id = $2
    """


async def revoke_key(pg: StoreContext, tenant: str, id: UUID, *, after: Seconds = 0.0) -> Key:
    async with pg.db.transaction() as link:
        owner = await pg.names.tenant(link, tenant)
        if after:
            await link.execute(END_AT, owner, id, after)
        else:
            await link.execute(REVOKE, owner, id)
        row = await link.fetchrow(ONE_KEY, owner, id)
    if row is None:
        raise NotFound(f"no key {id}")
    return _key(row)


# Lock in one order, so that two writers of the same keys do not wait for each other.
TOUCH: Final = """
    WITH k AS MATERIALIZED (
      SELECT k.id, k.tenant, daybell.now() - u.age AS at
        FROM daybell.api_key k JOIN unnest($1::uuid[], $2::float8[]) u(id, age) ON u.id = k.id
       ORDER BY k.id, k.tenant FOR NO KEY UPDATE OF k)
    UPDATE daybell.api_key a SET used_at = greatest(a.used_at, k.at)
      FROM k WHERE a.id = k.id AND a.tenant = k.tenant
    """


async def touch_keys(pg: StoreContext, used: Mapping[UUID, Seconds]) -> None:
    async with pg.db.link() as link:
        await link.execute(TOUCH, list(used), list(used.values()))


ADD_TENANT: Final = f"""
    INSERT INTO daybell.tenant (name, jobs_max, queued_max, per_minute_max, running_max)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING {TENANT_COLUMNS}
    """


async def add_tenant(pg: StoreContext, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
    checks.check_quotas(asdict(quotas))
    limits = (quotas.jobs, quotas.queued, quotas.per_minute, quotas.running)
    async with pg.db.link() as link:
        checked = check_name(name, what="tenant")
        row = await link.fetchrow(ADD_TENANT, checked, *limits)
        if row is None:
            raise checks.duplicate_tenant(name)  # in here: a refused tenant is not on record
    return _tenant(row)


async def get_tenant(pg: StoreContext, name: str) -> Tenant:
    async with pg.db.link() as link:
        row = await link.fetchrow(f"{TENANTS} WHERE name = $1", name)
    if row is None:
        raise TenantNotFound(f"no tenant named {shown(name)}")
    return _tenant(row)


async def list_tenants(pg: StoreContext) -> list[Tenant]:
    async with pg.db.link() as link:
        return [_tenant(row) for row in await link.fetch(f"{TENANTS} ORDER BY name")]


# A tenant that has this quota already is not written, and nothing of it is on record.
SET_QUOTA: Final = """
    UPDATE daybell.tenant SET {0} = $2 WHERE key = $1 AND {0} IS DISTINCT FROM $2
    """


SET_KEEP: Final = """
    UPDATE daybell.tenant SET keep = $2 WHERE key = $1 AND keep IS DISTINCT FROM $2
    """


SET_WEIGHT: Final = """
    UPDATE daybell.tenant SET weight = $2 WHERE key = $1 AND weight <> $2
    """


async def set_quotas(
    pg: StoreContext,
    tenant: str,
    *,
    keep: Keep | None = None,
    weight: float | None = None,
    **changes: int | None,
) -> Tenant:
    checks.check_quotas(changes)
    checks.check_weight(weight)
    async with pg.db.transaction() as link:
        key = await pg.names.tenant(link, tenant)
        for name, most in changes.items():
            await link.execute(SET_QUOTA.format(f"{name}_max"), key, most)
        if keep is not None:
            await link.execute(SET_KEEP, key, keep.to_json())
        if weight is not None:
            await link.execute(SET_WEIGHT, key, weight)
        row = await link.fetchrow(f"{TENANTS} WHERE key = $1", key)
    pg.names.forget_quotas(key)
    return _tenant(row)


# An old one is taken over as if it had not been there.
BEGIN_REQUEST: Final = f"""
    INSERT INTO daybell.idempotency AS i (tenant, key, id, digest) VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant, key) DO UPDATE
       SET at = excluded.at, id = excluded.id, digest = excluded.digest, status = NULL,
           answer = NULL
     WHERE i.at <= excluded.at - {REPEAT_SECONDS_KEPT}
    """
KNOWN_REQUEST: Final = """
    SELECT key, digest, id, status, answer FROM daybell.idempotency WHERE tenant = $1 AND key = $2
    """


async def begin_request(pg: StoreContext, tenant: str, request: NewRequest) -> Request:
    checks.check_request(request)
    new = (request.key, request.id, request.digest)
    async with pg.db.transaction() as link:
        owner = await pg.names.tenant(link, tenant)
        is_new = await link.execute(BEGIN_REQUEST, owner, *new) == "INSERT 0 1"
        row = await link.fetchrow(KNOWN_REQUEST, owner, request.key)
    assert row is not None, "it was there, or is now"
    return Request(**row, is_new=is_new)


ANSWER_REQUEST: Final = """
    UPDATE daybell.idempotency SET status = $3, answer = $4
     WHERE tenant = $1 AND key = $2 AND status IS NULL
    """


async def answer_request(
    pg: StoreContext, tenant: str, key: str, *, status: int, answer: str
) -> None:
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        await link.execute(ANSWER_REQUEST, owner, key, status, answer)


def _key(row: Row) -> Key:
    return Key(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        role=Role(row["role"]),
        hint=row["hint"],
        kind=KeyKind(row["kind"]),
        parent=row["parent"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        expires_at=row["expires_at"],
        used_at=row["used_at"],
        revoked_at=row["revoked_at"],
        scope=read_scope(row["scope"]),
        hook=read_hook(row["hook"]),
    )


def _tenant(row: Row) -> Tenant:
    quotas, keep = read_quotas(row), Keep.from_json(row["keep"])
    return Tenant(
        name=row["name"],
        created_at=row["created_at"],
        quotas=quotas,
        keep=keep,
        weight=row["weight"],
    )


# The audit log.


async def write_audit(pg: StoreContext, tenant: str, entries: Sequence[NewAuditEntry]) -> None:
    for entry in entries:
        checks.check_entry(entry)
    async with pg.db.link() as link:
        await record_entries(link, await pg.names.tenant(link, tenant), entries)


# The planner cannot know how many entries an actor has; in this order it reads from the newest
# on until the page is full. `+ 0` keeps it from finding one entry among all of a tenant's.
LIST_AUDIT: Final = within_page(
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
    pg: StoreContext,
    tenant: str,
    where: AuditFilter = ALL_ENTRIES,
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[AuditEntry]:
    checks.check_limit(limit)
    last = checks.check_cursor(cursor)
    wanted = (where.actor, where.action, where.target, where.since, where.until)
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        rows = await link.fetch(LIST_AUDIT, owner, *wanted, last, limit + 1)
    columns = ({k: v for k, v in row.items() if k != "bytes_before"} for row in rows)
    found = (AuditEntry(tenant=tenant, **one) for one in columns)
    return cut_page(
        found,
        limit,
        size=lambda one: bytes_of(one.before, one.after),
        cursor=lambda one: str(one.id),
    )


# Use one statement, so that the head and the entries are of one snapshot.
READ_CHAIN: Final = """
    SELECT t.name AS tenant, h.number AS head, h.hash AS head_hash, h.removed, h.anchor, a.*
      FROM daybell.tenant t
      LEFT JOIN daybell.audit_head h ON h.tenant = t.key
      LEFT JOIN LATERAL (
        SELECT a.number, a.hash, a.id, a.at, a.actor, a.action, a.target, a.before, a.after,
               a.source
          FROM daybell.audit a WHERE a.tenant = $1 AND a.number > $2
         ORDER BY a.number LIMIT $3) a ON true
     WHERE t.key = $1 ORDER BY a.number
    """


async def read_audit_chain(
    pg: StoreContext, tenant: str, *, after: int, limit: int
) -> ChainSegment:
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        rows = await link.fetch(READ_CHAIN, owner, after, limit)
    first = rows[0]
    head = ChainHead()
    if first["head"] is not None:
        head = ChainHead(
            number=first["head"],
            hash=first["head_hash"],
            removed=first["removed"],
            anchor=first["anchor"],
        )
    return ChainSegment(
        head=head,
        links=tuple(_link(row) for row in rows if row["number"] is not None),
    )


def _link(row: Row) -> ChainLink:
    fields = ("tenant", "id", "at", "actor", "action", "target", "before", "after", "source")
    entry = AuditEntry(**{field: row[field] for field in fields})
    return ChainLink(number=row["number"], hash=row["hash"], entry=entry)


# Secrets, sealed.

SECRET_COLUMNS = "name, key_id, version, created_at, updated_at, author"


SET_SECRET: Final = f"""
    INSERT INTO daybell.secret AS s (tenant, name, key_id, sealed, author)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (tenant, name) DO UPDATE
       SET version = s.version + 1, key_id = excluded.key_id, sealed = excluded.sealed,
           author = excluded.author, updated_at = excluded.updated_at,
           created_at = CASE s.sealed WHEN '' THEN excluded.created_at ELSE s.created_at END
    RETURNING {SECRET_COLUMNS}
    """


async def set_secret(pg: StoreContext, tenant: str, secret: NewSecret) -> Secret:
    checks.check_secret(secret)
    new = (secret.name, secret.key_id, secret.sealed, secret.author)
    async with pg.db.transaction() as link:
        owner = await pg.names.tenant(link, tenant)
        row = await link.fetchrow(SET_SECRET, owner, *new)
        assert row is not None, "it was there, or is now"
        if secret.version not in (None, at := row["version"]):  # and so nothing is written
            raise version_conflict(secret.name, at=at - 1, expect=secret.version - 1, what="secret")
    return Secret(tenant=tenant, **row)


LIST_SECRETS: Final = f"""
    SELECT {SECRET_COLUMNS} FROM daybell.secret WHERE tenant = $1 AND sealed <> '' ORDER BY name
    """


async def list_secrets(pg: StoreContext, tenant: str) -> list[Secret]:
    async with pg.db.link() as link:
        rows = await link.fetch(LIST_SECRETS, await pg.names.tenant(link, tenant))
    return [Secret(tenant=tenant, **row) for row in rows]


# The row stays, empty, so that versions of the name do not repeat.
DELETE_SECRET: Final = """
    UPDATE daybell.secret SET sealed = '', version = version + 1
     WHERE tenant = $1 AND name = $2 AND sealed <> '' RETURNING version
    """


async def delete_secret(pg: StoreContext, tenant: str, name: str) -> None:
    check_secret_name(name)
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        if await link.fetchval(DELETE_SECRET, owner, name) is None:
            raise SecretNotFound(f"no secret named {shown(name)}")


FETCH_SECRETS: Final = """
    SELECT name, key_id, version, sealed FROM daybell.secret
     WHERE tenant = $1 AND name = ANY($2::text[]) AND sealed <> ''
    """


async def fetch_secrets(
    pg: StoreContext, tenant: str, names: Collection[str]
) -> dict[str, SealedSecret]:
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        rows = await link.fetch(FETCH_SECRETS, owner, checks.secret_names(names))
    return {row["name"]: SealedSecret(**row) for row in rows}


# Records with versions: templates and alert rules.

RECORD_LIST: Final = ", ".join(RECORD_COLUMNS)
ONE_RECORD: Final = f"""
    SELECT {RECORD_LIST} FROM daybell.{{table}} WHERE tenant = $1 AND name = $2
    """
COUNT_RECORDS: Final = "SELECT count(*) FROM daybell.{table} WHERE tenant = $1"
# The update that changes nothing locks the row, whichever transaction created it.
TAKE_RECORD: Final = f"""
    INSERT INTO daybell.{{table}} AS t (tenant, name, version, author, definition)
    VALUES ($1, $2, 0, '', '')
    ON CONFLICT (tenant, name) DO UPDATE SET name = t.name
    RETURNING {RECORD_LIST}
    """
PUT_RECORD: Final = f"""
    UPDATE daybell.{{table}}
       SET version = $3, author = $4, definition = $5, updated_at = daybell.now()
     WHERE tenant = $1 AND name = $2 RETURNING {RECORD_LIST}
    """


async def put_record(
    pg: StoreContext,
    tenant: str,
    kind: RecordKind[NewT, StoredT],
    new: NewT,
    *,
    author: str = "",
    expect: int | None = None,
) -> StoredT:
    text, name, table = checks.check_record(kind, new, author), new.name, kind.table
    async with pg.db.transaction() as link:
        owner = await pg.names.tenant(link, tenant)
        row: Row = await link.fetchrow(TAKE_RECORD.format(table=table), owner, name)
        at = row["version"]
        kept = row["definition"] if at else None
        version = kind.next_version(name, at=at, kept=kept, text=text, expect=expect)
        if version == at:
            pg.db.skip_entry()
        else:
            if not at:  # the row that was taken counts
                kind.check_count(await link.fetchval(COUNT_RECORDS.format(table=table), owner) - 1)
            put = PUT_RECORD.format(table=table)
            row = await link.fetchrow(put, owner, name, version, author, text)
    return kind.stored(tenant, *row)


async def get_record(
    pg: StoreContext, tenant: str, kind: RecordKind[Any, StoredT], name: str
) -> StoredT:
    check_name(name, what=kind.what)
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        row: Row = await link.fetchrow(ONE_RECORD.format(table=kind.table), owner, name)
    if row is None:
        raise kind.missing(name)
    return kind.stored(tenant, *row)


LIST_RECORDS: Final = within_page(
    f"""SELECT {RECORD_LIST} FROM daybell.{{table}}
         WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3""",
    "octet_length(definition)",
    "name",
)


async def list_records(
    pg: StoreContext,
    tenant: str,
    kind: RecordKind[Any, StoredT],
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[StoredT]:
    checks.check_limit(limit)
    after = checks.check_name_cursor(cursor)
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        rows = await link.fetch(LIST_RECORDS.format(table=kind.table), owner, after, limit + 1)
    page = cut_page(
        rows,
        limit,
        size=lambda row: bytes_of(row["definition"]),
        cursor=lambda row: row["name"],
    )
    return Page(
        items=tuple(
            kind.stored(tenant, *(row[column] for column in RECORD_COLUMNS)) for row in page.items
        ),
        next_cursor=page.next_cursor,
    )


DELETE_RECORD: Final = """
    DELETE FROM daybell.{table}
     WHERE tenant = $1 AND name = $2 AND version = coalesce($3, version) RETURNING version
    """


async def delete_record(
    pg: StoreContext,
    tenant: str,
    kind: RecordKind[Any, Any],
    name: str,
    *,
    expect: int | None = None,
) -> None:
    check_name(name, what=kind.what)
    table = kind.table
    async with pg.db.transaction() as link:
        owner = await pg.names.tenant(link, tenant)
        if await link.fetchval(DELETE_RECORD.format(table=table), owner, name, expect) is not None:
            return
        row: Row = await link.fetchrow(ONE_RECORD.format(table=table), owner, name)
        if row is None or expect is None:
            raise kind.missing(name)
        raise kind.conflict(name, at=row["version"], expect=expect)


# Incidents.

INCIDENTS: Final = """
    SELECT i.id, t.name AS tenant, i.rule, i.subject, i.detail, i.mark, i.version, i.opened_at,
           i.notified_at, i.closed_at, i.acknowledged_at, i.acknowledged_by
      FROM daybell.incident i JOIN daybell.tenant t ON t.key = i.tenant"""
ALL_RULES: Final = f"""
    SELECT t.name AS tenant, r.{", r.".join(RECORD_COLUMNS)}
      FROM daybell.alert_rule r JOIN daybell.tenant t ON t.key = r.tenant
     ORDER BY r.tenant, r.name
    """
NOTIFYING_JOBS: Final = """
    SELECT t.name AS tenant, j.id, j.name, j.version AS current, v.version, v.definition, v.author,
           v.created_at, j.paused_at, j.pause_note
      FROM daybell.job_version v
      JOIN daybell.job j ON j.key = v.job AND j.version = v.version
      JOIN daybell.tenant t ON t.key = j.tenant
     WHERE strpos(v.definition, '"notifications":[{') > 0 AND j.deleted_at IS NULL
    """


async def alert_work(pg: StoreContext) -> AlertWork:
    async with pg.db.transaction(SNAPSHOT) as link:
        now = await link.fetchval("SELECT daybell.now()")
        rules = await link.fetch(ALL_RULES)
        jobs = await link.fetch(NOTIFYING_JOBS)
        incidents = await link.fetch(f"{INCIDENTS} WHERE i.closed_at IS NULL LIMIT $1", OPEN_MAX)
    return AlertWork(
        now=now,
        rules=tuple(ALERT_RULES.stored(*row) for row in rules),
        jobs=tuple(read_job(row, row["tenant"]) for row in jobs),
        incidents=tuple(Incident(**row) for row in incidents),
    )


LIST_INCIDENTS: Final = f"""{INCIDENTS}
     WHERE i.tenant = $1 AND ($2::text IS NULL OR i.rule = $2)
       AND ($3::bool IS NULL OR (i.closed_at IS NULL) = $3)
       AND ($4::uuid IS NULL OR i.id < $4)
     ORDER BY i.id DESC LIMIT $5
    """


async def list_incidents(
    pg: StoreContext,
    tenant: str,
    *,
    rule: str | None = None,
    is_open: bool | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[Incident]:
    checks.check_limit(limit)
    last = checks.check_cursor(cursor)
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        rows = await link.fetch(LIST_INCIDENTS, owner, rule, is_open, last, limit + 1)
    return cut_page(
        (Incident(**row) for row in rows),
        limit,
        size=lambda one: bytes_of(one.detail, one.subject),
        cursor=lambda one: str(one.id),
    )


# Both kinds of opening; an event is closed at once.
OPEN_INCIDENT: Final = """
    INSERT INTO daybell.incident (tenant, id, is_event, opened_at, notified_at, closed_at, rule,
                                  subject, mark, detail)
    SELECT $1, $2, $3, now, CASE WHEN $4 THEN now END, CASE WHEN $3 THEN now END, $5, $6, $7, $8
      FROM daybell.now() t(now)
     WHERE $3 OR NOT EXISTS (SELECT FROM daybell.incident o
                              WHERE o.tenant = $1 AND o.rule = $5 AND o.subject = $6
                                AND o.closed_at >= $9)
        ON CONFLICT DO NOTHING RETURNING 1
    """
MOVE_INCIDENT: Final = """
    UPDATE daybell.incident
       SET version = version + 1, mark = $4, detail = $5,
           notified_at = CASE WHEN $6 THEN now ELSE notified_at END,
           closed_at = CASE WHEN $7 = 'close' THEN now END,
           acknowledged_at = CASE WHEN $7 = 'acknowledge' THEN now ELSE acknowledged_at END,
           acknowledged_by = CASE WHEN $7 = 'acknowledge' THEN $8 ELSE acknowledged_by END
      FROM daybell.now() t(now)
     WHERE tenant = $1 AND id = $2 AND version = $3 AND closed_at IS NULL RETURNING 1
    """
BEAT: Final = """
    INSERT INTO daybell.incident AS i (tenant, id, is_event, opened_at, notified_at, closed_at,
                                       rule, subject, mark, detail)
    SELECT $1, $2, true, now, now, now, $3, $4, '', '' FROM daybell.now() t(now)
        ON CONFLICT (tenant, rule, subject, mark) WHERE is_event DO UPDATE
       SET version = i.version + 1, notified_at = excluded.notified_at,
           closed_at = excluded.closed_at
     WHERE i.notified_at < $5 RETURNING 1
    """
FORGET_INCIDENTS: Final = """
    DELETE FROM daybell.incident WHERE (tenant, id) IN (
      SELECT tenant, id FROM daybell.incident WHERE closed_at < daybell.now() - $1::float8
       LIMIT 100 FOR UPDATE SKIP LOCKED)
    """


async def move_incident(pg: StoreContext, tenant: str, move: IncidentMove) -> bool:
    if move.messages:
        made = await launch_if(
            pg, tenant, lambda tx, owner: _move(tx, owner, move), move.jobs, move.messages
        )
        return made is not None
    async with pg.transaction() as tx:
        return await _move(tx, await pg.names.tenant(tx, tenant), move)


async def _move(tx: Tx, owner: int, move: IncidentMove) -> bool:
    """Make a move in a transaction, without its message."""
    is_told = bool(move.messages)
    if move.kind is MoveKind.BEAT:
        return bool(await tx.fetchval(BEAT, owner, move.id, move.rule, move.subject, move.read_at))
    if move.kind in (MoveKind.OPEN, MoveKind.RECORD):
        is_event = move.kind is MoveKind.RECORD
        about = (move.rule, move.subject, move.mark, move.detail, move.read_at)
        await tx.execute(FORGET_INCIDENTS, INCIDENT_SECONDS_KEPT)
        return bool(await tx.fetchval(OPEN_INCIDENT, owner, move.id, is_event, is_told, *about))
    news = (move.mark, move.detail, is_told, str(move.kind), move.by)
    return bool(await tx.fetchval(MOVE_INCIDENT, owner, move.id, move.version, *news))


# Outgoing events.

EVENTS: Final = """
    SELECT o.number, t.name AS tenant, o.type, o.at, o.job, o.queue, o.execution, o.attempt, o.data
      FROM daybell.outbox o JOIN daybell.tenant t ON t.key = o.tenant ORDER BY o.number LIMIT $1
    """
ALL_SUBSCRIPTIONS: Final = ALL_RULES.replace("alert_rule", "subscription")


async def outbox_work(pg: StoreContext) -> OutboxWork:
    async with pg.db.link() as link:
        rows = await link.fetch(EVENTS, OUTBOX_BATCH_MAX)
        if not rows:
            return OutboxWork()
        subscriptions = await link.fetch(ALL_SUBSCRIPTIONS)
    return OutboxWork(
        events=tuple(OutgoingEvent(**row) for row in rows),
        subscriptions=tuple(SUBSCRIPTIONS.stored(*row) for row in subscriptions),
    )


# In the order of the numbers, so that two processes that take the same events wait for each other.
TAKE_OUT: Final = """
    WITH o AS MATERIALIZED (
      SELECT number FROM daybell.outbox WHERE tenant + 0 = $1 AND number = ANY($2::bigint[])
       ORDER BY number FOR UPDATE)
    DELETE FROM daybell.outbox WHERE number = ANY(ARRAY(SELECT number FROM o)) RETURNING 1
    """
LAST_WAITING: Final = """
    SELECT gate, max(run_at) FROM daybell.parked
     WHERE tenant = $1 AND gate = ANY($2::text[]) GROUP BY gate
    """


async def dispatch(pg: StoreContext, wanted: Dispatch) -> bool:
    async def take(tx: Tx, owner: int) -> bool:
        taken = await tx.fetch(TAKE_OUT, owner, list(wanted.numbers))
        return len(taken) == len(wanted.numbers)

    # A dispatch of earlier events is committed by now, or these ones are refused.
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, wanted.tenant)
        gates = [one.gate for one in wanted.executions if one.gate is not None]
        last = dict(await link.fetch(LAST_WAITING, owner, gates))
    deliveries = place_behind(wanted.executions, last)
    made = await launch_if(pg, wanted.tenant, take, wanted.jobs, deliveries, is_refused=False)
    return made is not None
