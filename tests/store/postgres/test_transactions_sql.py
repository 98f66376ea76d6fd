"""`SELECT daybell.enqueue(…)`: rows, unique keys, refusals and rights."""

import asyncio
import json
import string
import time
from collections import Counter

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daybell.client import Client
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.limits import ARGS_BYTES_MAX
from daybell.core.units import parse_duration
from daybell.errors import UsageError
from daybell.store.postgres.transactions import SqlCall, send
from tests.builders import TENANT, add_tenants, apply, claim, defined, enqueued, look, success
from tests.store.postgres.invariants import violations
from tests.store.postgres.sql_calls import MANY, ONE, enqueue

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
    async with asyncio.timeout(300):
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
    await add_tenants(store, ["acme"])
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


# `SELECT daybell.enqueue(…)` with a unique key: it has one holder at a time.


async def test_a_key_that_is_held_answers_with_its_holder(store, sql):
    (held,) = await enqueued(store, unique_key="k")

    assert await enqueue(sql, unique_key="k") == held
    (row,) = await sql.fetch(MANY, "resize", ["{}"], '{"unique_key": "k"}')
    assert (row["id"], row["created"]) == (held, False)

    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    assert await enqueue(sql, unique_key="k") != held


async def blocked_by(sql, pid):
    """Wait until somebody waits for this session."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))"
    async with asyncio.timeout(300):
        while not await sql.fetchval(query, pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_a_holder_that_is_not_committed_is_waited_for(store, sql, another, place, ends):
    await defined(store)
    looking = await asyncpg.connect(place.url)
    transaction = another.transaction()
    await transaction.start()
    held = await enqueue(another, unique_key="k")

    waiting = asyncio.create_task(enqueue(sql, unique_key="k"))
    await blocked_by(looking, another.get_server_pid())
    await getattr(transaction, ends)()

    assert (await waiting == held) is (ends == "commit")
    assert await sql.fetchval("SELECT count(*) FROM daybell.live") == 1
    await looking.close()


async def test_a_holder_that_ends_while_it_is_waited_for_frees_the_key(store, sql, another, place):
    await enqueued(store, unique_key="k")
    looking = await asyncpg.connect(place.url)
    transaction = another.transaction()
    await transaction.start()
    await another.execute("WITH a AS (DELETE FROM daybell.agenda) DELETE FROM daybell.live")

    waiting = asyncio.create_task(enqueue(sql, unique_key="k"))
    await blocked_by(looking, another.get_server_pid())
    await transaction.commit()

    assert (await look(store, await waiting)).state is State.QUEUED
    await looking.close()


async def test_a_holder_that_ends_between_two_looks_frees_the_key(store, sql, another, place):
    await enqueued(store, unique_key="k")
    looking = await asyncpg.connect(place.url)
    # Fires after the insert that created nothing, and before the search for the holder.
    await another.execute(
        "CREATE FUNCTION daybell_test.pause() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;"
        "CREATE TRIGGER pause AFTER INSERT ON daybell.agenda EXECUTE FUNCTION daybell_test.pause();"
        "SELECT pg_advisory_lock(7)"
    )

    waiting = asyncio.create_task(enqueue(sql, unique_key="k"))
    await blocked_by(looking, another.get_server_pid())
    await another.execute("WITH a AS (DELETE FROM daybell.agenda) DELETE FROM daybell.live")
    await another.execute("SELECT pg_advisory_unlock(7)")
    id = await waiting
    await another.execute("DROP FUNCTION daybell_test.pause CASCADE")

    assert (await look(store, id)).state is State.QUEUED
    await looking.close()


@pytest.mark.slow
async def test_a_key_under_fire_has_one_holder_at_a_time(store, sql, place):
    await defined(store)
    seen: Counter[object] = Counter()

    async def ask():
        connection = await asyncpg.connect(place.url)
        for turn in range(60):
            transaction = connection.transaction()
            await transaction.start()
            (row,) = await connection.fetch(MANY, "resize", ["{}"], '{"unique_key": "k"}')
            if turn % 3:
                await transaction.commit()
                seen[row["id"]] += row["created"]
            else:
                await transaction.rollback()
        await connection.close()

    async def work():
        while True:
            hands = await claim(store)
            await apply(store, hands, *(success(one) for one in hands.executions))

    worker = asyncio.create_task(work())
    await asyncio.gather(*(ask() for _ in range(4)))
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)

    # Who was told of a holder was told of one that had been created, once.
    assert set(seen.values()) == {1}
    assert await violations(sql) == []


# `SELECT daybell.enqueue(…)` of what cannot be: refused, with its name and the way out.

WRONG = {
    "an option that is not there": ({"dealy": 5}, "22023", "no option 'dealy'", "delay"),
    "no object": ([1], "22023", "options must be a JSON object", "delay"),
    "a delay that is no length": ({"delay": "soon"}, "22023", 'delay "soon"', "90s"),
    "a negative delay": ({"delay": -1}, "22023", "delay -1", "seconds"),
    "a delay of eleven years": ({"delay": "4015d"}, "22023", "ten years", "2d"),
    "a delay that is a list": ({"delay": [1]}, "22023", r"delay \[1\]", "90s"),
    "a time without an offset": ({"at": "2030-01-01T00:00:00"}, "22023", "not a time", "offset"),
    "a day that is not": ({"at": "2030-02-30T00:00:00Z"}, "22023", "not a time", "offset"),
    "a time before 1970": ({"at": -1}, "22023", "not a time", "ISO 8601"),
    "a time without end": ({"at": 10**400}, "22023", "^at 1000.{0,60} is not a time", "ISO 8601"),
    "an offset of 99 hours": ({"at": "2030-01-01T00:00:00+99"}, "22023", "not a time", "offset"),
    "two times": ({"at": 1, "delay": 1}, "22023", "two ways", "one of them"),
    "a priority that is not": ({"priority": "urgent"}, "22023", "not a priority", "critical"),
    "a priority out of range": ({"priority": 4}, "22023", "not a priority", "critical"),
    "half a retry": ({"retries": 1.5}, "22023", "retries 1.5", "job"),
    "retries as text": ({"retries": "3"}, "22023", 'retries "3"', "job"),
    "too many retries": ({"retries": 1001}, "22023", "1,000", "job"),
    "a timeout of nothing": ({"timeout": 0}, "22023", "timeout 0 is no time at all", "job"),
    "a timeout of next to nothing": ({"timeout": 1e-9}, "22023", "no time at all", "job"),
    "to expire at once": ({"expires": "0s"}, "22023", "expires 0 is no time at all", "job"),
    "a timeout that is true": ({"timeout": True}, "22023", "timeout true", "90s"),
    "a queue that is a number": ({"queue": 5}, "22023", "queue 5", "none"),
    "a queue with a comma": ({"queue": "a,b"}, "22023", "no queue named 'a,b'", "letters"),
    "a queue that ends in a line feed": ({"queue": "a\n"}, "22023", "no queue named", "letters"),
    "a queue that is too long": ({"queue": "a" * 101}, "22023", "no queue named", "100"),
    "an empty key": ({"unique_key": ""}, "22023", "unique_key", "none"),
    "a key that is too long": ({"unique_key": "ä" * 251}, "54000", "502 bytes", "digest"),
    "an unknown tenant": ({"tenant": "acme"}, "42704", "no tenant named 'acme'", "."),
}


@pytest.mark.parametrize(("options", "code", "message", "hint"), WRONG.values(), ids=WRONG)
async def test_wrong_options_are_refused_and_named(store, sql, options, code, message, hint):
    await defined(store)

    with pytest.raises(asyncpg.PostgresError, match=message) as caught:
        await sql.fetchval(ONE, "resize", "{}", json.dumps(options))

    said = caught.value.as_dict()
    assert (said["sqlstate"], hint in said["hint"]) == (code, True)


DEEP = '{"a":' + "[" * 63 + "]" * 63 + "}"
ARGS = {
    "a list": ("[1]", "22023", "by name"),
    "text": ('"x"', "22023", "by name"),
    "too much": (json.dumps({"a": "x" * ARGS_BYTES_MAX}), "54000", "1,048,576"),
    "too deep": (DEEP.replace("[]", "[[]]"), "22023", "64 levels"),
    "a number without end": ('{"a":' + "9" * 4301 + "}", "22023", "4,300 digits"),
}


@pytest.mark.parametrize(("args", "code", "message"), ARGS.values(), ids=ARGS)
async def test_wrong_arguments_are_refused_and_named(store, sql, args, code, message):
    await defined(store)

    with pytest.raises(asyncpg.PostgresError, match=message) as caught:
        await enqueue(sql, args=args)

    assert caught.value.as_dict()["sqlstate"] == code


@pytest.mark.parametrize(
    "args",
    [DEEP, '{"a":' + "9" * 4300 + "}", json.dumps({"a": "[" * 99 + '"\\' + "9" * 5000})],
    ids=["as deep as may be", "as long a number", "the same in text"],
)
async def test_arguments_at_the_limit_are_taken(store, sql, args):
    await defined(store)

    kept = (await look(store, await enqueue(sql, args=args))).args

    assert json.loads(kept) == json.loads(args)


UNREADABLE = {
    "a NUL in an option": (SqlCall("resize", ["{}"], '{"queue": "\\u0000"}', None), "22P05"),
    "arguments without bottom": (SqlCall("resize", ["[" * 10**5], "{}", None), "54001"),
}


@pytest.mark.parametrize(("call", "code"), UNREADABLE.values(), ids=UNREADABLE)
async def test_what_the_server_itself_cannot_read_is_an_error_of_usage(store, sql, call, code):
    await defined(store)

    with pytest.raises(UsageError) as caught:
        await send(sql, call)

    assert getattr(caught.value.__cause__, "sqlstate", None) == code


async def test_a_job_that_is_not_there_is_named_and_what_to_do(store, sql):
    with pytest.raises(asyncpg.UndefinedObjectError, match="no job named 'resize'") as caught:
        await enqueue(sql)
    assert "app.open()" in caught.value.as_dict()["hint"]

    await defined(store)
    await store.catalog.delete_job(TENANT, "resize")
    with pytest.raises(asyncpg.UndefinedObjectError):
        await enqueue(sql)


# `SELECT daybell.enqueue(…)` by others: who may, and that nothing they set matters.


@pytest.fixture
async def role(place, sql):
    """A connection of a role that may enqueue and nothing else."""
    name = f"shop_{mint().hex}"
    await sql.execute(f"CREATE ROLE {name} LOGIN")
    await sql.execute("SELECT daybell.grant_enqueue_to($1)", name)
    connection = await asyncpg.connect(place.url.replace("//postgres@", f"//{name}@"))
    yield connection
    await connection.close()
    await sql.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_role_with_the_right_to_enqueue_can_do_that_and_nothing_else(store, sql, role):
    await defined(store)

    id = await enqueue(role, queue="brand-new")
    many = await role.fetch(MANY, "resize", ["{}", "{}"], "{}")

    assert (await look(store, id)).queue == "brand-new"
    assert len(many) == 2
    others = await sql.fetch(
        "SELECT oid::regprocedure::text AS name FROM pg_proc"
        " WHERE pronamespace = 'daybell'::regnamespace"
        " AND has_function_privilege($1, oid, 'EXECUTE')",
        await role.fetchval("SELECT current_user"),
    )
    assert {row["name"].partition("(")[0] for row in others} == {
        "daybell.enqueue",
        "daybell.enqueue_many",
        "daybell.now",
    }
    for statement in (
        "SELECT * FROM daybell.live",
        "INSERT INTO daybell.agenda VALUES (0, 1, 1, gen_random_uuid())",
        "SELECT * FROM daybell.job",
        "SELECT daybell.grant_enqueue_to('pg_monitor')",
        "CREATE TABLE daybell.mine (x int)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await role.execute(statement)


async def test_without_the_right_it_is_refused(store, place, sql):
    name = f"stranger_{mint().hex}"
    await sql.execute(f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA daybell TO {name}")
    stranger = await asyncpg.connect(place.url.replace("//postgres@", f"//{name}@"))

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await enqueue(stranger)

    await stranger.close()
    await sql.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


TRAPS = {
    "now": "() RETURNS float8",
    "clock_timestamp": "() RETURNS timestamptz",
    "gen_random_uuid": "() RETURNS uuid",
    "pg_notify": "(text, text) RETURNS void",
    "jsonb_typeof": "(jsonb) RETURNS text",
    "lower": "(text) RETURNS text",
    "left": "(text, int) RETURNS text",
    "cardinality": "(anyarray) RETURNS int",
    "octet_length": "(text) RETURNS int",
}


async def test_nothing_that_a_caller_sets_matters(store, sql, role):
    await defined(store)
    user = await role.fetchval("SELECT current_user")
    await sql.execute(f"CREATE SCHEMA {user} AUTHORIZATION {user}")
    for name, rest in TRAPS.items():
        await role.execute(
            f'CREATE FUNCTION {user}."{name}"{rest} LANGUAGE plpgsql'
            " AS $$ BEGIN RAISE 'trapped'; END $$"
        )
    await role.execute("CREATE TEMP TABLE lane (trap int); CREATE TEMP TABLE live (trap int)")
    await role.execute(
        f"SET search_path = {user}, pg_temp, pg_catalog; SET standard_conforming_strings = off;"
        " SET escape_string_warning = off; SET TimeZone = 'Asia/Kathmandu';"
        " SET DateStyle = 'SQL, DMY'; SET extra_float_digits = -15; SET transform_null_equals = on;"
        " SET enable_indexscan = off; SET plpgsql.extra_errors = 'all'"
    )

    asked = {"at": "2036-05-04T01:02:03+00:00", "expires": "1.5h", "priority": "HIGH", "queue": "q"}
    id = await enqueue(role, args='{"a": "\\u00e4"}', **asked)

    found = await look(store, id)
    assert (found.run_at, found.queue, json.loads(found.args)) == (2093475723.0, "q", {"a": "ä"})
    assert found.expires_at == found.run_at + 5400
    assert await violations(sql) == []
