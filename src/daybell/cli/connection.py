"""The client of a command, for a store or a server, with audit entries for changes."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from types import CoroutineType
from typing import Any, Final, ParamSpec, TypeVar, cast

from daybell.cli.runtime import use_server
from daybell.cli.terminal import current_actor
from daybell.client import Client, wire
from daybell.client.remote.client import AnyClient, RemoteClient
from daybell.core.access import NewAuditEntry
from daybell.core.ids import mint
from daybell.core.job import DEFAULT_TENANT
from daybell.settings import Settings

# Changes made at a terminal are recorded, too.

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", Client, RemoteClient, AnyClient)

MANY: Final = "many"  # the target of a verb that acts on several
IDS_MAX: Final = 100  # of them that are recorded
UNTOLD: Final = frozenset({"args", "on_step", "author"})  # arguments that an entry leaves out


def audited(client: C, action: str, target: str, *, before: Any = None, after: Any = None) -> C:
    """Return a client that writes the entry with its change. A server keeps its own record."""
    if not isinstance(client, Client):
        return client
    return client.audited(_entry(action, target, before=before, after=after))


def audit_in_transaction(
    verb: Callable[P, Awaitable[R]], action: str
) -> Callable[P, CoroutineType[Any, Any, R]]:
    """Return a verb that is a transaction of its own, and that writes its entry in it."""

    @wraps(verb)
    async def recorded(*given: P.args, **options: P.kwargs) -> R:
        client, entry = _describe_call(action, verb, given, options)
        view: Any = client.audited(entry)
        return await cast("Any", verb)(view, *given[1:], **options)

    return recorded


def audit_after_call(
    verb: Callable[P, Awaitable[R]], action: str
) -> Callable[P, CoroutineType[Any, Any, R]]:
    """Return a verb with writes that may be sent with others: its entry comes right after it."""

    @wraps(verb)
    async def recorded(*given: P.args, **options: P.kwargs) -> R:
        answer = await verb(*given, **options)
        client, entry = _describe_call(action, verb, given, options)
        if not options.get("dry_run"):
            await client.record([entry])
        return answer

    return recorded


class RecordingClient(Client):
    """A client of a store that records its changes in the audit log, as a server does."""

    create = audit_in_transaction(Client.create, "job.create")
    update = audit_in_transaction(Client.update, "job.update")
    apply_job = audit_in_transaction(Client.apply_job, "job.apply")
    rollback = audit_in_transaction(Client.rollback, "job.rollback")
    delete_job = audit_in_transaction(Client.delete_job, "job.delete")
    pause = audit_in_transaction(Client.pause, "job.pause")
    resume = audit_in_transaction(Client.resume, "job.resume")
    cancel = audit_in_transaction(Client.cancel, "execution.cancel")
    cancel_many = audit_in_transaction(Client.cancel_many, "execution.cancel")
    discard = audit_in_transaction(Client.discard, "dead_letter.discard")
    discard_dead_letters = audit_in_transaction(Client.discard_dead_letters, "dead_letter.discard")
    retry_dead_letters = audit_in_transaction(Client.retry_dead_letters, "dead_letter.retry")
    set_limit = audit_in_transaction(Client.set_limit, "limit.set")
    pause_limit = audit_in_transaction(Client.pause_limit, "limit.pause")
    resume_limit = audit_in_transaction(Client.resume_limit, "limit.resume")
    drain_worker = audit_in_transaction(Client.drain_worker, "worker.drain")
    pause_queue = audit_in_transaction(Client.pause_queue, "queue.pause")
    resume_queue = audit_in_transaction(Client.resume_queue, "queue.resume")
    purge_queue = audit_in_transaction(Client.purge_queue, "queue.purge")
    delete_alert = audit_in_transaction(Client.delete_alert, "alert.delete")
    silence_alert = audit_in_transaction(Client.silence_alert, "alert.silence")
    test_alert = audit_in_transaction(Client.test_alert, "alert.test")
    acknowledge_incident = audit_in_transaction(Client.acknowledge_incident, "incident.acknowledge")
    hold_export = audit_in_transaction(Client.hold_export, "export.hold")
    release_export = audit_in_transaction(Client.release_export, "export.release")
    delete_subscription = audit_in_transaction(Client.delete_subscription, "subscription.delete")
    update_subscription = audit_in_transaction(Client.update_subscription, "subscription.update")
    test_subscription = audit_in_transaction(Client.test_subscription, "subscription.test")
    delete_template = audit_in_transaction(Client.delete_template, "template.delete")
    create_hook = audit_in_transaction(Client.create_hook, "hook.create")
    rotate_hook = audit_in_transaction(Client.rotate_hook, "hook.rotate")
    revoke_hook = audit_in_transaction(Client.revoke_hook, "hook.revoke")
    publish_many = audit_in_transaction(Client.publish_many, "event.publish")
    publish = audit_in_transaction(Client.publish, "event.publish")
    signal = audit_in_transaction(Client.signal, "execution.signal")
    approve = audit_in_transaction(Client.approve, "execution.approve")

    trigger = audit_after_call(Client.trigger, "job.trigger")
    backfill = audit_after_call(Client.backfill, "job.backfill")
    retry = audit_after_call(Client.retry, "execution.retry")
    retry_many = audit_after_call(Client.retry_many, "execution.retry")

    async def set_alert(
        self, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
    ) -> wire.Alert:
        action = "alert.create" if expect == 0 else "alert.update"
        view = self.audited(_entry(action, str(value.get("name")), after=dict(value)))
        return await Client.set_alert(view, value, author=author, expect=expect)

    async def create_subscription(
        self, value: Mapping[str, Any], *, author: str = ""
    ) -> wire.Subscription:
        entry = _entry("subscription.create", str(value.get("name")), after=dict(value))
        return await Client.create_subscription(self.audited(entry), value, author=author)

    async def set_template(
        self, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
    ) -> wire.Template:
        action = "template.create" if expect == 0 else "template.update"
        view = self.audited(_entry(action, str(value.get("name")), after=dict(value)))
        return await Client.set_template(view, value, author=author, expect=expect)


def _describe_call(
    action: str, verb: Callable[..., Any], given: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[Client, NewAuditEntry]:
    """Return the client of a call, and the entry for it: its target and its arguments."""
    client, *targets = given
    names = [*signature(verb).parameters]  # for arguments given by position
    said = {**dict(zip(names[2:], targets[1:], strict=False)), **options}
    after = {key: value for key, value in said.items() if key not in UNTOLD}
    target = _target(targets)
    if target == MANY and targets and targets[0] is not None:
        after["ids"] = targets[0][:IDS_MAX]
    return client, _entry(action, target, after=after or None)


def _target(targets: Sequence[Any]) -> str:
    """Return the first argument of a verb: a name, an id, or many ids."""
    first = targets[0] if targets else None
    if first is None or (isinstance(first, Iterable) and not isinstance(first, str)):
        return MANY
    return str(first)


def _entry(action: str, target: str, *, before: Any = None, after: Any = None) -> NewAuditEntry:
    return NewAuditEntry(
        id=mint(),
        actor=current_actor(),
        action=action,
        target=target,
        before=None if before is None else json.dumps(before, default=str),
        after=None if after is None else json.dumps(after, default=str),
        source=socket.gethostname(),
    )


def client_for(settings: Settings, *, tenant: str | None = None) -> AnyClient:
    """Return a client of the server or store that the settings name; a server wins over a store.

    Without a tenant it is the default one, or over HTTP the one that the key is for.
    """
    if settings.api_url is None:
        named = DEFAULT_TENANT if tenant is None else tenant
        key = settings.secrets_key
        lease = settings.lease
        return RecordingClient(settings.database_url, tenant=named, secrets_key=key, lease=lease)
    use_server()
    return RemoteClient(settings.api_url, key=settings.api_key, tenant=tenant)
