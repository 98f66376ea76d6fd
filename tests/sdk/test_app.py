"""The app: declarations, connections, hooks and observers."""

import asyncio
import functools
import logging
from uuid import UUID

import pytest

from daybell import App, UsageError
from daybell.core.execution import State
from daybell.core.limits import DESCRIPTION_CHARS_MAX
from daybell.engine.events import Ended, Started
from daybell.errors import InvalidName, Unavailable
from tests.engine.faults import FaultyStore
from tests.engine.virtual import until
from tests.refusals import refuses
from tests.sdk.waiting import WAIT, eventually


async def nothing() -> None:
    """Do nothing."""


async def test_a_name_is_taken_once(app: App):
    app.task(nothing)

    with pytest.raises(UsageError, match="there is a task named 'nothing' already"):
        app.task(nothing)
    assert app.task(name="other")(nothing).name == "other"
    assert set(app.tasks) == {"nothing", "other"}


async def test_what_cannot_be_a_task_is_refused(app: App):
    with pytest.raises(UsageError, match="a task is a function, not 5"):
        app.task(5)  # type: ignore[call-overload]
    with pytest.raises(InvalidName):
        app.task(lambda: None)
    with pytest.raises(UsageError, match="timeout"):
        app.task(timeout="soon")(nothing)
    assert not app.tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"user_id": 5}, "user_id=5 must be text"),
        ({"store_result": "x"}, "store_result='x' must be true or false"),
        ({"description": 5}, "description=5 must be text"),
        ({"settings": {}}, r"task\(\) has no 'settings'"),
        ({"kind": "command"}, r"task\(\) has no 'kind'"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(options, message):
    app = App("memory://")

    with pytest.raises(UsageError, match=message) as refused:
        app.task(**options)(nothing)
    assert refused.value.field == next(iter(options))
    assert not app.tasks


async def test_settings_of_a_job_are_given_by_name(app: App):
    client = await app.open()

    with refuses(UsageError, field="settings"):
        await client.define("backup", kind="command", settings=5)  # type: ignore[arg-type]
    job = await client.define("backup", kind="command", settings={"run": "true"})
    assert job.definition.settings == '{"run":"true"}'


def test_an_app_is_made_from_a_url_and_a_name():
    with refuses(UsageError, field="url"):
        App(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidName):
        App("memory://", tenant="a/b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queues": 5}, "queues=5 must be text"),
        ({"concurrency": 0}, "concurrency=0 must be a whole number from 1"),
        ({"concurrency": -5}, "concurrency=-5 must be a whole number from 1"),
        ({"concurrency": "x"}, "concurrency='x' must be a whole number from 1"),
        ({"drain_timeout": "soon"}, "drain_timeout"),
    ],
)
async def test_a_worker_that_makes_no_sense_is_refused(app: App, options, message):
    with pytest.raises(UsageError, match=message):
        async with app.worker(**options):
            pass
    assert not app.is_open


class AsyncObserver:
    async def __call__(self, event) -> None: ...


async def watch(event) -> None: ...


@pytest.mark.parametrize("observer", [watch, AsyncObserver(), functools.partial(watch)])
def test_an_observer_that_would_never_be_awaited_is_refused(observer):
    with pytest.raises(UsageError, match="is async, but an observer is called and not awaited"):
        App("memory://").observe(observer)


def test_a_mask_that_would_never_be_awaited_is_refused():
    async def hide(line: str) -> str:
        return line

    with pytest.raises(UsageError, match="is async, but a mask is called and not awaited"):
        App("memory://").mask(hide)  # pyright: ignore


@pytest.mark.parametrize("register", [App.observe, App.on_start, App.on_stop])
def test_what_cannot_be_called_is_refused_at_once(register):
    with pytest.raises(UsageError, match="is a function, not 5"):
        register(App("memory://"), 5)


async def test_a_long_docstring_is_no_reason_to_fail(app: App):
    def wordy() -> None: ...

    wordy.__doc__ = "x" * 3000

    assert len(app.task(wordy).definition.description) == DESCRIPTION_CHARS_MAX


async def test_tasks_are_known_to_the_store_when_it_is_opened(app: App):
    app.task(queue="mail", retries=7)(nothing)

    client = await app.open()

    job = await client.job("nothing")
    assert (job.definition.queue, job.definition.retry.retries) == ("mail", 7)
    assert (job.author, job.definition.description) == (app.author, "Do nothing.")
    assert await app.open() is client


