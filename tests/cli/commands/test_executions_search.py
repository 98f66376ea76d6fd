"""`daybell executions` and `daybell dead-letters` by content; advice that names a tenant."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from daybell import Client
from daybell.cli.views.executions import ExecutionSearch
from daybell.core.execution import Failure, State, join_lines, line_text
from daybell.core.limits import SCAN_ITEMS_MAX
from daybell.core.views import Page
from tests.builders import an_execution, apply, claimed, death, defined, states, success
from tests.cli.terminal import daybell


async def failed(store, name, *, job="mail", message="no answer"):
    hands = await claimed(store, job=job)
    error = Failure(type=name, message=message).to_json()
    await apply(store, hands, death(hands.one, error=error))
    return hands.one.id


def found(ended):
    assert ended.code == 0, ended.err
    return [one["execution_id"] for one in json.loads(ended.out)["items"]]


async def test_a_list_follows_its_pages_until_something_is_found(store, command):
    await defined(store, "mail")
    oldest = an_execution("mail", args='{"order_id":42}')
    new = [oldest, *(an_execution("mail", args='{"order_id":1}') for _ in range(SCAN_ITEMS_MAX))]
    await store.queue.load("default", iter(new))

    assert found(command("executions", "list", "--arg", "order_id=42", "--json")) == [
        str(oldest.id)
    ]
    none = command("executions", "list", "--arg", "order_id=43")
    assert (none.code, none.out) == (0, "no executions\n")


async def test_content_chooses_what_is_listed_cancelled_and_retried(store, command):
    await defined(store, "mail")
    timeout, missing = await failed(store, "TimeoutError"), await failed(store, "KeyError")
    new = [an_execution("mail", args=f'{{"n":{n}}}', unique_key=f"k{n}") for n in range(3)]
    await store.queue.enqueue("default", new)

    assert found(command("executions", "list", "--error", "TimeoutError", "--json")) == [
        str(timeout)
    ]
    assert found(command("executions", "list", "--unique-key", "k1", "--json")) == [str(new[1].id)]
    assert found(command("executions", "list", "--ended-since", "1h", "--json")) == [
        str(missing),
        str(timeout),
    ]
    cancelled = command("executions", "cancel", "--arg", "n=1", "--yes")
    assert (cancelled.code, cancelled.out) == (0, "1 cancelled\n")
    retried = command("executions", "retry", "--error", "KeyError", "--yes", "--json")
    assert json.loads(retried.out) == {"matched": 1, "revived": 1}
    discarded = command("dead-letters", "discard", "--error", "no answer", "--yes")
    assert (discarded.code, discarded.out) == (0, "1 discarded\n")
    assert await states(store, [one.id for one in new]) == [
        State.QUEUED,
        State.CANCELLED,
        State.QUEUED,
    ]


@pytest.mark.parametrize("typed", ["order_id", "=42"])
def test_an_argument_without_a_name_or_value_is_refused(command, typed):
    ended = command("executions", "list", "--arg", typed)

    assert ended.code == 2
    assert "write NAME=VALUE, such as order_id=42" in ended.err


async def test_dead_letters_are_grouped_by_job_and_error(store, command):
    await defined(store, "mail", "resize")
    for name, job, message in (
        ("TimeoutError", "mail", "first"),
        ("TimeoutError", "mail", "second\nline"),
        ("TimeoutError", "resize", "third"),
        ("KeyError", "mail", "fourth"),
    ):
        newest = await failed(store, name, job=job, message=message)

    shown = command("dead-letters", "list", "--group")
    groups = json.loads(command("dead-letters", "list", "--group", "--json").out)["items"]
    of_error = command("dead-letters", "list", "--group", "--error", "KeyError", "--json")

    assert shown.code == 0
    assert shown.out.splitlines()[1].split()[:3] == ["2", "mail", "TimeoutError"]
    assert [(one["count"], one["job"], one["error"], one["message"]) for one in groups] == [
        (2, "mail", "TimeoutError", "second"),
        (1, "mail", "KeyError", "fourth"),
        (1, "resize", "TimeoutError", "third"),
    ]
    assert [one["execution_id"] for one in json.loads(of_error.out)["items"]] == [str(newest)]

    largest = command("dead-letters", "list", "--group", "--limit", "1")
    as_json = command("dead-letters", "list", "--group", "--limit", "1", "--json")
    _, first, last = largest.out.splitlines()
    assert first.split()[:3] == ["2", "mail", "TimeoutError"]
    assert last == "and 2 smaller groups; a larger --limit prints more"
    assert json.loads(as_json.out)["items"] == groups[:1]


async def test_what_follows_the_last_one_found_is_not_known(store, command):
    await defined(store, "mail")
    for _ in range(2):
        await failed(store, "TimeoutError")
    await failed(store, "KeyError")

    searched = command("executions", "list", "--error", "TimeoutError", "--limit", "1")
    listed = command("executions", "list", "--limit", "1")

    assert "there may be more: --cursor " in searched.out
    assert "there is more: --cursor " in listed.out


async def test_ctrl_c_keeps_what_was_found():
    one: Any = object()

    async def read(*, limit, cursor, **_):
        if cursor is not None:
            raise asyncio.CancelledError
        return Page(items=(one,), next_cursor="01934b2e-7c00-7000-8000-000000000000")

    search = ExecutionSearch(read, {"error": "x"}, limit=10, quiet=True)

    assert [page async for page in search.pages()] == [(one,)]
    assert (search.code, search.cursor) == (130, "01934b2e-7c00-7000-8000-000000000000")


async def test_advice_names_the_tenant(store, command):
    async with Client(store) as owner:
        await owner.ensure_tenant("acme")
        client = owner.for_tenant("acme")
        await client.define("mail", queue="post")
        made = await client.enqueue("mail")

    why = command("executions", "why", str(made.id), "--tenant", "acme")

    assert "`daybell worker APP --queues post --tenant acme`" in why.out


def test_a_bare_delay_of_more_than_a_day_is_refused(command):
    assert command("jobs", "create", "later", "--command", "true").code == 0

    refused = command("jobs", "trigger", "later", "--delay", "100000")
    once = command("jobs", "create", "once", "--command", "true", "--delay", "100000")
    fine = command("jobs", "trigger", "later", "--delay", "100000s")

    for one in (refused, once):
        assert one.code == 2
        assert 'over a day; write its unit, as in "100000s" or "1d3h46m40s"' in one.err
    assert fine.code == 0


def test_bench_makes_a_new_file(tmp_path):
    ended = daybell("bench", "--jobs", "20", "--database-url", "sqlite:///new.db", folder=tmp_path)

    assert (ended.code, ended.err) == (0, "")
    assert "20 of 20" in ended.out


async def test_the_lines_of_many_logs_are_searched(store, command, monkeypatch):
    monkeypatch.setattr("daybell.client.logs.EXECUTIONS_PER_SEARCH", 1)
    for number in range(3):
        hands = await claimed(store, job="mail")
        lines = ["a line", f"Timeout {number}\nafter 5 s"]
        log = join_lines(line_text(0.0, "error", "app", one) for one in lines)
        await apply(store, hands, replace(success(hands.one), log=log))

    found = command("logs", "search", "timeout", "--job", "mail", "--level", "error")
    page = json.loads(command("logs", "search", "timeout", "--limit", "2", "--json").out)
    rest = command("logs", "search", "timeout", "--cursor", page["next_cursor"], "--json")
    none = command("logs", "search", "timeout", "--since", "1h")
    wrong = command("logs", "search", "--level", "loud")

    assert found.code == 0
    assert [line[:3] for line in found.out.splitlines()] == ["---", "197", "   "] * 3
    assert f"--- mail {page['items'][0]['execution_id']} attempt 1 ---" in found.out
    assert "error    app: Timeout 2\n    after 5 s\n" in found.out
    assert [one["message"][:9] for one in page["items"]] == ["Timeout 2", "Timeout 1"]
    assert [one["message"][:9] for one in json.loads(rest.out)["items"]] == ["Timeout 0"]
    assert (none.code, none.out) == (0, "no log lines\n")
    assert (wrong.code, wrong.err[:6]) == (2, "error:")
