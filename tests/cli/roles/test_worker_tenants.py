"""`daybell worker --tenants`: one process for several tenants."""

import json
from typing import Any, cast

import pytest

from daybell.client.sealing import new_key
from tests.cli.terminal import Running, daybell, until

APP = """
import os
from daybell import App, Context

app = App()

@app.task
async def leaf(by: str) -> str:
    return by

@app.task
async def note(ctx: Context, token: str) -> list:
    print("the token is", token)
    ctx.progress(50, f"seen {len(token)}")
    first = await ctx.step("one", leaf.function, "step")
    await leaf.enqueue(by="note")
    return [len(token), first]

@app.task(isolation="process")
def apart(n: int) -> int:
    leaf.sync.enqueue(by="apart")
    return os.getpid()
"""
A, B = "acme", "bolt"
READY = r"worker \S+ \(.*\) runs .* of "
REFUSALS = {
    "both": (["--tenants", "a,b", "--tenant", "a"], "--tenant and --tenants are given"),
    "empty": (["--tenants", " , "], "write names, as in a,b"),
    "all and one": (["--tenants", "*,a"], "or '*' for all tenants"),
    "twice": (["--tenants", "a,b,a"], "tenant 'a' is named twice"),
    "a wrong name": (["--tenants", "a/b"], "tenant name 'a/b' contains '/'"),
    "prune": (["--tenants", "*", "--prune"], "--prune removes jobs of one tenant"),
    "over HTTP": (
        ["--tenants", "a", "--api-url", "http://127.0.0.1:9"],
        "over HTTP, the key decides for which tenant",
    ),
}


class Place:
    """A folder with an app, and a database with tenants."""

    def __init__(self, folder: Any, url: str) -> None:
        self.folder = folder
        self.variables = {
            "DAYBELL_DATABASE_URL": url,
            "DAYBELL_SECRETS_KEY": new_key(),
            "DAYBELL_LEASE": "2",
        }
        (folder / "code.py").write_text(APP)

    def say(self, *words: str, **more: Any) -> Any:
        return daybell(*words, folder=self.folder, **cast(Any, self.variables | more))

    def ask(self, *words: str) -> Any:
        said = self.say(*words, "--json")
        assert said.code == 0, said.err
        return json.loads(said.out)

    def worker(self, *words: str) -> Running:
        words = ("worker", "code.py", *words)
        return Running(*words, folder=self.folder, **cast(Any, self.variables))

    def executions(self, tenant: str) -> dict[str, list[dict]]:
        found: dict[str, list[dict]] = {}
        for one in self.ask("executions", "list", "--tenant", tenant)["items"]:
            found.setdefault(one["job"], []).append(one)
        return found


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path, f"sqlite:///{tmp_path / 'daybell.db'}")


def prepare(place: Place) -> None:
    """Create two tenants, each with a secret."""
    place.say("migrate")
    for tenant in (A, B):
        place.say("tenants", "create", tenant)
        value = f"secret-of-{tenant}".encode()
        place.say("secrets", "set", "TOKEN", "--tenant", tenant, stdin=value)


def wait_for_jobs(place: Place) -> None:
    for tenant in (A, B):
        until(lambda one=tenant: place.ask("jobs", "list", "--tenant", one)["items"])


def test_one_process_runs_the_work_of_two_tenants_apart(place):
    prepare(place)
    with place.worker("--tenants", f"{A},{B}") as running:
        running.wait_for(r"of tenants acme, bolt in ")
        wait_for_jobs(place)
        for tenant in (A, B):
            args = json.dumps({"token": {"secret": "TOKEN"}})
            place.say("jobs", "trigger", "note", "--args", args, "--tenant", tenant)
            place.say("jobs", "trigger", "apart", "--args", '{"n": 1}', "--tenant", tenant)
        until(lambda: all(len(place.executions(one).get("leaf", ())) == 2 for one in (A, B)))
        until(
            lambda: all(
                one["status"] == "succeeded"
                for tenant in (A, B)
                for some in place.executions(tenant).values()
                for one in some
            )
        )
        workers = {one: place.ask("workers", "list", "--tenant", one)["items"] for one in (A, B)}

    for tenant in (A, B):
        found = place.executions(tenant)
        assert {job: len(some) for job, some in found.items()} == {"note": 1, "apart": 1, "leaf": 2}
        note = place.ask("executions", "show", found["note"][0]["execution_id"], "--tenant", tenant)
        assert note["result"] == [len(f"secret-of-{tenant}"), "step"]
        log = place.say("executions", "logs", note["execution_id"], "--tenant", tenant).out
        assert "the token is ***" in log
        assert "secret-of" not in log
        (worker,) = workers[tenant]
        assert (worker["tenant"], worker["shared"]) == (tenant, True)
    assert workers[A][0]["worker_id"] == workers[B][0]["worker_id"]
    assert place.executions("default") == {}
    assert place.ask("jobs", "list")["items"] == [], "the worker has defined jobs of its own"


def test_all_tenants_are_served_also_by_several_processes(place):
    prepare(place)
    with place.worker("--tenants", "*", "--processes", "2") as running:
        running.wait_for(r"of all tenants in ")
        place.say("tenants", "create", "late")
        until(lambda: place.ask("jobs", "list", "--tenant", "late")["items"])
        place.ask("jobs", "trigger", "leaf", "--args", '{"by": "x"}', "--tenant", "late")
        until(lambda: [one["status"] for one in place.executions("late")["leaf"]] == ["succeeded"])


def test_a_shared_worker_drains_for_all(place):
    prepare(place)
    with place.worker("--tenants", f"{A},{B}") as running:
        running.wait_for(READY)
        (worker,) = place.ask("workers", "list", "--tenant", A)["items"]

        assert place.say("workers", "drain", worker["worker_id"], "--tenant", A).code == 0

        running.wait_for("asked to drain")
        assert "shared" in place.say("workers", "list", "--dead", "--tenant", B).out


@pytest.mark.parametrize(("words", "said"), REFUSALS.values(), ids=REFUSALS)
def test_contradicting_words_are_refused_before_the_start(words, said, place):
    refused = place.say("worker", "code.py", *words)

    assert refused.code == 2, refused.err
    assert said in " ".join(refused.err.split())


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_unknown_tenant_is_named(processes, place):
    place.say("migrate")

    refused = place.say("worker", "code.py", "--tenants", "default,nemo", "--processes", processes)

    assert refused.code == 1
    assert "no tenant named 'nemo'" in refused.err
