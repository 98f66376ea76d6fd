"""Keys, tenants, idempotent requests, the audit log, secrets, records by name, and incidents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec
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
from daybell.store.sqlite.catalog import launch_all, read_job
from daybell.store.sqlite.transaction import Transaction, read_head

# Selects the columns that `read_key` reads.
_KEYS: Final = """
SELECT k.id, t.name, k.name, k.role, k.hint, k.kind, k.parent, k.created_at, k.created_by,
       min(ifnull(k.expires_at, p.expires_at), ifnull(p.expires_at, k.expires_at)), k.used_at,
       ifnull(k.revoked_at, p.revoked_at), k.scope, k.hook
  FROM api_key k JOIN tenant t ON t.n = k.tenant
  LEFT JOIN api_key p ON p.id = k.parent AND p.tenant = k.tenant
"""
_ADD_KEY: Final = """
INSERT INTO api_key (id, tenant, digest, kind, parent, role, scope, name, hint, created_by, hook,
                     created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_ONE_KEY: Final = f"{_KEYS} WHERE k.tenant = ? AND k.id = ?"


def add_key(tx: Transaction, tenant: str, key: NewKey) -> Key:
    checks.check_new_key(key)
    owner = tx.names.tenant(tx, tenant)
    expires_at = None if key.expires_in is None else tx.now + key.expires_in
    parent = None if key.parent is None else key.parent.bytes
    about = (key.kind, parent, key.role, write_scope(key.scope), key.name, key.hint, key.created_by)
    about = (*about, write_hook(key.hook))
    tx.execute(_ADD_KEY, (key.id.bytes, owner, key.digest, *about, tx.now, expires_at))
    row = tx.execute(_ONE_KEY, (owner, key.id.bytes)).fetchone()
    if row is None:
        raise DuplicateKey("this token is that of another key already; make a new one")
    return read_key(row)


_OPENER: Final = f"{_KEYS} WHERE k.tenant = ? AND k.digest = ?"
_USE_UP: Final = "DELETE FROM api_key WHERE tenant = ? AND id = ? AND kind = 'login'"
# Those of a key that was revoked are forgotten when their own time is over.
_FORGET_ENDED: Final = """
DELETE FROM api_key
 WHERE tenant = ? AND kind IN ('session', 'login') AND (revoked_at IS NOT NULL OR expires_at <= ?)
"""
_END_OLDEST: Final = """
DELETE FROM api_key WHERE tenant = ?1 AND kind = 'session' AND parent IS ?2 AND id NOT IN (
  SELECT id FROM api_key WHERE tenant = ?1 AND kind = 'session' AND parent IS ?2
   ORDER BY id DESC LIMIT ?3)
"""


def add_session(tx: Transaction, tenant: str, digest: bytes, session: NewSession) -> Key:
    owner = tx.names.tenant(tx, tenant)
    row = tx.execute(_OPENER, (owner, digest)).fetchone()
    opener = None if row is None else read_key(row)
    new = None if opener is None else opener.open_session(session, tx.now)
    if opener is None or new is None:
        raise checks.opens_no_session()
    tx.execute(_USE_UP, (owner, opener.id.bytes))
    tx.execute(_FORGET_ENDED, (owner, tx.now))
    made = add_key(tx, tenant, new)
    parent = None if new.parent is None else new.parent.bytes
    tx.execute(_END_OLDEST, (owner, parent, SESSIONS_MAX))
    return made


_FIND_KEY: Final = f"{_KEYS} WHERE k.digest = ?"
_HAS_KEYS: Final = """
SELECT 1 FROM api_key
 WHERE kind = 'key' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) LIMIT 1
"""


def has_keys(tx: Transaction) -> bool:
    return tx.execute(_HAS_KEYS, (tx.now,)).fetchone() is not None


_LIST_KEYS: Final = f"{_KEYS} WHERE k.tenant = ? ORDER BY k.id DESC"


def find_key(tx: Transaction, digest: bytes) -> tuple[Key, Instant] | None:
    row = tx.execute(_FIND_KEY, (digest,)).fetchone()
    return None if row is None else (read_key(row), tx.now)


def list_keys(tx: Transaction, tenant: str) -> list[Key]:
    rows = tx.execute(_LIST_KEYS, (tx.names.tenant(tx, tenant),))
    return [read_key(row) for row in rows]


_REVOKE: Final = """
UPDATE api_key SET revoked_at = ? WHERE tenant = ? AND id = ? AND revoked_at IS NULL
"""
_END_AT: Final = """
UPDATE api_key SET expires_at = min(ifnull(expires_at, ?1), ?1) WHERE tenant = ?2 AND id = ?3
"""


def revoke_key(tx: Transaction, tenant: str, id: UUID, *, after: Seconds = 0.0) -> Key:
    owner = tx.names.tenant(tx, tenant)
    tx.execute(_END_AT if after else _REVOKE, (tx.now + after, owner, id.bytes))
    row = tx.execute(_ONE_KEY, (owner, id.bytes)).fetchone()
    if row is None:
        raise NotFound(f"no key {id}")
    return read_key(row)


_TOUCH: Final = "UPDATE api_key SET used_at = max(ifnull(used_at, 0), ?) WHERE id = ?"


def touch_keys(tx: Transaction, used: Mapping[UUID, Seconds]) -> None:
    tx.executemany(_TOUCH, [(tx.now - age, id.bytes) for id, age in used.items()])


def read_key(row: Any) -> Key:
    id, tenant, name, role, hint, kind, parent, created_at, created_by, *times, scope, hook = row
    expires_at, used_at, revoked_at = times
    return Key(
        id=UUID(bytes=id),
        tenant=tenant,
        name=name,
        role=Role(role),
        hint=hint,
        kind=KeyKind(kind),
        parent=None if parent is None else UUID(bytes=parent),
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        used_at=used_at,
        revoked_at=revoked_at,
        hook=read_hook(hook),
        scope=read_scope(scope),
    )


_TENANTS: Final = """
SELECT name, created_at, jobs_max, queued_max, per_minute_max, running_max, keep,
       weight
  FROM tenant
"""


def get_tenant(tx: Transaction, name: str) -> Tenant:
    row = tx.execute(f"{_TENANTS} WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise TenantNotFound(f"no tenant named {shown(name)}")
    return read_tenant(row)


def list_tenants(tx: Transaction) -> list[Tenant]:
    return [read_tenant(row) for row in tx.execute(f"{_TENANTS} ORDER BY name")]


_ADD_TENANT: Final = """
INSERT INTO tenant (name, created_at, jobs_max, queued_max, per_minute_max, running_max)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
# A quota that the tenant has already is not written, and leaves nothing on record.
_SET_QUOTA: Final = "UPDATE tenant SET {0} = ?2 WHERE n = ?1 AND {0} IS NOT ?2"


def add_tenant(tx: Transaction, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
    checks.check_quotas(asdict(quotas))
    check_name(name, what="tenant")
    limits = (quotas.jobs, quotas.queued, quotas.per_minute, quotas.running)
    if tx.execute(_ADD_TENANT, (name, tx.now, *limits)).rowcount == 0:
        raise checks.duplicate_tenant(name)
    return get_tenant(tx, name)


_SET_KEEP: Final = "UPDATE tenant SET keep = ?2 WHERE n = ?1 AND keep IS NOT ?2"


_SET_WEIGHT: Final = "UPDATE tenant SET weight = ?2 WHERE n = ?1 AND weight <> ?2"


def set_quotas(
    tx: Transaction,
    tenant: str,
    *,
    keep: Keep | None = None,
    weight: float | None = None,
    **changes: int | None,
) -> Tenant:
    checks.check_quotas(changes)
    checks.check_weight(weight)
    n = tx.names.tenant(tx, tenant)
    for name, most in changes.items():
        tx.execute(_SET_QUOTA.format(f"{name}_max"), (n, most))
    if keep is not None:
        tx.execute(_SET_KEEP, (n, keep.to_json()))
    if weight is not None:
        tx.execute(_SET_WEIGHT, (n, weight))
    tx.names.quotas_changed()
    return get_tenant(tx, tenant)


def read_tenant(row: Any) -> Tenant:
    name, created_at, jobs, queued, per_minute, running, keep, weight = row
    quotas = Quotas(jobs=jobs, queued=queued, per_minute=per_minute, running=running)
    return Tenant(
        name=name,
        created_at=created_at,
        quotas=quotas,
        keep=Keep.from_json(keep),
        weight=weight,
    )


_FORGET_OLD: Final = "DELETE FROM idempotency WHERE tenant = ? AND key = ? AND at <= ?"
_BEGIN: Final = """
INSERT INTO idempotency (tenant, key, id, digest, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_KNOWN: Final = """
SELECT key, digest, id, status, answer FROM idempotency WHERE tenant = ? AND key = ?
"""


def begin_request(tx: Transaction, tenant: str, request: NewRequest) -> Request:
    checks.check_request(request)
    owner = tx.names.tenant(tx, tenant)
    tx.execute(_FORGET_OLD, (owner, request.key, tx.now - REPEAT_SECONDS_KEPT))
    fields = (owner, request.key, request.id.bytes, request.digest, tx.now)
    is_new = tx.execute(_BEGIN, fields).rowcount == 1
    key, digest, id, status, answer = tx.execute(_KNOWN, (owner, request.key)).fetchone()
    return Request(
        key=key, digest=digest, id=UUID(bytes=id), is_new=is_new, status=status, answer=answer
    )


_ANSWER: Final = """
UPDATE idempotency SET status = ?, answer = ? WHERE tenant = ? AND key = ? AND status IS NULL
"""


def answer_request(tx: Transaction, tenant: str, key: str, *, status: int, answer: str) -> None:
    tx.execute(_ANSWER, (status, answer, tx.names.tenant(tx, tenant), key))


# The audit log.


# Each with the value that it compares with.
_CONDITIONS: Final[tuple[tuple[str, Callable[[AuditFilter], Any]], ...]] = (
    ("actor = ?", lambda where: where.actor),
    ("? IN (action, substr(action, 1, instr(action, '.') - 1))", lambda where: where.action),
    ("target = ?", lambda where: where.target),
    ("at >= ?", lambda where: where.since),
    ("at < ?", lambda where: where.until),
)


def list_audit(
    tx: Transaction,
    tenant: str,
    where: AuditFilter = ALL_ENTRIES,
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[AuditEntry]:
    checks.check_limit(limit)
    last = checks.check_cursor(cursor)
    owner = tx.names.tenant(tx, tenant)
    given = [(condition, value(where)) for condition, value in _CONDITIONS]
    bound = [(condition, value) for condition, value in given if value is not None]
    conditions = ["tenant = ?", *(condition for condition, _ in bound)]
    values: list[Any] = [owner, *(value for _, value in bound)]
    if last is not None:
        conditions.append("(at, id) < (SELECT at, id FROM audit WHERE id = ? AND tenant = ?)")
        values += (last.bytes, owner)
    rows = tx.execute(
        "SELECT id, at, actor, action, target, before, after, source FROM audit"
        f" WHERE {' AND '.join(conditions)} ORDER BY at DESC, id DESC LIMIT ?",
        (*values, limit + 1),
    )
    return cut_page(
        (read_entry(tenant, row) for row in rows),
        limit,
        size=lambda one: bytes_of(one.before, one.after),
        cursor=lambda one: str(one.id),
    )


_STRETCH: Final = """
SELECT number, hash, id, at, actor, action, target, before, after, source FROM audit
 WHERE tenant = ? AND number > ? ORDER BY number LIMIT ?
"""


def read_audit_chain(tx: Transaction, tenant: str, *, after: int, limit: int) -> ChainSegment:
    owner = tx.names.tenant(tx, tenant)
    links = tuple(
        ChainLink(number=number, hash=hash, entry=read_entry(tenant, rest))
        for number, hash, *rest in tx.execute(_STRETCH, (owner, after, limit))
    )
    return ChainSegment(
        head=read_head(tx, owner) or ChainHead(),
        links=links,
    )


def read_entry(tenant: str, row: Any) -> AuditEntry:
    id, at, actor, action, target, before, after, source = row
    return AuditEntry(
        id=UUID(bytes=id),
        tenant=tenant,
        at=at,
        actor=actor,
        action=action,
        target=target,
        before=before,
        after=after,
        source=source,
    )


# Secrets, sealed.


# Selects the columns that `read_secret` reads.
_SECRETS: Final = "SELECT name, key_id, version, created_at, updated_at, author FROM secret"
_SET_SECRET: Final = """
INSERT INTO secret (tenant, name, version, key_id, author, created_at, updated_at, sealed)
VALUES (?1, ?2, 1, ?3, ?4, ?5, ?5, ?6)
ON CONFLICT DO UPDATE SET version = version + 1, key_id = excluded.key_id,
   author = excluded.author, updated_at = excluded.updated_at, sealed = excluded.sealed,
   created_at = iif(sealed = x'', excluded.created_at, created_at)
"""
_SECRET_VERSION: Final = "SELECT version FROM secret WHERE tenant = ? AND name = ?"


def set_secret(tx: Transaction, tenant: str, secret: NewSecret) -> Secret:
    checks.check_secret(secret)
    owner = tx.names.tenant(tx, tenant)
    (at,) = tx.execute(_SECRET_VERSION, (owner, secret.name)).fetchone() or (0,)
    if secret.version not in (None, at + 1):
        raise version_conflict(secret.name, at=at, expect=secret.version - 1, what="secret")
    tx.execute(
        _SET_SECRET, (owner, secret.name, secret.key_id, secret.author, tx.now, secret.sealed)
    )
    row = tx.execute(f"{_SECRETS} WHERE tenant = ? AND name = ?", (owner, secret.name)).fetchone()
    return read_secret(tenant, row)


def list_secrets(tx: Transaction, tenant: str) -> list[Secret]:
    owner = tx.names.tenant(tx, tenant)
    rows = tx.execute(f"{_SECRETS} WHERE tenant = ? AND sealed <> x'' ORDER BY name", (owner,))
    return [read_secret(tenant, row) for row in rows]


# The row stays, empty, so that versions of the name do not repeat.
_DELETE_SECRET: Final = """
UPDATE secret SET sealed = x'', version = version + 1
 WHERE tenant = ? AND name = ? AND sealed <> x''
"""


def delete_secret(tx: Transaction, tenant: str, name: str) -> None:
    check_secret_name(name)
    owner = tx.names.tenant(tx, tenant)
    if tx.execute(_DELETE_SECRET, (owner, name)).rowcount == 0:
        raise SecretNotFound(f"no secret named {shown(name)}")


_FETCH_SECRETS: Final = """
SELECT name, key_id, version, sealed FROM secret
 WHERE tenant = ? AND sealed <> x'' AND name IN (SELECT value FROM json_each(?))
"""


def fetch_secrets(tx: Transaction, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
    wanted = msgspec.json.encode(checks.secret_names(names)).decode()
    rows = tx.execute(_FETCH_SECRETS, (tx.names.tenant(tx, tenant), wanted))
    return {
        name: SealedSecret(name=name, key_id=key_id, version=version, sealed=sealed)
        for name, key_id, version, sealed in rows
    }


def read_secret(tenant: str, row: Any) -> Secret:
    name, key_id, version, created_at, updated_at, author = row
    return Secret(
        name=name,
        tenant=tenant,
        key_id=key_id,
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        author=author,
    )


# Records with versions: templates and alert rules.

_RECORDS: Final = f"SELECT {', '.join(RECORD_COLUMNS)} FROM {{table}}"
_ONE_RECORD: Final = f"{_RECORDS} WHERE tenant = ? AND name = ?"
_COUNT_RECORDS: Final = "SELECT count(*) FROM {table} WHERE tenant = ?"
_PUT_RECORD: Final = """
INSERT INTO {table} (tenant, name, version, author, created_at, updated_at, definition)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)
ON CONFLICT DO UPDATE SET version = excluded.version, author = excluded.author,
   updated_at = excluded.updated_at, definition = excluded.definition
"""


def put_record(
    tx: Transaction,
    tenant: str,
    kind: RecordKind[NewT, StoredT],
    new: NewT,
    *,
    author: str = "",
    expect: int | None = None,
) -> StoredT:
    text, name, table = checks.check_record(kind, new, author), new.name, kind.table
    owner = tx.names.tenant(tx, tenant)
    row = tx.execute(_ONE_RECORD.format(table=table), (owner, name)).fetchone()
    _, kept, at, *_ = row or (None, None, 0)
    version = kind.next_version(name, at=at, kept=kept, text=text, expect=expect)
    if version != at:
        if not at:
            count = tx.execute(_COUNT_RECORDS.format(table=table), (owner,)).fetchone()[0]
            kind.check_count(count)
        tx.execute(_PUT_RECORD.format(table=table), (owner, name, version, author, tx.now, text))
        row = tx.execute(_ONE_RECORD.format(table=table), (owner, name)).fetchone()
    return kind.stored(tenant, *row)


def get_record(tx: Transaction, tenant: str, kind: RecordKind[Any, StoredT], name: str) -> StoredT:
    return kind.stored(tenant, *_one_record(tx, tenant, kind, name))


def _one_record(tx: Transaction, tenant: str, kind: RecordKind[Any, Any], name: str) -> Any:
    check_name(name, what=kind.what)
    asked = (tx.names.tenant(tx, tenant), name)
    row = tx.execute(_ONE_RECORD.format(table=kind.table), asked).fetchone()
    if row is None:
        raise kind.missing(name)
    return row


def list_records(
    tx: Transaction,
    tenant: str,
    kind: RecordKind[Any, StoredT],
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[StoredT]:
    checks.check_limit(limit)
    after = checks.check_name_cursor(cursor)
    rows = tx.execute(
        f"{_RECORDS.format(table=kind.table)} WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?",
        (tx.names.tenant(tx, tenant), after, limit + 1),
    )
    page = cut_page(rows, limit, size=lambda row: bytes_of(row[1]), cursor=lambda row: row[0])
    return Page(
        items=tuple(kind.stored(tenant, *row) for row in page.items),
        next_cursor=page.next_cursor,
    )


def delete_record(
    tx: Transaction,
    tenant: str,
    kind: RecordKind[Any, Any],
    name: str,
    *,
    expect: int | None = None,
) -> None:
    _, _, at, *_ = _one_record(tx, tenant, kind, name)
    if expect not in (None, at):
        raise kind.conflict(name, at=at, expect=expect)
    owner = tx.names.tenant(tx, tenant)
    tx.execute(f"DELETE FROM {kind.table} WHERE tenant = ? AND name = ?", (owner, name))


# Incidents.

_INCIDENTS: Final = """
SELECT i.id, t.name, i.rule, i.subject, i.detail, i.mark, i.version, i.opened_at, i.notified_at,
       i.closed_at, i.acknowledged_at, i.acknowledged_by
  FROM incident i JOIN tenant t ON t.n = i.tenant
"""
_ALL_RULES: Final = f"""
SELECT t.name, r.{", r.".join(RECORD_COLUMNS)}
  FROM alert_rule r JOIN tenant t ON t.n = r.tenant ORDER BY r.tenant, r.name
"""
_NOTIFYING_JOBS: Final = """
SELECT t.name, j.id, v.version, v.definition, v.created_at, v.author, 1, j.paused_at, j.pause_note
  FROM job_version v JOIN job j ON j.n = v.job JOIN tenant t ON t.n = j.tenant
 WHERE instr(v.definition, '"notifications":[{') > 0 AND v.n = j.version AND j.is_deleted = 0
"""


def alert_work(tx: Transaction) -> AlertWork:
    rules = tx.execute(_ALL_RULES).fetchall()
    jobs = tx.execute(_NOTIFYING_JOBS).fetchall()
    incidents = tx.execute(f"{_INCIDENTS} WHERE i.closed_at IS NULL LIMIT ?", (OPEN_MAX,))
    return AlertWork(
        now=tx.now,
        rules=tuple(ALERT_RULES.stored(*row) for row in rules),
        jobs=tuple(read_job(tenant, rest) for tenant, *rest in jobs),
        incidents=tuple(map(_read_incident, incidents)),
    )


def list_incidents(
    tx: Transaction,
    tenant: str,
    *,
    rule: str | None = None,
    is_open: bool | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[Incident]:
    checks.check_limit(limit)
    last = checks.check_cursor(cursor)
    conditions = ["i.tenant = ?"]
    values: list[Any] = [tx.names.tenant(tx, tenant)]
    if rule is not None:
        conditions.append("i.rule = ?")
        values.append(rule)
    if is_open is not None:
        conditions.append(f"i.closed_at IS {'' if is_open else 'NOT '}NULL")
    if last is not None:
        conditions.append("i.id < ?")
        values.append(last.bytes)
    rows = tx.execute(
        f"{_INCIDENTS} WHERE {' AND '.join(conditions)} ORDER BY i.id DESC LIMIT ?",
        (*values, limit + 1),
    )
    return cut_page(
        map(_read_incident, rows),
        limit,
        size=lambda one: bytes_of(one.detail, one.subject),
        cursor=lambda one: str(one.id),
    )


def _read_incident(row: Any) -> Incident:
    id, *rest = row
    return Incident(UUID(bytes=id), *rest)


# Both sorts of opening; an event is closed at once.
_OPEN: Final = """
INSERT INTO incident (id, tenant, is_event, opened_at, notified_at, closed_at, rule, subject, mark,
                      detail)
SELECT ?1, ?2, ?3, ?4, iif(?5, ?4, NULL), iif(?3, ?4, NULL), ?6, ?7, ?8, ?9
 WHERE ?3 OR NOT EXISTS (SELECT 1 FROM incident
                          WHERE tenant = ?2 AND rule = ?6 AND subject = ?7 AND closed_at >= ?10)
    ON CONFLICT DO NOTHING
"""
_MOVE: Final = """
UPDATE incident
   SET version = version + 1, mark = ?4, detail = ?5, notified_at = iif(?6, ?7, notified_at),
       closed_at = iif(?8 = 'close', ?7, NULL),
       acknowledged_at = iif(?8 = 'acknowledge', ?7, acknowledged_at),
       acknowledged_by = iif(?8 = 'acknowledge', ?9, acknowledged_by)
 WHERE tenant = ?1 AND id = ?2 AND version = ?3 AND closed_at IS NULL
"""
_BEAT: Final = """
INSERT INTO incident (id, tenant, is_event, opened_at, notified_at, closed_at, rule, subject, mark,
                      detail)
VALUES (?6, ?1, 1, ?4, ?4, ?4, ?2, ?3, '', '')
    ON CONFLICT (tenant, rule, subject, mark) WHERE is_event = 1 DO UPDATE
   SET version = version + 1, notified_at = ?4, closed_at = ?4
 WHERE notified_at < ?5
"""
_FORGET_INCIDENTS: Final = """
DELETE FROM incident WHERE rowid IN
       (SELECT rowid FROM incident WHERE closed_at < ? LIMIT 100)
"""


def move_incident(tx: Transaction, tenant: str, move: IncidentMove) -> bool:
    owner = tx.names.tenant(tx, tenant)
    is_told = bool(move.messages)
    if move.kind is MoveKind.BEAT:
        news = (move.rule, move.subject, tx.now, move.read_at, move.id.bytes)
        made = tx.execute(_BEAT, (owner, *news))
    elif move.kind in (MoveKind.OPEN, MoveKind.RECORD):
        event = move.kind is MoveKind.RECORD
        about = (move.rule, move.subject, move.mark, move.detail, move.read_at)
        tx.execute(_FORGET_INCIDENTS, (tx.now - INCIDENT_SECONDS_KEPT,))
        made = tx.execute(_OPEN, (move.id.bytes, owner, event, tx.now, is_told, *about))
    else:
        news = (move.mark, move.detail, is_told, tx.now, str(move.kind), move.by)
        made = tx.execute(_MOVE, (owner, move.id.bytes, move.version, *news))
    if made.rowcount < 1:
        return False
    if move.messages:
        launch_all(tx, tenant, move.jobs, move.messages)
    return True


# Outgoing events.

_EVENTS: Final = """
SELECT o.number, t.name, o.type, ifnull(o.at, ?), o.job, o.queue, o.execution, o.attempt, o.data
  FROM outbox o JOIN tenant t ON t.n = o.tenant ORDER BY o.number LIMIT ?
"""
_ALL_SUBSCRIPTIONS: Final = _ALL_RULES.replace("alert_rule", "subscription")


def outbox_work(tx: Transaction) -> OutboxWork:
    rows = tx.execute(_EVENTS, (tx.now, OUTBOX_BATCH_MAX)).fetchall()
    if not rows:
        return OutboxWork()
    subscriptions = tx.execute(_ALL_SUBSCRIPTIONS).fetchall()
    return OutboxWork(
        events=tuple(map(_read_event, rows)),
        subscriptions=tuple(SUBSCRIPTIONS.stored(*row) for row in subscriptions),
    )


def _read_event(row: Any) -> OutgoingEvent:
    number, tenant, type, at, job, queue, execution, attempt, data = row
    return OutgoingEvent(
        number=number,
        tenant=tenant,
        type=type,
        at=at,
        job=job,
        queue=queue,
        execution=None if execution is None else UUID(bytes=execution),
        attempt=attempt,
        data=data,
    )


_LAST_WAITING: Final = """
SELECT g.name, max(e.run_at) FROM gate g CROSS JOIN execution e
    ON e.gate = g.n AND e.state = 4 AND e.slot = 0
 WHERE g.tenant = ? AND g.name IN (SELECT value FROM json_each(?)) GROUP BY g.name
"""
_IN_OUTBOX: Final = "FROM outbox WHERE tenant = ? AND number IN (SELECT value FROM json_each(?))"


def dispatch(tx: Transaction, wanted: Dispatch) -> bool:
    owner = tx.names.tenant(tx, wanted.tenant)
    numbers = owner, msgspec.json.encode(wanted.numbers).decode()
    if tx.execute(f"SELECT count(*) {_IN_OUTBOX}", numbers).fetchone()[0] < len(wanted.numbers):
        return False
    tx.execute(f"DELETE {_IN_OUTBOX}", numbers)
    gates = msgspec.json.encode([one.gate for one in wanted.executions if one.gate]).decode()
    last = dict(tx.execute(_LAST_WAITING, (owner, gates)))
    deliveries = place_behind(wanted.executions, last)
    launch_all(tx, wanted.tenant, wanted.jobs, deliveries, is_refused=False)
    return True
