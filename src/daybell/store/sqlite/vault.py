"""Secrets, sealed, and templates."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from daybell.core.limits import check_name
from daybell.core.references import check_secret_name
from daybell.core.secret import BOUND, NewSecret, SealedSecret, Secret
from daybell.core.template import NewTemplate, Template
from daybell.core.view import Page, bytes_of, cut_page
from daybell.errors import SecretNotFound, TemplateNotFound, shown
from daybell.store import checks
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction
from daybell.store.versions import moved, next_template_version


class SqliteVault(Part):
    """See `protocol.Vault`."""

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        checks.check_secret(secret)
        return await self._write(lambda tx: set_secret(tx, tenant, secret))

    async def list_secrets(self, tenant: str) -> list[Secret]:
        return await self._read(lambda tx: list_secrets(tx, tenant))

    async def delete_secret(self, tenant: str, name: str) -> None:
        check_secret_name(name)
        await self._write(lambda tx: delete_secret(tx, tenant, name))

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        return await self._read(lambda tx: fetch_secrets(tx, tenant, names))

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        text = checks.check_template(template, author)
        return await self._write(
            lambda tx: set_template(tx, tenant, template.name, text, author, expect)
        )

    async def get_template(self, tenant: str, name: str) -> Template:
        check_name(name, what="template")
        return await self._read(lambda tx: get_template(tx, tenant, name))

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        checks.check_limit(limit)
        after = checks.check_name_cursor(cursor)
        return await self._read(lambda tx: list_templates(tx, tenant, limit, after))

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        check_name(name, what="template")
        await self._write(lambda tx: delete_template(tx, tenant, name, expect))


# Of the columns that `read_secret` reads.
_SECRETS: Final = "SELECT name, key_id, version, created_at, updated_at, author FROM secret"
_SET_SECRET: Final = """
INSERT INTO secret (tenant, name, version, key_id, author, created_at, updated_at, sealed)
VALUES (?1, ?2, 1, ?3, ?4, ?5, ?5, ?6)
ON CONFLICT DO UPDATE SET version = version + 1, key_id = excluded.key_id,
   author = excluded.author, updated_at = excluded.updated_at, sealed = excluded.sealed,
   created_at = iif(sealed = x'', excluded.created_at, created_at)
"""
_SECRET_VERSION: Final = "SELECT version FROM secret WHERE tenant = ? AND name = ?"


def set_secret(tx: Transaction, tenant: str, new: NewSecret) -> Secret:
    owner = tx.names.tenant(tx, tenant)
    (at,) = tx.execute(_SECRET_VERSION, (owner, new.name)).fetchone() or (0,)
    if new.version not in (None, at + 1):
        raise moved(new.name, at=at, expect=new.version - 1, what="secret")
    tx.execute(_SET_SECRET, (owner, new.name, new.key_id, new.author, tx.now, new.sealed))
    row = tx.execute(f"{_SECRETS} WHERE tenant = ? AND name = ?", (owner, new.name)).fetchone()
    return read_secret(tenant, row)


def list_secrets(tx: Transaction, tenant: str) -> list[Secret]:
    owner = tx.names.tenant(tx, tenant)
    rows = tx.execute(f"{_SECRETS} WHERE tenant = ? AND sealed <> x'' ORDER BY name", (owner,))
    return [read_secret(tenant, row) for row in rows]


# The row stays, empty, so that versions of the name do not repeat, and bound, so that no value
# without a version can be put there.
_DELETE_SECRET: Final = f"""
UPDATE secret SET sealed = x'', version = version + 1,
   key_id = iif(instr(key_id, '{BOUND}') = 1, key_id, '{BOUND}' || key_id)
 WHERE tenant = ? AND name = ? AND sealed <> x''
"""


def delete_secret(tx: Transaction, tenant: str, name: str) -> None:
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


# Of the columns that `read_template` reads.
_TEMPLATES: Final = """
SELECT name, definition, version, created_at, updated_at, author FROM template
"""
_ONE_TEMPLATE: Final = f"{_TEMPLATES} WHERE tenant = ? AND name = ?"
_SET_TEMPLATE: Final = """
INSERT INTO template (tenant, name, version, author, created_at, updated_at, definition)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)
ON CONFLICT DO UPDATE SET version = excluded.version, author = excluded.author,
   updated_at = excluded.updated_at, definition = excluded.definition
"""


def set_template(
    tx: Transaction, tenant: str, name: str, text: str, author: str, expect: int | None
) -> Template:
    owner = tx.names.tenant(tx, tenant)
    row = tx.execute(_ONE_TEMPLATE, (owner, name)).fetchone()
    _, kept, at, *_ = row or (None, None, 0)
    version = next_template_version(name, at=at, kept=kept, text=text, expect=expect)
    if version != at:
        tx.execute(_SET_TEMPLATE, (owner, name, version, author, tx.now, text))
        row = tx.execute(_ONE_TEMPLATE, (owner, name)).fetchone()
    return read_template(tenant, row)


def get_template(tx: Transaction, tenant: str, name: str) -> Template:
    row = tx.execute(_ONE_TEMPLATE, (tx.names.tenant(tx, tenant), name)).fetchone()
    if row is None:
        raise TemplateNotFound(f"no template named {shown(name)}")
    return read_template(tenant, row)


def list_templates(tx: Transaction, tenant: str, limit: int, after: str) -> Page[Template]:
    owner = tx.names.tenant(tx, tenant)
    rows = tx.execute(
        f"{_TEMPLATES} WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?",
        (owner, after, limit + 1),
    )
    page = cut_page(rows, limit, size=lambda row: bytes_of(row[1]), cursor=lambda row: row[0])
    return Page(
        items=tuple(read_template(tenant, row) for row in page.items),
        next_cursor=page.next_cursor,
    )


_DELETE_TEMPLATE: Final = "DELETE FROM template WHERE tenant = ? AND name = ?"


def delete_template(tx: Transaction, tenant: str, name: str, expect: int | None) -> None:
    known = get_template(tx, tenant, name)
    if expect is not None and known.version != expect:
        raise moved(name, at=known.version, expect=expect, what="template")
    tx.execute(_DELETE_TEMPLATE, (tx.names.tenant(tx, tenant), name))


def read_template(tenant: str, row: Any) -> Template:
    name, definition, version, created_at, updated_at, author = row
    return Template(
        tenant=tenant,
        template=NewTemplate.from_json(name, definition),
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        author=author,
    )
