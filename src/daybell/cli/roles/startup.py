"""Startup of long-running processes: wait for the store, permissions, host names, dead workers."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from daybell.cli.runtime import print_stderr
from daybell.cli.terminal import StopSignals
from daybell.client.sealing import VARIABLE, Sealer
from daybell.core.ids import mint
from daybell.core.kinds.settings import read_env
from daybell.core.units import Seconds
from daybell.core.views import Retention
from daybell.core.worker import Offer
from daybell.engine.claim import Queues
from daybell.engine.events import Events
from daybell.engine.loop import Clock, SystemClock
from daybell.engine.upkeep import Reaper, Upkeep
from daybell.engine.worker import WorkerOptions
from daybell.errors import DaybellError, Unavailable, UsageError, listed
from daybell.sdk.handlers import KindOptions
from daybell.settings import Settings, masked_url
from daybell.store.open import store_for
from daybell.store.protocol import Store


def tune_garbage_collector() -> None:
    """Have the garbage collector ignore loaded objects, and check the rest less often.

    Executions come and go by the thousand and hold no cycles: its default is a twentieth of a busy
    process's work.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


# Waiting for a store that is not there yet, in a process that is to run for long.

logger = logging.getLogger("daybell.cli")

T = TypeVar("T")

PAUSE_MIN_SECONDS: Final = 0.2
PAUSE_MAX_SECONDS: Final = 5.0


async def wait_for_store(connect: Callable[[], Awaitable[T]], url: str, stop: StopSignals) -> T:
    """Return the result of `connect` as soon as the store answers.

    A restart of the store's server is no reason to end: perhaps nothing would start this process
    again. Errors that waiting cannot fix are raised: a wrong password, an unknown database, a
    schema that is too old.
    """
    clock, pause = SystemClock(), PAUSE_MIN_SECONDS
    with stop.heeding():
        while True:
            try:
                found = await connect()
            except Unavailable as error:
                if error.is_lasting:
                    raise
                if pause == PAUSE_MIN_SECONDS:
                    logger.warning("%s is away, waiting for it: %s", masked_url(url), error)
            else:
                if pause > PAUSE_MIN_SECONDS:
                    logger.info("%s is there", masked_url(url))
                return found
            # A fleet that was started together must not come together, either.
            await clock.sleep(pause * (0.5 + clock.jitter() / 2))
            pause = min(PAUSE_MAX_SECONDS, 2 * pause)


# Report dead workers to the store, so that no execution waits for their leases.

supervisor_logger = logging.getLogger("daybell.supervisor")

PATIENCE_SECONDS: Final = 5.0  # with the store; without it, the lease ends by itself


async def retire_dead_workers(
    workers: list[UUID], *, url: str, tenant: str, lease: Seconds
) -> None:
    """Declare workers dead, and release their executions to others.

    Only for workers with a process that was seen to end. A statement of theirs that is still under
    way is refused or comes first, as with any other end of a lease.
    """
    try:
        await asyncio.wait_for(_retire_workers(workers, url, tenant, lease), PATIENCE_SECONDS)
    except (DaybellError, TimeoutError) as error:
        said = str(error) or "it does not answer"
        supervisor_logger.warning(
            "the store was not told; what ran waits for the lease to end: %s", said
        )


async def _retire_workers(workers: list[UUID], url: str, tenant: str, lease: Seconds) -> None:
    store = store_for(url, lease=lease)
    await store.open()
    try:
        for worker in workers:
            await store.queue.retire(tenant, worker)
        # It has just begun, so it takes workers for dead only by their records in the store.
        await Reaper(store, clock=SystemClock(), events=Events(), lease=lease).tick()
    finally:
        await store.close()


# The names that reach this machine.


