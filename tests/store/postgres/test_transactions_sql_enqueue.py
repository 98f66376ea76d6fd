"""`SELECT daybell.enqueue(…)`: the rows of the store's own enqueue, in a caller's transaction."""

import asyncio
import json
import string
import time

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daybell.client import Client
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.units import parse_duration
from daybell.errors import UsageError
from tests.builders import TENANT, apply, claim, defined, look, success
from tests.store.postgres.invariants import violations
from tests.store.postgres.sql_calls import MANY, enqueue

SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


# What one enqueue may ask for, as people write it.

names = st.text(string.ascii_letters + string.digits, min_size=1, max_size=8)
micros = st.integers(0, 10**9).map(lambda n: n / 1_000_000)
durations = st.one_of(
    st.integers(0, 300_000_000),
    micros,
    st.builds("{}h{}m".format, st.integers(0, 90), st.integers(0, 90)),
    st.builds("P{}DT{}H{}S".format, st.integers(0, 9), st.integers(0, 30), st.integers(0, 99)),
    st.sampled_from(["90s", "5m", "1.5h", " 2d ", "250ms", "1w 2d", "0", ".5", "PT0,5S", "1s 5us"]),
)
limits = durations.filter(lambda text: parse_duration(text) > 0)
times = st.one_of(
    st.integers(0, 4_000_000_000),
    st.datetimes(timezones=st.timezones())
    .filter(lambda t: t.year > 1970)
    .map(lambda t: t.replace(fold=0).isoformat(timespec="microseconds"))
    .filter(lambda t: len(t) == 32),
    st.sampled_from(["2001-09-09T01:46:40Z", "2036-12-24 18:00+01:00", "2036-12-24T18:00:00-0330"]),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "expires": st.none() | limits,
        "priority": st.sampled_from(["critical", "High", "normal", " medium ", "low", 0, 3, None]),
        "queue": st.none() | names,
        "unique_key": st.none()
        | st.text(min_size=1, max_size=60).filter(
            lambda text: "\0" not in text and text.isprintable()
        ),
        "retries": st.none() | st.integers(0, 1000),
        "timeout": st.none() | limits,
    },
)
# Of a number without a unit, the SDK refuses more than a day; the function in SQL takes seconds.
delays = durations.filter(lambda one: isinstance(one, str) or one <= 86_400)
when = st.fixed_dictionaries({}, optional={"delay": delays}) | st.fixed_dictionaries(
    {}, optional={"at": times}
)
payloads = st.dictionaries(
    names, st.recursive(st.none() | st.booleans() | st.integers() | names, st.lists), max_size=3
)


async def rows(sql, id):
    """Both rows of an execution, but for its id."""
    live = dict(await sql.fetchrow("SELECT * FROM daybell.live WHERE id = $1", id))
    (agenda,) = await sql.fetch("SELECT * FROM daybell.agenda WHERE id = $1", id)
    return json.loads(live.pop("args")), live | {"id": None}, dict(agenda) | {"id": None}


@settings(max_examples=120, deadline=None, suppress_health_check=SHARED)
@given(options=options, when=when, args=payloads, expires=st.none() | st.just(7.5))
async def test_the_rows_are_those_of_the_stores_own_enqueue(
    store, sql, options, when, args, expires
):
    job = f"resize-{mint().hex}"
    await defined(store, job, expires=expires, description="NUL \0 and \\u0000", queue="own")

    theirs = await Client(store).enqueue(job, args, **options, **when)
    expected = await rows(sql, theirs.id)
    await sql.execute("DELETE FROM daybell.live; DELETE FROM daybell.agenda")
    ours = await enqueue(sql, job, json.dumps(args), **options, **when)

    assert await rows(sql, ours) == expected


@settings(max_examples=300, deadline=None, suppress_health_check=SHARED)
@given(text=durations.map(str) | st.text("0123456789.,wdhmsuPT -", max_size=9))
async def test_durations_are_read_as_python_reads_them(sql, text):
    try:
        expected = parse_duration(text)
    except UsageError:
        expected = None

    query = "SELECT daybell.read_seconds(to_jsonb($1::text), 'delay')"
    try:
        found = await sql.fetchval(query, text)
    except asyncpg.InvalidParameterValueError:
        found = None

    assert found == pytest.approx(expected, abs=1e-6) if expected is not None else found is None


async def test_a_worker_runs_what_was_enqueued_from_sql(store, sql):
    await defined(store)
    async with sql.transaction():
        id = await enqueue(sql, args='{"width": 640}')
        assert (await claim(store)).executions == []

    hands = await claim(store)

    assert [(one.id, json.loads(one.args)) for one in hands.executions] == [(id, {"width": 640})]
    assert await apply(store, hands, success(hands.one)) == []
    assert await violations(sql) == []


