"""Steps of durable functions.

The plain way, for steps that are done, is one statement. Waits take a transaction, in which they
are decided one execution at a time: for each, an event may be on record already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final
from uuid import UUID

from daybell.core.event import places, result_of, wait_key
from daybell.core.step import NewStep, Step, StepKind, check_steps, ended, recorded
from daybell.store.checks import ATTEMPT_MAX
from daybell.store.codes import STEP_CODES, STEP_KINDS
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.events import event_of, name_lock
from daybell.store.postgres.finding import Finding, Place, Search
from daybell.store.postgres.moves import HELD, IS_HELD, Moving, by_lease, fences

PART_CHARS_MAX: Final = 8 * 1024 * 1024  # of results that are written in one statement
SLEEP: Final = STEP_CODES[StepKind.SLEEP]
COLUMNS: Final = (
    "execution, n, name, kind, result, error, failures, wake_at, started_at, finished_at, is_done"
)
# What is new in a step that is run again; when it began stays.
REPLACED: Final = ("name", "kind", "result", "error", "failures", "wake_at", "finished_at", "event")

_by_place: Final = attrgetter("id.int", "n")


class Stepping(Moving, Finding):
    """Steps, of `protocol.Steps`."""

    READ_STEPS = f"""
    SELECT {COLUMNS} FROM daybell.step WHERE tenant + 0 = $1 AND execution = $2 ORDER BY n
    """

    async def steps(self, tenant: str, id: UUID) -> list[Step]:
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            return [_step(row) for row in await link.fetch(self.READ_STEPS, owner, id)]

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        check_steps(steps)
        rounds = _rounds(steps)
        if len(rounds) == 1 and not any(map(_is_wait, steps)):
            async with self.db.link() as link:
                owner = await self.names.tenant(link, tenant)
                made = [await self._write_plain(link, owner, worker, rounds[0].values())]
        else:
            made = await self.db.settled(lambda: self._record_rounds(tenant, worker, rounds))
        answers: dict[int, Step] = {}
        for one, written in zip(rounds, made, strict=True):
            for position, step in one.items():
                if (step.id, step.n) in written:
                    answers[position] = written[step.id, step.n]
        return [answers.get(position) for position in range(len(steps))]

    # All at once and first, so that who locks several meets others in the same order.
    LOCK_HELD = f"""
    WITH {HELD}
    SELECT v.id, v.attempt, v.created_at, daybell.now() AS now FROM daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
     ORDER BY v.id FOR UPDATE OF v
    """

    async def _record_rounds(
        self, tenant: str, worker: UUID, rounds: list[dict[int, NewStep]]
    ) -> list[dict[Place, Step]]:
        made: list[dict[Place, Step]] = []
        async with self.db.transaction() as link:
            owner = await self.names.tenant(link, tenant)
            steps = [step for one in rounds for step in one.values()]
            for number in sorted({name_lock(owner, it.event) for it in steps if it.event}):
                await link.execute(self.LOCK_NAME, number)
            guard = _guard(owner, worker, steps)
            rows = await link.fetch(self.LOCK_HELD, *guard)
            held = {(row["id"], row["attempt"]): row for row in rows}
            for one in rounds:
                plain = [step for step in one.values() if not _is_wait(step)]
                waits = [step for step in one.values() if _is_wait(step)]
                written = await self._write_plain(link, owner, worker, plain)
                written |= await self._write_waits(link, owner, waits, held)
                made.append(written)
        return made

    # Each row is found and locked by itself. One that is done is written as it is, and so answered.
    WRITE_PLAIN = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    u AS MATERIALIZED (
      SELECT u.*, (SELECT now FROM t) AS now
        FROM unnest($4::uuid[], $5::int[], $7::int[], $8::text[], $9::smallint[], $10::text[],
                    $11::text[], $12::int[], $13::boolean[], $14::float8[], $15::float8[])
             u(id, attempt, n, name, kind, result, error, failures, is_done, ran, delay),
             LATERAL (SELECT FROM daybell.live v
                       WHERE v.tenant = $1 AND v.id = u.id AND v.attempt = u.attempt AND {IS_HELD}
                       LIMIT 1 FOR UPDATE) x)
    INSERT INTO daybell.step AS s (tenant, {COLUMNS})
    SELECT $1, id, n, name, kind, result, error, failures,
           CASE WHEN kind = {SLEEP} THEN now + delay END, now - coalesce(ran, 0),
           CASE WHEN kind = {SLEEP} THEN now + delay WHEN is_done THEN now END,
           is_done OR kind = {SLEEP}
      FROM u
    ON CONFLICT (execution, n, tenant) DO UPDATE SET is_done = s.is_done OR excluded.is_done, {
        ", ".join(
            f"{name} = CASE WHEN s.is_done THEN s.{name} ELSE excluded.{name} END"
            for name in REPLACED
        )
    }
    RETURNING {COLUMNS}
    """

    async def _write_plain(
        self, link: Link, owner: int, worker: UUID, steps: Iterable[NewStep]
    ) -> dict[Place, Step]:
        """Write what needs no look at others; not for those who do not hold their execution."""
        ordered = sorted(steps, key=_by_place)
        if not ordered:
            return {}
        rows = await link.fetch(
            self.WRITE_PLAIN,
            *_guard(owner, worker, ordered),
            [step.n for step in ordered],
            [step.name for step in ordered],
            [STEP_CODES[step.kind] for step in ordered],
            [step.result for step in ordered],
            [step.error for step in ordered],
            [step.failures for step in ordered],
            [step.is_done for step in ordered],
            [step.ran for step in ordered],
            [step.delay for step in ordered],
        )
        return {(row["execution"], row["n"]): _step(row) for row in rows}

    STEPS_BEFORE = f"""
    SELECT {COLUMNS}, event FROM daybell.step
     WHERE tenant + 0 = $1 AND execution = ANY($2::uuid[])
       AND (n = ANY($3::int[]) OR event IS NOT NULL)
    """

    async def _write_waits(
        self, link: Link, owner: int, waits: list[NewStep], held: Mapping[Place, Row]
    ) -> dict[Place, Step]:
        """Write waits, at most one of each execution; those for which no event is there, as open
        ones.
        """
        waits = [wait for wait in waits if (wait.id, wait.attempt) in held]
        if not waits:
            return {}
        ids, numbers = [wait.id for wait in waits], [wait.n for wait in waits]
        rows = await link.fetch(self.STEPS_BEFORE, owner, ids, numbers)
        before = {(row["execution"], row["n"]): _step(row) for row in rows}
        taken = {(row["execution"], row["event"]) for row in rows}
        now = next(iter(held.values()))["now"]
        steps = {(it.id, it.n): recorded(it, before.get((it.id, it.n)), now=now) for it in waits}
        left = [
            Search(wait, key, held[wait.id, wait.attempt]["created_at"], step.wake_at)
            for wait in waits
            if (step := steps[wait.id, wait.n]) is not before.get((wait.id, wait.n))
            for key in places(wait.match, wait.id)
        ]
        found = await self.earlier(link, owner, left, taken)
        results = {row["number"]: result_of(event_of(row)) for row in found.values()}
        for place, row in found.items():
            steps[place] = ended(steps[place], results[row["number"]], now=now)
        new = {place: step for place, step in steps.items() if step is not before.get(place)}
        for part in _parts(new):
            await self._put_steps(link, owner, {it: new[it] for it in part}, found)
        await self._open_waits(link, owner, waits, steps)
        await self._close_waits(link, owner, [it for it in new if it in before and new[it].is_done])
        return steps

    PUT_STEPS = f"""
    INSERT INTO daybell.step (tenant, {COLUMNS}, event)
    SELECT $1, * FROM unnest($2::uuid[], $3::int[], $4::text[], $5::smallint[], $6::text[],
                             $7::text[], $8::int[], $9::float8[], $10::float8[], $11::float8[],
                             $12::boolean[], $13::bigint[])
    ON CONFLICT (execution, n, tenant) DO UPDATE SET is_done = excluded.is_done, {
        ", ".join(f"{name} = excluded.{name}" for name in REPLACED)
    }
    """

    async def _put_steps(
        self, link: Link, owner: int, steps: Mapping[Place, Step], events: Mapping[Place, Row]
    ) -> None:
        made = steps.values()
        await link.execute(
            self.PUT_STEPS,
            owner,
            [id for id, _ in steps],
            [step.n for step in made],
            [step.name for step in made],
            [STEP_CODES[step.kind] for step in made],
            [step.result for step in made],
            [step.error for step in made],
            [step.failures for step in made],
            [step.wake_at for step in made],
            [step.started_at for step in made],
            [step.finished_at for step in made],
            [step.is_done for step in made],
            [None if place not in events else events[place]["number"] for place in steps],
        )

    OPEN_WAIT = """
    INSERT INTO daybell.wait (tenant, execution, n, timeout_at, event, key, match)
    SELECT $1, * FROM unnest($2::uuid[], $3::int[], $4::float8[], $5::text[], $6::text[],
                             $7::text[])
    ON CONFLICT (execution, n, tenant) DO UPDATE
       SET timeout_at = excluded.timeout_at, event = excluded.event, key = excluded.key,
           match = excluded.match
    """

    async def _open_waits(
        self, link: Link, owner: int, waits: list[NewStep], steps: Mapping[Place, Step]
    ) -> None:
        still = [wait for wait in waits if not steps[wait.id, wait.n].is_done]
        if not still:
            return
        await link.execute(
            self.OPEN_WAIT,
            owner,
            [wait.id for wait in still],
            [wait.n for wait in still],
            [steps[wait.id, wait.n].wake_at for wait in still],
            [wait.event for wait in still],
            [wait_key(wait.match) for wait in still],
            [wait.match for wait in still],
        )

    CLOSE_WAITS = """
    DELETE FROM daybell.wait
     WHERE tenant = $1 AND execution = ANY($2::uuid[])
       AND (execution, n) IN (SELECT * FROM unnest($2::uuid[], $3::int[]))
    """

    async def _close_waits(self, link: Link, owner: int, ended: Sequence[Place]) -> None:
        """What was open, and is found to have ended as it is recorded again."""
        if ended:
            places = [id for id, _ in ended], [n for _, n in ended]
            await link.execute(self.CLOSE_WAITS, owner, *places)


