"""What an app's handlers say they lack, so that another worker can be looked for."""

from daybell import App
from tests.runners.test_workflow import a_claimed


def an_app(*tasks: str) -> App:
    app = App("memory://")
    for name in tasks:
        app.task(name=name)(lambda: None)
    return app


async def test_a_task_that_is_not_in_the_code_is_named_whoever_runs_it():
    app = an_app("find", "sell")
    assert app.handlers.tasks == {"find": "default", "sell": "default"}
    async with app:
        client = app.client()
        await client.define("report")
        await client.create("monthly", task="report")
        nodes = [{"name": "first", "task": "find"}, {"name": "last", "task": "report"}]
        await client.create("flow", workflow={"nodes": nodes})
        first, last = (a_claimed(job="flow", node=node) for node in ("first", "last"))

        for claimed in (a_claimed(job="report"), a_claimed(job="monthly"), last):
            assert app.handlers.lacking(claimed) is None, "nobody has asked yet"
            for _ in range(2):
                assert await app.handlers.ask(claimed) is None
                assert app.handlers.lacking(claimed) == "task:report"
        for claimed in (first, a_claimed(job="sell")):
            assert await app.handlers.ask(claimed) is not None
            assert app.handlers.lacking(claimed) is None
        missing = a_claimed(job="nobody_knows")
        assert await app.handlers.ask(missing) is None
        assert app.handlers.lacking(missing) is None
