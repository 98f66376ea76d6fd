"""What a start and the doctor say of jobs that workflows in code run."""

from daybell import App, job
from daybell.cli.apps import settle_gone
from daybell.cli.going_back import check_code


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

        await settle_gone(app, prune=False)

    way_out = "create it, or start the app that has it, before a run comes to that node"
    assert capsys.readouterr().err.splitlines() == [
        f"warning: workflows v, w run 'gone', and there is no such job; {way_out}",
        f"warning: workflow u runs 'odd', and there is no such job; {way_out}",
    ]


async def test_the_doctor_finds_circles_in_code_before_a_worker_starts(tmp_path):
    url = f"sqlite:///{tmp_path / 'daybell.db'}"
    async with an_app(url, v="there", there="odd") as app:
        sound = await check_code(app.client().store, app)
        circle = await check_code(app.client().store, an_app(url, v="there", there="w", w="v"))

    assert sound.is_ok
    assert not circle.is_ok
    assert circle.found == "workflows would run each other without end: v -> there -> w -> v"
