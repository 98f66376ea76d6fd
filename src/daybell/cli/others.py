"""Other live workers of the same queues, and the tasks that they and this one do not both have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from daybell.cli.edge import complain
from daybell.core.worker import Offer
from daybell.engine.options import WorkerOptions
from daybell.engine.queues import Queues
from daybell.errors import Unavailable, listed
from daybell.store.protocol import Store

SAMPLE_MAX: Final = 5


async def tell_of_others(store: Store, options: WorkerOptions) -> None:
    """Say once, at the start, that work will go back and forth between workers, and why."""
    try:
        warning = unlike(options, await store.offers(options.tenant))
    except Unavailable:
        return  # it is waited for elsewhere, and this is not worth it
    if warning is not None:
        complain(f"warning: {warning}")


def unlike(options: WorkerOptions, others: Iterable[Offer]) -> str | None:
    """What to say to a worker whose queues others take that have other tasks for them.

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
        f" tasks: {'; '.join(told)}. Who takes what it has no task for gives it back, which costs"
        " it a second or more; unless this is a deploy, give each app queues of its own"
    )
