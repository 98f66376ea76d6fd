"""Search in the logs of many executions, as users ask for it."""

import pytest
from msgspec.structs import replace

from daybell.client import Client, logs
from daybell.core.access import Scope
from daybell.core.execution import NewLogPart, line_text
from daybell.core.ids import mint
from daybell.core.limits import PAGE_BYTES_MAX
from daybell.errors import AccessDenied, JobNotFound, UsageError
from tests.builders import TENANT, add_tenants, apply, claim, success
from tests.refusals import refuses


@pytest.fixture
def write(client, place):
    """Has an execution write lines, in a part each; answers its id."""

    async def written(*lines, job="resize", ends=True):
        id = (await client.enqueue(job)).id
        hands = await claim(client.store)
        now = place.clock.now()
        texts = [line_text(now + n, level, "app", text) for n, (level, text) in enumerate(lines)]
        parts = [
            NewLogPart(id, 1, hands.lease, number, text)
            for number, text in enumerate(texts[: -1 if ends else None], start=1)
        ]
        await client.store.queue.write_log(TENANT, worker=hands.worker, parts=parts)
        if ends:
            await apply(client.store, hands, replace(success(hands.one), log=texts[-1]))
        return id

    return written


async def found(client, *words, **options):
    """The messages that a search finds, page by page."""
    messages, cursor = [], None
    while True:
        page = await client.search_logs(*words, cursor=cursor, **options)
        messages += [one.message for one in page.items]
        assert len(page.items) <= options.get("limit", 50)
        cursor = page.next_cursor
        if cursor is None:
            return messages


async def test_lines_are_found_by_a_part_of_their_message(client, write):
    first = await write(("info", 'a "b"\nTIMEOUT \\ é'), ("info", "fine"))
    second = await write(("info", "Timeout 2"), ("error", "timeout 3"), ends=False)

    page = await client.search_logs("timeout")

    assert page.next_cursor is None
    assert [(one.execution_id, one.job, one.attempt, one.message) for one in page.items] == [
        (second, "resize", 1, "Timeout 2"),
        (second, "resize", 1, "timeout 3"),
        (first, "resize", 1, 'a "b"\nTIMEOUT \\ é'),
    ]
    for text in ('"B"', "\n", "t \\ É", 'A "B"\nt'):
        assert await found(client, text) == ['a "b"\nTIMEOUT \\ é'], text
    assert await found(client, "app") == []  # the name of the logger
    assert len(await found(client)) == 4


async def test_lines_are_found_by_their_level(client, write):
    levels = ("debug", "info", "stdout", "trace", "warning", "stderr", "error", "critical")
    await write(*((level, level) for level in levels))

    assert await found(client, level="debug") == list(levels)
    assert await found(client, level="info") == list(levels[1:])
    assert await found(client, level="warning") == list(levels[4:])
    assert await found(client, level="error") == ["error", "critical"]
    assert await found(client, "c", level="error") == ["critical"]


async def test_lines_are_found_by_their_time_also_of_what_still_runs(client, write, place):
    await write(("info", "old"))
    await write(("info", "begun"), ("info", "now"), ends=False)
    begin = place.clock.now()
    await place.clock.advance(100_000)
    await write(("info", "new"), ("info", "newer"))
    now = place.clock.now()

    assert await found(client, since="1h") == ["new", "newer"]
    assert await found(client, since=begin) == ["new", "newer", "begun", "now", "old"]
    assert await found(client, since=begin + 0.5, until=now + 0.5) == ["new", "now"]
    assert await found(client, until="1h") == ["begun", "now", "old"]


async def test_a_search_is_within_a_job_a_queue_and_a_status(client, write):
    await client.define("other", queue="elsewhere")
    await write(("info", "here"))
    (job,) = (await client.job_ids(["resize"])).values()

    assert await found(client, job="resize") == await found(client, job=job) == ["here"]
    assert await found(client, job="other") == await found(client, queue="elsewhere") == []
    assert await found(client, status="succeeded") == ["here"]
    assert await found(client, status="dead") == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_a_page_goes_on_where_the_one_before_ended(client, write, monkeypatch, limit):
    monkeypatch.setattr(logs, "EXECUTIONS_PER_SEARCH", 2)
    written = []
    for n in range(5):
        lines = [("info", f"{n}.{line}" if line % 2 else "other") for line in range(5)]
        lines[0] = ("info", f"{n}.a\n{n}.b")
        written[:0] = [text for _, text in lines if text != "other"]
        await write(*lines)

    assert await found(client, ".", limit=limit) == written


async def test_a_page_reads_a_bounded_number_of_bytes(client, write, monkeypatch):
    large = "x" * 8_000
    written = []
    for n in range(3):
        await write(*[("info", f"{n}.{line} {large}") for line in range(3)])
        written[:0] = [f"{n}.{line}" for line in range(3)]
    monkeypatch.setattr("daybell.core.views.PAGE_BYTES_MAX", 25_000)
    assert PAGE_BYTES_MAX > 25_000

    page = await client.search_logs("1.1")

    assert page.items == () and page.next_cursor is not None
    assert await found(client, "1.1 ") == [f"1.1 {large}"]
    assert [one.split()[0] for one in await found(client)] == written


async def test_tenants_and_scopes_do_not_see_the_lines_of_others(client, write):
    await add_tenants(client.store, ["acme"])
    await client.define("other")
    await write(("info", "resized"))
    await write(("info", "secret"), job="other")

    assert await found(client.for_tenant("acme")) == []
    scoped = client.within(Scope(jobs=("resize", "none*")))
    assert await found(scoped, job="resize") == ["resized"]
    with pytest.raises(AccessDenied):
        await scoped.search_logs()
    with pytest.raises(AccessDenied):
        await scoped.search_logs(job="other")
    # A cursor that names an execution of others reads nothing of it.
    page = await client.search_logs("secret", limit=1)
    of_other = f"{page.items[0].execution_id}.1.0.0"
    assert (await scoped.search_logs(job="resize", cursor=of_other)).items[0].message == "resized"


@pytest.mark.parametrize(
    ("words", "options", "kind", "field"),
    [
        (("",), {}, UsageError, "q"),
        (("x" * 501,), {}, UsageError, "q"),
        (("\0",), {}, UsageError, "q"),
        (("\udcff",), {}, UsageError, "q"),
        ((), {"level": "loud"}, UsageError, "level"),
        ((), {"since": "soon"}, UsageError, "since"),
        ((), {"status": "fine"}, UsageError, "status"),
        ((), {"cursor": "x"}, UsageError, "cursor"),
        ((), {"cursor": f"{mint()}.1.2.3.4"}, UsageError, "cursor"),
        ((), {"cursor": f"{mint()}.1.-1"}, UsageError, "cursor"),
        ((), {"cursor": f"{mint()}.99999999999"}, UsageError, "cursor"),
        ((), {"jobs": "resize"}, UsageError, "jobs"),
        ((), {"job": "nobody"}, JobNotFound, None),
    ],
)
async def test_a_search_that_cannot_be_made_is_refused(client: Client, words, options, kind, field):
    with refuses(kind, field=field):
        await client.search_logs(*words, **options)
