"""Authentication: look up keys, throttle wrong ones, and record denied requests."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, MutableMapping
from http import HTTPStatus
from itertools import chain, groupby
from typing import Any, Final
from uuid import UUID

import msgspec
from starlette.requests import Request

from daybell.api import sessions
from daybell.api.caller import CALLER, ApiOptions, Caller, KeyNeeded, TooManyRequests, api_of
from daybell.api.guard import PEER, admit_by_address, is_hook, is_login
from daybell.client import Client, Holder, wire
from daybell.core.access import LOGIN_SECONDS, Key, KeyKind, NewAuditEntry, Role
from daybell.core.units import Duration, Seconds
from daybell.errors import AccessDenied, NotFound

# Denied requests. The audit log gets one entry for many of them, not one per request.

QUIET_SECONDS: Final = 60.0  # repeats are counted, and recorded after this time
DENIALS_MAX: Final = 1_000  # kept in memory

DenialKey = tuple[UUID | None, str]  # a key, and the target of its request


class Denial(msgspec.Struct):
    """A denied target of one key, with the number of requests for it."""

    caller: Caller
    target: str
    count: int = 0  # since the last entry in the audit log
    told_at: Seconds | None = None

    @property
    def place(self) -> DenialKey:
        return (None if self.caller.key is None else self.caller.key.id, self.target)

    def entry(self) -> NewAuditEntry:
        """Return the entry for the audit log."""
        told = {"role": self.caller.role, "times": self.count}
        return self.caller.entry("access.deny", self.target, after=told)


class DenialLog:
    """The denials that the audit log has yet to get, in bounded memory.

    The first denial is recorded at once. Its repeats make one entry a minute.
    """

    def __init__(self) -> None:
        self._known: dict[DenialKey, Denial] = {}

    def note(self, caller: Caller, target: str) -> bool:
        """Count a denial; return True if it must be recorded now."""
        new = Denial(caller, target)
        denial = self._known.get(new.place)
        if denial is None:
            if len(self._known) >= DENIALS_MAX:
                return False
            denial = self._known[new.place] = new
        denial.count += 1
        return denial.told_at is None

    def take(self, now: Seconds) -> list[Denial]:
        """Return the denials to record now. They count as recorded, unless they are put back."""
        taken: list[Denial] = []
        for place, denial in list(self._known.items()):
            if denial.told_at is not None and now - denial.told_at < QUIET_SECONDS:
                continue
            if not denial.count:
                del self._known[place]
                continue
            taken.append(msgspec.structs.replace(denial))
            denial.count, denial.told_at = 0, now
        return taken

    def put_back(self, taken: Iterable[Denial]) -> None:
        """Keep denials that could not be recorded."""
        for denial in taken:
            since = self._known.get(denial.place)
            denial.count += 0 if since is None else since.count
            self._known[denial.place] = denial


# Buckets of tokens, in bounded memory: for wrong keys of an address, for requests of a key.

WRONG_KEYS_MAX: Final = 20  # per address, at once
REFILL_PER_SECOND: Final = 0.5
ADDRESSES_MAX: Final = 10_000  # kept in memory
BUCKET_SECONDS: Final = 10.0  # a key may send the requests of this time at once


def client_network(address: str) -> str:
    """Return the addresses of one customer of a provider: for IPv6, a whole network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((int(parsed), 64), strict=False))


class Throttle:
    """A bucket for each address, full at first. `place_of` names the bucket of an address.

    At more than `addresses_max` addresses, the one that was wrong longest ago is removed. An
    attacker with that many addresses gets as many new buckets, and no more memory.
    """

    def __init__(
        self,
        *,
        size: float = WRONG_KEYS_MAX,
        refill: float = REFILL_PER_SECOND,
        addresses_max: int = ADDRESSES_MAX,
        place_of: Callable[[str], str] | None = client_network,
    ) -> None:
        self._place_of = place_of
        self._size = size
        self._refill = refill
        self._addresses_max = addresses_max
        self._buckets: dict[str, tuple[float, Seconds]] = {}

    def take(self, address: str, now: Seconds) -> Seconds:
        """Take a token; return 0, or the seconds until there is one."""
        place = address if self._place_of is None else self._place_of(address)
        buckets = self._buckets
        tokens = self._tokens(place, now)
        is_there = tokens >= 1
        # Inserted again, the bucket is the last one.
        buckets.pop(place, None)
        buckets[place] = (tokens - 1 if is_there else tokens, now)
        if len(buckets) > self._addresses_max:
            del buckets[next(iter(buckets))]
        return 0.0 if is_there else (1 - tokens) / self._refill

    def is_empty(self, address: str, now: Seconds) -> bool:
        """Return True if no token is left for an address."""
        return self._tokens(address if self._place_of is None else self._place_of(address), now) < 1

    def __len__(self) -> int:
        return len(self._buckets)

    def _tokens(self, place: str, now: Seconds) -> float:
        tokens, since = self._buckets.get(place, (self._size, now))
        return min(self._size, tokens + (now - since) * self._refill)


