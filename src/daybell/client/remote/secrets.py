"""Secrets over HTTP: the server seals them, and answers no value."""

from __future__ import annotations

from daybell.client.remote import reading
from daybell.client.remote.transport import Transport, path_of
from daybell.client.sealing import check_value
from daybell.client.secrets import known_name
from daybell.core.instant import from_iso
from daybell.core.references import check_secret_name
from daybell.core.secret import Secret


class Secrets:
    """The verbs of `Client` for secrets."""

    transport: Transport

    async def set_secret(self, name: str, value: str, *, author: str = "") -> Secret:
        """Keep a secret; one of the same name is replaced. The server has the key that seals it,
        and its author is whoever has the API key.
        """
        path = path_of("secrets", check_secret_name(name))
        return await self.transport.put(path, {"value": check_value(value)}, read=_secret)

    async def secrets(self) -> list[Secret]:
        """The tenant's secrets by name, without their values."""
        return await reading.whole(self.transport, "/secrets", _secret)

    async def delete_secret(self, name: str) -> None:
        """Forget a secret; what refers to it fails from then on. Raises SecretNotFound."""
        path = path_of("secrets", known_name(name))
        await self.transport.delete(path, read=lambda _: None)


def _secret(of: reading.Wire) -> Secret:
    return Secret(
        name=of["name"],
        tenant=of["tenant"],
        key_id=of["key_id"],
        version=of["version"],
        created_at=from_iso(of["created_at"]),
        updated_at=from_iso(of["updated_at"]),
        author=of["author"],
    )
