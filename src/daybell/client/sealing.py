"""Sealing of secrets, so that a database may hold them.

AES-256-GCM with a key that no store ever sees. A sealed value is bound to a tenant, a name and a
version: it opens in no other row, and not in its own row at another version.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from daybell.core.access import SealedSecret
from daybell.core.limits import SECRET_BYTES_MAX, SECRET_CHARS_MIN
from daybell.errors import UsageError, install_advice

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
KEY_CHARS: Final = 44  # of a key in base64
NONCE_BYTES: Final = 12
KEY_ID_CHARS: Final = 12
VARIABLE: Final = "DAYBELL_SECRETS_KEY"
NEW_KEY: Final = f"export {VARIABLE}=$(daybell secrets key)"


class KeyMissing(UsageError):
    """This process does not have the key that the secret needs."""

    code = "key-missing"
    remedy = "Set `DAYBELL_SECRETS_KEY` to the key that sealed the secret."


class Unopenable(UsageError):
    """The stored secret is damaged, or was moved from another place."""

    code = "unopenable"
    remedy = "Set the secret again."


class Sealer:
    """Seals with the first of its keys and opens with any: `Sealer("new,old")`."""

    def __init__(self, text: str) -> None:
        self._keys = {_id_of(key): key for key in _read_keys(text)}
        self._key_id = next(iter(self._keys))
        self._seen: dict[tuple[str, str], int] = {}  # the last version of each that was opened

    def __repr__(self) -> str:
        return f"<Sealer {', '.join(self._keys)}>"

    @property
    def key_id(self) -> str:
        """The name of the key that seals; it reveals nothing about the key."""
        return self._key_id

    def seal(self, tenant: str, name: str, value: str, *, version: int) -> tuple[str, bytes]:
        """Seal a value for one version of a secret; return the key's id and the sealed value."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        belongs = _belonging(tenant, name, self._key_id, version)
        cipher = _cipher()(self._keys[self._key_id])
        return self._key_id, nonce + cipher.encrypt(nonce, value.encode(), belongs)

    def open(self, tenant: str, secret: SealedSecret) -> str:
        """Open a sealed value. Raises KeyMissing and Unopenable.

        A version that is older than one that was opened here before does not open.
        """
        name, key_id, version = secret.name, secret.key_id, secret.version
        key = self._keys.get(key_id)
        if key is None:
            raise KeyMissing(
                f"secret {name} is sealed with key {key_id}, which is not among the keys here"
                f" ({', '.join(self._keys)}); add it to {VARIABLE} after a comma, or set the secret"
                " again"
            )
        seen = self._seen.get((tenant, name), 0)
        if version < seen:
            raise Unopenable(
                f"secret {name} of tenant {tenant} is at version {version}, and version {seen} was"
                " used here before: an older row was put back. Set it again with `daybell secrets"
                f" set {name}`, and restart the worker"
            )
        cipher = _cipher()(key)
        from cryptography.exceptions import InvalidTag

        nonce, rest = secret.sealed[:NONCE_BYTES], secret.sealed[NONCE_BYTES:]
        belongs = _belonging(tenant, name, key_id, version)
        try:
            opened = cipher.decrypt(nonce, rest, belongs)
        except (InvalidTag, ValueError):  # the latter: it is too short to be anything
            raise Unopenable(
                f"secret {name} of tenant {tenant} is not what was sealed as version {version}"
                " under that name: the row is damaged, or has the value of another row or of an"
                f" earlier version; set it again: `daybell secrets set {name}`"
            ) from None
        self._seen[tenant, name] = version
        return opened.decode()


def new_key() -> str:
    """Return a new key, in the form that settings use."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def check_value(value: object) -> str:
    """Return a secret's value if it is valid. No message contains the value."""
    if not isinstance(value, str):
        raise UsageError("a secret's value must be text", field="value")
    if len(value.strip()) < SECRET_CHARS_MIN:
        raise UsageError(
            f"a secret's value has at least {SECRET_CHARS_MIN} characters, not counting blanks"
            " around it; a shorter one can be guessed and cannot be kept out of logs. Use a longer"
            " one",
            field="value",
        )
    if "\0" in value:
        raise UsageError("a secret's value has a NUL character in it", field="value")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise UsageError(
            "a secret's value has half a surrogate pair in it, which is not a character",
            field="value",
        ) from None
    if size > SECRET_BYTES_MAX:
        raise UsageError(
            f"a secret's value has at most {SECRET_BYTES_MAX:,} bytes; this one has {size:,}",
            field="value",
        )
    return value


def _read_keys(text: str) -> list[bytes]:
    """Return the keys of a setting. Messages show no part of it."""
    keys: list[bytes] = []
    for place, part in enumerate(text.split(","), 1):
        try:
            key = base64.b64decode(part.strip().translate(_URLSAFE), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            which = "the key" if "," not in text else f"key {place}"
            raise UsageError(
                f"{VARIABLE}: {which} is not {KEY_BYTES} bytes in base64 ({KEY_CHARS} characters);"
                " `daybell secrets key` makes one",
                field="secrets_key",
            )
        keys.append(key)
    return keys


_URLSAFE: Final = str.maketrans("-_", "+/")


def _id_of(key: bytes) -> str:
    return hashlib.sha256(b"daybell secrets key\0" + key).hexdigest()[:KEY_ID_CHARS]


def _belonging(tenant: str, name: str, key_id: str, version: int) -> bytes:
    """Return the context that a sealed value is bound to; as JSON, so that no two contexts have the
    same bytes.
    """
    return msgspec.json.encode(("daybell secret", tenant, name, key_id, version))


def _cipher() -> Callable[[bytes], AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise KeyMissing(f"cryptography is not installed: {install_advice('secrets')}") from None
    return AESGCM
