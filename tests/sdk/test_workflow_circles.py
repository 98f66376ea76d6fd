"""Workflows in code that would run each other without end, and jobs that they name."""

import pytest

from daybell import App, ExecutionFailed, job
from daybell.core.execution import State
from daybell.errors import InvalidWorkflow, JobNotFound

LONG = 20.0  # seconds; nothing here takes so long


def an_app(url: str, **workflows: str) -> App:
    """An app whose workflows have a task, and run these jobs by name."""
    app = App(url)

    @app.task
    def nap() -> None: ...

    for name, names in workflows.items():
        with app.workflow(name):
            for one in names.split():
                _ = nap.node(f"before-{one}") >> job(one)
            nap.node("last")
    return app


@pytest.mark.parametrize(
    ("workflows", "circle"),
    [
        ({"w": "w"}, "w -> w"),
        ({"w": "v", "v": "w"}, "w -> v -> w"),
        ({"u": "w", "w": "nap v", "v": "nap x", "x": "w"}, "w -> v -> x -> w"),
    ],
)
async def test_workflows_that_run_each_other_are_refused(file_url, workflows, circle):
    app = an_app(file_url, **workflows)

    with pytest.raises(InvalidWorkflow) as refused:
        await app.open()

    assert str(refused.value) == f"workflows would run each other without end: {circle}"
    async with an_app(file_url) as other:
        with pytest.raises(JobNotFound):
            await other.client().job("w")


async def test_one_that_is_a_node_may_run_the_other_by_name(file_url):
    app = an_app(file_url, inner="outer")
    with app.workflow("outer"):
        app.workflows["inner"].node()

    with pytest.raises(InvalidWorkflow, match="inner -> outer -> inner"):
        await app.open()


async def test_a_circle_may_go_through_jobs_that_the_code_does_not_have(file_url):
    async with an_app(file_url, w="") as app:
        around = {"nodes": [{"name": "n", "job": "w"}]}
        await app.client().create("around", workflow=around)
        await app.client().create("far", workflow={"nodes": [{"name": "n", "job": "around"}]})

    with pytest.raises(InvalidWorkflow, match="w -> far -> around -> w"):
        await an_app(file_url, w="far").open()
    async with an_app(file_url, w="far", around="") as app:  # code says what that is from now on
        assert "far" in (await app.client().job("w")).definition.settings


async def test_a_version_that_would_close_a_circle_does_not_come_back(file_url):
    async with an_app(file_url, w="v", v="") as app:
        first = (await app.client().job("w")).version
    async with an_app(file_url, w="", v="w") as app:
        with pytest.raises(InvalidWorkflow, match="w -> v -> w"):
            await app.client().rollback("w", first)


async def test_many_workflows_in_a_row_are_no_circle(file_url):
    chain = {f"w{n}": f"w{n + 1}" for n in range(300)}

    async with an_app(file_url, **chain, w300="nap elsewhere") as app:
        assert (await app.client().job("w0")).version == 1


async def test_a_run_too_deep_inside_others_fails_for_good(file_url, monkeypatch):
    monkeypatch.setattr("daybell.core.limits.WORKFLOW_LEVELS_MAX", 2)
    app = an_app(file_url, w0="w1", w1="w2", w2="w3", w3="")

    async with app, app.worker():
        with pytest.raises(ExecutionFailed):
            await (await app.workflows["w0"].enqueue()).result(LONG)

        (deepest,) = (await app.client().executions(job="w2", nodes=True)).items
        assert (deepest.state, deepest.attempt) == (State.DEAD, 1)
        assert "workflows inside workflows deeper than 2 levels" in (deepest.error or "")
        assert (await app.client().executions(job="w3", nodes=True)).items == ()
