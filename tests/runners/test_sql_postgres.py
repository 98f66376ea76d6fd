"""Statements in a real PostgreSQL."""

import asyncio
import gc
import os
import sys
from contextlib import asynccontextmanager

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.limits import RESULT_BYTES_MAX
from daybell.runners.sql import Connections, SqlHandler
from daybell.store.postgres import PostgresStore
from tests.pooler import Pooler
from tests.runners.kind_jobs import Job
from tests.stores import execute

VERSION = os.environ.get("DAYBELL_TEST_PG_VERSION", "18")
pytestmark = pytest.mark.postgres


class Place:
    """A database, and the jobs in it."""

    def __init__(self, url: str):
        self.url = url
        self.connections = Connections({"db": url})

    def job(self, statement: str, *, rows: int = 1000, **options) -> Job:
        parameters = options.pop("parameters", {})
        said = {"connection": "db", "statement": statement, "parameters": parameters, "rows": rows}
        return Job(self.handler, "sql", said, **options)

    def handler(self, definition, reveal):
        return SqlHandler(definition, reveal, self.connections)

    async def rows(self, statement: str, **parameters):
        return (await self.job(statement, parameters=parameters).result())["rows"]

    async def look(self, query: str):
        link = await asyncpg.connect(self.url)
        try:
            return await link.fetchval(query)
        finally:
            await link.close()


@asynccontextmanager
async def place_at(url: str):
    place = Place(url)
    try:
        yield place
    finally:
        await place.connections.close()


@pytest.fixture(scope="module")
def url(servers):
    """One database for all: making one takes longer than a test. So each has tables of its own."""
    server = servers._server(VERSION)
    url = server.create_database()
    yield url
    server.drop_database(url.rpartition("/")[2])


@pytest.fixture
async def place(url):
    async with place_at(url) as place:
        yield place


async def test_a_query_answers_its_rows(place):
    job = place.job("SELECT n, n * 2 AS double FROM generate_series(1, :last) n;", args={"last": 2})

    assert await job.result() == {
        "rows": [{"n": 1, "double": 2}, {"n": 2, "double": 4}],
        "row_count": 2,
    }
    [line] = job.log()
    assert line.startswith("info 2 rows kept, in 0.")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT repeat('x', 20000000) AS x",
        "SELECT repeat('x', 9000000) AS a, repeat('x', 9000000) AS b",
        "SELECT repeat('x', n / 64 * 5000000 + 1) AS x FROM generate_series(1, 99) n",
        "DO $$ BEGIN RAISE NOTICE '%', repeat('x', 20000000); END $$",
    ],
    ids=["value", "row", "rows", "notice"],
)
async def test_more_than_memory_should_hold_is_not_taken(place, statement):
    assert "more than 8 MiB; select less of it" in await place.job(statement).lasting()

    assert await place.rows("SELECT 1 AS a") == [{"a": 1}]


async def test_json_that_is_not_kept_is_not_read(place):
    """Its objects would take thirty times the memory of its text."""
    count = sys.getallocatedblocks()
    most = 0

    def see(*_: object) -> None:
        nonlocal most
        most = max(most, sys.getallocatedblocks())

    nested = "SELECT ('[' || repeat('[],', 2000000) || '0]')::json AS x"
    gc.callbacks.append(see)  # a million lists are not made without it
    try:
        result = await place.job(nested).result()
    finally:
        gc.callbacks.remove(see)

    assert result == {"rows": [], "row_count": 0, "truncated": True}
    assert most - count < 1_000_000
    assert await place.rows("SELECT '{\"a\": [1]}'::jsonb j, array['[2]'::json] l") == [
        {"j": {"a": [1]}, "l": [[2]]}
    ]


async def test_a_lot_that_comes_little_by_little_is_taken(place):
    wide = "SELECT repeat('x', 5000000) AS x FROM generate_series(1, 9)"
    chatty = (
        "DO $$ BEGIN FOR i IN 1..9 LOOP RAISE NOTICE '%', repeat('x', 3000000); END LOOP; END $$"
    )

    for _ in range(4):
        assert (await place.job(wide).result())["truncated"]
    assert await place.job(chatty).result() == {"row_count": 0}


async def test_a_change_is_committed_and_counted(place):
    assert await place.job("CREATE TABLE t1 (a int, b text)").result() == {"row_count": 0}
    insert = "INSERT INTO t1 SELECT n, :b FROM generate_series(1, 3) n"
    assert await place.job(insert, parameters={"b": "x"}).result() == {"row_count": 3}

    assert await place.look("SELECT count(*) FROM t1 WHERE b = 'x'") == 3


