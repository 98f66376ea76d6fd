"""Secrets: values that jobs use and nobody reads."""

from __future__ import annotations

from daybell.client.sealing import NEW_KEY, VARIABLE, KeyMissing, Sealer, check_value
from daybell.core.references import check_secret_name
from daybell.core.secret import NewSecret, Secret
from daybell.errors import InvalidName, SecretNotFound, shown
from daybell.store.protocol import Store


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
        key_id, sealed = self.sealer().seal(self.tenant, name, check_value(value))
        new = NewSecret(name=name, key_id=key_id, sealed=sealed, author=author)
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


def known_name(name: str) -> str:
    """A name that a secret may have. What cannot be one is nobody's."""
    try:
        return check_secret_name(name)
    except InvalidName:
        raise SecretNotFound(f"there is no secret named {shown(name)}") from None
