"""`App(include=[…])`: modules that declare tasks, and an app that has none."""

import subprocess
import sys

import pytest

from daybell import UsageError
from daybell.sdk.loading import load_app
from daybell.sdk.modules import AppImportError
from daybell.testing import Bench
from tests.cli.terminal import Running, daybell

APP = """\
from daybell import App

app = App("sqlite:///shop.db", include=["shop.mail", "shop.billing"])
"""
MAIL = """\
from shop.jobs import app

@app.task
def send_email(to: str) -> str:
    return to
"""
BILLING = """\
from shop import mail
from shop.jobs import app

@app.task
async def bill(to: str) -> None:
    await mail.send_email.enqueue(to)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a package whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(APP)
    (package / "mail.py").write_text(MAIL)
    (package / "billing.py").write_text(BILLING)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize("spec", ["shop.jobs", "shop.jobs:app", "shop/jobs.py"])
def test_a_worker_imports_the_modules_that_the_app_includes(folder, spec):
    assert set(load_app(spec).tasks) == {"send_email", "bill"}


async def test_the_first_open_imports_them(folder):
    from shop.jobs import app  # pyright: ignore[reportMissingImports]

    assert app.tasks == {}

    async with app:
        assert set(app.tasks) == {"send_email", "bill"}
        assert {job.name for job in (await app.client().jobs()).items} == {"send_email", "bill"}


async def test_a_worker_in_a_script_imports_them(folder):
    from shop.jobs import app  # pyright: ignore[reportMissingImports]

    async with app, app.worker():
        handle = await app.tasks["send_email"].enqueue("ada")

        assert await handle.result(timeout=300) == "ada"


async def test_a_bench_imports_them(folder):
    from shop.jobs import app  # pyright: ignore[reportMissingImports]

    async with Bench(app) as bench:
        await bench.run(app.tasks["bill"], "ada")

        assert bench.enqueued(app.tasks["send_email"]) == [{"to": "ada"}]


def test_an_enqueue_at_the_top_of_an_included_module_does_not_import_in_circles(folder):
    (folder / "shop" / "mail.py").write_text(MAIL + "\nsend_email.sync.enqueue('ada')\n")

    assert set(load_app("shop.jobs").tasks) == {"send_email", "bill"}


@pytest.mark.parametrize("words", [["-m", "shop.jobs"], ["jobs.py"]])
def test_a_program_and_the_modules_it_includes_have_one_app(folder, words):
    (folder / "shop" / "jobs.py").write_text(
        APP + "if __name__ == '__main__':\n    app.load_included()\n    print(*app.tasks)\n"
    )
    if words == ["jobs.py"]:
        (folder / "jobs.py").write_text((folder / "shop" / "jobs.py").read_text())
        for name in ("mail", "billing"):
            module = folder / "shop" / f"{name}.py"
            module.write_text(module.read_text().replace("shop.jobs", "jobs"))

    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=300, cwd=folder
    )

    assert done.stdout.split() == ["send_email", "bill"], done.stderr


def test_a_missing_module_is_named_with_the_place_that_asks_for_it(folder):
    (folder / "shop" / "jobs.py").write_text(APP.replace("shop.mail", "shop.mial"))

    with pytest.raises(UsageError) as caught:
        load_app("shop.jobs")

    assert "no module 'shop.mial'" in str(caught.value)
    assert f"App(include=…) in {folder / 'shop' / 'jobs.py'}, line 3" in str(caught.value)


def test_a_module_that_fails_is_named_with_its_own_error(folder):
    (folder / "shop" / "mail.py").write_text("import no_such_library\n")

    with pytest.raises(AppImportError, match=r"line 3: importing 'shop.mail' failed: .*no_such"):
        load_app("shop.jobs")


def test_a_module_that_failed_is_imported_again_when_it_is_repaired(folder):
    (folder / "shop" / "mail.py").write_text("1 / 0\n")
    with pytest.raises(AppImportError):
        load_app("shop.jobs")
    (folder / "shop" / "mail.py").write_text(MAIL)

    assert set(load_app("shop.jobs").tasks) == {"send_email", "bill"}


@pytest.mark.parametrize("include", ["'shop.mail'", "[5]", "['.mail']", "['shop/mail.py']", "5"])
def test_what_is_not_a_list_of_modules_is_refused(folder, include):
    (folder / "shop" / "jobs.py").write_text(
        f"from daybell import App\napp = App(include={include})\n"
    )

    with pytest.raises(UsageError, match="include"):
        load_app("shop.jobs")


def test_a_worker_without_tasks_says_which_modules_to_import(folder):
    (folder / "shop" / "jobs.py").write_text("from daybell import App\napp = App()\n")
    (folder / "shop" / "words.py").write_text("HELLO = 'hello'\n")

    with Running("worker", "shop.jobs:app", folder=folder) as running:
        running.wait_for(
            r"warning: the app in shop.jobs has no tasks\. .*: "
            r'App\(include=\["shop.billing", "shop.mail"\]\)'
        )


def test_a_worker_without_an_app_does_not_ask_for_tasks(folder):
    with Running("worker", folder=folder) as running:
        running.wait_for(r"worker \S+ \(.*\) runs ")

        assert "has no tasks" not in running.said


def test_a_worker_of_an_app_that_includes_tasks_runs_them(folder):
    with Running("worker", "shop.jobs:app", folder=folder) as running:
        running.wait_for(r"runs bill, send_email|runs send_email, bill")

    ended = daybell("worker", "shop.nothing:app", folder=folder)
    assert ended.code == 2
