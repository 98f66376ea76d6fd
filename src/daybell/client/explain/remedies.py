"""Actions that change a situation: each is a command, and the same as a request if there is one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from daybell.client.runs import APPROVAL, DECISION, short_name
from daybell.client.workers import describe_start
from daybell.core.flow import LimitTerms, format_rate
from daybell.errors import with_tenant

_BASE: Final = "/api/v1"


class Remedy(msgspec.Struct, frozen=True):
    """A change that removes a cause. Without a method, only the command does it."""

    label: str
    command: str
    method: str | None = None
    path: str | None = None
    body: dict[str, Any] | None = None


def in_tenant(actions: Iterable[Remedy], tenant: str) -> tuple[Remedy, ...]:
    """Return actions with commands that name the tenant."""
    return tuple(
        msgspec.structs.replace(one, command=with_tenant(f"`{one.command}`", tenant).strip("`"))
        for one in actions
    )


def _post(label: str, command: str, *path: object, body: dict[str, Any] | None = None) -> Remedy:
    place = "/".join(quote(str(part), safe="") for part in path)
    return Remedy(label, command, "POST", f"{_BASE}/{place}", body)


def resume_queue(name: str) -> Remedy:
    """Resume a paused queue."""
    label, command = f"resume queue {name}", f"daybell queues resume {shlex.quote(name)}"
    return _post(label, command, "queues", name, "resume")


def resume_limit(name: str) -> Remedy:
    """Resume a paused limit."""
    label, command = f"resume limit {name}", f"daybell limits resume {shlex.quote(name)}"
    return _post(label, command, "limits", name, "resume")


def raise_limit(name: str, terms: LimitTerms, *, is_full: bool) -> tuple[Remedy, ...]:
    """Double the number of a limit that is full, or else its rates. Bursts depend on rates: with
    these there is no action.
    """
    said, path = shlex.quote(name), f"{_BASE}/limits/{quote(name, safe='')}"
    if terms.limit is not None and is_full:
        flags, body = f"--limit {2 * terms.limit}", {"limit": 2 * terms.limit}
        label = f"let limit {name} run {2 * terms.limit:,} at a time"
    elif terms.rates and all(burst is None for _, _, burst in terms.rates):
        rates = [format_rate(2 * count, seconds) for count, seconds, _ in terms.rates]
        flags, body = " ".join(f"--rate {one}" for one in rates), {"rate": rates}
        label = f"let limit {name} start {' and '.join(rates)}"
    else:
        return ()
    return (Remedy(label, f"daybell limits set {said} {flags}", "PATCH", path, body),)


def resume_job(name: str) -> Remedy:
    """Resume the schedules of a paused job."""
    label, command = f"resume job {name}", f"daybell jobs resume {shlex.quote(name)}"
    return _post(label, command, "jobs", name, "resume")


def trigger(name: str, *, force: bool = False) -> Remedy:
    """Run a job now."""
    flag, how = ("", "") if not force else (" --force", ", whatever is in its way")
    label, command = f"run job {name} now{how}", f"daybell jobs trigger {shlex.quote(name)}{flag}"
    return _post(label, command, "jobs", name, "trigger", body={"force": True} if force else {})


def cancel(id: UUID, *, what: str = "this execution") -> Remedy:
    """Cancel an execution."""
    return _post(f"cancel {what}", f"daybell executions cancel {id}", "executions", id, "cancel")


def retry(id: UUID) -> Remedy:
    """Run an execution again."""
    label, command = "run it again", f"daybell executions retry {id}"
    return _post(label, command, "executions", id, "retry")


def discard(id: UUID) -> Remedy:
    """Take an execution off the dead letters."""
    label, command = "discard it", f"daybell dead-letters discard {id}"
    return _post(label, command, "dead-letters", "discard", body={"ids": [str(id)]})


def answer_wait(id: UUID, event: str) -> Remedy:
    """Send the event or the decision that an execution waits for."""
    name = short_name(event)
    if not event.startswith(APPROVAL):
        label, command = f"send {name}", f"daybell executions signal {id} {shlex.quote(name)}"
        return _post(label, command, "executions", id, "signal", body={"name": name})
    flag = "" if name == DECISION else f" --name {shlex.quote(name)}"
    command = f"daybell executions approve {id}{flag}"
    body = {"name": name, "approved": True}
    return _post(f"approve {name}", command, "executions", id, "approve", body=body)


def raise_quota(tenant: str, most: int) -> Remedy:
    """Raise the number of executions that a tenant runs at the same time."""
    more = max(1, 2 * most)
    return Remedy(
        f"let tenant {tenant} run {more:,} at a time",
        f"daybell tenants update {shlex.quote(tenant)} --running {more}",
        "PATCH",
        f"{_BASE}/tenants/{quote(tenant, safe='')}",
        {"running": more},
    )


_COMMAND: Final = re.compile(r"`(daybell worker[^`]*)`")


def start_worker(needs: str, *, queue: str) -> Remedy:
    """Start a worker that meets the needs of a queue's jobs."""
    advice = describe_start(needs, queue=queue)
    found = _COMMAND.search(advice)
    assert found is not None
    beside = advice.replace(found[0], "").removeprefix("start one").strip(" ,;:")
    label = "start a worker" + (f" {beside}" if beside and beside != "with" else "")
    return Remedy(label.removesuffix(" with"), found[1])


def start_scheduler() -> Remedy:
    """Start a scheduler."""
    return Remedy("start a scheduler", "daybell scheduler")
