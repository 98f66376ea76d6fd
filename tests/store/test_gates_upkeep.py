"""Gates over time: those that nobody needs any more go, and those that count wrongly are told."""

import pytest

from daybell.core.execution import Revival, State
from daybell.core.ids import mint
from daybell.core.schedule import Overlap, backfill_gate, gate_of, room_of
from daybell.core.views import Miscount, Retention
from daybell.errors import UsageError
from daybell.store.sqlite import SqliteStore
from tests.builders import (
    TENANT,
    a_schedule,
    add_tenants,
    apply,
    claim,
    dead,
    defined,
    enqueued,
    fired,
    put,
    states,
    success,
)
from tests.sweeps import admit, recount_gates, retain, set_gates

DAY = 86_400.0
POLICY = Retention(finished=DAY, ticks=DAY, workers=DAY)
QUEUED, WAITING = State.QUEUED, State.WAITING


async def retained(store):
    """How many gates rounds of retention take away."""
    gates = 0
    for _ in range(20):
        removed = await retain(store, POLICY)
        gates += removed.gates
        if removed.is_complete:
            return gates
    raise AssertionError("retention does not come to an end")


async def run_all(store, gate, *, count=1):
    """Let so many executions pass a gate to their end."""
    await enqueued(store, count, gate=gate)
    for _ in range(count):
        hands = await claim(store, 1)
        assert await apply(store, hands, success(hands.one)) == []


def test_the_gate_of_a_backfill_says_how_many_it_takes():
    assert [room_of(gate) for gate in (backfill_gate(mint(), 7), gate_of("a"), "g")] == [7, 1, None]


async def test_the_gate_of_a_backfill_is_made_by_who_comes_first(store):
    gate = backfill_gate(mint(), 2)

    ids = await enqueued(store, 3, gate=gate)

    assert await states(store, ids) == [QUEUED, QUEUED, WAITING]


async def test_other_gates_are_not_made_by_themselves(store):
    with pytest.raises(UsageError, match="no gate named 'narrow'"):
        await enqueued(store, gate="narrow")


async def test_gates_of_backfills_go_with_their_executions(store, clock):
    for _ in range(3):
        await run_all(store, backfill_gate(mint()))
    # One that is made later stays for the time being, if need be: numbers are not given out twice.
    await set_gates(store, TENANT, {"narrow": 1})
    await clock.advance(10 * DAY)

    assert await retained(store) == 3

    assert await retained(store) == 0


async def test_a_gate_stays_while_somebody_is_inside_or_waits(store, clock):
    gate = backfill_gate(mint())
    first, second = await enqueued(store, 2, gate=gate)
    await set_gates(store, TENANT, {"narrow": 1})
    await clock.advance(10 * DAY)
    assert await retained(store) == 0

    await store.queue.cancel(TENANT, [first])
    assert await states(store, [second]) == [QUEUED]
    assert await retained(store) == 0

    await store.queue.cancel(TENANT, [second])
    await clock.advance(10 * DAY)
    assert await retained(store) == 1


async def test_a_gate_where_one_waits_for_its_time_stays(store, clock):
    gate = backfill_gate(mint())
    (later,) = await enqueued(store, gate=gate, delay=20 * DAY)
    await set_gates(store, TENANT, {"narrow": 1})
    await clock.advance(10 * DAY)
    assert await retained(store) == 0

    await clock.advance(11 * DAY)

    assert await admit(store) == 1
    assert await states(store, [later]) == [QUEUED]


async def test_who_comes_to_a_gate_that_is_gone_makes_it_anew(store, clock):
    gate = backfill_gate(mint(), 2)
    await run_all(store, gate)
    await set_gates(store, TENANT, {"narrow": 1})
    await clock.advance(10 * DAY)
    assert await retained(store) == 1

    ids = await enqueued(store, 3, gate=gate)

    assert await states(store, ids) == [QUEUED, QUEUED, WAITING]


async def test_a_dead_letter_comes_back_through_its_gate(store, clock):
    (letter,) = await dead(store, gate=backfill_gate(mint()))
    await set_gates(store, TENANT, {"narrow": 1})
    await clock.advance(10 * DAY)
    await retained(store)

    assert await store.queue.revive(TENANT, [letter]) == [Revival.REVIVED]

    assert await states(store, [letter]) == [QUEUED]
    assert await store.catalog.miscounts() == []


async def test_the_gate_of_a_deleted_job_goes(store, clock):
    await defined(store, "single", overlap=Overlap.SKIP)
    await enqueued(store, job="single")
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    await store.catalog.delete_job(TENANT, "single")
    await set_gates(store, TENANT, {"narrow": 1})
    await clock.advance(10 * DAY)

    assert await retained(store) == 1

    await defined(store, "single", overlap=Overlap.QUEUE)
    ids = [*await enqueued(store, job="single"), *await enqueued(store, job="single")]
    assert await states(store, ids) == [QUEUED, WAITING]


