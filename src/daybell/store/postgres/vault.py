"""Secrets, sealed, and templates."""

from __future__ import annotations

from collections.abc import Collection

from daybell.core.limits import check_name
from daybell.core.references import check_secret_name
from daybell.core.secret import BOUND, NewSecret, SealedSecret, Secret
from daybell.core.template import NewTemplate, Template
from daybell.core.view import Page, bytes_of, cut_page
from daybell.errors import SecretNotFound, TemplateNotFound, shown
from daybell.store import checks, recording
from daybell.store.postgres.columns import within_page
from daybell.store.postgres.connection import Row
from daybell.store.postgres.gates import Connected
from daybell.store.versions import moved, next_template_version

SECRET_COLUMNS = "name, key_id, version, created_at, updated_at, author"
TEMPLATE_COLUMNS = "name, definition, version, created_at, updated_at, author"


class Keeping(Connected):
    """What jobs are made of besides their own definitions."""

    SET_SECRET = f"""
    INSERT INTO daybell.secret AS s (tenant, name, key_id, sealed, author)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (tenant, name) DO UPDATE
       SET version = s.version + 1, key_id = excluded.key_id, sealed = excluded.sealed,
           author = excluded.author, updated_at = excluded.updated_at,
           created_at = CASE s.sealed WHEN '' THEN excluded.created_at ELSE s.created_at END
    RETURNING {SECRET_COLUMNS}
    """

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        checks.check_secret(secret)
        new = (secret.name, secret.key_id, secret.sealed, secret.author)
        async with self.db.transaction() as link:
            owner = await self.names.tenant(link, tenant)
            row = await link.fetchrow(self.SET_SECRET, owner, *new)
            assert row is not None, "it was there, or is now"
            if secret.version not in (None, at := row["version"]):  # and so nothing is written
                raise moved(secret.name, at=at - 1, expect=secret.version - 1, what="secret")
        return Secret(tenant=tenant, **row)

    LIST_SECRETS = f"""
    SELECT {SECRET_COLUMNS} FROM daybell.secret WHERE tenant = $1 AND sealed <> '' ORDER BY name
    """

    async def list_secrets(self, tenant: str) -> list[Secret]:
        async with self.db.link() as link:
            rows = await link.fetch(self.LIST_SECRETS, await self.names.tenant(link, tenant))
        return [Secret(tenant=tenant, **row) for row in rows]

    # The row stays, empty, so that versions of the name do not repeat, and bound, so that no value
    # without a version can be put there.
    DELETE_SECRET = f"""
    UPDATE daybell.secret
       SET sealed = '', version = version + 1,
           key_id = CASE WHEN starts_with(key_id, '{BOUND}') THEN key_id
                         ELSE '{BOUND}' || key_id END
     WHERE tenant = $1 AND name = $2 AND sealed <> '' RETURNING version
    """

    async def delete_secret(self, tenant: str, name: str) -> None:
        check_secret_name(name)
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            if await link.fetchval(self.DELETE_SECRET, owner, name) is None:
                raise SecretNotFound(f"no secret named {shown(name)}")

    FETCH_SECRETS = """
    SELECT name, key_id, version, sealed FROM daybell.secret
     WHERE tenant = $1 AND name = ANY($2::text[]) AND sealed <> ''
    """

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            rows = await link.fetch(self.FETCH_SECRETS, owner, checks.secret_names(names))
        return {row["name"]: SealedSecret(**row) for row in rows}

    # The update that changes nothing takes the row's lock, whoever was first.
    TAKE_TEMPLATE = f"""
    INSERT INTO daybell.template AS t (tenant, name, version, author, definition)
    VALUES ($1, $2, 0, '', '')
    ON CONFLICT (tenant, name) DO UPDATE SET name = t.name
    RETURNING {TEMPLATE_COLUMNS}
    """
    SET_TEMPLATE = f"""
    UPDATE daybell.template
       SET version = $3, author = $4, definition = $5, updated_at = daybell.now()
     WHERE tenant = $1 AND name = $2 RETURNING {TEMPLATE_COLUMNS}
    """

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        text = checks.check_template(template, author)
        name = template.name
        async with self.db.transaction() as link:
            owner = await self.names.tenant(link, tenant)
            row = await link.fetchrow(self.TAKE_TEMPLATE, owner, name)
            assert row is not None, "it was there, or is now"
            at = row["version"]
            kept = row["definition"] if at else None
            version = next_template_version(name, at=at, kept=kept, text=text, expect=expect)
            if version == at:
                recording.idle(self.db)
            else:
                row = await link.fetchrow(self.SET_TEMPLATE, owner, name, version, author, text)
        return _template(tenant, row)

    ONE_TEMPLATE = f"""
    SELECT {TEMPLATE_COLUMNS} FROM daybell.template WHERE tenant = $1 AND name = $2
    """

    async def get_template(self, tenant: str, name: str) -> Template:
        check_name(name, what="template")
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            row = await link.fetchrow(self.ONE_TEMPLATE, owner, name)
        if row is None:
            raise TemplateNotFound(f"no template named {shown(name)}")
        return _template(tenant, row)

    LIST_TEMPLATES = within_page(
        f"""SELECT {TEMPLATE_COLUMNS} FROM daybell.template
         WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3""",
        "octet_length(definition)",
        "name",
    )

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        checks.check_limit(limit)
        after = checks.check_name_cursor(cursor)
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            rows = await link.fetch(self.LIST_TEMPLATES, owner, after, limit + 1)
        page = cut_page(
            rows,
            limit,
            size=lambda row: bytes_of(row["definition"]),
            cursor=lambda row: row["name"],
        )
        return Page(
            items=tuple(_template(tenant, row) for row in page.items), next_cursor=page.next_cursor
        )

    DELETE_TEMPLATE = """
    DELETE FROM daybell.template
     WHERE tenant = $1 AND name = $2 AND version = coalesce($3, version) RETURNING version
    """

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        check_name(name, what="template")
        async with self.db.transaction() as link:
            owner = await self.names.tenant(link, tenant)
            if await link.fetchval(self.DELETE_TEMPLATE, owner, name, expect) is not None:
                return
            row = await link.fetchrow(self.ONE_TEMPLATE, owner, name)
            if row is None or expect is None:
                raise TemplateNotFound(f"no template named {shown(name)}")
            raise moved(name, at=row["version"], expect=expect, what="template")


def _template(tenant: str, row: Row) -> Template:
    return Template(
        tenant=tenant,
        template=NewTemplate.from_json(row["name"], row["definition"]),
        version=row["version"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        author=row["author"],
    )