async def test_a_task_declared_after_the_opening_is_made_known_by_its_first_enqueue(app: App):
    client = await app.open()
    task = app.task(nothing)

    handles = await asyncio.gather(*(task.enqueue() for _ in range(5)))
    await task.enqueue_many([{}] * 3)

    assert len({handle.id for handle in handles}) == 5
    assert (await client.count()).executions == {State.QUEUED: 8}
    assert len((await client.versions_page("nothing")).items) == 1


async def test_many_openings_at_once_are_one(app: App):
    clients = await asyncio.gather(*(app.open() for _ in range(10)))

    assert len(set(map(id, clients))) == 1


async def test_without_a_connection_there_is_no_client(app: App):
    with pytest.raises(Unavailable, match=r"await app\.open\(\) first"):
        app.client()
    async with app:
        assert app.is_open and app.client()
    assert not app.is_open


async def test_an_app_that_could_not_be_opened_can_be_opened_later(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'later' / 'daybell.db'}")
    task = app.task(nothing)

    with pytest.raises(Exception, match="later"):
        await task.enqueue()
    assert not app.is_open
    (tmp_path / "later").mkdir()
    assert (await task.enqueue()).created
    await app.close()


def test_the_url_comes_from_outside_unless_it_is_given(monkeypatch):
    monkeypatch.setenv("DAYBELL_DATABASE_URL", "sqlite:///elsewhere.db")

    assert App().url == "sqlite:///elsewhere.db"
    assert App("memory://").url == "memory://"


def test_two_event_loops_one_after_the_other(file_url):
    app = App(file_url)
    task = app.task(nothing)

    async def main() -> int:
        await task.enqueue()
        count = (await app.client().count()).total
        await app.close()
        return count

    assert [asyncio.run(main()) for _ in range(2)] == [1, 2]


def test_a_loop_that_ended_without_closing_does_not_matter_to_memory():
    app = App("memory://")
    task = app.task(nothing)

    async def main() -> int:
        await task.enqueue()
        return (await app.client().count()).total

    assert [asyncio.run(main()) for _ in range(2)] == [1, 1]


async def test_hooks_run_around_the_work_in_their_order(app: App):
    order = []

    @app.on_start
    async def first() -> None:
        order.append("start 1")

    @app.on_start
    def second() -> None:
        order.append("start 2")

    @app.on_stop
    def undo_first() -> None:
        order.append("stop 1")

    @app.on_stop
    async def undo_second() -> None:
        order.append("stop 2")

    @app.task
    async def work() -> None:
        order.append("work")

    handle = await work.enqueue()
    async with app.worker():
        await handle.result(timeout=WAIT)

    assert order == ["start 1", "start 2", "work", "stop 2", "stop 1"]


async def test_a_worker_whose_start_failed_claims_nothing(app: App):
    stopped = []

    @app.on_start
    async def fail() -> None:
        raise LookupError("no model")

    app.on_stop(lambda: stopped.append(True))
    handle = await app.task(nothing).enqueue()

    with pytest.raises(LookupError, match="no model"):
        async with app.worker():
            pass

    assert await handle.status() is State.QUEUED
    assert stopped == [True]
    assert await app.client().workers() == []


async def test_what_was_started_is_stopped_when_a_later_start_fails(app: App):
    order = []
    app.on_start(lambda: order.append("open"))

    @app.on_start
    def fail() -> None:
        raise LookupError("no model")

    app.on_start(lambda: order.append("never"))
    app.on_stop(lambda: order.append("close"))

    with pytest.raises(LookupError, match="no model"):
        async with app.lifespan():
            order.append("never")

    assert order == ["open", "close"]


async def test_one_hook_that_cannot_stop_does_not_keep_the_others_from_it(app: App):
    stopped = []

    app.on_stop(lambda: stopped.append(1))

    @app.on_stop
    async def fail() -> None:
        raise LookupError("gone already")

    app.on_stop(lambda: stopped.append(3))

    with pytest.raises(LookupError, match="gone already"):
        async with app, app.worker():
            pass

    assert stopped == [3, 1]


async def test_observers_are_told_and_decide_nothing(app: App, caplog):
    seen = []

    @app.observe
    def broken(event) -> None:
        raise ValueError("an observer's own mistake")

    app.observe(lambda event: seen.append((type(event), event.claimed.job)))
    task = app.task(nothing)

    with caplog.at_level(logging.ERROR):
        async with app, app.worker():
            await (await task.enqueue()).result(timeout=WAIT)
            await until(lambda: len(seen) == 2, within=WAIT)

    assert seen == [(Started, "nothing"), (Ended, "nothing")]
    assert "an observer failed on Started" in caplog.text


