"""What a start and the doctor say of jobs that workflows in code run."""

from daybell import App, job
from daybell.cli import apps
from daybell.cli.actions.definitions import check_app_code
from daybell.cli.apps import report_removed_jobs
from daybell.client.requests import read_definition


def an_app(url: str, **workflows: str) -> App:
    app = App(url)
    for name, runs in workflows.items():
        with app.workflow(name):
            for one in runs.split():
                job(one)
    return app


async def test_a_start_warns_of_jobs_that_nobody_has(tmp_path, capsys):
    app = an_app(f"sqlite:///{tmp_path / 'daybell.db'}", v="gone there", w="gone v", u="odd")
    async with app:
        await app.client().create("there", command="ls")

        await report_removed_jobs(app, prune=False)

    way_out = "create it, or start the app that has it, before a run comes to that node"
    assert capsys.readouterr().err.splitlines() == [
        f"warning: workflows v, w run 'gone', and there is no such job; {way_out}",
        f"warning: workflow u runs 'odd', and there is no such job; {way_out}",
    ]


async def test_of_many_jobs_that_are_removed_some_are_looked_at_for_who_needs_them(
    tmp_path, capsys, monkeypatch
):
    url = f"sqlite:///{tmp_path / 'daybell.db'}"
    monkeypatch.setattr(apps, "PRUNED_MAX", 1)
    app = App(url)
    async with app:
        client = app.client()
        old = [read_definition(name, schedule="@daily") for name in ("old-1", "old-2")]
        await client.define_jobs(old, author=app.author)
        await client.create("after", command="ls", dependencies=["old-1", "old-2"])

        await report_removed_jobs(app, prune=True)

    assert capsys.readouterr().err.splitlines() == [
        "removed jobs old-1, old-2, which the code has no more",
        "warning: job after depends on old-1, and waits in vain while it is not there",
    ]


async def test_the_doctor_finds_circles_in_code_before_a_worker_starts(tmp_path):
    url = f"sqlite:///{tmp_path / 'daybell.db'}"
    async with an_app(url, v="there", there="odd") as app:
        sound = await check_app_code(app.client().store, app)
        circle = await check_app_code(app.client().store, an_app(url, v="there", there="w", w="v"))

    assert sound.is_ok
    assert not circle.is_ok
    assert circle.found == "workflows would run each other without end: v -> there -> w -> v"
