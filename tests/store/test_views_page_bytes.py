"""Pages of lists end at a number of bytes, and leave large values of executions out."""

import pytest

from daybell.core.execution import LEFT_OUT
from daybell.core.job import TEMPLATES
from daybell.core.limits import LIST_VALUE_BYTES_MAX, PAGE_BYTES_MAX
from daybell.core.views import ExecutionFilter
from tests.builders import (
    TENANT,
    a_job,
    a_schedule,
    a_template,
    an_entry,
    an_event,
    an_execution,
    apply,
    claimed,
    enqueued,
    success,
)

LARGE = '{"x":"' + "a" * 1_000_000 + '"}'


async def fill_jobs(store):
    await store.catalog.define_jobs(TENANT, [a_job(f"job-{n}", settings=LARGE) for n in range(10)])


async def fill_versions(store):
    for n in range(10):
        await store.catalog.define_jobs(TENANT, [a_job("big", settings=LARGE, max_crashes=n + 1)])


async def fill_templates(store):
    for n in range(10):
        await store.admin.put_record(
            TENANT, TEMPLATES, a_template(f"t-{n}", description="a" * 1_000_000)
        )


async def fill_events(store):
    for n in range(10):
        await store.runs.publish(TENANT, an_event(id=str(n), data=LARGE))


async def fill_audit(store):
    await store.admin.write_audit(TENANT, [an_entry(after=LARGE) for _ in range(10)])


async def fill_executions(store):
    args = '{"x":"' + "a" * (LIST_VALUE_BYTES_MAX - 100) + '"}'
    await store.catalog.define_jobs(TENANT, [a_job()])
    await store.queue.enqueue(TENANT, [an_execution(args=args) for _ in range(600)])


LISTS = {
    "jobs": (fill_jobs, lambda s, **at: s.catalog.list_jobs(TENANT, **at), 10, 1_000_000),
    "versions": (
        fill_versions,
        lambda s, **at: s.catalog.list_versions(TENANT, "big", **at),
        10,
        1_000_000,
    ),
    "templates": (
        fill_templates,
        lambda s, **at: s.admin.list_records(TENANT, TEMPLATES, **at),
        10,
        1_000_000,
    ),
    "events": (fill_events, lambda s, **at: s.runs.list_events(TENANT, **at), 10, 1_000_000),
    "audit": (fill_audit, lambda s, **at: s.admin.list_audit(TENANT, **at), 10, 1_000_000),
    "executions": (
        fill_executions,
        lambda s, **at: s.catalog.list_executions(TENANT, ExecutionFilter(), **at),
        600,
        LIST_VALUE_BYTES_MAX - 100,
    ),
}


@pytest.mark.parametrize("name", LISTS)
async def test_a_page_ends_at_its_limit_of_bytes(store, name):
    fill, read, count, size = LISTS[name]
    await fill(store)

    sizes, seen, cursor = [], [], None
    while True:
        page = await read(store, limit=1000, cursor=cursor)
        sizes.append(len(page.items))
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            break

    assert len(sizes) == 2
    assert all(PAGE_BYTES_MAX * 0.8 < some * size < PAGE_BYTES_MAX for some in sizes[:1])
    assert [repr(one) for one in seen] == list(dict.fromkeys(repr(one) for one in seen))
    assert len(seen) == count


async def test_an_item_larger_than_a_page_is_alone_on_it(store):
    huge = '{"x":"' + "a" * (PAGE_BYTES_MAX + 1) + '"}'
    await store.admin.write_audit(TENANT, [an_entry(after=huge) for _ in range(2)])

    page = await store.admin.list_audit(TENANT)
    rest = await store.admin.list_audit(TENANT, cursor=page.next_cursor)

    assert [len(page.items), len(rest.items)] == [1, 1]
    assert rest.next_cursor is None


async def test_a_list_leaves_large_values_out_and_one_execution_has_them(store):
    await store.catalog.define_jobs(TENANT, [a_job("big"), a_job("small")])
    await store.schedules.put_schedules(TENANT, [a_schedule(job="big", args=LARGE)])
    hands = await claimed(store, job="big", args=LARGE)
    await apply(store, hands, success(hands.one, result=LARGE))
    id = hands.one.id
    (small,) = await enqueued(store, job="small", args='{"x":1}')

    few, large = (await store.catalog.list_executions(TENANT, ExecutionFilter())).items
    alone = (await store.catalog.get_execution(TENANT, id)).execution
    looks = await store.catalog.job_activity(TENANT, ["big", "small"])

    assert (few.id, few.args, few.truncated) == (small, '{"x":1}', False)
    assert (large.args, large.result, large.truncated) == (LEFT_OUT, None, True)
    assert (alone.args, alone.result, alone.truncated) == (LARGE, LARGE, False)
    assert looks["big"].last == large
    assert [one.truncated for one in looks["big"].schedules] == [True]
    assert not looks["small"].last.truncated
    assert [one.args for one in await store.schedules.list_schedules(TENANT)] == [LARGE]


@pytest.mark.parametrize("bytes_over", [0, 1])
async def test_the_limit_of_a_value_is_in_bytes(store, bytes_over):
    args = '{"x":"é' + "a" * (LIST_VALUE_BYTES_MAX - 10 + bytes_over) + '"}'
    await store.catalog.define_jobs(TENANT, [a_job()])
    await store.queue.enqueue(TENANT, [an_execution(args=args)])

    (one,) = (await store.catalog.list_executions(TENANT, ExecutionFilter())).items

    assert one.truncated is bool(bytes_over)