async def test_a_worker_takes_the_queues_of_all_tasks_unless_it_is_told_which(app: App):
    mail, plain = app.task(queue="mail", name="mail")(nothing), app.task(nothing)

    async with app:
        handles = [await mail.enqueue(), await plain.enqueue()]
        async with app.worker(queues="mail", concurrency=1):
            await handles[0].result(timeout=WAIT)
        assert await handles[1].status() is State.QUEUED
        async with app.worker():
            await handles[1].result(timeout=WAIT)


@pytest.mark.parametrize("options", [{}, {"concurrency": 3}])
async def test_what_a_task_enqueues_runs_near_it(app: App, options):
    started = []

    @app.task(near="parent", **options)
    async def child() -> None:
        started.append("child")

    @app.task
    async def probe() -> None:
        started.append("probe")

    @app.task
    async def parent() -> str:
        handle = await child.enqueue()
        await (await probe.enqueue()).result(timeout=WAIT)  # the other worker has claimed by now
        return str(handle.id)

    async with app, app.worker(concurrency=1), app.worker(concurrency=1):
        handle = await parent.enqueue()
        id = UUID(await handle.result(timeout=WAIT))
        await until(lambda: len(started) == 2, within=WAIT)

        assert started == ["probe", "child"]
        client = app.client()
        of_parent, of_child = [(await client.execution(one)).worker_id for one in (handle.id, id)]
        assert of_child == of_parent


async def test_a_worker_leaves_the_app_as_it_found_it(app: App):
    async with app.worker():
        assert app.is_open
        assert len(await app.client().workers()) == 1
    assert not app.is_open

    await app.open()
    async with app.worker():
        pass
    assert app.is_open
    assert await app.client().workers() == []


async def test_what_takes_too_long_goes_back_when_the_block_ends(app: App):
    running = asyncio.Event()

    @app.task
    async def endless() -> None:
        running.set()
        await asyncio.Event().wait()

    async with app:
        handle = await endless.enqueue()
        async with app.worker(drain_timeout=0):
            await until(running.is_set, within=WAIT)
        execution = await handle.execution()

    assert (execution.status, execution.failures) == (State.QUEUED, 0)


async def test_a_worker_that_is_drained_stops_before_its_block_ends(app: App, short_lease):
    task = app.task(nothing)

    async with app, app.worker():
        client = app.client()
        (worker,) = await client.workers()
        await client.drain_worker(worker.worker_id)
        await eventually(client.workers, lambda found: not found)
        handle = await task.enqueue()
    assert handle.created


async def test_the_worker_survives_a_store_that_goes_away(app: App):
    task = app.task(nothing)
    async with app:
        client = app.client()
        store = client.store = FaultyStore(client.store)  # type: ignore[assignment]
        async with app.worker():
            store.fail("claim")
            store.fail("apply")
            await (await task.enqueue()).result(timeout=WAIT)


def test_run_hands_the_app_to_the_registered_program(app: App, monkeypatch: pytest.MonkeyPatch):
    ran: list[App] = []
    monkeypatch.setattr("daybell.cli.roles.dev.run_app", ran.append)

    app.run()

    assert ran == [app]


async def test_tasks_are_coalesced_too(app: App):
    @app.task
    async def resize(n: int) -> None: ...

    client = await app.open()
    store = client.store = FaultyStore(client.store)  # type: ignore[assignment]

    handles = await asyncio.gather(*(resize.enqueue(n) for n in range(50)))

    assert store.count("enqueue") <= 2
    assert store.count("define_jobs") == 0
    assert len({handle.id for handle in handles}) == 50


async def test_the_store_knows_the_arguments_of_tasks_and_workflows(app: App):
    @app.task
    def resize(path: str, later: "Later", width: int = 800) -> None: ...

    with app.workflow("album", params={"folder": ..., "width": 800}) as album:
        resize.node("one").bind(path=album.params["folder"], later=1, width=album.params["width"])
    client = await app.client_for()
    await client.create("nightly", task="resize", args={"path": "a", "later": 1})
    await client.create("disk", command="df -h .")

    of_task = (await client.signature("resize")).schema

    assert of_task is not None
    assert of_task["properties"]["width"] == {"type": "integer", "default": 800}
    assert of_task["properties"]["later"] == {"type": "integer"}
    assert (await client.signature("nightly")).schema == of_task
    of_workflow = (await client.signature("album")).schema
    assert of_workflow == {
        "type": "object",
        "properties": {"folder": {}, "width": {"default": 800}},
        "required": ["folder"],
        "additionalProperties": False,
    }
    assert (await client.signature("disk")).schema is None


Later = int  # declared after the task that names it
