"""Secrets: values that jobs use and nobody reads."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from daybell.client.sealing import NEW_KEY, VARIABLE, KeyMissing, Sealer, check_value
from daybell.core.references import check_secret_name
from daybell.core.secret import NewSecret, Secret
from daybell.errors import Conflict, InvalidName, SecretNotFound, VersionConflict, shown
from daybell.store.protocol import Store

TRIES_MAX: Final = 20  # to write the version that follows the current one


class Secrets:
    """The verbs of `Client` for secrets. There is none that answers a value."""

    store: Store
    tenant: str
    secrets_key: str | None
    _sealer: Sealer | None = None

    async def set_secret(self, name: str, value: str, *, author: str = "") -> Secret:
        """Keep a secret, sealed; one of the same name is replaced. Workers use the new value
        within 5 seconds.
        """
        check_secret_name(name)
        check_value(value)
        known = (await self.store.fetch_secrets(self.tenant, [name])).get(name)
        version = 0 if known is None else known.version
        for _ in range(TRIES_MAX):
            try:
                return await self._seal_version(name, value, version + 1, author)
            except VersionConflict as conflict:  # it was deleted before, or is set elsewhere
                version = conflict.version or version
        raise _contended(name)

    async def reseal_secret(self, name: str, *, author: str = "") -> Secret | None:
        """Seal a secret's value again, as its next version, with the first of the keys; None: that
        is done, or there is none. Raises KeyMissing and Unopenable.
        """
        for _ in range(TRIES_MAX):
            known = (await self.store.fetch_secrets(self.tenant, [name])).get(name)
            if known is None or known.key_id == self.sealer().key_id:
                return None
            value = self.sealer().open(self.tenant, known)
            with suppress(VersionConflict):  # a new value that was set meanwhile stays
                return await self._seal_version(name, value, known.version + 1, author)
        raise _contended(name)

    async def _seal_version(self, name: str, value: str, version: int, author: str) -> Secret:
        key_id, sealed = self.sealer().seal(self.tenant, name, value, version=version)
        new = NewSecret(name=name, key_id=key_id, sealed=sealed, version=version, author=author)
        return await self.store.set_secret(self.tenant, new)

    async def secrets(self) -> list[Secret]:
        """The tenant's secrets by name, without their values."""
        return await self.store.list_secrets(self.tenant)

    async def delete_secret(self, name: str) -> None:
        """Forget a secret; what refers to it fails from then on. Raises SecretNotFound."""
        await self.store.delete_secret(self.tenant, known_name(name))

    def sealer(self) -> Sealer:
        """What seals and opens, by the key in the settings. Raises UsageError if there is none."""
        if self._sealer is None:
            if self.secrets_key is None:
                raise KeyMissing(
                    f"secrets are sealed with a key, and {VARIABLE} is not set here. Make one with"
                    f" `{NEW_KEY}`, keep it, and give the same one to servers and workers",
                    field="secrets_key",
                )
            self._sealer = Sealer(self.secrets_key)
        return self._sealer


def _contended(name: str) -> Conflict:
    return Conflict(f"secret {name} is being set elsewhere all the time; try again")


def known_name(name: str) -> str:
    """A name that a secret may have. What cannot be one is nobody's."""
    try:
        return check_secret_name(name)
    except InvalidName:
        raise SecretNotFound(f"there is no secret named {shown(name)}") from None
