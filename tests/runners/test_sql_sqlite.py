"""Statements in real SQLite files, and which connections there can be."""

import asyncio
import re
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.errors import UsageError
from daybell.runners import sql_sqlite
from daybell.runners.helper_pool import HELPERS_MAX
from daybell.runners.sql import Connections, SqlHandler
from daybell.store.sqlite import SqliteStore
from tests.cli.terminal import is_alive
from tests.engine.virtual import until
from tests.runners.kind_jobs import Job

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class Place:
    """A file, and the jobs in it."""

    def __init__(self, path):
        self.path = path
        self.connections = Connections({"db": f"sqlite:///{path}"})

    @property
    def helpers(self):
        database = self.connections.database("db")
        assert isinstance(database, sql_sqlite.SqliteDatabase)
        return database.helpers

    def job(self, statement: str, *, rows: int = 1000, **options) -> Job:
        parameters = options.pop("parameters", {})
        said = {"connection": "db", "statement": statement, "parameters": parameters, "rows": rows}
        return Job(self.handler, "sql", said, **options)

    def handler(self, definition, reveal):
        return SqlHandler(definition, reveal, self.connections)

    async def rows(self, statement: str, **parameters):
        return (await self.job(statement, parameters=parameters).result())["rows"]


@pytest.fixture
async def place(tmp_path):
    path = tmp_path / "my data%.db"
    sqlite3.connect(path).close()
    path.touch()
    place = Place(str(path).replace("%", "%25"))
    place.path = path
    yield place
    await place.connections.close()


async def test_a_query_answers_its_rows(place):
    job = place.job("SELECT :a AS a, :a + 1 AS b", args={"a": 1})

    assert await job.result() == {"rows": [{"a": 1, "b": 2}], "row_count": 1}
    [line] = job.log()
    assert re.fullmatch(r"info 1 row kept, in \d+\.\d+ s", line)


async def test_a_parameter_may_be_called_secret(place):
    statement = "SELECT :secret AS s"
    named = place.job(statement, parameters={"secret": {"secret": "S"}}, secrets={"S": "value"})

    assert await place.rows(statement, secret="abc") == [{"s": "abc"}]
    assert (await named.result())["rows"] == [{"s": "value"}]


async def test_a_change_is_committed_and_counted(place):
    assert await place.job("CREATE TABLE t (a, b)").result() == {"row_count": 0}
    insert = "INSERT INTO t VALUES (1, :b), (2, :b)"
    assert await place.job(insert, parameters={"b": "x"}).result() == {"row_count": 2}

    link = sqlite3.connect(place.path)
    assert link.execute("SELECT count(*) FROM t WHERE b = 'x'").fetchone() == (2,)
    link.close()


async def test_values_go_in_and_out(place):
    [row] = await place.rows(
        "SELECT :t t, :i i, :f f, :b b, :n n, :o o, :l l, x'00ff' y, 9e999 z,"
        " CAST(x'ff41' AS TEXT) u",
        t="é", i=2**62, f=0.5, b=True, n=None, o={"a": 1}, l=[1, 2],
    )  # fmt: skip

    assert row == {
        "t": "é", "i": 2**62, "f": 0.5, "b": 1, "n": None, "o": '{"a":1}', "l": "[1,2]",
        "y": "AP8=", "z": "Infinity", "u": "\ufffdA",
    }  # fmt: skip


