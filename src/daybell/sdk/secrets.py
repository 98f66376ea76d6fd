"""Secrets where they are used: fetched, opened and put in when an execution begins."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from daybell.client.admin import VARIABLE, Sealer, Unopenable
from daybell.core import payload
from daybell.core.execution import DescribedError
from daybell.core.references import fill_args, fill_references, names_in, names_in_args
from daybell.core.units import Seconds
from daybell.errors import Unavailable, UsageError
from daybell.runners.python import RunningAttempt
from daybell.sdk.masking import masks

if TYPE_CHECKING:
    from daybell.client import Client
    from daybell.sdk.app import App

KEPT_SECONDS: Final = 3.0  # a changed one is promised to be used within 5
KEPT_MAX: Final = 10_000

Opened = dict[str, str]  # values by name


class Secrets:
    """Puts in what references to secrets stand for, for the executions of an app: a `Reveal` of
    runners/kind.py. An execution masks what was opened for it.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._kept: dict[tuple[str, str], tuple[Seconds, str]] = {}  # by tenant and name
        self._fetching: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    async def value(self, running: RunningAttempt, value: Any) -> Any:
        """A part of a job's settings, with its secrets."""
        names = names_in(value)
        opened = await self._opened(running, names) if names else {}
        return fill_references(value, "secret", opened.__getitem__)

    async def args(self, running: RunningAttempt) -> dict[str, Any]:
        """What an execution was called with, with its secrets."""
        args = payload.decode(running.claimed.args, what="args")
        names = names_in_args(args)
        opened = await self._opened(running, names) if names else {}
        return fill_args(args, opened.__getitem__)

    def forget(self) -> None:
        """Another store has others, under the same names."""
        self._kept.clear()

    async def _opened(self, running: RunningAttempt, names: Collection[str]) -> Opened:
        tenant = running.claimed.tenant
        found = self._look_up(tenant, names)
        if len(found) < len(names):
            # One at a time: of many that begin together, the first asks for all.
            lock = self._fetching.setdefault(asyncio.get_running_loop(), asyncio.Lock())
            async with lock:
                found = self._look_up(tenant, names)
                missing = [name for name in names if name not in found]
                if missing:
                    found |= await self._fetch(running, missing)
        masks.add(found.values())
        running.hide(found.values())
        return found

    def _look_up(self, tenant: str, names: Collection[str]) -> Opened:
        """Those that were opened just now."""
        since = asyncio.get_running_loop().time() - KEPT_SECONDS
        kept = {name: self._kept.get((tenant, name)) for name in names}
        return {name: one[1] for name, one in kept.items() if one is not None and one[0] > since}

    async def _fetch(self, running: RunningAttempt, names: Collection[str]) -> Opened:
        tenant = running.claimed.tenant
        at = asyncio.get_running_loop().time()  # before the store is asked: it may be slow
        try:
            client = await self._app.client_for(tenant)
            sealed = await client.store.fetch_secrets(tenant, names)
        except Unavailable as error:
            listed = ", ".join(sorted(names))
            raise _failed("SecretsUnavailable", f"{listed} cannot be fetched: {error}") from None
        for name in sorted(names):
            if name not in sealed:
                running.is_hopeless = True
                raise _failed(
                    "SecretNotFound",
                    f"there is no secret named {name} in tenant {tenant}; set it with"
                    f" `daybell secrets set {name}`, then retry",
                )
        if client.secrets_key is None:
            name = min(sealed)
            # Other workers may have the key.
            raise _failed(
                "SecretsKeyMissing",
                f"this worker has no key to open secret {name}, which is sealed with key"
                f" {sealed[name].key_id}; give it the key that the secret was set with, as"
                f" {VARIABLE}",
            )
        try:
            sealer = _sealer_of(client)
            opened = {name: sealer.open(tenant, one) for name, one in sealed.items()}
        except Unopenable as error:
            running.is_hopeless = True
            raise _failed("SecretUnopenable", str(error)) from None
        except UsageError as error:
            raise _failed("SecretsKeyMissing", f"at this worker: {error}") from None
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept |= {(tenant, name): (at, value) for name, value in opened.items()}
        return opened


def _sealer_of(client: Client) -> Sealer:
    """What opens its secrets. The key is a secret, too: of a task that prints its environment."""
    sealer = client.sealer()
    masks.add_settings(part.strip() for part in (client.secrets_key or "").split(","))
    return sealer


def _failed(kind: str, message: str) -> DescribedError:
    return DescribedError.as_text(kind, message)