def key_throttle(rate: float) -> Throttle:
    """Return a throttle with a bucket for each key, filled at this rate per second."""
    return Throttle(size=max(1.0, rate * BUCKET_SECONDS), refill=rate, place_of=None)


FRESH_SECONDS: Final = 2.0  # revoking a key works within 5
KEYS_MAX: Final = 10_000  # kept in memory
NOTE_SECONDS: Final = 30.0  # between two updates of the last use of keys
LANES: Final = 4  # lookups at a time for addresses that sent too many wrong keys
LANE_WAITS_MAX: Final = 100

ROOT: Final = 0  # a uid
PATTERN: Final = "daybell.pattern"  # in a scope: the path of the route, with names of parameters
_TOKEN: Final = re.compile(r"dbk_[A-Za-z0-9_-]{20,100}")
_HOOK_TOKEN: Final = re.compile(r"dbh_[A-Za-z0-9_-]{20,100}")

Scope = MutableMapping[str, Any]


class CachedKey(msgspec.Struct, frozen=True):
    """A key that was valid when it was looked up."""

    key: Key
    until: Seconds  # from then on the key must be looked up again
    # Created once, for all requests of the key.
    holder: Holder
    actor: str


class Authenticator:
    """The component that finds the caller of each request.

    An address that sends wrong keys must wait. A valid key from the same address is accepted all
    the same. `monotonic` is a clock for differences.
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
        self._known: OrderedDict[bytes, CachedKey] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[CachedKey | None]] = {}
        self._wrong = Throttle()
        self._pace = key_throttle(options.key_rate) if options.key_rate else None
        self._lanes = asyncio.Semaphore(LANES)
        self._lane_waits = 0
        self._denials = DenialLog()
        self._used: set[UUID] = set()
        self._noted_at = monotonic()

    async def admit(self, scope: Scope) -> Holder:
        """Find the caller of a request and store it in the scope. Raises KeyNeeded and others."""
        if is_login(scope) or is_hook(scope):
            return await admit_by_address(scope)
        caller = scope[CALLER] = await self._find_caller(scope)
        self._check_pace(caller.holder)
        return caller.holder

    def _check_pace(self, holder: Holder) -> None:
        if self._pace is not None and holder.key:
            wait = self._pace.take(holder.key, self._monotonic())
            if wait:
                raise TooManyRequests(
                    "this key sends more requests per second than this server accepts from one"
                    " key; send them again after the time in Retry-After",
                    retry_after=wait,
                )

    async def authenticate(self, request: Request) -> Caller:
        """Return the caller of a request."""
        await self.admit(request.scope)
        return request.scope[CALLER]

    async def is_welcome(self, request: Request) -> bool:
        """Return True if a request would be admitted now; long-lived streams check this."""
        try:
            await self._find_caller(request.scope)
        except KeyNeeded:
            return False
        return True

    async def _find_caller(self, scope: Scope) -> Caller:
        source = _source_of(scope)
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        if not sent and self._options.open_tenant is not None:
            self._check_local_user(scope)
            return self._anybody(self._options.open_tenant, source)
        if not sent and (session := sessions.read_cookie(scope)) is not None:
            known = await self._find_session(session, source)
            sessions.check_origin(scope, session)
            return self._caller(known, source)
        if not sent:
            raise KeyNeeded("send a key, as Authorization: Bearer dbk_…")
        token = _token(sent)
        known = await self._find_kind(token, source, {KeyKind.KEY})
        if known is None:
            self._count_wrong(source)
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

    async def _find_session(self, token: str, source: str) -> CachedKey:
        known = await self._find_kind(token, source, {KeyKind.SESSION})
        if known is None:
            # A page that was left open is no attack: its user must read that the session ended.
            self._wrong.take(source, self._monotonic())
            raise KeyNeeded("this session has ended; log in again")
        # The use of a session counts as use of its key, too.
        self._used.update(id for id in (known.key.id, known.key.parent) if id is not None)
        return known

    async def _find_kind(
        self, token: str | None, source: str, kinds: Collection[KeyKind]
    ) -> CachedKey | None:
        known = None if token is None else await self._find(token, source)
        return None if known is None or known.key.kind not in kinds else known

    async def find_hook(self, scope: Scope, token: str) -> Caller | None:
        """Return the caller that a webhook's request is; None: the token is of none."""
        source = _source_of(scope)
        is_token = _HOOK_TOKEN.fullmatch(token) is not None
        known = await self._find_kind(token if is_token else None, source, {KeyKind.HOOK})
        if known is None:
            return None
        self._check_pace(known.holder)
        return self._caller(known, source)

    def note_hook(self, caller: Caller) -> None:
        """Note that a hook was used."""
        if caller.key is not None:
            self._used.add(caller.key.id)

    def count_wrong_hook(self, scope: Scope) -> None:
        """Count a refused request of a webhook. Raises TooManyRequests."""
        self._count_wrong(_source_of(scope))

    def _count_wrong(self, source: str) -> None:
        wait = self._wrong.take(source, self._monotonic())
        if wait:
            raise TooManyRequests(
                "too many wrong keys came from this address; wait a little", retry_after=wait
            )

    async def log_in(self, scope: Scope, token: str) -> tuple[Caller, str]:
        """Open a session with a key or a login link; return its caller and its token. Raises
        KeyNeeded and others.
        """
        source = _source_of(scope)
        is_token = _TOKEN.fullmatch(token) is not None
        kinds = (KeyKind.KEY, KeyKind.LOGIN)
        known = await self._find_kind(token if is_token else None, source, kinds)
        if known is None:
            self._count_wrong(source)
            raise KeyNeeded("this opens nothing: it is wrong, expired, used or revoked")
        if known.key.role is Role.WORKER:
            raise AccessDenied("a worker's key opens no session; use one with another role")
        self._check_pace(known.holder)
        opener = self._caller(known, source)
        entry = opener.entry("session.create", known.key.parent or known.key.id)
        try:
            client = self._client_of(known.key.tenant).audited(entry)
            key, made = await client.open_session(token)
        except NotFound:
            raise KeyNeeded("this opens nothing any more: it was used or revoked") from None
        self._known.pop(_digest(token), None)
        caller = scope[CALLER] = self._caller(self._cached(key, until=0.0), source)
        return caller, made

    async def log_out(self, caller: Caller) -> None:
        """End the session of a caller that has one."""
        if caller.key is None or caller.key.kind is not KeyKind.SESSION:
            return
        entry = caller.entry("session.delete", caller.key.id)
        await self._client_of(caller.key.tenant).audited(entry).revoke_key(caller.key.id)
        for digest, known in list(self._known.items()):
            if known.key.id == caller.key.id:
                del self._known[digest]

    async def create_login(
        self, caller: Caller, *, role: Role | None, expires: Duration | None
    ) -> wire.NewKeyAnswer:
        """Create a login link with at most the rights of the caller."""
        if role is not None and not caller.role.may(role):
            raise AccessDenied(f"a link with the role {role} takes a key with it")
        given = caller.role if role is None else role
        # Of the tenant of the key, with which the link ends; not of the tenant in the request.
        tenant = caller.tenant if caller.key is None else caller.key.tenant
        entry = caller.entry("login.create", tenant, after={"role": given})
        return (
            await self._client_of(tenant)
            .audited(entry)
            .create_login(
                role=given,
                expires=LOGIN_SECONDS if expires is None else expires,
                parent=caller.key,
                created_by=caller.actor,
            )
        )

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

    def _caller(self, known: CachedKey, source: str) -> Caller:
        key = known.key
        client = self._client_of(key.tenant)
        if key.scope is not None and key.scope.limits_names and key.role is not Role.WORKER:
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

    async def _find(self, token: str, source: str) -> CachedKey | None:
        digest = _digest(token)
        known = self._known.get(digest)
        if known is not None and self._monotonic() < known.until:
            self._known.move_to_end(digest)
            return known
        # A key that was valid before does not wait because of wrong keys from its address.
        if known is None and self._wrong.is_empty(source, self._monotonic()):
            return await self._find_slowly(digest, token)
        return await self._ask(digest, token)

    async def _find_slowly(self, digest: bytes, token: str) -> CachedKey | None:
        if self._lane_waits >= LANE_WAITS_MAX:
            return None
        self._lane_waits += 1
        try:
            async with self._lanes:
                return await self._ask(digest, token)
        finally:
            self._lane_waits -= 1

    async def _ask(self, digest: bytes, token: str) -> CachedKey | None:
        """Look a key up, once for all requests that wait for it."""
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.create_task(self._look_up(digest, token))
            task.add_done_callback(lambda done: self._forget(digest, done))
        # A request that is cancelled must not cancel the lookup of the others.
        return await asyncio.shield(task)

    def _forget(self, digest: bytes, done: asyncio.Task[CachedKey | None]) -> None:
        self._asking.pop(digest, None)
        if not done.cancelled():
            done.exception()  # retrieved, in case that no request waits for it any more

    async def _look_up(self, digest: bytes, token: str) -> CachedKey | None:
        asked = self._monotonic()
        found = await self._client.authenticate(token)
        self._known.pop(digest, None)
        if found is None:
            return None
        key, now = found
        if not key.is_valid(now):
            return None
        left = FRESH_SECONDS if key.expires_at is None else key.expires_at - now
        known = self._known[digest] = self._cached(key, until=asked + min(FRESH_SECONDS, left))
        if len(self._known) > KEYS_MAX:
            self._known.popitem(last=False)
        return known

    def _cached(self, key: Key, *, until: Seconds) -> CachedKey:
        # All sessions of a key have one share together, and are recorded as the key.
        owner = key.parent or key.id
        # Several keys may have the same name, or the same hint.
        actor = f"{key.kind} {key.name} ({key.hint}, {owner})"
        return CachedKey(key, until=until, holder=Holder(key.tenant, str(owner)), actor=actor)

    # Writes to the store, in groups.

    def hear(self, scope: Scope, status: int) -> None:
        """Record the status of a response: the denials of a key get into the audit log."""
        caller: Caller | None = scope.get(CALLER)
        if status != HTTPStatus.FORBIDDEN or caller is None:
            return
        if self._denials.note(caller, f"{scope['method']} {_path(scope)}"):
            self.on_denial()

    async def tick(self) -> Seconds | None:
        """Write the denials and the use of keys to the store."""
        now = self._monotonic()
        await self._tell_denials(now)
        if self._used and now - self._noted_at >= NOTE_SECONDS:
            await self.note_use()
        return None

    async def _tell_denials(self, now: Seconds) -> None:
        taken = sorted(self._denials.take(now), key=_tenant_of_denial)
        untold = [list(group) for _, group in groupby(taken, key=_tenant_of_denial)]
        try:
            while untold:
                client = untold[0][0].caller.client
                await client.record([denial.entry() for denial in untold[0]])
                del untold[0]
        finally:
            self._denials.put_back(chain.from_iterable(untold))

    async def note_use(self) -> None:
        """Write to the store which keys were used since the last time."""
        used, self._used = self._used, set()
        self._noted_at = self._monotonic()
        try:
            if used:
                await self._client.note_use(used)
                used = set[UUID]()
        finally:
            self._used |= used


def _tenant_of_denial(denial: Denial) -> str:
    return denial.caller.tenant


def _path(scope: Scope) -> str:
    """Return the path without ids: a caller that tries all ids makes one entry."""
    return scope.get(PATTERN, scope["path"])


def _source_of(scope: Scope) -> str:
    return (scope.get("client") or ("",))[0]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _token(sent: list[bytes]) -> str | None:
    """Return the one token of a request; None: its headers do not hold exactly one."""
    scheme, _, token = sent[0].decode("latin-1").strip().partition(" ")
    token = token.strip()
    if len(sent) > 1 or scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
        return None
    return token


async def authenticate(request: Request) -> Caller:
    """Return the caller of a request."""
    return await gatekeeper_of(request).authenticate(request)


def gatekeeper_of(request: Request) -> Authenticator:
    """Return the authenticator of an application; create one if its server has set none."""
    state = request.app.state
    if not hasattr(state, "gatekeeper"):
        api = api_of(request)
        now = asyncio.get_running_loop().time
        state.gatekeeper = Authenticator(api.client, api.options, monotonic=now)
    return state.gatekeeper