def _parts(steps: Mapping[Place, Step]) -> Iterator[list[Place]]:
    """Steps to be written in one go: what events bring may be large."""
    part, chars = list[Place](), 0
    for place, step in steps.items():
        chars += len(step.result or "")
        if part and chars > PART_CHARS_MAX:
            yield part
            part, chars = [], len(step.result or "")
        part.append(place)
    if part:
        yield part


def _rounds(steps: Sequence[NewStep]) -> list[dict[int, NewStep]]:
    """Steps by their position, in rounds of which each has a step once, and of an execution one
    wait: a later one may depend on what becomes of it. Nearly always it is one round.
    """
    rounds: list[dict[int, NewStep]] = [{}]
    seen: dict[Place | UUID, int] = {}
    for position, step in enumerate(steps):
        if not 0 <= step.attempt <= ATTEMPT_MAX:
            continue  # no execution is at such an attempt
        places: list[Place | UUID] = [(step.id, step.n)]
        if _is_wait(step):
            places.append(step.id)
        turn = max(seen.get(place, 0) for place in places)
        seen.update(dict.fromkeys(places, turn + 1))
        if turn == len(rounds):
            rounds.append({})
        rounds[turn][position] = step
    return rounds


def _is_wait(step: NewStep) -> bool:
    return step.kind is StepKind.WAIT


def _guard(owner: int, worker: UUID, steps: Sequence[NewStep]) -> tuple[object, ...]:
    """The first six parameters of every statement with HELD."""
    leases = by_lease(steps)
    return (owner, worker, list(leases), *fences(steps, leases))


def _step(row: Row) -> Step:
    return Step(
        n=row["n"],
        name=row["name"],
        kind=STEP_KINDS[row["kind"]],
        result=row["result"],
        error=row["error"],
        failures=row["failures"],
        wake_at=row["wake_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        is_done=row["is_done"],
    )