async def test_any_text_comes_back_as_it_was_given(place):
    loop = asyncio.get_running_loop()

    @settings(max_examples=60, deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def check(text):
        asked = place.rows("SELECT :text AS text, ':text' AS quoted", text=text)
        [row] = asyncio.run_coroutine_threadsafe(asked, loop).result(30)
        assert row == {"text": text, "quoted": ":text"}

    await asyncio.to_thread(check)


async def test_only_so_many_rows_are_kept_and_the_change_is_whole(place):
    await place.job("CREATE TABLE t (a)").result()
    insert = "INSERT INTO t VALUES (1), (2), (3), (4) RETURNING a"

    assert await place.job(insert, rows=2).result() == {
        "rows": [{"a": 1}, {"a": 2}], "row_count": 2, "truncated": True
    }  # fmt: skip
    assert await place.rows("SELECT count(*) AS n FROM t") == [{"n": 4}]


async def test_an_endless_answer_is_cut_by_its_size(place):
    endless = ENDLESS.replace("SELECT count(*)", "SELECT hex(zeroblob(50000)) AS x")

    result = await place.job(endless, rows=10_000).result()

    assert result["truncated"]
    assert result["row_count"] == 5


@pytest.mark.parametrize(
    ("statement", "args", "message"),
    [
        ("SELEC 1", {}, "SQLITE_ERROR: near"),
        ("SELECT * FROM nowhere", {}, "no such table: nowhere"),
        ("SELECT hex(zeroblob(200000000))", {}, "a value or a row has 16 MiB at most here"),
        ("SELECT 1; SELECT 2", {}, "the statement is several"),
        ("SELECT :a, :b", {"a": 1}, "has :b, and nobody"),
        ("SELECT :a", {"a": 1, "ab": 1}, "no parameter 'ab'; it has :a"),
        ("SELECT ?", {}, "the parameter ?; a parameter is written :name"),
        ("SELECT @a", {}, "the parameter @a"),
        ("SELECT :a", {"a": 2**64}, "more than 64 bits"),
        ("SELECT :a", {"a": "\ud800"}, "half a character"),
        ("ATTACH '/etc/passwd' AS x", {}, "a job stays within its file"),
        ("ATTACH :file AS x", {"file": "other.db"}, "a job stays within its file"),
        ("VACUUM INTO 'copy.db'", {}, "a job stays within its file"),
        ("SELECT load_extension('x')", {}, "a job stays within its file"),
        ("PRAGMA temp_store_directory = '/'", {}, "a job stays within its file"),
        ("PRAGMA temp_store = FILE", {}, "a job stays within its file"),
        ("PRAGMA writable_schema = 1", {}, "a job stays within its file"),
    ],
)
async def test_what_cannot_work_is_given_up(place, statement, args, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    assert message in await place.job(statement, args=args).lasting()
    assert [file.name for file in tmp_path.iterdir()] == [place.path.name]


async def test_a_constraint_is_given_up(place):
    await place.job("CREATE TABLE t (a PRIMARY KEY)").result()
    await place.job("INSERT INTO t VALUES (1)").result()

    assert "UNIQUE constraint failed" in await place.job("INSERT INTO t VALUES (1)").lasting()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM (SELECT randomblob(1000000) AS b FROM ({n}) ORDER BY b LIMIT -1)",
        "CREATE TEMP TABLE t AS SELECT zeroblob(1000000) FROM ({n})",
    ],
)
async def test_temporary_data_counts_as_memory(place, statement):
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300)"
    numbers += " SELECT i FROM n"

    job = place.job(statement.format(n=numbers))

    assert "takes more than 128 MiB of memory" in await job.lasting()
    assert place.helpers.pids == []  # it is not used again


async def test_a_file_can_be_vacuumed_and_described(place):
    assert await place.job("VACUUM").result() == {"row_count": 0}
    assert await place.rows("PRAGMA user_version") == [{"user_version": 0}]


async def test_a_file_is_not_made(tmp_path):
    place = Place(tmp_path / "missing.db")

    assert "missing.db? It is not made by a job" in await place.job("SELECT 1").passing()
    assert not list(tmp_path.iterdir())
    await place.connections.close()


async def test_a_cancelled_statement_is_interrupted(place):
    jobs = [place.job(ENDLESS) for _ in range(HELPERS_MAX + 1)]
    await until(lambda: len(place.helpers.pids) == HELPERS_MAX, within=60)
    pids = place.helpers.pids

    await asyncio.gather(*(job.cancelled() for job in jobs))

    assert not any(map(is_alive, pids))
    assert await place.rows("SELECT 1 AS fine") == [{"fine": 1}]


async def test_a_cancelled_change_leaves_no_journal(place):
    await place.job("CREATE TABLE t (a)").result()
    change = place.job(f"INSERT INTO t {ENDLESS.replace('count(*)', 'hex(randomblob(1000))')}")
    journal = place.path.with_name(f"{place.path.name}-journal")
    await until(journal.exists, within=60)

    await change.cancelled()

    assert not journal.exists()
    assert await place.rows("SELECT count(*) AS n FROM t") == [{"n": 0}]