async def test_arguments_go_over_the_settings_and_secrets_are_put_in(place):
    job = place.job(
        "SELECT :a AS a, :b AS b",
        parameters={"a": {"secret": "TOKEN"}, "b": "settings"},
        args={"b": "args"},
        secrets={"TOKEN": "s3cret"},
    )

    assert (await job.result())["rows"] == [{"a": "s3cret", "b": "args"}]


async def test_values_are_taken_as_the_server_takes_literals(place):
    [row] = await place.rows(
        "SELECT :d::date d, :t::timestamptz t, :s::timestamp s, :i::interval i, :n::numeric n,"
        " :u::uuid u, :j::jsonb j, :l::int[] l, :f::float8 f, :b::bool b, :h::inet h, :e::text e,"
        " :y::bytea y, :big::int8 big, :o::json o, :x::int x, :ts::text[] ts, :dd::date[] dd",
        d="2026-02-28", t="2026-03-01 10:00+02", s="2026-03-01T10:00:00.5", i="1 day 2 hours",
        n="12345678901234567890.123456789012345678", u="0B9E6F4E1D2B4D4A8A0B7C9D8E7F6A5B",
        j={"a": [1, None, "é"]}, l=[1, None, 3], f=0.1, b=True, h="10.0.0.1/8", e=12.5,
        y="\\x00ff", big=2**62, o=[1], x="7", ts=["a\"b", "c,d", "NULL", None], dd=["2026-01-01"],
    )  # fmt: skip

    assert row == {
        "d": "2026-02-28", "t": "2026-03-01T08:00:00+00:00", "s": "2026-03-01T10:00:00.5",
        "i": "1 day 02:00:00", "n": "12345678901234567890.123456789012345678",
        "u": "0b9e6f4e-1d2b-4d4a-8a0b-7c9d8e7f6a5b", "j": {"a": [1, None, "é"]},
        "l": [1, None, 3], "f": 0.1, "b": True, "h": "10.0.0.1/8", "e": "12.5", "y": "AP8=",
        "big": 2**62, "o": [1], "x": 7, "ts": ["a\"b", "c,d", "NULL", None], "dd": ["2026-01-01"],
    }  # fmt: skip


async def test_what_json_has_no_word_for_is_told_in_words(place):
    [row] = await place.rows(
        "SELECT 'NaN'::float8 a, '-Infinity'::float8 b, 'infinity'::timestamptz c, NULL d, 1 d,"
        " 'on'::bool e, ARRAY['NaN'::float8] f, 'NaN'::numeric g, '2026-01-01 BC'::date h"
    )

    assert row == {
        "a": "NaN", "b": "-Infinity", "c": "infinity", "d": None, "d_2": 1, "e": True,
        "f": ["NaN"], "g": "NaN", "h": "2026-01-01 BC",
    }  # fmt: skip


async def test_any_text_comes_back_as_it_was_given(place):
    loop = asyncio.get_running_loop()

    @settings(max_examples=60, deadline=None)
    @given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
    def check(text):
        asked = place.rows("SELECT :text::text, ARRAY[:text, ':text'] a", text=text)
        [row] = asyncio.run_coroutine_threadsafe(asked, loop).result(30)
        assert row == {"text": text, "a": [text, ":text"]}

    await asyncio.to_thread(check)


async def test_only_so_many_rows_are_kept_and_the_change_is_whole(place):
    await place.job("CREATE TABLE t2 (a int)").result()
    job = place.job("INSERT INTO t2 SELECT generate_series(1, 50) RETURNING a", rows=3)

    assert await job.result() == {
        "rows": [{"a": 1}, {"a": 2}, {"a": 3}], "row_count": 3, "truncated": True
    }  # fmt: skip
    assert await place.look("SELECT count(*) FROM t2") == 50
    assert "and there were more" in job.log()[0]


async def test_an_endless_answer_is_cut_by_its_size(place):
    wide = "SELECT repeat('x', 100000) AS x, generate_series(1, 1000000000) AS n"

    result = await place.job(wide, rows=10_000).result()

    assert result["truncated"]
    assert result["row_count"] == 5
    [huge] = [await place.job(f"SELECT repeat('x', {RESULT_BYTES_MAX})").result()]
    assert huge == {"rows": [], "row_count": 0, "truncated": True}


