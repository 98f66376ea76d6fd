"""Reports to the store: ends of attempts in groups; progress and logs of longer attempts."""

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

GROUPS_MAX: Final = 2  # concurrent groups
# The limit of waiting ends: two groups being written, and one that gathers.
UNWRITTEN_MAX: Final = (GROUPS_MAX + 1) * APPLY_BATCH_MAX
UNWRITTEN_SECONDS: Final = 1.0  # of writing, if that is less; at least one group
TRIES: Final = 3  # of an end that fails alone: the cause may pass

End = tuple[Claimed, Transition]
Verdicts = Mapping[tuple[UUID, int], Verdict]  # of ends that were not simply written


class PoisonBisector:
    """Isolates ends that the store fails to write.

    A failing group is halved from the front until one end is left. If that one cannot be written
    either, it is proven to be the cause once others were written.
    """

    def __init__(self) -> None:
        self.suspects = 0  # ends at the front of a group that failed
        self._writes = 0
        self._unwritable: dict[UUID, int] = {}  # with the count of writes when each was found

    def __len__(self) -> int:
        return len(self._unwritable)

    def count_written(self, count: int) -> None:
        """Count a write of ends at the front."""
        self.suspects = max(0, self.suspects - count)
        self._writes += 1

    def is_proven(self, id: UUID) -> bool:
        """Note an end that cannot be written; True if others were written since the first time."""
        return self._writes != self._unwritable.setdefault(id, self._writes)

    def forget(self, ids: Iterable[UUID]) -> None:
        """Remove ends that were written or dropped."""
        for id in ids:
            self._unwritable.pop(id, None)


