"""Reports to the store: ends of attempts in groups, progress and logs of attempts that run for a
while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, cast
from uuid import UUID

import msgspec

from daybell.core.execution import TERMINAL, Claimed, Failure, NewLogPart, State
from daybell.core.lifecycle import Ruling, Transition, Verdict, after_failure, after_release
from daybell.core.limits import APPLY_BATCH_MAX
from daybell.core.retry import Retry
from daybell.core.units import Seconds
from daybell.core.worker import Report
from daybell.engine.attempt import Attempt
from daybell.engine.events import Ended, Events, RunBegun
from daybell.engine.execute import probation_seconds
from daybell.engine.lease import Leases
from daybell.engine.loop import AGAIN, Clock
from daybell.errors import ExecutionNotFound, Unavailable, UsageError
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

GROUPS_MAX: Final = 2  # that are written beside each other
# Ends that may wait: two groups on their way, and one that gathers meanwhile.
UNWRITTEN_MAX: Final = (GROUPS_MAX + 1) * APPLY_BATCH_MAX
UNWRITTEN_SECONDS: Final = 1.0  # of writing, if that is less; but a batch in any case
TRIES: Final = 3  # of an end that breaks the store by itself: what broke may be a passing thing

End = tuple[Claimed, Transition]
Verdicts = Mapping[tuple[UUID, int], Verdict]  # those that were not simply made


class PoisonBisector:
    """Tells ends that break the store from ends that wait behind them.

    A group that breaks the store is tried in halves, from the front, until one end is left. If
    nothing of that one can be written, it is proven to be the cause once others were written.
    """

    def __init__(self) -> None:
        self.suspects = 0  # so many at the front have broken the store together
        self._writes = 0
        self._unwritable: dict[UUID, int] = {}  # the count of writes when each was found

    def __len__(self) -> int:
        return len(self._unwritable)

    def count_written(self, count: int) -> None:
        """So many ends at the front were written."""
        self.suspects = max(0, self.suspects - count)
        self._writes += 1

    def is_proven(self, id: UUID) -> bool:
        """Take note that nothing of this end can be written; True if others were written since the
        first time.
        """
        return self._writes != self._unwritable.setdefault(id, self._writes)

    def forget(self, ids: Iterable[UUID]) -> None:
        """These were written or dropped."""
        for id in ids:
            self._unwritable.pop(id, None)


class Completer:
    """Ends on their way to the store."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str,
        worker: UUID,
        leases: Leases,
        events: Events,
        write: Callable[[list[Attempt]], Awaitable[None]],  # reports of attempts
        wake: Callable[[], None],  # the loop around `tick`
        on_returned: Callable[[], None],  # an execution can be claimed again, now or later
        on_written: Callable[[], None],  # there is more room
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._worker = worker
        self._leases = leases
        self._events = events
        self._waiting: list[End] = []
        self._unwritten_attempts: list[Attempt] = []  # ended, with reports that are not written
        self._poison = PoisonBisector()
        self._refusals: set[UUID] = set()  # on their way as failed attempts
        self._unwritten_max = APPLY_BATCH_MAX  # as the last writes were
        self.stale = 0  # reports that came too late
        self._write = write
        self._wake = wake
        self._on_returned = on_returned
        self._on_written = on_written

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        """How many more ends may come; not positive: too many wait already."""
        return self._unwritten_max - len(self._waiting) + len(self._poison)

    def add(self, claimed: Claimed, move: Transition, run: Attempt | None = None) -> None:
        """Have an end written; before it, what the run has last said and shown."""
        if run is not None and run.is_expanded:
            # It goes on without us, and its first nodes can be claimed.
            self._leases.leave([claimed.lease])
            self._on_returned()
            self._events.emit(RunBegun, claimed)
            return
        if run is not None and run.is_written:
            self._settle([(claimed, move)], {})
            return
        if run is not None and (run.has_news or run.log is not None):
            move = self._last_words(run, move)
        waiting = self._waiting
        waiting.append((claimed, move))
        if len(waiting) == 1:  # else it is awake, or will look once more after this group
            self._wake()

    def give_back(self, claimed: Claimed, delay: Seconds = 0.0) -> None:
        """Have an execution returned to its queue that was not started."""
        self.add(claimed, after_release(claimed, delay=delay))

    def _last_words(self, run: Attempt, move: Transition) -> Transition:
        """What was last said goes with the end; what else is not written yet, before it."""
        if run.has_news or (run.log is not None and run.log.unwritten):
            self._unwritten_attempts.append(run)
        if move.log is None and (log := run.last_words()) is not None:
            return msgspec.structs.replace(move, log=log)
        return move

    async def tick(self) -> Seconds | None:
        groups = self._groups()
        if not groups:
            return None
        count, begun = sum(map(len, groups)), asyncio.get_running_loop().time()
        if self._unwritten_attempts:
            await self._write_last_words()
        made = await asyncio.gather(*map(self._apply, groups), return_exceptions=True)
        errors = [one for one in made if isinstance(one, BaseException)]
        if errors:
            # What was written all the same is found to be so when it is sent again.
            return await self._after_errors(count, errors)
        self._learn(count, asyncio.get_running_loop().time() - begun)
        for group, verdicts in zip(groups, made, strict=True):
            self._take_in(group, cast("list[Verdict]", verdicts))
        self._on_written()
        return AGAIN if self._waiting else None

    def _learn(self, count: int, seconds: Seconds) -> None:
        """So many ends were written in that time."""
        most = UNWRITTEN_SECONDS * count / max(seconds, 1e-6)
        self._unwritten_max = int(min(UNWRITTEN_MAX, max(APPLY_BATCH_MAX, most)))

    def _groups(self) -> list[list[End]]:
        """What is written next: if many wait, one group is on its way while another is written."""
        if self._poison.suspects:
            return [self._waiting[: max(1, self._poison.suspects // 2)]]
        count = max(1, min(GROUPS_MAX, len(self._waiting) // APPLY_BATCH_MAX))
        starts = range(0, min(len(self._waiting), count * APPLY_BATCH_MAX), APPLY_BATCH_MAX)
        return [self._waiting[start : start + APPLY_BATCH_MAX] for start in starts]

    async def _after_errors(self, count: int, errors: list[BaseException]) -> Seconds:
        """So many ends could not be written together: try fewer, until one is left."""
        known = (Unavailable, asyncio.CancelledError)
        first = next((one for one in errors if isinstance(one, known)), errors[0])
        if isinstance(first, known) or not isinstance(first, Exception):
            raise first
        self._poison.suspects = count
        if count == 1 and not (await self._write_poison(first) or self._drop_poison(first)):
            raise first
        return AGAIN

    async def _write_last_words(self) -> None:
        """Who sees that something has ended sees all that it said."""
        speakers, self._unwritten_attempts = self._unwritten_attempts, []
        try:
            await self._write(speakers)
        except BaseException:
            self._unwritten_attempts = speakers + self._unwritten_attempts
            raise

    async def _apply(self, group: list[End]) -> list[Verdict]:
        return await self._store.apply(
            self._tenant, worker=self._worker, transitions=[move for _, move in group]
        )

    def _take_in(self, group: list[End], verdicts: list[Verdict]) -> None:
        """These were written: the first ones that wait, or what was sent in their place."""
        # Only now: had this raised, they would still be here to be sent again.
        del self._waiting[: len(group)]
        self._poison.count_written(len(group))
        judged = {(verdict.id, verdict.attempt): verdict for verdict in verdicts}
        if judged:
            group = [end for end in group if not self._is_resent(*end, judged)]
        if self._refusals:
            self._refusals.difference_update(move.id for _, move in group)
        if self._poison:
            self._poison.forget(move.id for _, move in group)
        self._settle(group, judged)

    def _settle(self, group: list[End], judged: Verdicts) -> None:
        """The store has these: let go of them."""
        self._leases.leave([move.lease for _, move in group])
        # What went back can be claimed again, and after a node, perhaps the next.
        if any(move.target not in TERMINAL or move.node is not None for _, move in group):
            self._on_returned()
        self._tell(group, judged)

    def _tell(self, group: list[End], judged: Verdicts) -> None:
        is_followed = self._events.is_followed
        for claimed, move in group:
            verdict = judged.get((move.id, move.attempt)) if judged else None
            is_plain = verdict is None and move.target is State.SUCCEEDED and move.run is None
            if is_followed or not is_plain:
                self._events.emit(Ended, claimed, move, verdict, is_plain=is_plain)

    async def _write_poison(self, error: Exception) -> bool:
        """Write the first end, which breaks the store by itself: again as it is, because the cause
        may have passed, and at last as a failed attempt. False: neither can be written.
        """
        claimed, move = self._waiting[0]
        failure = Failure.from_exception(error)
        failed = _fail_unstorable(claimed, move, f"{failure.type}: {failure.message}")
        for sent in (*(move,) * (TRIES - 1), failed):
            try:
                verdicts = await self._apply([(claimed, sent)])
            except Unavailable:
                raise
            except Exception:
                continue
            if sent is failed:
                self._refusals.add(move.id)
                logger.error(
                    "the end of %s (%s) breaks the store", move.id, claimed.job, exc_info=error
                )
            self._take_in([(claimed, sent)], verdicts)
            return True
        return False

    def _drop_poison(self, error: Exception) -> bool:
        """Drop the first end, and leave its execution to the end of the lease, if the store has
        written others since it was tried before. Else False: the others come first, and the store
        itself may be broken.
        """
        claimed, move = end = self._waiting.pop(0)
        if not self._poison.is_proven(move.id):
            self._waiting.append(end)
            return False
        self._poison.forget([move.id])
        self._poison.suspects = 0
        self._refusals.discard(move.id)
        self._leases.leave([move.lease])
        logger.error(
            "the end of %s (%s) breaks the store, even as a failed attempt, and is given up",
            move.id,
            claimed.job,
            exc_info=error,
        )
        return True

    def _is_resent(self, claimed: Claimed, move: Transition, judged: Verdicts) -> bool:
        """Take in that a move was not simply made; say whether another is made in its place."""
        verdict = judged.get((move.id, move.attempt))
        if verdict is None:
            return False
        if verdict.ruling is Ruling.REFUSED:
            logger.error(
                "the end of %s (%s) cannot be kept: %s", move.id, claimed.job, verdict.detail
            )
            if move.id not in self._refusals:
                self._refusals.add(move.id)
                self._waiting.append((claimed, _fail_unstorable(claimed, move, verdict.detail)))
                return True
            # Not even that can be kept: it is left to the end of the lease.
        elif verdict.ruling is Ruling.STALE:
            self.stale += 1
            logger.warning(
                "the report of attempt %d of %s (%s) came too late and was refused: %s",
                move.attempt,
                move.id,
                claimed.job,
                f"it is at attempt {verdict.current} now" if verdict.current else "it is gone",
            )
        return False


def _fail_unstorable(claimed: Claimed, move: Transition, why: str | None) -> Transition:
    """What the store cannot keep ends as a failed attempt that says so."""
    message = f"its outcome cannot be kept: {why}"
    return after_failure(
        claimed,
        Retry(),
        error=Failure(type="PayloadError", message=message).to_json(),
        kinds=(),
        ran=move.ran or 0.0,
        jitter=0.0,
        permanent=True,
    )


# Showing what runs. Short tasks never pay for it: only what has run for a while is written.

SHOWN_AFTER_SECONDS: Final = 0.5
_UNKNOWN: Final = object()


class Reporter:
    """Writes start marks, progress, checkpoints and logs of what runs, in batches."""

    def __init__(self, store: Store, *, tenant: str, worker: UUID, clock: Clock) -> None:
        self._store = store
        self._tenant = tenant
        self._worker = worker
        self._clock = clock
        self._sole: UUID | object | None = None  # the suspect that is on record as the only one
        self._recording = asyncio.Lock()

    async def announce(self, run: Attempt, is_alone: Callable[[], bool]) -> Seconds | None:
        """Put on record that this suspect begins, and whether it is the only one here. Answers how
        long its probation is; None: it is not this worker's any more.
        """
        tenant, worker = self._tenant, self._worker
        try:
            detail = await self._store.get_execution(tenant, run.claimed.id)
        except ExecutionNotFound:
            return None
        async with self._recording:  # what is on record is never older than what is known here
            sole = run.claimed.id if is_alone() else None
            if sole != self._sole:
                self._sole = _UNKNOWN
                if not await self._store.record_sole(tenant, worker=worker, execution=sole):
                    return None
                self._sole = sole
        report = run.as_report(self._clock)
        if await self._store.report(tenant, worker=worker, reports=[report]):
            return None
        return probation_seconds(detail)

    async def write(self, runs: list[Attempt]) -> None:
        """Write what these runs have to show. What cannot be kept is left out. After Unavailable,
        everything can be written again.
        """
        await self._write_logs([run for run in runs if run.log is not None])
        due = [run for run in runs if run.has_news or self._is_to_be_shown(run)]
        for start in range(0, len(due), APPLY_BATCH_MAX):
            chunk = due[start : start + APPLY_BATCH_MAX]
            reports = [run.as_report(self._clock) for run in chunk]
            try:
                await self._send(reports)
            except BaseException:
                for run in chunk:
                    run.has_news = True
                raise

    def _is_to_be_shown(self, run: Attempt) -> bool:
        return not run.is_shown and run.ran(self._clock) >= SHOWN_AFTER_SECONDS

    async def _write_logs(self, runs: list[Attempt]) -> None:
        said = [(run, parts) for run in runs if (parts := run.log_parts())]
        parts = [part for _, parts in said for part in parts]
        for start in range(0, len(parts), APPLY_BATCH_MAX):
            await self._send_log(parts[start : start + APPLY_BATCH_MAX])
        for run, parts in said:
            run.forget_log_parts(upto=parts[-1].number)

    async def _send_log(self, parts: list[NewLogPart]) -> None:
        try:
            await self._store.write_log(self._tenant, worker=self._worker, parts=parts)
        except Unavailable:
            raise
        except Exception:
            # What a task says is no reason to hold up its end.
            logger.exception("what %d executions said cannot be kept", len(parts))

    async def _send(self, reports: list[Report]) -> None:
        """Write them; one that cannot be kept is left out and does not hurt the others."""
        try:
            await self._store.report(self._tenant, worker=self._worker, reports=reports)
        except UsageError as error:
            if len(reports) == 1:
                logger.error("what %s shows of itself cannot be kept: %s", reports[0].id, error)
                return
            middle = len(reports) // 2
            await self._send(reports[:middle])
            await self._send(reports[middle:])