@pytest.mark.parametrize(
    ("statement", "parameters", "message"),
    [
        ("SELEC 1", {}, "SQLSTATE 42601: syntax error"),
        ("SELECT * FROM nowhere", {}, 'SQLSTATE 42P01: relation "nowhere" does not exist'),
        ("SELECT 1 / :n::int", {"n": 0}, "SQLSTATE 22012: division by zero"),
        ("SELECT :n::int", {"n": "seven"}, 'SQLSTATE 22P02: invalid input syntax for type integer'),
        ("SELECT :n::int[]", {"n": 7}, "parameter :n: a sized iterable container expected"),
        ("SELECT :n::bytea", {"n": "?"}, "base64"),
        ("INSERT INTO pg_temp.none VALUES (1)", {}, "SQLSTATE 42P01"),
        ("SELECT 1; SELECT 2", {}, "the statement is several"),
        ("SELECT :a, :b", {"a": 1}, "has :b, and nobody has given it a value"),
        ("SELECT :a", {"a": 1, "ab": 1}, "no parameter 'ab'; it has :a"),
        ("SELECT $1", {}, "the parameter $1; a parameter is written :name"),
        ("COPY (SELECT 1) TO STDOUT", {}, "COPY from or to the client"),
        ("SELECT ROW(1, now()) AS r", {}, "column 'r' is a record"),
        ("SELECT '[1,2)'::int4range AS r", {}, "int4range"),
        ("SELECT :a", {"a": "a\0b"}, "SQLSTATE 22021"),
    ],
)  # fmt: skip
async def test_what_cannot_work_is_given_up(place, statement, parameters, message):
    failed = await place.job(statement, parameters=parameters).lasting()

    assert message in failed
    assert await place.rows("SELECT 1 AS fine") == [{"fine": 1}]


async def test_half_a_character_is_no_text(place):
    job = place.job("SELECT :a", args={"a": "\ud800"})

    assert "parameter :a: " in await job.lasting()


async def test_a_constraint_is_told_with_its_detail(place):
    await place.job("CREATE TABLE t3 (a int PRIMARY KEY)").result()
    await place.job("INSERT INTO t3 VALUES (1)").result()

    failed = await place.job("INSERT INTO t3 VALUES (1)").lasting()

    assert "SQLSTATE 23505" in failed
    assert "Key (a)=(1) already exists" in failed


async def test_the_beginning_of_a_secret_is_not_told(place):
    await place.job("CREATE TABLE t7 (a int NOT NULL, b text)").result()
    secret = {"LONG": "canary-" + 100 * "x"}

    for statement in ("INSERT INTO t7 VALUES (NULL, :b)", "SELECT :b::int[]", "SELECT :b::json"):
        job = place.job(statement, parameters={"b": {"secret": "LONG"}}, secrets=secret)
        assert "canary" not in await job.lasting()
        job = place.job(statement, args={"b": {"secret": "LONG"}}, secrets=secret)
        assert "canary" not in await job.lasting()


@pytest.mark.parametrize("state", ["40001", "40P01", "53300", "55P03", "57P01", "08006", "P0001"])
async def test_what_may_pass_is_tried_again(place, state):
    raising = f"DO $$ BEGIN RAISE 'not now' USING ERRCODE = '{state}'; END $$"

    assert f"SQLSTATE {state}: not now" in await place.job(raising).passing()


async def test_what_cannot_run_in_a_transaction_runs_without(place):
    await place.job("CREATE TABLE t4 (a int)").result()

    assert await place.job("VACUUM t4").result() == {"row_count": 0}
    assert await place.job("CREATE INDEX CONCURRENTLY i ON t4 (a)").result() == {"row_count": 0}


async def test_notices_are_in_the_log_and_bounded(place):
    noisy = (
        "DO $$ BEGIN RAISE WARNING 'hot'; FOR n IN 1..500 LOOP RAISE NOTICE 'n'; END LOOP; END $$"
    )
    job = place.job(noisy)

    await job.result()

    lines = job.log()
    assert lines[:2] == ["warning WARNING: hot", "info NOTICE: n"]
    assert len(lines) == 102


async def test_a_cancelled_statement_ends_on_the_server_too(place):
    job = place.job("SELECT pg_sleep(600)")
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ~ 'pg_sleep.6'"
    async with asyncio.timeout(300):
        while await place.look(f"{asleep} AND pid <> pg_backend_pid()") == 0:
            pass

    await job.cancelled()

    assert await place.look(f"{asleep} AND pid <> pg_backend_pid()") == 0
    assert await place.rows("SELECT 1 AS fine") == [{"fine": 1}]


