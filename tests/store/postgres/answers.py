"""Whether what operations answered is true of the tables afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import asyncpg

from daybell.core.execution import Cancellation
from daybell.core.lifecycle import Ruling
from daybell.core.worker import Renewal
from daybell.store.codec import OUTCOMES
from tests.store.postgres.world import World, cancelled_ids

# Each attempt that has ended, with how; and each that is in somebody's hands, with whose.
FACTS: Final = """
    SELECT id, attempt, worker, outcome, NULL::uuid AS lease, false AS is_cancelling
      FROM daybell.attempt
    UNION ALL SELECT id, attempt, worker, outcome, NULL, false FROM daybell.dead
    UNION ALL SELECT id, attempt, worker, outcome, NULL, state = 8 FROM daybell.history
    UNION ALL SELECT v.id, v.attempt, h.worker, NULL, h.lease, v.cancel_requested_at IS NOT NULL
      FROM daybell.live v LEFT JOIN (
             SELECT l.worker, l.id AS lease, x.id, x.attempt
               FROM daybell.lease l, unnest(l.ids, l.attempts) x(id, attempt)) h
           ON h.id = v.id AND h.attempt = v.attempt
"""
MOVES: Final = {
    "finishes": {"keyed": "succeeded", "cancelling": "cancelled"},
    "finishes_gated": {"gated": "succeeded"},
    "retries": {"keyed": "failed", "gated": "failed", "cancelling": "cancelled"},
    "dies": {"keyed": "failed", "gated": "failed"},
    "suspends": {"keyed": "released", "gated": "released"},
}


async def untrue(sql: asyncpg.Connection, world: World, said: list[tuple[str, Any]]) -> list[str]:
    """What was answered (by which operation) and is not so."""
    rows = await sql.fetch(FACTS)
    facts = {(row["id"], row["attempt"]): row for row in rows}
    latest = {id: facts[id, attempt] for id, attempt in sorted(facts)}
    found: list[str] = []
    for name, answer in said:
        if isinstance(answer, Exception):
            continue
        if name in MOVES:
            found += _moves(world, name, answer, facts)
        elif name.startswith("claims"):
            found += _claim(answer, facts)
        elif name == "cancels":
            found += _cancel(world, answer, latest)
        elif name.startswith("enqueues"):
            found += [f"{e.id} was answered and is nowhere" for e in answer if e.id not in latest]
    found += _renewal(said, rows)
    found += await _firing(sql, world, said)
    found += await _event(sql, said)
    return found


def _moves(world: World, name: str, answer: Any, facts: Any) -> Iterator[str]:
    rulings = {verdict.id: verdict.ruling for verdict in answer}
    for what, outcome in MOVES[name].items():
        claimed = getattr(world, what)
        ruling = rulings.get(claimed.id)
        expected = {None: outcome, Ruling.CANCELLED: "cancelled"}.get(ruling)
        fact = facts[claimed.id, claimed.attempt]
        if ruling is None and outcome == "cancelled":
            yield f"{what} was made, though it had to be cancelled"
        elif expected is not None and (
            fact["worker"] != world.ada or OUTCOMES.get(fact["outcome"]) != expected
        ):
            yield f"{name} of {what} was answered {ruling}, and the record says {dict(fact)}"


def _claim(answer: Any, facts: Any) -> Iterator[str]:
    for claimed in answer.executions:
        fact = facts.get((claimed.id, claimed.attempt))
        if fact is None or (fact["outcome"] is None and fact["lease"] != answer.lease):
            yield f"{claimed.id} was claimed and is not held: {fact and dict(fact)}"


def _cancel(world: World, answer: Any, latest: dict[UUID, Any]) -> Iterator[str]:
    for id, word in zip(cancelled_ids(world), answer, strict=True):
        if word in (Cancellation.CANCELLED, Cancellation.REQUESTED):
            if not latest[id]["is_cancelling"]:
                yield f"cancelling {id} was answered {word}, and it is {dict(latest[id])}"
        elif word is Cancellation.UNKNOWN:
            yield f"{id} was unknown to cancel"


def _renewal(said: list[tuple[str, Any]], rows: Any) -> Iterator[str]:
    """A worker that was told that it lives keeps what it has."""
    names = {name for name, _ in said}
    lives = any(isinstance(answer, Renewal) for _, answer in said)
    if lives and "retires" not in names:
        for row in rows:
            if row["outcome"] is not None and OUTCOMES[row["outcome"]] == "lost":
                yield f"{row['id']} was taken from a worker that lives"


async def _firing(sql: Any, world: World, said: list[tuple[str, Any]]) -> list[str]:
    wins = [answer for name, answer in said if name == "fires" and answer == [True]]
    row = await sql.fetchrow(
        "SELECT s.next_at, s.fired, (SELECT count(*) FROM daybell.tick t WHERE t.schedule = s.id)"
        " AS ticks, (SELECT count(*) FROM daybell.live v WHERE v.schedule = s.id) AS executions"
        " FROM daybell.schedule s WHERE s.id = $1",
        world.schedule,
    )
    # Whoever finds the schedule or its gate locked leaves it for another time; nothing between.
    possible = {(world.tick + 60, 1, 1, 1)} if wins else {(world.tick, 0, 0, 0)}
    if any(name == "fires" for name, _ in said) and not wins:
        possible.add((world.tick + 60, 1, 1, 1))  # by one whose answer was lost
    seen = tuple(row.values())
    problems = [] if seen in possible else [f"the schedule is at {seen}"]
    return problems + (["a tick was fired twice"] if len(wins) > 1 else [])


async def _event(sql: Any, said: list[tuple[str, Any]]) -> list[str]:
    """Nobody waits for an event that was published."""
    if not any(name == "publishes" and not isinstance(it, Exception) for name, it in said):
        return []
    rows = await sql.fetch("SELECT id FROM daybell.live WHERE state = 4 AND reason = 'event'")
    return [f"{row['id']} waits for an event that has come" for row in rows]