def allowed_names(host: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return the names that requests may be addressed to, besides `host`, this machine's addresses
    and localhost: those given, and the machine's own names if `host` means all addresses.
    """
    return tuple(dict.fromkeys([*given, *(_own_names() if is_everywhere(host) else ())]))


def is_everywhere(host: str) -> bool:
    """Return true if the host means all addresses of this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host == ""


def describe_names(names: Sequence[str]) -> str:
    """Describe the names for the log line of a server that listens on all addresses."""
    listed = ", ".join(["localhost", *names])
    return f"reached as {listed}, and by this machine's addresses; --allowed-host adds others"


def _own_names() -> list[str]:
    names = [socket.gethostname(), socket.getfqdn()]
    return [name for name in names if _is_name(name)]


def _is_name(name: str) -> bool:
    """Return true if a Host header can have the name; a machine may be called anything."""
    return bool(name) and name.isascii() and all(char.isalnum() or char in "-._" for char in name)


# Other live workers of the same queues, and the tasks that they and this one do not both have.

SAMPLE_MAX: Final = 5


async def warn_task_mismatch(store: Store, options: WorkerOptions) -> None:
    """Warn once, at the start, that work will go back and forth between workers, and why."""
    try:
        warning = task_mismatch_warning(options, await store.catalog.offers(options.tenant))
    except Unavailable:
        return  # another part waits for the store; this warning is not worth it
    if warning is not None:
        print_stderr(f"warning: {warning}")


def task_mismatch_warning(options: WorkerOptions, others: Iterable[Offer]) -> str | None:
    """Return a warning for a worker that shares queues with workers that have other tasks for them.

    Only tasks count that are meant for a queue which both take: all workers take the default one,
    and it may be that nothing is in it.
    """
    queues, own = frozenset(Queues.parse(options.queues).names), options.tasks
    if own is None or "task" not in options.kinds:
        return None
    shared, theirs, ours = set[str](), set[str](), set[str]()
    for other in others:
        if other.tasks is None or "task" not in other.kinds:
            continue
        both = queues.intersection(other.queues)
        lacking = {one for one, queue in other.tasks.items() if queue in both and one not in own}
        extra = {one for one, queue in own.items() if queue in both and one not in other.tasks}
        shared |= {other.tasks[one] for one in lacking} | {own[one] for one in extra}
        theirs |= lacking
        ours |= extra
    if not shared:
        return None
    told = [
        *([f"this one has no {listed(sorted(theirs), most=SAMPLE_MAX)}"] if theirs else []),
        *([f"others have no {listed(sorted(ours), most=SAMPLE_MAX)}"] if ours else []),
    ]
    named = " and ".join(f"{name!r}" for name in sorted(shared))
    return (
        f"other live workers of {'queue' if len(shared) == 1 else 'queues'} {named} have other"
        f" tasks: {'; '.join(told)}. A worker returns an execution whose"
        " task it does not have, which delays it by a second or more; unless this is a deploy, give"
        " each app queues of its own"
    )


# The kinds of jobs without code that a worker allows, from the words typed.


def read_kind_options(
    settings: Settings,
    *,
    tasks: bool = True,
    allow_command: bool = False,
    allow_private_http: bool = False,
    allow_env: str = "",
    pass_env: str = "",
    store_url: str | None = None,
) -> KindOptions:
    """Read the allowed kinds; connections come from the settings. `store_url`: that of an app which
    has one of its own. A value that no job could use is refused here, and not by the first job that
    needs it.
    """
    if settings.secrets_key is not None:
        Sealer(settings.secrets_key)
    if settings.connections:
        from daybell.runners.sql import Connections

        Connections(settings.connections, store_url=store_url or settings.database_url)
    passed = read_names(pass_env, "--pass-env")
    if VARIABLE in passed:
        raise UsageError(
            f"--pass-env: with {VARIABLE} every command could open all secrets; let it refer to"
            ' the one that it needs: env: {"TOKEN": {"secret": "NAME"}}'
        )
    return KindOptions(
        tasks=tasks,
        allow_command=allow_command,
        allow_private_http=allow_private_http,
        allow_env=frozenset(read_names(allow_env, "--allow-env")),
        pass_env=passed,
        connections=dict(settings.connections),
    )


def read_names(text: str, flag: str) -> tuple[str, ...]:
    """Read names of variables: `LANG,TZ`."""
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    try:
        read_env(dict.fromkeys(names, ""))
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from None
    return tuple(dict.fromkeys(names))


def make_upkeep(store: Store, settings: Settings, *, clock: Clock, events: Events) -> Upkeep:
    """Return the upkeep of a process, with the cluster's policy of retention."""
    policy = Retention.parse(settings.keep)
    lease = settings.lease
    return Upkeep(store, clock=clock, mint=mint, events=events, lease=lease, policy=policy)
