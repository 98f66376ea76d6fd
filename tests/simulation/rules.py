"""The allowed effects of an operation on an execution. Any other change breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from daybell.core.execution import PENDING, TERMINAL, Outcome, State
from daybell.core.lifecycle import TRANSITIONS
from daybell.core.schedule import Overlap
from tests.simulation.places import Place, Seen
from tests.simulation.schedules import KINDS

if TYPE_CHECKING:
    from tests.simulation.world import Call

LEGAL: Final = {(source, target) for (source, _), target in TRANSITIONS.items()} | {
    # In one step for the store: revived, and back in line at its gate.
    (State.DEAD, State.WAITING),
}
CLAIMABLE: Final = PENDING - {State.WAITING}
FAILURES: Final = (Outcome.FAILED, Outcome.TIMED_OUT)

Rule = Callable[["Call", Seen, Seen, float], str | None]


def broken(call: Call, old: Seen | None, new: Seen, now: float, place: Place) -> str | None:
    """Describe the error of a change, if there is one."""
    if old is None:
        return _created(call, new)
    if is_admission(old, new):
        return None if call.operation in ADMITTING else "it was let through a gate"
    rule = RULES.get(call.operation)
    if rule is None:
        return "this operation changes no execution"
    return rule(call, old, new, now) or _unlawful(call, old, new, now, place)


def _created(call: Call, new: Seen) -> str | None:
    states = PENDING
    match call.operation:
        case "enqueue":
            asked = call.args[1]
        case "dispatch":
            asked = call.args[0].executions
        case "fire":
            ticks = (tick for firing in call.args[0] for tick in firing.ticks)
            asked = [tick.execution for tick in ticks if tick.execution is not None]
            # The next tick of the same firing may have taken its place.
            states = PENDING | {State.SKIPPED, *([State.CANCELLED] if _is_replaced(new) else [])}
        case _:
            return "this operation creates no executions"
    if all(new.id != one.id for one in asked):
        return "nobody asked for it"
    if new.attempt != 1 or new.failures or new.crashes or new.state not in states:
        return "it does not begin at the beginning"
    return None


def is_admission(old: Seen, new: Seen) -> bool:
    """Return True if an execution got the slot that it waited for. It is due from then on."""
    admitted = old._replace(
        state=State.QUEUED, has_slot=True, reason=None, run_at=max(old.run_at, new.run_at)
    )
    return old.state is State.WAITING and not old.has_slot and new == admitted


def _unlawful(call: Call, old: Seen, new: Seen, now: float, place: Place) -> str | None:
    """Check the rules for every change, by any operation."""
    state = old.state
    if state in (State.SCHEDULED, State.RETRYING) and old.run_at <= now:
        state = State.QUEUED  # its time has come, by itself
    if new.state not in (old.state, state) and (state, new.state) not in LEGAL:
        return f"{old.state} cannot become {new.state}"
    is_back = new.state in PENDING and old.state in (State.RUNNING, State.DEAD)
    if new.attempt != old.attempt + is_back:
        return f"attempt {old.attempt} became {new.attempt}"
    if old.is_to_be_cancelled and new.state not in (State.RUNNING, State.CANCELLED):
        return f"it was to be cancelled, and is {new.state}"
    if call.operation != "revive" and new.state is not State.CANCELLED:
        return _miscounted(old, new, place)
    return None


def _miscounted(old: Seen, new: Seen, place: Place) -> str | None:
    """Check the counts, which follow from the end of an attempt."""
    outcome = new.outcome if new.state in TERMINAL else None
    if new.attempt > old.attempt:
        logged = place.attempt(old.id, old.attempt)
        if logged is None or logged[1] != old.worker:
            return f"attempt {old.attempt} was not logged as its worker's"
        outcome = logged[0]
    if new.failures - old.failures != (outcome in FAILURES):
        return f"{old.failures} failures became {new.failures} by an end as {outcome}"
    if new.crashes - old.crashes != (outcome is Outcome.LOST):
        return f"{old.crashes} crashes became {new.crashes} by an end as {outcome}"
    return None


def _claim(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    if old.state not in CLAIMABLE or old.run_at > now:
        return f"it was claimed while it was {old.state}, due in {old.run_at - now:.3f} s"
    if (new.worker, new.lease) != (call.kwargs["worker"], call.kwargs["lease"]):
        return "it was not given to who claimed it"
    return None


def holds(old: Seen | None, worker: UUID, words: Any) -> bool:
    """Return True for the fence: this very start of the execution belongs to this worker."""
    return old is not None and (old.state, old.attempt, old.lease, old.worker) == (
        State.RUNNING,
        words.attempt,
        words.lease,
        worker,
    )


def _apply(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    moves = [move for move in call.kwargs["transitions"] if move.id == old.id]
    if not any(holds(old, call.kwargs["worker"], move) for move in moves):
        return f"a report of attempt {[move.attempt for move in moves]} was accepted"
    (move, *_) = (move for move in moves if move.attempt == old.attempt)
    if old.is_to_be_cancelled or new.state is move.target:
        return None
    if move.target is State.QUEUED and new.state is State.SCHEDULED and new.run_at > now:
        return None  # released for later
    return f"it was to become {move.target}, and is {new.state}"


def _report(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    reports = [one for one in call.kwargs["reports"] if one.id == old.id]
    if not any(holds(old, call.kwargs["worker"], one) for one in reports):
        return f"progress of attempt {[one.attempt for one in reports]} was accepted"
    if new != old._replace(note=new.note, checkpoint=new.checkpoint):
        return "progress changed more than what is shown"
    return None


def _renew(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    if old.worker != call.kwargs["worker"] or old.lease in call.kwargs["leases"]:
        return "a renewal took what its worker knows of, or what is another's"
    return None


def _release(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    if old.worker != call.kwargs["worker"] or old.lease not in call.kwargs["leases"]:
        return "a release took what was not named, or what is another's"
    return None


def _cancel(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    if old.id not in call.args[1] or old.state in TERMINAL:
        return "nobody asked for that, or it was over"
    wanted = State.RUNNING if old.state is State.RUNNING else State.CANCELLED
    return None if new.state is wanted else f"a cancel made it {new.state}"


def _is_replaced(row: Seen) -> bool:
    """Return True if the next execution of its job takes its place."""
    kind = KINDS.get(row.job)
    return kind is not None and kind.definition.overlap is Overlap.REPLACE


def _replace(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    if not _is_replaced(old) or old.state in TERMINAL:
        return "nothing takes its place"
    wanted = State.RUNNING if old.state is State.RUNNING else State.CANCELLED
    return None if new.state is wanted else f"what took its place made it {new.state}"


def _expire(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    if old.expires_at is None or old.expires_at > now or new.state is not State.SKIPPED:
        return "it had not expired"
    return None


def _revive(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    if old.id not in call.args[1] or old.state is not State.DEAD or old.is_discarded:
        return "it was no dead letter, or nobody asked for it"
    return None if new.failures == new.crashes == 0 else "its counts do not begin anew"


def _discard(call: Call, old: Seen, new: Seen, now: float) -> str | None:
    if old.id not in call.args[1] or new != old._replace(is_discarded=True):
        return "it was no dead letter, or nobody asked for it"
    return None


RULES: Final[dict[str, Rule]] = {
    "enqueue": _replace,
    "fire": _replace,
    "claim": _claim,
    "apply": _apply,
    "report": _report,
    "renew": _renew,
    "release": _release,
    "cancel": _cancel,
    "expire": _expire,
    "revive": _revive,
    "discard": _discard,
}
# An operation that ends an execution passes its slot on.
ADMITTING: Final = {
    *("enqueue", "fire", "apply", "renew", "release", "cancel", "expire", "revive", "admit")
}