class Completer:
    """Writes the ends of attempts."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str,
        worker: UUID,
        leases: Leases,
        events: Events,
        write: Callable[[list[Attempt]], Awaitable[None]],  # writes reports
        wake: Callable[[], None],  # the loop around `tick`
        on_returned: Callable[[], None],  # called when an execution can be claimed again
        on_written: Callable[[], None],  # called when there is more room
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._worker = worker
        self._leases = leases
        self._events = events
        self._waiting: list[End] = []
        self._unwritten_attempts: list[Attempt] = []  # ended attempts with unwritten parts of logs
        self._poison = PoisonBisector()
        self._refusals: set[UUID] = set()  # executions being ended as failed, after a refusal
        self._unwritten_max = APPLY_BATCH_MAX  # follows the speed of writes
        self.stale = 0  # reports that came too late
        self._write = write
        self._wake = wake
        self._on_returned = on_returned
        self._on_written = on_written

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        """How many more ends can wait; not positive if too many do."""
        return self._unwritten_max - len(self._waiting) + len(self._poison)

    def add(self, claimed: Claimed, move: Transition, run: Attempt | None = None) -> None:
        """Queue the end of an attempt, and its last report."""
        if run is not None and run.is_expanded:
            # The run goes on in the store, and its first nodes can be claimed.
            self._leases.leave([claimed.lease])
            self._on_returned()
            self._events.emit(RunBegun, claimed)
            return
        if run is not None and run.is_written:
            self._settle([(claimed, move)], {})
            return
        if run is not None and (run.has_news or run.log is not None):
            move = self._add_last_report(run, move)
        waiting = self._waiting
        waiting.append((claimed, move))
        if len(waiting) == 1:  # otherwise the loop is awake, or ticks again after this group
            self._wake()

    def give_back(self, claimed: Claimed, delay: Seconds = 0.0) -> None:
        """Return an unstarted execution to its queue."""
        self.add(claimed, after_release(claimed, delay=delay))

    def _add_last_report(self, run: Attempt, move: Transition) -> Transition:
        """Add what the store does not know yet: the last progress, and the last part of the log.
        Earlier parts of the log are written before the end.
        """
        if run.log is not None and run.log.unwritten:
            self._unwritten_attempts.append(run)
        if run.has_news:
            move = run.add_news(move)
        if move.log is None and (log := run.take_log()) is not None:
            return msgspec.structs.replace(move, log=log)
        return move

    async def tick(self) -> Seconds | None:
        groups = self._groups()
        if not groups:
            return None
        count, begun = sum(map(len, groups)), asyncio.get_running_loop().time()
        if self._unwritten_attempts:
            await self._write_last_logs()
        made = await asyncio.gather(*map(self._apply, groups), return_exceptions=True)
        errors = [one for one in made if isinstance(one, BaseException)]
        if errors:
            # Ends that were written in spite of the error are recognized when sent again.
            return await self._after_errors(count, errors)
        self._learn(count, asyncio.get_running_loop().time() - begun)
        for group, verdicts in zip(groups, made, strict=True):
            self._take_in(group, cast("list[Verdict]", verdicts))
        self._on_written()
        return AGAIN if self._waiting else None

    def _learn(self, count: int, seconds: Seconds) -> None:
        """Adapt the limit of waiting ends to the speed of writes."""
        most = UNWRITTEN_SECONDS * count / max(seconds, 1e-6)
        if count < APPLY_BATCH_MAX:  # small groups are fast on a slow store, too
            most = min(most, self._unwritten_max)
        self._unwritten_max = int(min(UNWRITTEN_MAX, max(APPLY_BATCH_MAX, most)))

    def _groups(self) -> list[list[End]]:
        """Return the groups to write next; several if many ends wait."""
        if self._poison.suspects:
            return [self._waiting[: max(1, self._poison.suspects // 2)]]
        count = max(1, min(GROUPS_MAX, len(self._waiting) // APPLY_BATCH_MAX))
        starts = range(0, min(len(self._waiting), count * APPLY_BATCH_MAX), APPLY_BATCH_MAX)
        return [self._waiting[start : start + APPLY_BATCH_MAX] for start in starts]

    async def _after_errors(self, count: int, errors: list[BaseException]) -> Seconds:
        """Handle a failed group: try a smaller one, until one end is left."""
        known = (Unavailable, asyncio.CancelledError)
        first = next((one for one in errors if isinstance(one, known)), errors[0])
        if isinstance(first, known) or not isinstance(first, Exception):
            raise first
        self._poison.suspects = count
        if count == 1 and not (await self._write_poison(first) or self._drop_poison(first)):
            raise first
        return AGAIN

    async def _write_last_logs(self) -> None:
        """Write parts of logs before the ends: a visible end implies a complete log."""
        attempts, self._unwritten_attempts = self._unwritten_attempts, []
        try:
            await self._write(attempts)
        except BaseException:
            self._unwritten_attempts = attempts + self._unwritten_attempts
            raise

    async def _apply(self, group: list[End]) -> list[Verdict]:
        return await self._store.queue.apply(
            self._tenant, worker=self._worker, transitions=[move for _, move in group]
        )

    def _take_in(self, group: list[End], verdicts: list[Verdict]) -> None:
        """Handle the answer for written ends, which are the first in the queue."""
        # Removed only now: after an error they are sent again.
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
        """Release leases and emit events of written ends."""
        self._leases.leave([move.lease for _, move in group])
        # Returned executions can be claimed again, and perhaps the node after an ended one.
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
        """Write the first end, which fails alone: retry, as the cause may pass, then write it as a
        failed attempt. False: neither works.
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
        """Drop the first end, and leave its execution to the end of the lease, if others were
        written since its first failure. Otherwise move it to the end: the store itself may be
        broken.
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
        """Log a verdict; return True if another end is sent in its place."""
        verdict = judged.get((move.id, move.attempt))
        if verdict is None:
            return False
        if verdict.ruling is Ruling.REFUSED:
            logger.error(
                "the end of %s (%s) cannot be stored: %s", move.id, claimed.job, verdict.detail
            )
            if move.id not in self._refusals:
                self._refusals.add(move.id)
                self._waiting.append((claimed, _fail_unstorable(claimed, move, verdict.detail)))
                return True
            # The failed attempt was refused, too: the end of the lease decides.
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
    """Return a failed attempt in place of an end that the store refused."""
    message = f"its outcome cannot be stored: {why}"
    return after_failure(
        claimed,
        Retry(),
        error=Failure(type="PayloadError", message=message).to_json(),
        kinds=(),
        ran=move.ran or 0.0,
        jitter=0.0,
        permanent=True,
    )


# Reports of running attempts. Short attempts end before their first report.

SHOWN_AFTER_SECONDS: Final = 0.5
_UNKNOWN: Final = object()


class Reporter:
    """Writes starts, progress, checkpoints and logs of running attempts, in batches."""

    def __init__(self, store: Store, *, tenant: str, worker: UUID, clock: Clock) -> None:
        self._store = store
        self._tenant = tenant
        self._worker = worker
        self._clock = clock
        self._sole: UUID | object | None = None  # the suspect on record as the only one
        self._recording = asyncio.Lock()

    async def announce(self, run: Attempt, is_alone: Callable[[], bool]) -> Seconds | None:
        """Record that a suspect starts, and if it is the only one in this worker. Return the length
        of its probation; None: another worker has it.
        """
        tenant, worker = self._tenant, self._worker
        try:
            detail = await self._store.catalog.get_execution(run.claimed.tenant, run.claimed.id)
        except ExecutionNotFound:
            return None
        async with self._recording:  # keeps the record in the order of the answers
            sole = run.claimed.id if is_alone() else None
            if sole != self._sole:
                self._sole = _UNKNOWN
                if not await self._store.queue.record_sole(tenant, worker=worker, execution=sole):
                    return None
                self._sole = sole
        report = run.as_report(self._clock)
        if await self._store.queue.report(tenant, worker=worker, reports=[report]):
            return None
        return probation_seconds(detail)

    async def write(self, runs: list[Attempt]) -> None:
        """Write the reports of attempts; invalid ones are left out. After Unavailable, it can be
        repeated.
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
        new = [(run, parts) for run in runs if (parts := run.log_parts())]
        parts = [part for _, parts in new for part in parts]
        for start in range(0, len(parts), APPLY_BATCH_MAX):
            await self._send_log(parts[start : start + APPLY_BATCH_MAX])
        for run, parts in new:
            run.forget_log_parts(upto=parts[-1].number)

    async def _send_log(self, parts: list[NewLogPart]) -> None:
        try:
            await self._store.queue.write_log(self._tenant, worker=self._worker, parts=parts)
        except Unavailable:
            raise
        except Exception:
            # A log must not delay the end of its attempt.
            logger.exception("the log of %d executions cannot be stored", len(parts))

    async def _send(self, reports: list[Report]) -> None:
        """Send reports; bisect to leave out invalid ones."""
        try:
            await self._store.queue.report(self._tenant, worker=self._worker, reports=reports)
        except UsageError as error:
            if len(reports) == 1:
                logger.error("the report of %s cannot be stored: %s", reports[0].id, error)
                return
            middle = len(reports) // 2
            await self._send(reports[:middle])
            await self._send(reports[middle:])