async def test_the_gate_of_a_schedule_goes_after_it(store, clock):
    await add_tenants(store, ["other"])
    kept, joined, gone = (a_schedule(next_at=clock.now(), own_gate=True) for _ in range(3))
    await put(store, kept, joined, gone)
    await put(store, gone, tenant="other")  # another one, of the same id
    for schedule in (kept, joined, gone):
        await fired(store, schedule)
    await fired(store, gone, tenant="other")
    hands = [await claim(store, 1) for _ in range(3)]
    hands += [await claim(store, 1, tenant="other")]
    await store.schedules.put_schedules(
        TENANT, [a_schedule(id=joined.id, next_at=clock.now() + 60)]
    )
    await store.schedules.delete_schedules(TENANT, [gone.id])
    assert await retained(store) == 0  # somebody is inside

    for one, tenant in zip(hands, [TENANT] * 3 + ["other"], strict=True):
        assert await apply(store, one, success(one.one), tenant=tenant) == []
    await set_gates(store, TENANT, {"narrow": 1})
    await clock.advance(10 * DAY)
    assert await retained(store) == 2
    assert await retained(store) == 0

    for schedule in (kept, joined):
        (id,) = await fired(store, schedule)
        assert await states(store, [id]) == [QUEUED]
    again = a_schedule(id=gone.id, next_at=clock.now(), own_gate=True)
    await store.schedules.put_schedules(TENANT, [again])
    ids = await fired(store, again) + await fired(store, again)
    assert await states(store, ids) == [QUEUED, State.SKIPPED]


async def test_the_gates_of_its_schedules_go_with_a_deleted_job(store, clock):
    await put(store, *(a_schedule("single", next_at=9e9, own_gate=True) for _ in range(3)))
    await store.catalog.delete_job(TENANT, "single")
    await set_gates(store, TENANT, {"narrow": 1})
    await clock.advance(10 * DAY)

    await retained(store)

    assert [name for name in await gate_names(store) if "single" in name] == []


async def gate_names(store):
    if isinstance(store, SqliteStore):
        rows = await store.db.read(lambda tx: tx.execute("SELECT name FROM gate").fetchall())
        return [name for (name,) in rows]
    async with store.db.link() as link:
        return [row["key"] for row in await link.fetch("SELECT key FROM daybell.gate")]


async def test_gates_of_jobs_and_those_that_somebody_set_stay(store, clock):
    await defined(store, "single", overlap=Overlap.SKIP)
    await enqueued(store, job="single")
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    await set_gates(store, TENANT, {"narrow": 1, "wide": 9})
    await clock.advance(10 * DAY)

    assert await retained(store) == 0

    assert await states(store, await enqueued(store, 2, gate="narrow")) == [QUEUED, WAITING]


async def miscount(store, gate, holders):
    """Make a gate count wrongly, as no operation does."""
    if isinstance(store, SqliteStore):
        values = holders, gate
        await store.db.write(
            lambda tx: tx.execute("UPDATE gate SET holders = ? WHERE name = ?", values)
        )
        return
    async with store.db.link() as link:
        await link.execute("UPDATE daybell.gate SET holders = $1 WHERE key = $2", holders, gate)


async def test_a_gate_that_counts_too_many_is_told_and_put_right(store):
    await set_gates(store, TENANT, {"narrow": 2})
    ids = await enqueued(store, 3, gate="narrow")
    await miscount(store, "narrow", 3)
    told = [Miscount(tenant=TENANT, gate="narrow", counted=3, inside=2)]

    assert await store.catalog.miscounts() == told
    assert await store.catalog.miscounts() == told  # it only looked
    assert await recount_gates(store) == told

    assert await store.catalog.miscounts() == []
    await store.queue.cancel(TENANT, ids[:1])
    assert await states(store, ids[1:]) == [QUEUED, QUEUED]


async def test_who_was_kept_out_by_a_wrong_count_gets_in(store):
    await set_gates(store, TENANT, {"narrow": 1})
    (first,) = await enqueued(store, gate="narrow")
    await miscount(store, "narrow", 2)
    (second,) = await enqueued(store, gate="narrow")
    await store.queue.cancel(TENANT, [first])
    assert await states(store, [second]) == [WAITING]

    await recount_gates(store)

    assert await states(store, [second]) == [QUEUED]
    assert await store.catalog.miscounts() == []


async def test_a_gate_that_counts_too_few_is_put_right(store):
    await set_gates(store, TENANT, {"narrow": 1})
    (first,) = await enqueued(store, gate="narrow")
    await miscount(store, "narrow", 0)

    await recount_gates(store)

    (second,) = await enqueued(store, gate="narrow")
    assert await states(store, [first, second]) == [QUEUED, WAITING]
