"""Enqueueing in transactions of the caller's, through the drivers that people use."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from daybell import App, ExecutionFailed
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.errors import InvalidArguments, JobNotFound, SchemaError, UsageError
from daybell.sdk.task import Handle
from tests.refusals import refuses
from tests.sdk.drivers import ASYNC, SYNC, dialect
from tests.stores import POSTGRES

pytestmark = pytest.mark.postgres


@pytest.fixture(params=POSTGRES.values())
def version(request):
    return request.param


@pytest.fixture
async def url(version, servers):
    """A migrated database, whose clock stands still."""
    async with servers.migrated(version) as database:
        yield database.url


@pytest.fixture
async def live_url(version, servers):
    """A migrated database on the real clock."""
    async with servers.live(version) as url:
        yield url


@pytest.fixture
async def app(url):
    app = App(url)

    @app.task
    async def add(left: int, right: int = 1) -> int:
        return left + right

    yield app
    await app.close()


@pytest.fixture
def add(app):
    return app.tasks["add"]


async def count(app):
    return (await (await app.open()).count()).total


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC)
async def test_an_enqueue_lives_and_dies_with_the_transaction(app: App, add, url, opened):
    async with opened(url) as given:
        task = add.options(connection=given.connection, unique_key="one")

        handle = await task.enqueue(40, right=2)
        again = await task.enqueue(1)
        many = await add.options(connection=given.connection, priority="low").enqueue_many(
            [{"left": n} for n in range(3)]
        )

        assert handle.created and again.id == handle.id and not again.created
        assert [one.created for one in many] == [True] * 3
        assert sorted(one.id for one in many) == [one.id for one in many]
        assert await count(app) == 0
        await given.commit()

    found = await handle.execution()
    assert (found.args, found.unique_key) == ({"left": 40, "right": 2}, "one")
    assert [(await one.execution()).args for one in many] == [{"left": n} for n in range(3)]
    assert await count(app) == 4


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC)
async def test_rolled_back_nothing_was_enqueued(app: App, add, url, opened):
    async with opened(url) as given:
        task = add.options(connection=given.connection)
        await task.enqueue(1)
        await task.enqueue_many([{"left": 2}])

        await given.rollback()

    assert await count(app) == 0


@pytest.mark.parametrize("opened", SYNC.values(), ids=SYNC)
async def test_the_same_without_an_event_loop(app: App, url, opened):
    def work(ends):
        with opened(url) as given:
            task = app.tasks["add"].options(connection=given.connection, delay="1h").sync
            one, many = task.enqueue(1), task.enqueue_many([{"left": 2}, {"left": 3}])
            getattr(given, ends)()
            return [one, *many]

    kept = await asyncio.to_thread(work, "commit")
    assert await count(app) == 3
    assert [one.created for one in kept] == [True] * 3
    assert await asyncio.to_thread(kept[0].status) is State.SCHEDULED

    await asyncio.to_thread(work, "rollback")
    assert await count(app) == 3


async def test_every_option_arrives(app: App, add, url):
    await (await app.open()).add_tenant("acme")
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    task = add.options(
        connection=connection,
        tenant="acme",
        queue="größe",
        delay="90s",
        expires="5m",
        priority="high",
        retries=7,
        timeout="PT1M",
        unique_key="schlüssel 🔑",
    )

    handle = await task.enqueue(1)

    found = await handle.execution()
    assert (found.queue, found.priority, found.unique_key) == (
        "größe",
        "high",
        "schlüssel 🔑",
    )
    assert (found.retries, found.timeout) == (7, 60.0)
    assert (found.run_at - found.created_at).total_seconds() == 90
    assert (found.expires_at - found.run_at).total_seconds() == 300
    await connection.close()


async def test_arguments_are_checked_before_the_transaction_is_touched(add, url):
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        for wrong in ({"left": "x"}, {"write": 1}):
            with pytest.raises(InvalidArguments):
                await add.options(connection=connection).enqueue(**wrong)
            with pytest.raises(InvalidArguments, match=r"items\[1\]"):
                await add.options(connection=connection).enqueue_many([{"left": 1}, wrong])
        with pytest.raises(UsageError, match="unique_key"):
            await add.options(connection=connection, unique_key="k").enqueue_many([])
        with refuses(UsageError, field="items"):
            await add.options(connection=connection).enqueue_many([{"left": 1}] * 10_001)

        assert await connection.fetchval("SELECT 1") == 1  # it is not aborted
    await connection.close()


async def test_what_json_text_can_hold_arrives_as_it_is(app: App, url):
    @app.task
    async def say(what: str) -> str:
        return what

    connection = await asyncpg.connect(url)
    handle = await say.options(connection=connection).enqueue("\0 and \ud800")

    assert (await handle.execution()).args == {"what": "\0 and \ud800"}
    await connection.close()


async def test_what_a_task_enqueues_in_a_transaction_is_its_child(app: App, url):
    @app.task
    async def parent() -> str:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            handle = await app.tasks["add"].options(connection=connection).enqueue(1)
        await connection.close()
        return str(handle.id)

    async with app.worker():
        handle = await parent.enqueue()
        child = await handle.result(timeout=300)

    assert (await (await app.open()).execution(child)).parent_id == handle.id


async def test_a_unique_key_whose_holder_is_rolled_back_goes_to_who_waits_for_it(
    app: App, add, url
):
    first, second = await asyncpg.connect(url), await asyncpg.connect(url)
    transaction = first.transaction()
    await transaction.start()
    held = await add.options(connection=first, unique_key="k").enqueue(1)

    waiting = asyncio.create_task(add.options(connection=second, unique_key="k").enqueue(2))
    elsewhere = asyncio.create_task(add.options(unique_key="k").enqueue(3))
    async with asyncio.timeout(300):
        while await blocked(url) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await transaction.rollback()
    got, other = await waiting, await elsewhere

    assert held.id not in (got.id, other.id)
    assert got.id == other.id and got.created is not other.created
    await first.close()
    await second.close()


async def blocked(url):
    connection = await asyncpg.connect(url)
    query = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
    found = await connection.fetchval(query)
    await connection.close()
    return found


async def test_a_connection_of_the_other_kind_is_named(app: App, add, url):
    sync, not_sync = psycopg.connect(url), await asyncpg.connect(url)

    with pytest.raises(UsageError, match=r"Connection is not async: write .*\.sync\.enqueue"):
        await add.options(connection=sync).enqueue(1)
    with pytest.raises(UsageError, match="Connection is async: write await"):
        await asyncio.to_thread(add.options(connection=not_sync).sync.enqueue, 1)

    sync.close()
    await not_sync.close()


async def test_what_cannot_be_enqueued_through_is_refused(app: App, add, url, tmp_path):
    async def refused(connection, words):
        with pytest.raises(UsageError, match=words) as caught:
            await add.options(connection=connection).enqueue(1)
        assert caught.value.field == "connection"

    closed = await asyncpg.connect(url)
    await closed.close()
    await refused(closed, "is closed")
    async with asyncpg.create_pool(url, min_size=1) as pool:
        await refused(pool, "Of an engine or a pool take a connection")
        async with pool.acquire() as released:
            pass
        await refused(released, "gone back to its pool")
    ended = await psycopg.AsyncConnection.connect(url)
    await ended.close()
    await refused(ended, "is closed")
    engine = create_async_engine(dialect(url, "asyncpg"))
    await refused(engine, "AsyncEngine cannot be enqueued through")
    await refused(engine.connect(), "not been started")
    async with engine.connect() as over:
        pass
    await refused(over, "is closed|not been started")
    await engine.dispose()
    file = sqlite3.connect(tmp_path / "x.db")
    await refused(file, "asyncpg or psycopg 3")
    file.close()


async def test_a_connection_to_another_kind_of_database_is_refused(add):
    engine = sqlalchemy.create_engine("sqlite://")
    for given in (engine.connect(), Session(engine)):
        with refuses(UsageError, field="connection"):
            await asyncio.to_thread(add.options(connection=given).sync.enqueue, 1)
        given.close()
    engine.dispose()


async def test_a_database_without_the_schema_is_named(add, url, servers):
    async with servers.database("18") as empty, AsyncExitStack() as stack:
        for opened in ASYNC.values():
            given = await stack.enter_async_context(opened(empty))
            with pytest.raises(SchemaError, match=r"daybell.* does not exist.*daybell migrate"):
                await add.options(connection=given.connection).enqueue(1)


async def test_a_role_that_may_not_enqueue_is_told_how(app: App, add, url):
    role = f"shop_{mint().hex}"
    owner = await asyncpg.connect(url)
    await owner.execute(f"CREATE ROLE {role} LOGIN")
    connection = await asyncpg.connect(url.replace("//postgres@", f"//{role}@"))

    with pytest.raises(UsageError, match="grant_enqueue_to"):
        await add.options(connection=connection).enqueue(1)
    await owner.execute("SELECT daybell.grant_enqueue_to($1)", role)
    handle = await add.options(connection=connection).enqueue(1)

    assert await handle.status() is State.QUEUED
    await connection.close()
    await owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    await owner.close()


async def test_a_transaction_older_than_the_job_cannot_see_it(app: App, add, url):
    connection = await asyncpg.connect(url)
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.execute("SELECT 1")

    with pytest.raises(JobNotFound, match=r"'add' in the database of this connection.*app\.open"):
        await add.options(connection=connection).enqueue(1)

    await transaction.rollback()
    await connection.close()


async def test_errors_of_the_transaction_stay_the_drivers(add, url):
    connection = await asyncpg.connect(url)
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        async with connection.transaction():
            with pytest.raises(asyncpg.UndefinedTableError):
                await connection.execute("SELECT * FROM nowhere")
            await add.options(connection=connection).enqueue(1)
    await connection.close()


@pytest.mark.parametrize("kind", ["memory://", "sqlite:///x.db"])
async def test_other_stores_have_no_transaction_to_join(kind, servers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with servers.database("18") as elsewhere:
        connection = await asyncpg.connect(elsewhere)
        async with App(kind) as app:

            @app.task
            async def nothing() -> None: ...

            with refuses(UsageError, field="connection"):
                await nothing.options(connection=connection).enqueue()
        await connection.close()


async def test_without_a_connection_it_is_an_enqueue_like_any_other(add):
    handle = await add.options(connection=None).enqueue(1)

    assert await handle.status() is State.QUEUED


async def test_of_a_thousand_transactions_half_rolled_back_exactly_half_run(live_url):
    app = App(live_url)
    ran: list[int] = []

    @app.task
    async def note(number: int) -> None:
        ran.append(number)

    async def shop(numbers):
        connection = await asyncpg.connect(live_url)
        for number in numbers:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("INSERT INTO orders VALUES ($1)", number)
            await note.options(connection=connection).enqueue(number)
            await (transaction.rollback() if number % 2 else transaction.commit())
        await connection.close()

    owner = await asyncpg.connect(live_url)
    await owner.execute("CREATE TABLE orders (number int PRIMARY KEY)")
    async with app.worker():
        await asyncio.gather(*(shop(range(start, 1000, 4)) for start in range(4)))
        async with asyncio.timeout(300):
            while (await app.client().count()).executions.get(State.SUCCEEDED, 0) < 500:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    assert sorted(ran) == list(range(0, 1000, 2))
    rows = await owner.fetch("SELECT number FROM orders ORDER BY 1")
    assert [row["number"] for row in rows] == sorted(ran)
    assert await count(app) == 500
    await owner.close()
    await app.close()


async def test_a_workflow_is_given_parameters_in_a_transaction_and_in_sql(live_url):
    app = App(live_url)

    @app.task
    def load(day):
        return day

    with app.workflow("etl", params={"day": ...}) as etl:
        load.node()

    async with app, app.worker(), AsyncExitStack() as stack:
        connection = await asyncpg.connect(live_url)
        stack.push_async_callback(connection.close)
        through = etl.options(connection=connection)
        handle = await through.enqueue(day="monday")
        with refuses(InvalidArguments, field="day"):
            await through.enqueue()
        # Nobody looks at these here.
        sql = "SELECT daybell.enqueue('etl', $1)"
        other, wrong = [
            Handle(app.client_for, await connection.fetchval(sql, args))
            for args in ('{"day": "tuesday"}', '{"dya": 1}')
        ]
        assert await handle.result(20) == "monday"
        assert await other.result(20) == "tuesday"
        with pytest.raises(ExecutionFailed, match="has no parameter 'dya'; did you mean 'day'"):
            await wrong.result(20)
        assert (await wrong.execution()).attempt == 1
        again = await app.client().retry(handle.id, from_="load")
        assert (await app.client().execution(again.id)).args == {"day": "monday"}
