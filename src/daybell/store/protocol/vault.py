"""Secrets, sealed, and templates."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from daybell.core.secret import NewSecret, SealedSecret, Secret
from daybell.core.template import NewTemplate, Template
from daybell.core.view import Page


class Vault(Protocol):
    """What jobs are made of besides their own definitions."""

    # Secrets.

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        """Keep a secret; one of the same name is replaced, and its version rises. Versions of a
        name never repeat: one that is set after a delete goes on counting.

        Raises VersionConflict if `secret.version` is not the next version.
        """
        ...

    async def list_secrets(self, tenant: str) -> list[Secret]:
        """A tenant's secrets by name, without their values."""
        ...

    async def delete_secret(self, tenant: str, name: str) -> None:
        """Forget a secret. Raises SecretNotFound."""
        ...

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        """Those of these that there are."""
        ...

    # Templates.

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        """Keep a template; one of the same name is replaced, and its version rises, unless both
        are equal: then nothing changes. `expect`: 0 for a name that must be new (DuplicateKey), n
        for the version that must be the current one (VersionConflict).
        """
        ...

    async def get_template(self, tenant: str, name: str) -> Template:
        """A template. Raises TemplateNotFound."""
        ...

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        """A tenant's templates, by name. A page ends at PAGE_BYTES_MAX bytes, with one template at
        least.
        """
        ...

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        """Remove a template; jobs that were made from it stay. Raises TemplateNotFound, and
        VersionConflict if it is not at the version expected.
        """
        ...
