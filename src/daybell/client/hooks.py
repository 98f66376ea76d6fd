"""Webhooks of jobs: addresses with a token, rotation, and the check of what arrives there.

A hook is a key of its own kind. What arrives becomes the event `hook.<job>`, which fires the job.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from secrets import token_urlsafe
from typing import Any, Final, NamedTuple

import msgspec

from daybell.client.admin import HINT_CHARS, TOKEN_BYTES, digest_token
from daybell.client.context import ClientContext
from daybell.client.schedules import schedule, schedules
from daybell.core.access import Hook, HookAlgorithm, HookEncoding, Key, KeyKind, NewKey, Role
from daybell.core.ids import mint
from daybell.core.limits import check_name
from daybell.core.options import read_limit, read_word
from daybell.core.references import check_secret_name
from daybell.core.units import Duration, Instant, Seconds
from daybell.core.when import on_event
from daybell.errors import Conflict, NotFound, UsageError, shown

TOKEN_PREFIX: Final = "dbh_"
SIGNATURES: Final = ("github", "stripe", "standard", "hmac")
OVERLAP_DEFAULT: Final = "1d"
TIMESTAMP_SECONDS: Final[Seconds] = 300.0  # between the sender's clock and that of the store
SCHEDULE: Final = "hook"  # the name of the schedule that fires the job
_STANDARD_PREFIX: Final = "whsec_"
_DECOY: Final = Hook(job="", signature="hmac", secret="decoy", header="x-signature")


def event_name(job: str) -> str:
    """Return the name of the events that the hooks of a job receive."""
    return f"hook.{job}"


async def create_hook(
    client: ClientContext,
    job: str,
    name: str,
    *,
    expires: Duration | None = None,
    signature: str | None = None,
    secret: str | None = None,
    header: str | None = None,
    algorithm: str | None = None,
    encoding: str | None = None,
    created_by: str = "",
) -> tuple[Key, str]:
    """Create an address for a job and return it with its token, which cannot be read again.

    With a `signature` (github, stripe, standard, hmac), a request is accepted only if it is signed
    with the secret of that name. The job is fired by the event `hook.<job>`; a schedule for it is
    added if the job has none.
    """
    known = await client.store.catalog.get_job(client.tenant, job)
    hook = _read_hook(known.name, signature, secret, header, algorithm, encoding)
    check_name(name, what="hook")
    if any(one.name == name for one in await hooks(client, known.name, is_live=True)):
        raise Conflict(
            f"job {known.name} has a hook {shown(name)} already; rotate it for a new token, or"
            " choose another name"
        )
    await _check_secret(client, hook)
    on_event(event_name(known.name))  # raises for a name that is too long
    made, token = _new_key(name, hook, expires=read_limit(expires, "expires"), by=created_by)
    await _listen(client, known.name)  # first: it raises for a task that cannot take the event
    return await client.store.admin.add_key(client.tenant, made), token


def _new_key(name: str, hook: Hook, *, expires: Seconds | None, by: str) -> tuple[NewKey, str]:
    token = TOKEN_PREFIX + token_urlsafe(TOKEN_BYTES)
    new = NewKey(
        id=mint(),
        name=name,
        role=Role.VIEWER,  # it gives no other access
        digest=digest_token(token),
        hint=token[:HINT_CHARS],
        expires_in=expires,
        created_by=by,
        kind=KeyKind.HOOK,
        hook=hook,
    )
    return new, token


async def _listen(client: ClientContext, job: str) -> None:
    """Add a schedule for the events of the hooks, unless the job has one."""
    event = event_name(job)
    if not any(one.event == event for one in await schedules(client, job)):
        await schedule(client, job, on_event(event), name=SCHEDULE, overlap_by="job")


async def _check_secret(client: ClientContext, hook: Hook) -> None:
    if hook.secret is None:
        return
    found = await client.store.admin.fetch_secrets(client.tenant, [hook.secret])
    if hook.secret not in found:
        raise UsageError(
            f"there is no secret named {shown(hook.secret)}; set it first, as in"
            f" `daybell secrets set {hook.secret}`",
            field="secret",
        )
    text = client.sealer().open(client.tenant, found[hook.secret])
    if hook.signature == "standard" and _standard_key(text) is None:
        raise UsageError(
            f"secret {hook.secret} is no key of Standard Webhooks: whsec_ and Base64",
            field="secret",
        )


def _read_hook(
    job: str,
    signature: str | None,
    secret: str | None,
    header: str | None,
    algorithm: str | None,
    encoding: str | None,
) -> Hook:
    """Read the rule for signatures."""
    rest = {"header": header, "algorithm": algorithm, "encoding": encoding}
    given = [name for name, value in rest.items() if value is not None]
    if signature is not None:
        read_word(signature, SIGNATURES, "signature")
    if given and signature != "hmac":
        raise UsageError(f"{given[0]} is for the signature hmac; leave it out", field=given[0])
    if signature is None:
        if secret is not None:
            raise UsageError(
                f"secret is for a signature: {', '.join(SIGNATURES)}; say which", field="signature"
            )
        return Hook(job=job)
    if secret is None:
        raise UsageError(
            "a signature needs the name of the secret that signs; set it with `daybell secrets"
            " set`",
            field="secret",
        )
    check_secret_name(secret)
    if signature != "hmac":
        return Hook(job=job, signature=signature, secret=secret)
    name = "x-signature" if header is None else header.lower()
    if not name.isascii() or not name.replace("-", "").isalnum() or len(name) > 100:
        raise UsageError(f"header {shown(header)} is not the name of a header", field="header")
    return Hook(
        job=job,
        signature="hmac",
        secret=secret,
        header=name,
        algorithm=HookAlgorithm(
            read_word(algorithm or "sha256", tuple(HookAlgorithm), "algorithm")
        ),
        encoding=HookEncoding(read_word(encoding or "hex", tuple(HookEncoding), "encoding")),
    )


async def hooks(client: ClientContext, job: str, *, is_live: bool = False) -> list[Key]:
    """Return the hooks of a job, newest first; revoked and expired ones too, unless `is_live`."""
    known = await client.store.catalog.get_job(client.tenant, job)
    now = (await client.store.health()).now
    return [
        one
        for one in await client.store.admin.list_keys(client.tenant)
        if one.hook is not None
        and one.hook.job == known.name
        and (not is_live or one.is_valid(now))
    ]


async def _find(client: ClientContext, job: str, name: str) -> list[Key]:
    found = [one for one in await hooks(client, job, is_live=True) if one.name == name]
    if not found:
        raise NotFound(f"job {job} has no valid hook named {shown(name)}")
    return found


async def rotate_hook(
    client: ClientContext,
    job: str,
    name: str,
    *,
    overlap: Duration = OVERLAP_DEFAULT,
    created_by: str = "",
) -> tuple[Key, str]:
    """Give a hook a new token. The old one is valid for the time of `overlap`, at most until the
    end that the hook has.
    """
    left = read_limit(overlap, "overlap") if overlap not in (0, "0", "0s") else 0.0
    old = await _find(client, job, name)
    newest = old[0]
    assert newest.hook is not None, "it is a hook"
    now = (await client.store.health()).now
    ends = None if newest.expires_at is None else max(1.0, newest.expires_at - now)
    made, token = _new_key(name, newest.hook, expires=ends, by=created_by)
    key = await client.store.admin.add_key(client.tenant, made)
    for one in old:
        await client.store.admin.revoke_key(client.tenant, one.id, after=left or 0.0)
    return key, token


async def revoke_hook(client: ClientContext, job: str, name: str) -> Key:
    """Revoke a hook with all of its tokens."""
    found = [
        await client.store.admin.revoke_key(client.tenant, one.id)
        for one in await _find(client, job, name)
    ]
    return found[0]


# Requests that arrive.


class Delivery(NamedTuple):
    """An accepted request."""

    hook: Hook
    event_id: str | None  # of the sender, so that a replay is recognized; None: it has none


async def fetch_signing_secret(client: ClientContext, hook: Hook | None) -> bytes | None:
    """Return the secret of a hook. A token that belongs to no hook costs the same query."""
    asked = hook or _DECOY
    if asked.secret is None:
        return None
    found = await client.store.admin.fetch_secrets(client.tenant, [asked.secret])
    if asked.secret not in found:
        return None
    return client.sealer().open(client.tenant, found[asked.secret]).encode()


def check_delivery(
    hook: Hook | None, secret: bytes | None, headers: Mapping[str, str], raw: bytes, now: Instant
) -> Delivery | None:
    """Return a request if its signature is valid. None: it is refused, for any reason. The time
    does not depend on the reason: without a hook, a signature is computed all the same.
    """
    asked = hook or _DECOY
    if asked.signature is None:
        return Delivery(asked, _sent_id(headers))
    key = secret if secret is not None else b"decoy"
    signed = _SCHEMES[asked.signature](asked, key, headers, raw, now)
    if hook is None or secret is None or signed is None:
        return None
    return Delivery(hook, signed)


def _sent_id(headers: Mapping[str, str]) -> str | None:
    """Return the id of a request that is not signed."""
    for name in ("webhook-id", "x-github-delivery", "idempotency-key"):
        if headers.get(name):
            return headers[name][:200]
    return None


def _content_id(raw: bytes) -> str:
    """Return the id of signed content without an own id: a replay has the same."""
    return f"sha256-{hashlib.sha256(raw).hexdigest()}"


def _check_github(
    hook: Hook, key: bytes, headers: Mapping[str, str], raw: bytes, now: Instant
) -> str | None:
    del hook, now  # GitHub signs no time; a replay has the same content
    sent = headers.get("x-hub-signature-256", "")
    expected = "sha256=" + hmac.new(key, raw, hashlib.sha256).hexdigest()
    return _content_id(raw) if _is_same(sent, expected) else None


def _check_stripe(
    hook: Hook, key: bytes, headers: Mapping[str, str], raw: bytes, now: Instant
) -> str | None:
    del hook
    parts = [part.strip().partition("=") for part in headers.get("stripe-signature", "").split(",")]
    times = [value for name, _, value in parts if name == "t"]
    at = times[0] if times else ""
    expected = hmac.new(key, at.encode() + b"." + raw, hashlib.sha256).hexdigest()
    sent = [value for name, _, value in parts if name == "v1"]
    is_valid = any([_is_same(one, expected) for one in sent])
    if not is_valid or not _is_recent(at, now):
        return None
    try:
        body: Any = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return _content_id(raw)
    id = body.get("id") if isinstance(body, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return id[:200] if isinstance(id, str) and id else _content_id(raw)


def _check_standard(
    hook: Hook, key: bytes, headers: Mapping[str, str], raw: bytes, now: Instant
) -> str | None:
    del hook
    id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    secret = _standard_key(key.decode(errors="replace")) or b"decoy"
    text = f"{id}.{at}.".encode() + raw
    digest = hmac.new(secret, text, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(digest).decode()
    sent = headers.get("webhook-signature", "").split()
    is_valid = any([_is_same(one, expected) for one in sent])
    return id[:200] if is_valid and id and _is_recent(at, now) else None


def _check_hmac(
    hook: Hook, key: bytes, headers: Mapping[str, str], raw: bytes, now: Instant
) -> str | None:
    del now
    digest = hmac.new(key, raw, str(hook.algorithm)).digest()
    if hook.encoding is HookEncoding.BASE64:
        expected = base64.b64encode(digest).decode()
    else:
        expected = digest.hex()
    sent = headers.get(hook.header or "", "").strip().removeprefix(f"{hook.algorithm}=")
    if hook.encoding is HookEncoding.HEX:
        sent = sent.lower()
    return _content_id(raw) if _is_same(sent, expected) else None


_SCHEMES: Final = {
    "github": _check_github,
    "stripe": _check_stripe,
    "standard": _check_standard,
    "hmac": _check_hmac,
}


def _is_same(sent: str, expected: str) -> bool:
    return hmac.compare_digest(sent.encode(), expected.encode())


def _is_recent(at: str, now: Instant) -> bool:
    if not (at.isascii() and at.isdigit() and len(at) < 13):
        return False
    return abs(now - int(at)) <= TIMESTAMP_SECONDS


def _standard_key(text: str) -> bytes | None:
    if not text.startswith(_STANDARD_PREFIX):
        return text.encode()  # as jobs sign, see `http.sign`
    try:
        return base64.b64decode(text.removeprefix(_STANDARD_PREFIX), validate=True) or None
    except (ValueError, binascii.Error):
        return None