async def test_ids_are_of_version_7_and_rise_with_time(store, sql):
    await defined(store)
    before = time.time_ns() // 1_000_000

    singles = [await enqueue(sql) for _ in range(50)]
    many = [row["id"] for row in await sql.fetch(MANY, "resize", ["{}"] * 5000, "{}")]

    ids = [*singles, *many]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert {(id.version, id.variant) for id in ids} == {(7, singles[0].variant)}
    assert before <= singles[0].int >> 80 <= many[-1].int >> 80 <= before + 60_000
    # Random, all of it: no bit of the last 62 is the same in all.
    bits = [id.int & (2**62 - 1) for id in many]
    assert all(0.4 < sum(b >> place & 1 for b in bits) / 5000 < 0.6 for place in range(62))


async def test_many_keep_their_order_and_are_all_or_nothing(store, sql):
    await defined(store)
    args = [f'{{"n":{n}}}' for n in range(10_000)]

    answers = await sql.fetch(MANY, "resize", args, '{"priority": "low"}')
    with pytest.raises(asyncpg.PostgresError, match=r"args\[3\]"):
        await sql.fetch(MANY, "resize", ["{}", "{}", "[]"], "{}")

    assert all(row["created"] for row in answers)
    kept = await sql.fetch("SELECT args FROM daybell.live ORDER BY id")
    assert [row["args"] for row in kept] == args
    assert await violations(sql) == []


async def test_makers_of_the_same_new_queue_share_it(store, sql, place):
    await defined(store)

    async def ask():
        connection = await asyncpg.connect(place.url)
        for n in range(10):
            async with connection.transaction():
                await enqueue(connection, queue=f"new-{n}")
        await connection.close()

    await asyncio.gather(*(ask() for _ in range(4)))

    hands = await claim(store, queues=[f"new-{n}" for n in range(10)])
    assert len(hands.executions) == 40
    assert await sql.fetchval("SELECT count(*) FROM daybell.lane WHERE queue ~ '^new'") == 10


async def test_the_lane_of_a_job_is_there_before_anybody_enqueues(store, sql, another):
    await defined(store, queue="größe")
    transaction = another.transaction()
    await transaction.start()
    await enqueue(another)

    await sql.execute("SET lock_timeout = '1s'")
    await enqueue(sql)  # does not wait for the other
    await transaction.rollback()

    assert len((await claim(store, queues=["größe"])).executions) == 1


async def test_whoever_listens_hears_of_it_at_the_commit(store, sql, another):
    await defined(store)
    heard: asyncio.Queue[str] = asyncio.Queue()
    await another.add_listener("daybell", lambda *said: heard.put_nowait(said[-1]))

    async with sql.transaction():
        for queue in ("default", "default", "mail"):
            await enqueue(sql, queue=queue)
        await another.execute("SELECT 1")
        assert heard.empty()
    async with asyncio.timeout(20):
        said = [await heard.get(), await heard.get()]

    tenant = await sql.fetchval("SELECT key FROM daybell.tenant WHERE name = $1", TENANT)
    assert said == [f"{tenant}:default", f"{tenant}:mail"]
    await another.execute("SELECT 1")
    assert heard.empty()


async def test_the_current_version_of_the_job_is_taken(store, sql):
    await defined(store)
    await defined(store, priority=1, queue="second")
    id = await enqueue(sql)

    found = await look(store, id)

    assert (found.version, found.queue, found.priority) == (2, "second", 1)


async def test_each_tenant_has_its_own(store, sql):
    await store.add_tenants(["acme"])
    await defined(store, "resize", tenant="acme")

    id = await enqueue(sql, tenant="acme")

    assert (await look(store, id, tenant="acme")).state is State.QUEUED
    with pytest.raises(asyncpg.UndefinedObjectError, match="no job named 'resize'"):
        await enqueue(sql)


async def test_what_a_job_needs_of_a_worker_counts_here_too(store, sql):
    settings = '{"connection": "pg", "statement": "SELECT 1"}'
    await defined(store, kind="sql", settings=settings)

    id = await enqueue(sql)
    (row,) = await sql.fetch(MANY, "resize", ["{}"], '{"queue": "other"}')

    for other in ("task", "sql", "sql:other"):
        assert (await claim(store, queues=["default", "other"], kinds=[other])).executions == []
    hands = await claim(store, queues=["default", "other"], kinds=["sql:pg"])
    assert [one.id for one in hands.executions] == [id, row["id"]]
