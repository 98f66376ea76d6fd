"""Secrets, sealed, and templates."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from daybell.core.limits import check_name
from daybell.core.references import check_secret_name
from daybell.core.secret import NewSecret, SealedSecret, Secret, bound_id
from daybell.core.template import NewTemplate, Template
from daybell.core.view import Page, bytes_of, cut_page
from daybell.errors import SecretNotFound, TemplateNotFound, shown
from daybell.store import checks
from daybell.store.memory.tables import Part, SecretRow
from daybell.store.versions import moved, next_template_version


class MemoryVault(Part):
    """See `protocol.Vault`."""

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        with self._begin(tenant) as tables:
            checks.check_secret(secret)
            now = self._clock()
            known = tables.secrets.get((tenant, secret.name))
            at = 0 if known is None else known.secret.version
            if secret.version not in (None, at + 1):
                raise moved(secret.name, at=at, expect=secret.version - 1, what="secret")
            made = Secret(
                name=secret.name,
                tenant=tenant,
                key_id=secret.key_id,
                version=at + 1,
                created_at=known.secret.created_at if known and known.sealed else now,
                updated_at=now,
                author=secret.author,
            )
            tables.secrets[tenant, secret.name] = SecretRow(secret=made, sealed=secret.sealed)
            return made

    async def list_secrets(self, tenant: str) -> list[Secret]:
        with self._begin(tenant) as tables:
            found = [
                row.secret
                for (owner, _), row in tables.secrets.items()
                if owner == tenant and row.sealed
            ]
            return sorted(found, key=lambda secret: secret.name)

    async def delete_secret(self, tenant: str, name: str) -> None:
        with self._begin(tenant) as tables:
            known = tables.secrets.get((tenant, check_secret_name(name)))
            if known is None or not known.sealed:
                raise SecretNotFound(f"no secret named {shown(name)}")
            # The row stays, empty, so that versions of the name do not repeat.
            key_id, version = bound_id(known.secret.key_id), known.secret.version + 1
            secret = replace(known.secret, key_id=key_id, version=version)
            tables.secrets[tenant, name] = SecretRow(secret=secret, sealed=b"")

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        with self._begin(tenant) as tables:
            found = {name: tables.secrets.get((tenant, name)) for name in names}
            return {
                name: SealedSecret(
                    name=name,
                    key_id=row.secret.key_id,
                    version=row.secret.version,
                    sealed=row.sealed,
                )
                for name, row in found.items()
                if row is not None and row.sealed
            }

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        with self._begin(tenant) as tables:
            text = checks.check_template(template, author)
            name, now = template.name, self._clock()
            known = tables.templates.get((tenant, name))
            at = 0 if known is None else known.version
            kept = None if known is None else known.template.to_json()
            version = next_template_version(name, at=at, kept=kept, text=text, expect=expect)
            if known is not None and version == at:
                return known
            made = tables.templates[tenant, name] = Template(
                tenant=tenant,
                template=NewTemplate.from_json(name, text),
                version=version,
                created_at=now if known is None else known.created_at,
                updated_at=now,
                author=author,
            )
            return made

    async def get_template(self, tenant: str, name: str) -> Template:
        with self._begin(tenant) as tables:
            known = tables.templates.get((tenant, check_name(name, what="template")))
            if known is None:
                raise TemplateNotFound(f"no template named {shown(name)}")
            return known

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        checks.check_limit(limit)
        after = checks.check_name_cursor(cursor)
        with self._begin(tenant) as tables:
            found = [
                one
                for (owner, name), one in sorted(tables.templates.items())
                if owner == tenant and name > after
            ]
        return cut_page(
            found,
            limit,
            size=lambda one: bytes_of(one.template.to_json()),
            cursor=lambda one: one.name,
        )

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        with self._begin(tenant) as tables:
            known = tables.templates.pop((tenant, check_name(name, what="template")), None)
            if known is None:
                raise TemplateNotFound(f"no template named {shown(name)}")
            if expect is not None and known.version != expect:
                raise moved(name, at=known.version, expect=expect, what="template")