async def test_nothing_of_a_session_is_left_for_the_next(place):
    await place.job("SET statement_timeout = 1234").result()
    await place.job("CREATE TEMP TABLE t5 (a int)").result()

    assert await place.rows("SHOW statement_timeout") == [{"statement_timeout": "0"}]
    assert "42P01" in await place.job("SELECT * FROM t5").lasting()


async def test_at_most_five_connections_are_made(place):
    jobs = [place.job("SELECT pg_sleep(0.02), pg_backend_pid() AS pid") for _ in range(20)]

    pids = {(await job.result())["rows"][0]["pid"] for job in jobs}

    assert 1 < len(pids) <= 5


async def test_statements_run_behind_a_pooler(place):
    async with Pooler(place.url) as pooler, place_at(pooler.url) as pooled:
        await pooled.job("CREATE TABLE t6 (a timestamptz, b text[])").result()
        insert = "INSERT INTO t6 VALUES (:a, :b) RETURNING b"
        for _ in range(4):
            rows = await pooled.rows(insert, a="2026-01-01", b=["x", "y"])
            assert rows == [{"b": ["x", "y"]}]
        # One with a name would stay behind, in the way of another client's of that name.
        assert await pooled.rows("SELECT name FROM pg_prepared_statements") == []
        assert await pooled.job("VACUUM t6").result() == {"row_count": 0}
        assert "42P01" in await pooled.job("SELECT * FROM u").lasting()


@pytest.mark.parametrize("guess", ["correct-horse", "correct-house"])
async def test_a_parameter_that_is_the_password_comes_back_like_any_other(url, guess):
    async with place_at(url.replace("postgres@", "postgres:correct-horse@")) as place:
        job = place.job("SELECT CAST(:guess AS text)::int", args={"guess": guess})
        failed = await job.lasting()

    assert f'invalid input syntax for type integer: "{guess}"' in failed


async def test_a_database_that_is_not_there_is_tried_again_without_telling_its_password():
    async with place_at("postgresql://me:hunter2@127.0.0.1:1/db") as place:
        failed = await place.job("SELECT 1").passing()

    assert "on connection 'db'" in failed
    assert "hunter2" not in failed


async def test_a_server_that_ends_in_the_middle_is_tried_again(place):
    job = place.job("SELECT pg_sleep(600)")
    asleep = "SELECT pid FROM pg_stat_activity WHERE query ~ 'pg_sleep.6' AND state = 'active'"
    pid = None
    async with asyncio.timeout(300):
        while pid is None:
            pid = await place.look(f"{asleep} AND pid <> pg_backend_pid()")
    await execute(place.url, f"SELECT pg_terminate_backend({pid})")

    assert "terminating connection due to administrator command" in await job.passing()


async def test_a_role_with_rights_in_the_store_is_refused(servers):
    """Also one that would first have to become another role. Others may use the database, and
    enqueue.
    """
    server = servers._server(VERSION)
    url = server.create_database()
    name = url.rpartition("/")[2]
    roles = [f"{name}_{role}" for role in ("runner", "reader", "climber", "enqueuer")]
    runner, reader, climber, enqueuer = roles
    try:
        store = PostgresStore(url)
        await store.migrate()
        await store.close()
        for role in roles:
            await execute(url, f"CREATE ROLE {role} LOGIN NOINHERIT")
        await execute(url, f"SELECT daybell.grant_to('{runner}')")
        await execute(url, f"GRANT USAGE ON SCHEMA daybell TO {reader}")
        await execute(url, f"GRANT SELECT (sealed) ON daybell.secret TO {reader}")
        await execute(url, f"GRANT {runner} TO {climber}")
        await execute(url, f"SELECT daybell.grant_enqueue_to('{enqueuer}')")

        for role in roles:
            async with place_at(url.replace("postgres@", f"{role}@")) as place:
                job = place.job("SELECT 1 AS a")
                if role != enqueuer:
                    assert "'db': the database is a store of Daybell" in await job.lasting()
                else:
                    assert (await job.result())["rows"] == [{"a": 1}]
    finally:
        server.drop_database(name)
        for role in (climber, enqueuer, reader, runner):
            await execute(server.url(), f"DROP ROLE IF EXISTS {role}")
