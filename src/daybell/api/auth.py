"""Whose request it is.

A key is looked up by its digest, so that nothing about it can be learnt from how long that takes.
What was found counts for two seconds: a key that is revoked opens nothing after that.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from itertools import chain, groupby
from typing import Any, Final
from uuid import UUID

import msgspec
from fastapi import Request

from daybell.api.caller import Caller, KeyNeeded, api_of
from daybell.api.denials import Denial, Denials
from daybell.api.guard import PEER
from daybell.api.options import ApiOptions
from daybell.api.problems import TooManyRequests
from daybell.api.throttle import Throttle, key_throttle
from daybell.client import Client, Holder
from daybell.core.access import Key, Role
from daybell.core.instant import Seconds

FRESH_SECONDS: Final = 2.0  # revoking a key works within 5
KEYS_MAX: Final = 10_000  # that are remembered
NOTE_SECONDS: Final = 30.0  # between two notes of when keys were last used
LANES: Final = 4  # lookups at a time for addresses that were wrong too often
LANE_WAITS_MAX: Final = 100

ROOT: Final = 0  # a uid
CALLER: Final = "daybell.caller"  # in a scope
_TOKEN: Final = re.compile(r"dbk_[A-Za-z0-9_-]{20,100}")

Scope = MutableMapping[str, Any]


class Known(msgspec.Struct, frozen=True):
    """A key that was valid when it was looked up."""

    key: Key
    until: Seconds  # from then on it has to be looked up again
    # The same for all requests of the key, and made once.
    holder: Holder
    actor: str


class Gatekeeper:
    """Finds out who asks.

    An address that sends wrong keys is told to wait; a right one from the same address is let in
    all the same. `monotonic` is a clock for differences.
    """

    def __init__(
        self,
        client: Client,
        options: ApiOptions,
        *,
        monotonic: Callable[[], Seconds],
        on_denial: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._options = options
        self._monotonic = monotonic
        self.on_denial = on_denial
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Known | None]] = {}
        self._wrong = Throttle()
        self._pace = key_throttle(options.key_rate) if options.key_rate else None
        self._lanes = asyncio.Semaphore(LANES)
        self._lane_waits = 0
        self._denials = Denials()
        self._used: set[UUID] = set()
        self._noted_at = monotonic()

    async def admit(self, scope: Scope) -> Holder:
        """Find out who sent a request, and remember it there. Raises KeyNeeded and others."""
        caller = scope[CALLER] = await self._find_caller(scope)
        holder = caller.holder
        if self._pace is not None and holder.key:
            wait = self._pace.take(holder.key, self._monotonic())
            if wait:
                raise TooManyRequests(
                    "this key sends more requests per second than this server accepts from one"
                    " key; send them again after the time in Retry-After",
                    retry_after=wait,
                )
        return holder

    async def authenticate(self, request: Request) -> Caller:
        """Who sent a request."""
        if CALLER not in request.scope:
            await self.admit(request.scope)
        return request.scope[CALLER]

    async def is_welcome(self, request: Request) -> bool:
        """Whether who was let in would be let in now; for what lasts."""
        try:
            await self._find_caller(request.scope)
        except KeyNeeded:
            return False
        return True

    async def _find_caller(self, scope: Scope) -> Caller:
        source = (scope.get("client") or ("",))[0]
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        if not sent and self._options.open_tenant is not None:
            self._check_local_user(scope)
            return self._anybody(self._options.open_tenant, source)
        if not sent:
            raise KeyNeeded("send a key, as Authorization: Bearer dbk_…")
        token = _token(sent)
        known = None if token is None else await self._find(token, source)
        if known is None:
            wait = self._wrong.take(source, self._monotonic())
            if wait:
                raise TooManyRequests(
                    "too many wrong keys came from this address; wait a little", retry_after=wait
                )
            if token is None:
                raise KeyNeeded(
                    "the Authorization header holds no key; send it as Authorization: Bearer dbk_…"
                )
            raise KeyNeeded(
                "this key opens nothing: it is wrong, expired or revoked. Send a valid one, as"
                " Authorization: Bearer dbk_…"
            )
        self._used.add(known.key.id)
        return self._caller(known, source)

    def _check_local_user(self, scope: Scope) -> None:
        """Refuse a request without a key by another user of this machine. Raises KeyNeeded."""
        own = self._options.open_uid
        if own is None:
            return
        find: Callable[[], int | None] | None = scope.get(PEER)
        uid = None if find is None else find()
        if uid in (ROOT, own):
            return
        by = "a user that cannot be determined" if uid is None else f"uid {uid}"
        raise KeyNeeded(
            f"without a key, this server answers only the user that started it (uid {own}), and"
            f" this connection was opened by {by}. Send a key, as Authorization: Bearer dbk_…;"
            " `daybell keys create NAME --role ROLE` makes one"
        )

    def _anybody(self, tenant: str, source: str) -> Caller:
        client = self._client_of(tenant)
        role = Role.SUPERADMIN
        return Caller(
            client=client,
            tenant=tenant,
            role=role,
            actor="dev",
            source=source,
            holder=Holder(tenant),
        )

    def _caller(self, known: Known, source: str) -> Caller:
        key = known.key
        client = self._client_of(key.tenant)
        if key.scope is not None and key.scope.limits_names:
            client = client.within(key.scope)
        return Caller(
            client=client,
            tenant=key.tenant,
            role=key.role,
            actor=known.actor,
            source=source,
            key=key,
            holder=known.holder,
        )

    def _client_of(self, tenant: str) -> Client:
        return self._client if tenant == self._client.tenant else self._client.for_tenant(tenant)

    async def _find(self, token: str, source: str) -> Known | None:
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and self._monotonic() < known.until:
            self._known.move_to_end(digest)
            return known
        # One that was valid before is not kept waiting by what others of its address try.
        if known is None and self._wrong.is_empty(source, self._monotonic()):
            return await self._find_slowly(digest, token)
        return await self._ask(digest, token)

    async def _find_slowly(self, digest: bytes, token: str) -> Known | None:
        if self._lane_waits >= LANE_WAITS_MAX:
            return None
        self._lane_waits += 1
        try:
            async with self._lanes:
                return await self._ask(digest, token)
        finally:
            self._lane_waits -= 1

    async def _ask(self, digest: bytes, token: str) -> Known | None:
        """Look a key up, once for all who wait for it."""
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.create_task(self._look_up(digest, token))
            task.add_done_callback(lambda done: self._forget(digest, done))
        # Whoever gives up must not take the answer from the others.
        return await asyncio.shield(task)

    def _forget(self, digest: bytes, done: asyncio.Task[Known | None]) -> None:
        self._asking.pop(digest, None)
        if not done.cancelled():
            done.exception()  # looked at, in case that nobody waits for it any more

    async def _look_up(self, digest: bytes, token: str) -> Known | None:
        asked = self._monotonic()
        found = await self._client.authenticate(token)
        self._known.pop(digest, None)
        if found is None:
            return None
        key, now = found
        if not key.is_valid(now):
            return None
        left = FRESH_SECONDS if key.expires_at is None else key.expires_at - now
        known = self._known[digest] = Known(
            key,
            until=asked + min(FRESH_SECONDS, left),
            holder=Holder(key.tenant, str(key.id)),
            # A name may be that of several keys, and so may a hint.
            actor=f"key {key.name} ({key.hint}, {key.id})",
        )
        if len(self._known) > KEYS_MAX:
            self._known.popitem(last=False)
        return known

    # What is told to the store, in groups.

    def hear(self, scope: Scope, status: int) -> None:
        """Take note of how a request was answered: what was refused to a key is on record."""
        caller: Caller | None = scope.get(CALLER)
        if status != HTTPStatus.FORBIDDEN or caller is None:
            return
        if self._denials.note(caller, f"{scope['method']} {_path(scope)}"):
            self.on_denial()

    async def tick(self) -> Seconds | None:
        """Tell the store which keys were used, and what was refused."""
        now = self._monotonic()
        await self._tell_denials(now)
        if self._used and now - self._noted_at >= NOTE_SECONDS:
            await self.note_use()
        return None

    async def _tell_denials(self, now: Seconds) -> None:
        taken = sorted(self._denials.take(now), key=_tenant)
        untold = [list(group) for _, group in groupby(taken, key=_tenant)]
        try:
            while untold:
                client = untold[0][0].caller.client
                await client.record([denial.entry() for denial in untold[0]])
                del untold[0]
        finally:
            self._denials.put_back(chain.from_iterable(untold))

    async def note_use(self) -> None:
        """Tell the store which keys were used since the last time."""
        used, self._used = self._used, set()
        self._noted_at = self._monotonic()
        try:
            if used:
                await self._client.note_use(used)
                used = set[UUID]()
        finally:
            self._used |= used


def _tenant(denial: Denial) -> str:
    return denial.caller.tenant


def _path(scope: Scope) -> str:
    """Where a request went, without ids: one who tries them all is one entry."""
    names = {str(value): name for name, value in scope.get("path_params", {}).items()}
    parts = (f"{{{names[part]}}}" if part in names else part for part in scope["path"].split("/"))
    return "/".join(parts)


def _token(sent: list[bytes]) -> str | None:
    """The one token that a request has; None if that is not what is in its headers."""
    scheme, _, token = sent[0].decode("latin-1").strip().partition(" ")
    token = token.strip()
    if len(sent) > 1 or scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
        return None
    return token


async def authenticate(request: Request) -> Caller:
    """Who sent a request to an application that has nobody at its gate yet."""
    state = request.app.state
    if not hasattr(state, "gatekeeper"):
        api = api_of(request)
        now = asyncio.get_running_loop().time
        state.gatekeeper = Gatekeeper(api.client, api.options, monotonic=now)
    return await state.gatekeeper.authenticate(request)