async def test_a_helper_ends_with_its_worker_even_in_a_statement(place):
    job = place.job(ENDLESS)
    await until(lambda: place.helpers.pids, within=60)
    [helper] = place.helpers.processes

    helper.stdin.close()  # as when the worker is gone

    assert "interrupted" in await job.passing()
    await asyncio.wait_for(helper.wait(), 300)


async def test_a_file_that_others_write_to_is_waited_for(place, monkeypatch):
    await place.job("CREATE TABLE t (a)").result()
    other = sqlite3.connect(place.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    monkeypatch.setattr(sql_sqlite, "BUSY_TRIES", 1)
    assert "SQLITE_BUSY" in await place.job("INSERT INTO t VALUES (1)").passing()

    monkeypatch.setattr(sql_sqlite, "BUSY_TRIES", 10_000)
    waiting = place.job("INSERT INTO t VALUES (1)")
    cancelled = place.job("INSERT INTO t VALUES (2)")
    await until(lambda: len(place.helpers.pids) == 2, within=60)
    await cancelled.cancelled()
    other.execute("COMMIT")
    assert await waiting.result() == {"row_count": 1}
    other.close()


@pytest.mark.parametrize(
    "value",
    [
        "zeroblob(16000000)",
        "(SELECT group_concat(hex(zeroblob(5000000))))",
        "replace(hex(zeroblob(4000)), '0', hex(zeroblob(900)))",
    ],
)
async def test_a_statement_cannot_fill_the_memory(place, value):
    job = place.job(f"SELECT {', '.join([value] * 40)}")
    peak = 0

    def ended() -> bool:
        nonlocal peak
        peak = max([peak, *map(resident_bytes, place.helpers.pids)])
        return job.task.done()

    await until(ended, within=60)

    assert "takes more than 128 MiB of memory" in await job.lasting()
    assert peak < 256 * 1024**2
    assert place.helpers.pids == []  # it is not used again
    assert await place.rows("SELECT 1 AS fine") == [{"fine": 1}]


async def test_wide_rows_are_left_out_without_being_converted(place):
    wide = "SELECT zeroblob(16000000) AS a, zeroblob(16000000) AS b, zeroblob(16000000) AS c"

    assert await place.job(wide).result() == {"rows": [], "row_count": 0, "truncated": True}
    [pid] = place.helpers.pids
    assert resident_bytes(pid) < 180 * 1024**2


async def test_the_file_of_a_store_is_refused(tmp_path):
    store = SqliteStore(str(tmp_path / "daybell.db"))
    await store.migrate()
    await store.close()
    (tmp_path / "alias.db").hardlink_to(tmp_path / "daybell.db")
    place = Place(tmp_path / "alias.db")

    said = await place.job("SELECT * FROM tenants").lasting()

    assert "on connection 'db': the file is a store of Daybell" in said
    await place.connections.close()


def resident_bytes(pid: int) -> int:
    """The most that a process has had."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


@pytest.mark.parametrize(
    ("name", "url", "message"),
    [
        (
            "db",
            "mysql://me:hunter2@host/db",
            "scheme that is not known, mysql; write postgresql://",
        ),
        ("db", "host/db", "is no database URL"),
        ("db", "sqlite://", "names no file"),
        ("db", "sqlite://file.db", "names no file"),
        ("db", "sqlite:///file.db?mode=rwc", "names no file"),
        ("My-db", "sqlite:///file.db", "cannot name a connection"),
    ],
)
def test_a_url_that_names_no_database_is_refused_at_the_start(name, url, message):
    with pytest.raises(UsageError, match=message) as raised:
        Connections({name: url})
    assert "hunter2" not in str(raised.value)


async def test_a_connection_that_is_not_there_may_come_back():
    connections = Connections({"other": "sqlite:///x.db"})
    said = {"connection": "db", "statement": "SELECT 1"}

    job = Job(lambda *these: SqlHandler(these[0], these[1], connections), "sql", said)

    assert "no connection 'db'; it knows other" in await job.passing()
    await connections.close()
