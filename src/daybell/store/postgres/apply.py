"""Every change of a running execution: which statements it takes, and what to answer.

The plain way, for executions that succeeded, is one statement that answers with a number. Only if
that number is not what was sent does anybody look at single rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import TERMINAL, Outcome, State
from daybell.core.lifecycle import Ruling, Transition, Verdict
from daybell.errors import Unavailable, UsageError
from daybell.store.checks import transition_fault
from daybell.store.codes import OUTCOMES, STATE_CODES
from daybell.store.postgres.claim import Fence
from daybell.store.postgres.columns import IN_HISTORY
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.endings import Links
from daybell.store.postgres.moves import HELD, IS_HELD, Batch, Moving, by_lease
from daybell.store.postgres.waits import Waiting, is_for_event

CANCELLED: Final = STATE_CODES[State.CANCELLED]
ROUNDS_MAX: Final = 5
NO_LINKS: Final[Links] = (None, None, None)

# The number in an id: numbers compare ten times faster than ids, and in the same order.
_by_id: Final = attrgetter("id.int")


class Way(Enum):
    """Which statements a move takes."""

    SUCCEED = "the plain end"
    END = "any other end"
    END_LINKED = "an end that a gate, a schedule or a run waits for"
    BACK = "back to be claimed again"
    WAIT = "back, to wait for an event that may have come"
    UNLOCKED = "whatever is not locked by others"


class Applying(Moving, Waiting):
    """Ends and ways back."""

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        if not transitions:
            async with self.db.link() as link:
                await self.names.tenant(link, tenant)
            return []
        first, later = _distinct(transitions)
        verdicts: list[Verdict] = []
        for way, moves in _by_way(first, wait=wait):
            # What has succeeded is not looked at one by one: if it cannot be kept, it shows.
            faults = _faults(move for move in moves if move.target is not State.SUCCEEDED)
            sound = [move for move in moves if move.id not in faults] if faults else moves
            if sound:
                verdicts += await self._apply(tenant, worker, sound, way)
            if faults:
                faulty = [move for move in moves if move.id in faults]
                verdicts += await self._refuse(Batch(tenant, worker, faulty), faults)
        if later:
            verdicts += await self.apply(tenant, worker=worker, transitions=later, wait=wait)
        return verdicts

    async def _apply(
        self, tenant: str, worker: UUID, moves: list[Transition], way: Way
    ) -> list[Verdict]:
        """Make moves of one kind; a batch with a row that cannot be kept is halved to find it."""
        try:
            return await self.db.settled(lambda: self._make(tenant, worker, moves, way))
        except UsageError as error:
            if len(moves) == 1:
                return [Verdict(moves[0].id, moves[0].attempt, Ruling.REFUSED, str(error))]
        middle = len(moves) // 2
        return [
            *await self._apply(tenant, worker, moves[:middle], way),
            *await self._apply(tenant, worker, moves[middle:], way),
        ]

    async def _refuse(self, batch: Batch, faults: Mapping[UUID, str]) -> list[Verdict]:
        verdicts, refused = await self._judge(batch, {})
        return verdicts + [
            Verdict(move.id, move.attempt, Ruling.REFUSED, faults[move.id]) for move in refused
        ]

    async def _make(
        self,
        tenant: str,
        worker: UUID,
        moves: list[Transition],
        way: Way,
        *,
        rounds: int = ROUNDS_MAX,
    ) -> list[Verdict]:
        batch = Batch(tenant, worker, moves)
        is_plain = False
        is_single = way in (Way.SUCCEED, Way.END, Way.BACK)
        async with self.db.link() if is_single else self.db.transaction() as link:
            key = await self.names.tenant(link, tenant)
            match way:
                case Way.SUCCEED:
                    is_plain = await self.succeed(link, key, batch)
                    made = dict[Fence, Row]()
                case Way.END:
                    made = await self.end(link, key, batch)
                case Way.BACK:
                    made = await self.back(link, key, batch)
                case Way.WAIT:
                    waits = batch.only(await self.unless_over(link, key, batch.moves))
                    made = await self.back(link, key, waits)
                case Way.END_LINKED:
                    made = await self.end_linked(link, key, batch)
                case Way.UNLOCKED:
                    made = await self._make_unlocked(link, key, batch)
        if is_plain:
            self.settle(worker, batch.leases)
            await self.unblock_runs(key)
            return []
        await self._follow_through(way, key)
        verdicts, again = await self._judge(batch, made)
        if not again:
            return verdicts
        if way is Way.UNLOCKED:
            return verdicts + [Verdict(move.id, move.attempt, Ruling.BUSY) for move in again]
        if rounds == 0:
            raise Unavailable("these executions are changed by others all the time; try again")
        # Cancelled in the meantime, or changed between our look at a row and the lock on it.
        cancelled = {move.id for move, is_cancelling in again.items() if is_cancelling}
        for next_way, left in _by_way(list(again), wait=True, cancelled=cancelled):
            verdicts += await self._make(tenant, worker, left, next_way, rounds=rounds - 1)
        return verdicts

    async def _follow_through(self, way: Way, tenant: int) -> None:
        if way is Way.UNLOCKED:
            self.say_news()  # what runs have left to do may be locked, and is left to upkeep
        else:
            await self.after_commit(tenant)

    LOCK_LIVE = """
    SELECT id, cancel_requested_at IS NOT NULL AS is_cancelling FROM daybell.live
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED
    """

    async def _make_unlocked(self, link: Link, tenant: int, batch: Batch) -> dict[Fence, Row]:
        free, held = await self.lock_links_free(link, tenant, {_links(m) for m in batch.moves})
        moves = [move for move in batch.moves if _links(move) in free]
        rows = await link.fetch(self.LOCK_LIVE, tenant, [move.id for move in moves])
        locked = {row["id"]: row["is_cancelling"] for row in rows}
        ends = [m for m in moves if m.id in locked and (locked[m.id] or m.target in TERMINAL)]
        backs = [
            m for m in moves if m.id in locked and not locked[m.id] and m.target not in TERMINAL
        ]
        made: dict[Fence, Row] = {}
        if backs:
            backs = await self.unless_over(link, tenant, backs)
            made |= await self.back(link, tenant, batch.only(backs))
        if ends:
            ended = await self.end(link, tenant, batch.only(ends), is_linked=True, runs=held)
            await self.follow_up(link, tenant, ended.values(), held)
            made |= ended
        return made

    async def _judge(
        self, batch: Batch, made: dict[Fence, Row]
    ) -> tuple[list[Verdict], dict[Transition, bool]]:
        """Say what became of each move that was not simply made.

        Second: moves that still can be made, and whether cancelling was requested meanwhile.
        """
        verdicts: list[Verdict] = []
        doubtful: list[Transition] = []
        for move in batch.moves:
            row = made.get(_fence(move))
            if row is None:
                doubtful.append(move)
            elif row["state"] == CANCELLED and move.target is not State.CANCELLED:
                verdicts.append(Verdict(move.id, move.attempt, Ruling.CANCELLED))
        self.settle(batch.worker, by_lease([move for move in batch.moves if _fence(move) in made]))
        if not doubtful:
            return verdicts, {}
        async with self.db.link() as link:
            key = await self.names.tenant(link, batch.tenant)
            recorded = await self._recorded(link, key, doubtful)
            held = await self._still_held(link, key, batch.only(doubtful))
            rows = await link.fetch(self.CURRENT, key, [move.id for move in doubtful])
        current = {row["id"]: row["attempt"] for row in rows}
        again = {
            # With the links that it has, which whoever claimed it may not have known.
            replace(move, gate=row["gate"], schedule=row["schedule"], run=row["run"]): row[
                "is_cancelling"
            ]
            for move in doubtful
            if (row := held.get(_fence(move))) is not None
        }
        for move in doubtful:
            if _fence(move) not in held:
                record = recorded.get(_fence(move))
                verdicts += _ruling(move, record, batch.worker, current.get(move.id))
        return verdicts, again

    RECORDED = f"""
    SELECT id, attempt, worker, outcome FROM daybell.attempt
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT id, attempt, worker, outcome FROM daybell.dead
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT h.id, h.attempt, h.worker, h.outcome FROM unnest($2::uuid[]) u(id), {IN_HISTORY}
    """

    CURRENT = f"""
    SELECT id, attempt FROM daybell.live WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT id, attempt FROM daybell.dead WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT h.id, h.attempt FROM unnest($2::uuid[]) u(id), {IN_HISTORY}
    """

    async def _recorded(
        self, link: Link, tenant: int, moves: Sequence[Transition]
    ) -> dict[Fence, Row]:
        rows = await link.fetch(self.RECORDED, tenant, [move.id for move in moves])
        return {(row["id"], row["attempt"]): row for row in rows}

    STILL_HELD = f"""
    WITH {HELD}
    SELECT v.id, v.attempt, v.cancel_requested_at IS NOT NULL AS is_cancelling, v.gate, v.schedule,
           CASE WHEN v.node IS NOT NULL THEN v.parent END AS run
      FROM daybell.live v WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
    """

    async def _still_held(self, link: Link, tenant: int, batch: Batch) -> dict[Fence, Row]:
        rows = await link.fetch(self.STILL_HELD, *batch.guard(tenant))
        return {(row["id"], row["attempt"]): row for row in rows}


def _distinct(moves: Sequence[Transition]) -> tuple[list[Transition], list[Transition]]:
    """The first move of each execution, in one order of locks for everybody; and later ones."""
    ordered = sorted(moves, key=_by_id)
    if len(set(map(_by_id, ordered))) == len(ordered):
        return ordered, []
    first = {move.id: move for move in reversed(moves)}
    later = [move for move in moves if first[move.id] is not move]
    return sorted(first.values(), key=_by_id), later


def _faults(moves: Iterable[Transition]) -> dict[UUID, str]:
    faults = {move.id: transition_fault(move) for move in moves}
    return {id: fault for id, fault in faults.items() if fault is not None}


def _by_way(
    moves: Sequence[Transition],
    *,
    wait: bool,
    cancelled: Collection[UUID] = (),
) -> Iterator[tuple[Way, list[Transition]]]:
    """Sort moves by the statements they take; where cancelling was requested, all are ends."""
    if not wait:
        yield Way.UNLOCKED, list(moves)
        return
    if not cancelled and all(map(_is_plain, moves)):
        yield Way.SUCCEED, list(moves)
        return
    ways: dict[Way, list[Transition]] = {}
    for move in moves:
        is_cancelled = move.id in cancelled
        if move.target not in TERMINAL and not is_cancelled:
            way = Way.WAIT if is_for_event(move) else Way.BACK
        elif _links(move) != NO_LINKS:
            way = Way.END_LINKED
        elif move.target is State.SUCCEEDED and not is_cancelled:
            way = Way.SUCCEED
        else:
            way = Way.END
        ways.setdefault(way, []).append(move)
    yield from ways.items()


def _is_plain(move: Transition) -> bool:
    return (
        move.target is State.SUCCEEDED
        and move.gate is None
        and move.schedule is None
        and move.run is None
    )


def _links(move: Transition) -> Links:
    return move.gate, move.schedule, move.run


def _ruling(
    move: Transition, recorded: Row | None, worker: UUID, current: int | None
) -> list[Verdict]:
    if recorded is not None and recorded["worker"] == worker:
        outcome = OUTCOMES.get(recorded["outcome"])
        if outcome is move.outcome:
            return []  # made before; its answer was lost
        if outcome is Outcome.CANCELLED:
            return [Verdict(move.id, move.attempt, Ruling.CANCELLED)]
    return [Verdict(move.id, move.attempt, Ruling.STALE, current=current)]


def _fence(move: Transition) -> Fence:
    return move.id, move.attempt
