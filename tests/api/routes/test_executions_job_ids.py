"""Ids of the jobs that executions name."""

from daybell.api.routes import executions


async def test_a_page_asks_once_for_all_jobs_that_it_does_not_know(http, client, monkeypatch):
    asked: list[set[str]] = []
    job_ids = type(client.store).job_ids

    async def counted(self, tenant, names):
        asked.append(set(names))
        return await job_ids(self, tenant, names)

    monkeypatch.setattr(type(client.store), "job_ids", counted)
    jobs = [await client.define(f"job {n}") for n in range(3)]
    for job in jobs:
        await client.enqueue(job.name)
    first = (await http.get("/executions")).json()["items"]
    await client.enqueue("resize")
    again = (await http.get("/executions")).json()["items"]

    assert asked == [{job.name for job in jobs}, {"resize"}]
    assert {one["job_id"] for one in first} == {str(job.id) for job in jobs}
    assert len(again) == 4


async def test_what_is_remembered_of_jobs_is_bounded(http, client, monkeypatch):
    monkeypatch.setattr(executions, "KNOWN_MAX", 2)
    ids = []
    for n in range(5):
        ids.append(str((await client.define(f"job {n}")).id))
        await client.enqueue(f"job {n}")

    for _ in range(2):
        listed = (await http.get("/executions")).json()["items"]
        assert [one["job_id"] for one in reversed(listed)] == ids
