"""A job that is defined and run: both or neither."""

import pytest

from daybell.core.execution import State
from daybell.core.schedule import Overlap
from daybell.core.views import ExecutionFilter
from daybell.errors import (
    ExecutionInTheWay,
    JobNotFound,
    QuotaExceeded,
    UsageError,
    VersionConflict,
)
from tests.builders import TENANT, a_job, an_execution, claim, defined, look


async def executions(store):
    return (await store.list_executions(TENANT, ExecutionFilter())).items


async def test_a_job_is_there_and_runs(store):
    new = an_execution("import", args='{"a":1}')

    job, made = await store.launch(TENANT, a_job("import", queue="files", expect=0), new)

    assert (job.name, job.version, made.id, made.created) == ("import", 1, new.id, True)
    assert await store.get_job(TENANT, "import") == job
    found = await look(store, new.id)
    assert (found.state, found.queue, found.args) == (State.QUEUED, "files", '{"a":1}')
    hands = await claim(store, queues=("files",))
    assert [one.id for one in hands.executions] == [new.id]


async def test_a_queue_of_its_own_is_found_by_who_claims(store):
    new = an_execution("import", queue="apart")

    await store.launch(TENANT, a_job("import", queue="files"), new)

    assert (await look(store, new.id)).queue == "apart"
    assert len((await claim(store, queues=("apart",))).executions) == 1


@pytest.mark.parametrize("quota", ["jobs", "queued", "per_minute"])
async def test_over_a_quota_there_is_neither(store, quota):
    await store.set_quotas(TENANT, **{quota: 0})

    with pytest.raises(QuotaExceeded):
        await store.launch(TENANT, a_job("import"), an_execution("import"))

    with pytest.raises(JobNotFound):
        await store.list_versions(TENANT, "import")
    assert await executions(store) == ()
    await store.set_quotas(TENANT, **{quota: 1})
    await store.launch(TENANT, a_job("import"), an_execution("import"))
    assert len(await executions(store)) == 1


async def test_what_is_refused_leaves_neither(store):
    await defined(store, "there")

    with pytest.raises(VersionConflict):
        await store.launch(TENANT, a_job("there", expect=0, timeout=9.0), an_execution("there"))
    with pytest.raises(UsageError):
        await store.launch(TENANT, a_job("import"), an_execution("import", args="\0"))
    with pytest.raises(UsageError):
        await store.launch(TENANT, a_job("import"), an_execution("import", gate="nowhere"))

    assert [job.name for job in (await store.list_jobs(TENANT)).items] == ["there"]
    assert await executions(store) == ()
    with pytest.raises(JobNotFound):
        await store.enqueue(TENANT, [an_execution("import")])


async def test_one_in_the_way_keeps_a_deleted_job_from_coming_back(store):
    await store.define_jobs(TENANT, [a_job("import", overlap=Overlap.SKIP)])
    first = an_execution("import")
    await store.enqueue(TENANT, [first])
    await store.delete_job(TENANT, "import")

    with pytest.raises(ExecutionInTheWay) as caught:
        await store.launch(TENANT, a_job("import", overlap=Overlap.SKIP), an_execution("import"))

    assert caught.value.execution == first.id
    with pytest.raises(JobNotFound):
        await store.get_job(TENANT, "import")


async def test_a_key_that_is_held_is_answered_with_its_holder(store):
    await defined(store, "import")
    first = an_execution("import", unique_key="k")
    await store.enqueue(TENANT, [first])
    await store.delete_job(TENANT, "import")

    job, made = await store.launch(TENANT, a_job("import"), an_execution("import", unique_key="k"))

    assert (made.id, made.created) == (first.id, False)
    assert await store.get_job(TENANT, "import") == job
