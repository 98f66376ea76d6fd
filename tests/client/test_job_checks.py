"""Who needs a job: what is said when it is deleted."""

from typing import Any

import pytest

from daybell import App, Client, every
from daybell.cli.apps import check_missing_jobs
from daybell.cli.doctor.report import check_store
from daybell.client.job_checks import Uses, find_uses
from daybell.core.ids import mint
from daybell.core.job import NewJob
from daybell.errors import InvalidArguments, InvalidWorkflow, JobNotFound
from daybell.settings import Settings
from tests.refusals import refuses

NODES = {"nodes": [{"name": "first", "job": "small"}, {"name": "then", "command": "true"}]}


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        yield opened


async def a_small_world(client):
    await client.create("small", command="true")
    await client.create("smaller", command="small")
    await client.create("nightly", workflow=NODES, schedule=every("1d"))
    await client.create("follows", command="true", dependencies=["small"])


async def test_those_who_need_a_job_are_found_and_no_others(client):
    await a_small_world(client)

    assert await find_uses(client.store, client.tenant, "small") == Uses(
        workflows=("nightly",), dependents=("follows",)
    )
    assert await find_uses(client.store, client.tenant, "nightly") == Uses()


async def test_a_deletion_warns_of_those_who_need_the_job(client):
    await a_small_world(client)
    for number in range(4):
        await client.create(f"more-{number}", command="true", dependencies=["small"])
    told = [
        "workflow nightly runs small as a node, which fails while it is not there",
        "jobs follows, more-0, more-1 and 2 more depend on small, and wait in vain while it is not"
        " there",
    ]

    before = await client.warnings("small", deleting=True)
    await client.delete_job("small")

    assert before == await client.warnings("small", deleting=True) == told
    assert await client.warnings("nightly", deleting=True) == []
    with pytest.raises(JobNotFound):
        await client.warnings("nothing", deleting=True)


async def test_a_deletion_warns_of_code_that_brings_the_job_back():
    app = App("memory://")

    @app.task
    async def etl() -> None: ...

    async with app:
        client = await app.open()
        await etl.enqueue()
        await client.update("etl", timeout="1m", author="cli:ada")

        assert await client.warnings("etl", deleting=True) == [
            f"etl comes from code ({app.author.removeprefix('code:')}), which brings it back when"
            " it is started next; take it out of the code, too"
        ]


async def test_the_doctor_names_jobs_that_are_missing_and_who_needs_them(client):
    await a_small_world(client)
    assert await check_missing_jobs(client.store) == []
    await client.delete_job("small")

    (one,) = await check_missing_jobs(client.store)

    assert (one.name, one.is_ok) == ("missing jobs", False)
    assert one.found == (
        "there is no job named small (follows waits for it, workflow nightly runs it)"
    )
    await client.pause("nightly")
    await client.delete_job("follows")
    assert await check_missing_jobs(client.store) == []


async def test_it_is_among_what_the_doctor_looks_at(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Client(url, migrate=True) as client:
        await a_small_world(client)
        await client.delete_job("small")

    found = {one.name: one.is_ok for one in await check_store(Settings(database_url=url))}

    assert found["missing jobs"] is False


@pytest.fixture
async def signed():
    """A client whose store knows the signature of a task, and jobs that run it."""
    app = App("memory://")

    @app.task
    async def greet(name: str, *, loud: bool = False) -> None: ...

    @app.task
    async def open_to_all(**anything: int) -> None: ...

    async with app:
        client = await app.open()
        await client.create("hello", task="greet")
        await client.define("unsigned")
        yield client


CALLS = {
    "enqueue": lambda client, job, args: client.enqueue(job, args),
    "enqueue_many": lambda client, job, args: client.enqueue_many(job, [args]),
    "trigger": lambda client, job, args: client.trigger(job, args),
    "schedule": lambda client, job, args: client.schedule(job, every("1h"), args=args),
    "create": lambda client, job, args: client.create("new", task=job, args=args),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("job", ["greet", "hello"])
@pytest.mark.parametrize(
    ("args", "field", "words"),
    [
        ({"nam": "Ada"}, "nam", "did you mean 'name'?"),
        ({"name": "Ada", "x": 1}, "x", "it takes name, loud"),
        ({"loud": True}, "name", "must be given name"),
    ],
)
async def test_a_call_with_wrong_arguments_is_refused_at_every_door(
    signed, call, job, args, field, words
):
    with pytest.raises(InvalidArguments) as refused:
        await CALLS[call](signed, job, args)

    assert refused.value.field is not None
    assert refused.value.field.split(".")[-2:] == ["args", field]
    assert words in str(refused.value)


async def test_arguments_that_fit_are_accepted_and_those_of_unknown_signatures(signed):
    for job in ("greet", "hello"):
        assert (await signed.trigger(job, {"name": "Ada", "loud": True})).created
    assert (await signed.trigger("open_to_all", {"anything": 1})).created
    assert (await signed.trigger("unsigned", {"anything": 1})).created


async def test_a_node_may_leave_arguments_to_other_nodes_and_has_no_unknown_ones(signed):
    nodes: list[dict[str, Any]] = [
        {"name": "first", "task": "open_to_all"},
        {"name": "then", "task": "greet"},
    ]
    await signed.create("flow", workflow={"nodes": nodes, "edges": [["first", "then"]]})

    nodes[1]["args"] = {"nam": "Ada"}
    with refuses(InvalidWorkflow, field="workflow.nodes[1].args.nam"):
        await signed.create("other", workflow={"nodes": nodes})


async def test_a_signature_that_has_changed_counts_at_the_next_call(signed):
    app = App("memory://")

    @app.task
    async def greet(nam: str) -> None: ...

    with refuses(InvalidArguments, field="args.nam"):
        await signed.trigger("greet", {"nam": "Ada"})
    await signed.store.catalog.define_jobs(
        signed.tenant, [NewJob(id=mint(), definition=greet.described)]
    )

    assert (await signed.trigger("greet", {"nam": "Ada"})).created


async def test_a_task_that_cannot_take_the_event_gets_no_webhook(signed):
    with pytest.raises(InvalidArguments, match="take the event as argument `event`"):
        await signed.create_hook("greet", "shop")

    assert await signed.hooks("greet") == []
