"""Remote workers over HTTP: claims, fences, waits and secrets, on every store."""

import asyncio
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import httpx
import pytest

from daybell.api import ApiOptions, create_api
from daybell.api.guard import IDLE
from daybell.client import Client
from daybell.client.leases.polls import Polls
from daybell.client.sealing import new_key
from daybell.core.access import Role
from daybell.core.ids import is_owned, mint, mint_owned
from tests.engine.virtual import until
from tests.stores import KINDS, open_place

MARKED = [
    pytest.param(kind, marks=[pytest.mark.postgres] if kind.startswith("postgres") else [])
    for kind in KINDS
]


class Remote:
    """A remote worker, which has a key and an address, and nothing else."""

    def __init__(self, app, token: str, host: str = "127.0.0.1", scheme: str = "http") -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(host, 5000))
        self.http = httpx.AsyncClient(
            transport=transport,
            base_url=f"{scheme}://localhost/api/v1",
            headers={"authorization": f"Bearer {token}"},
        )
        self.worker = ""

    async def ask(self, verb: str, **body) -> httpx.Response:
        return await self.http.post(f"/leases/{self.worker}/{verb}", json=body)

    async def register(self, **body) -> dict:
        answer = await self.http.post("/leases", json={"queues": ["images"], **body})
        assert answer.status_code == 201, answer.text
        self.worker = answer.json()["worker_id"]
        return answer.json()

    async def claim(self, lease: str | None = None, **body) -> dict:
        said = {"lease_id": lease or str(mint()), "queues": ["images"], "limit": 10, **body}
        answer = await self.ask("claim", **said)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def report(self, claim: dict, number: int = 0, **end) -> list[dict]:
        one = claim["executions"][number]
        said = {
            "execution_id": one["execution_id"],
            "attempt": one["attempt"],
            "lease_id": claim["lease_id"],
            "outcome": "succeeded",
            **end,
        }
        answer = await self.ask("reports", results=[said])
        assert answer.status_code == 200, answer.text
        return answer.json()["items"]


class Bench:
    """A server with a store, and workers with keys."""

    def __init__(self, store) -> None:
        self.client = Client(store, secrets_key=new_key())
        self.app = create_api(self.client)
        self.app.state.polls = self.polls = Polls(asyncio.get_running_loop().time)

    def restarted(self) -> None:
        """Another server on the same store: it remembers nothing."""
        self.app = create_api(self.client)
        self.app.state.polls = Polls(asyncio.get_running_loop().time)

    async def worker(self, *, host="127.0.0.1", scheme="http", **limits) -> Remote:
        key = await self.client.create_key("edge", role=Role.WORKER, **limits)
        return Remote(self.app, key.token, host, scheme)

    async def registered(self, **limits) -> Remote:
        remote = await self.worker(**limits)
        await remote.register()
        return remote

    async def enqueued(self, count: int = 1, **args) -> list[str]:
        made = await self.client.enqueue_many("resize", [args] * count)
        return [str(one.id) for one in made.executions]


@pytest.fixture(params=MARKED)
async def bench(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as place, place.opened() as store:
        made = Bench(store)
        await made.client.define("resize", queue="images", retries=2)
        yield made
        await made.polls.close()


async def test_a_worker_claims_reports_and_leaves(bench):
    (id,) = await bench.enqueued(width=100)
    remote = await bench.registered()

    claim = await remote.claim()
    (one,) = claim["executions"]
    assert (one["execution_id"], one["job"], one["attempt"]) == (id, "resize", 1)
    assert one["args"] == {"width": 100}
    line = [1.5, "info", "app", "half of it"]
    fence = {"execution_id": id, "attempt": 1, "lease_id": claim["lease_id"]}
    stale = await remote.ask("progress", reports=[{**fence, "progress": 50, "message": "half"}])
    assert stale.json() == {"stale": []}
    assert (await bench.client.execution(id)).progress == 50
    logged = await remote.ask("logs", parts=[{**fence, "number": 1, "lines": [line]}])
    assert logged.json() == {"parts": 1}
    assert await remote.report(claim, result={"bytes": 7}, log=[[2.5, "info", "", "done"]]) == []
    left = await remote.ask("drain")

    detail = await bench.client.execution(id)
    assert (detail.status, detail.result) == ("succeeded", {"bytes": 7})
    assert str(detail.worker_id) == remote.worker
    lines = [line.message for part in await bench.client.log(id) for line in part.lines]
    assert lines == ["half of it", "done"]
    assert left.json() == {"released": 0}
    assert [one.state for one in await bench.client.workers(include_dead=True)] == ["dead"]


async def test_a_lost_answer_to_a_claim_is_asked_for_again_and_brings_the_same_rows(bench):
    await bench.enqueued(5)
    remote = await bench.registered()

    first = await remote.claim(limit=3)
    for flag in (False, True):
        again = await remote.claim(first["lease_id"], limit=3, wait=1, is_first=flag)
        assert again["executions"] == first["executions"]
    bench.restarted()
    remote.http._transport.app = bench.app
    anew = await remote.claim(first["lease_id"], limit=3)

    assert anew["executions"] == first["executions"]
    assert len((await remote.claim())["executions"]) == 2


async def test_a_claim_that_was_lost_is_asked_for_again_when_nothing_else_is_due(bench):
    await bench.enqueued(1)
    remote = await bench.registered()

    first = await remote.claim(limit=3)
    again = await remote.claim(first["lease_id"], limit=3, wait=20)

    assert first["executions"] == again["executions"] != []


async def test_a_lost_report_is_answered_again_as_the_first_time(bench):
    (id,) = await bench.enqueued()
    remote = await bench.registered()
    claim = await remote.claim()

    said = [await remote.report(claim, result=1) for _ in range(3)]

    assert said == [[], [], []]
    assert (await bench.client.execution(id)).result == 1


async def test_a_report_after_the_lease_was_lost_is_stale_and_writes_nothing(bench):
    (id,) = await bench.enqueued()
    remote, other = await bench.registered(), await bench.registered()
    claim = await remote.claim()
    assert (await remote.ask("renew", lease_ids=[])).json()["returned"] == 1
    taken = await other.claim()

    (verdict,) = await remote.report(claim, result="late")
    stale = await remote.ask(
        "progress",
        reports=[{"execution_id": id, "attempt": 1, "lease_id": claim["lease_id"], "progress": 9}],
    )

    assert verdict["ruling"] == "stale" and verdict["current_attempt"] == 2
    assert stale.json() == {"stale": [{"execution_id": id, "attempt": 1}]}
    assert await other.report(taken, result="in time") == []
    assert (await bench.client.execution(id)).result == "in time"


async def test_the_lease_id_of_another_worker_is_no_fence(bench):
    (id,) = await bench.enqueued()
    remote, other = await bench.registered(), await bench.registered()
    claim = await remote.claim()

    (verdict,) = await other.report(claim, result="stolen")

    assert verdict["ruling"] == "stale"
    assert (await bench.client.execution(id)).status == "running"
    assert await remote.report(claim) == []


async def test_the_job_decides_what_follows_a_failure(bench):
    (id,) = await bench.enqueued()
    remote = await bench.registered()
    error = {"type": "Timeout", "message": "no answer"}

    claim = await remote.claim()
    assert await remote.report(claim, outcome="failed", error=error) == []
    first = await bench.client.execution(id)
    await bench.client.store.queue.cancel("default", [first.execution_id])
    (other,) = await bench.enqueued()
    claim = await remote.claim()
    assert await remote.report(claim, outcome="failed", error=error, is_permanent=True) == []

    assert (first.status, first.failures, first.attempt) == ("retrying", 1, 2)
    assert first.error["message"] == "no answer"
    dead = await bench.client.execution(other)
    assert (dead.status, dead.reason) == ("dead", "permanent")


async def test_a_report_survives_a_restart_of_the_server(bench):
    (id,) = await bench.enqueued()
    remote = await bench.registered()
    claim = await remote.claim()

    bench.restarted()
    remote.http._transport.app = bench.app
    error = {"type": "Timeout"}

    assert await remote.report(claim, outcome="failed", error=error) == []
    assert (await bench.client.execution(id)).status == "retrying"


async def test_a_dead_worker_reports_to_another_server_until_its_work_is_taken(bench):
    (id,) = await bench.enqueued()
    remote = await bench.registered()
    claim = await remote.claim()
    queue, tenant = bench.client.store.queue, bench.client.tenant
    await queue.retire(tenant, UUID(remote.worker))
    bench.restarted()
    remote.http._transport.app = bench.app
    said = {"execution_id": id, "attempt": 1, "lease_id": claim["lease_id"], "outcome": "succeeded"}

    early = await remote.ask("reports", results=[said])
    assert (early.status_code, early.json()["code"]) == (503, "unavailable")
    assert (await bench.client.execution(id)).status == "running"
    await queue.release(tenant, worker=UUID(remote.worker), leases=[UUID(claim["lease_id"])])

    assert [one["ruling"] for one in await remote.report(claim)] == ["stale"]
    assert (await remote.ask("expand", **dict(list(said.items())[:3]))).json()["is_begun"] is False


async def test_one_wrong_result_is_refused_and_the_others_are_written(bench):
    ids = await bench.enqueued(2)
    remote = await bench.registered()
    claim = await remote.claim()
    results = [
        {
            "execution_id": one["execution_id"],
            "attempt": 1,
            "lease_id": claim["lease_id"],
            "outcome": "succeeded",
            "result": result,
        }
        for one, result in zip(claim["executions"], ["x" * 2**21, "fine"], strict=True)
    ]

    answer = (await remote.ask("reports", results=results)).json()
    wrong = await remote.ask("reports", results=[{**results[0], "status": "dead"}])

    (verdict,) = answer["items"]
    assert (verdict["ruling"], verdict["execution_id"]) == ("refused", ids[0])
    assert "1,048,576" in verdict["detail"]
    assert (await bench.client.execution(ids[1])).status == "succeeded"
    assert "does not lead to dead" in wrong.json()["items"][0]["detail"]


def waits(bench) -> int:
    """How many requests wait in the server."""
    return sum(len(group.waits) for group in bench.polls._groups.values())


async def test_a_wait_ends_when_something_is_enqueued(bench):
    remote = await bench.registered()
    waiting = asyncio.create_task(remote.claim(wait=30))
    await until(lambda: waits(bench) == 1, within=60)
    watching = asyncio.create_task(remote.claim(wait=30, limit=0))
    await until(lambda: waits(bench) == 2, within=60)

    (id,) = await bench.enqueued()

    done, _ = await asyncio.wait([waiting], timeout=300)
    assert [one["execution_id"] for one in done.pop().result()["executions"]] == [id]
    watching.cancel()


async def test_a_wait_hears_of_a_cancellation(bench):
    (id,) = await bench.enqueued()
    remote = await bench.registered()
    claim = await remote.claim()
    first = await remote.claim(wait=30, limit=0, queues=[])
    assert (
        first.get("has_news") is True
    )  # the server did not listen before: it may have missed some
    await remote.ask("renew", lease_ids=[claim["lease_id"]])
    watching = asyncio.create_task(remote.claim(wait=30, limit=0, queues=[]))
    await until(lambda: waits(bench) == 1, within=60)

    await bench.client.cancel(id)

    assert (await asyncio.wait_for(watching, 300)).get("has_news") is True
    renewal = (await remote.ask("renew", lease_ids=[claim["lease_id"]])).json()
    assert renewal["cancel"] == [{"execution_id": id, "attempt": 1}]


async def test_idle_workers_are_renewed_together(bench):
    workers = [await bench.registered() for _ in range(5)]
    writes = []
    renew_idle = bench.client.store.queue.renew_idle

    async def counted(*args, **options):
        writes.append(options["workers"])
        return await renew_idle(*args, **options)

    bench.client.store.queue.renew_idle = counted
    answers = await asyncio.gather(*(one.ask("renew", lease=60) for one in workers))

    assert [one.json()["worker_id"] for one in answers] == [one.worker for one in workers]
    assert len(writes) == 1 and len(writes[0]) == 5


async def test_renewals_that_wait_for_each_other_take_no_share_of_the_server(bench):
    remote, waiting = await bench.registered(), []

    @asynccontextmanager
    async def idle():
        waiting.append(True)
        yield
        waiting.pop()

    async def app(scope, receive, send) -> None:
        await bench.app({**scope, IDLE: idle}, receive, send)

    remote.http._transport.app = app
    renewing = asyncio.create_task(remote.ask("renew", lease=60))

    await until(lambda: waiting, within=60)
    assert (await renewing).status_code == 200 and not waiting


async def test_a_worker_that_forgot_its_claim_gives_it_back(bench):
    await bench.enqueued()
    remote = await bench.registered()
    await remote.claim()

    left = await remote.ask("drain", is_over=False)

    assert left.json() == {"released": 1}
    assert (await remote.claim())["executions"][0]["attempt"] == 2


async def test_a_key_serves_its_queues_and_its_own_workers_alone(bench):
    limited = await bench.worker(queues=["mail-*"])
    await limited.register(queues=["mail-1"])
    stranger = await bench.registered()

    refused = await limited.http.post("/leases", json={"queues": ["images"]})
    taken = await limited.ask("claim", lease_id=str(mint()), queues=["mail-1", "images"])
    stranger.worker = limited.worker
    foreign = [
        await stranger.ask("renew"),
        await stranger.ask("claim", lease_id=str(mint())),
        await stranger.ask("drain"),
    ]

    assert (refused.status_code, taken.status_code) == (403, 403)
    assert [one.json()["code"] for one in foreign] == ["lease-lost"] * 3
    assert (await limited.ask("renew")).status_code == 200


async def test_a_worker_id_belongs_to_the_key_that_made_it(bench):
    remote = await bench.worker()
    token = remote.http.headers["authorization"].removeprefix("Bearer ")
    own = mint_owned(token)

    assert (await remote.register(worker_id=str(own)))["worker_id"] == str(own)
    for wrong in (uuid4(), mint_owned("dbk_another")):
        answer = await remote.http.post("/leases", json={"worker_id": str(wrong)})
        assert answer.status_code == 422, answer.text
    assert is_owned(own, token) and not is_owned(own, "dbk_another")


async def test_secrets_come_with_the_scope_over_a_safe_way_for_what_was_claimed(bench):
    await bench.client.set_secret("TOKEN", "some value")
    await bench.client.set_secret("OTHER", "another value")
    ids = await bench.enqueued(2, key={"secret": "TOKEN"})
    allowed = await bench.registered(actions=["secrets"])
    plain = await bench.registered()
    (mine,), (theirs,) = [(await one.claim(limit=1))["executions"] for one in (allowed, plain)]
    token = allowed.http.headers["authorization"].removeprefix("Bearer ")
    far, safe = (Remote(bench.app, token, "10.0.0.9", kind) for kind in ("http", "https"))
    far.worker = safe.worker = allowed.worker

    def body(one, name="TOKEN"):
        return {"execution_id": one["execution_id"], "secrets": [name]}

    granted = await allowed.ask("details", **body(mine))
    assert granted.json()["secrets"] == {"TOKEN": "some value"}
    assert granted.json()["definition"]["queue"] == "images"
    assert (await safe.ask("details", **body(mine))).json()["secrets"] == {"TOKEN": "some value"}
    for remote, said in (
        (plain, body(theirs)),  # without the scope
        (far, body(mine)),  # over a network, in clear
        (allowed, body(mine, "OTHER")),  # not what it refers to
    ):
        answer = await remote.ask("details", **said)
        assert answer.status_code == 403, answer.text
        assert "value" not in answer.text
    for one in (theirs["execution_id"], str(mint())):
        answer = await allowed.ask("details", execution_id=one, secrets=["TOKEN"])
        assert answer.status_code == 404, answer.text
    assert {mine["execution_id"], theirs["execution_id"]} == set(ids)


async def test_steps_are_recorded_and_recalled_by_the_worker_that_holds_them(bench):
    (id,) = await bench.enqueued()
    remote, other = await bench.registered(), await bench.registered()
    claim = await remote.claim()
    step = {
        "execution_id": id,
        "attempt": 1,
        "lease_id": claim["lease_id"],
        "n": 1,
        "name": "charge",
        "kind": "step",
        "result": None,
    }

    (made,) = (await remote.ask("steps", steps=[step])).json()["items"]
    (known,) = (await remote.ask("steps", recall=id)).json()["items"]
    foreign = await other.ask("steps", recall=id)
    (lost,) = (await other.ask("steps", steps=[{**step, "n": 2}])).json()["items"]

    assert made == known and made["is_done"] and made["result"] is None
    assert foreign.status_code == 404
    assert lost is None


async def test_a_workflow_begins_without_the_worker_choosing_its_nodes(bench):
    nodes = [{"name": "one", "task": "resize"}, {"name": "two", "task": "resize"}]
    edges = [{"from": "one", "to": "two"}]
    await bench.client.create("etl", workflow={"nodes": nodes, "edges": edges}, queue="images")
    run = await bench.client.enqueue("etl")
    remote = await bench.registered()
    claim = await remote.claim(kinds=["task", "workflow"])
    (one,) = claim["executions"]

    begun = await remote.ask(
        "expand", execution_id=one["execution_id"], attempt=1, lease_id=claim["lease_id"]
    )
    assert begun.json() == {"is_begun": True}
    for name in ("one", "two"):
        claim = await remote.claim()
        assert claim["executions"][0]["node"] == name
        assert await remote.report(claim, result=name) == []

    assert (await bench.client.execution(run.id)).status == "succeeded"


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("claim", {}, ""),
        ("claim", {"lease_id": "1"}, "lease_id"),
        ("claim", {"lease_id": str(uuid4()), "wait": 31}, "wait"),
        ("claim", {"lease_id": str(uuid4()), "queues": ["a/b\n"]}, None),
        ("renew", {"lease": 0}, "lease"),
        ("reports", {"results": []}, "results"),
        ("reports", {"results": [{"attempt": "x"}]}, None),
        ("logs", {"parts": [{"number": 0}]}, None),
        ("drain", {"nothing": 1}, ""),
    ],
)
async def test_what_is_wrong_with_a_body_is_told_with_its_place(verb, body, field):
    async with Client("memory://") as client:
        app = create_api(client, options=ApiOptions(open_tenant="default"))
        remote = Remote(app, "")
        del remote.http.headers["authorization"]
        await remote.register()

        answer = await remote.ask(verb, **body)

    assert answer.status_code == 422, answer.text
    if field is not None:
        assert [one["field"] for one in answer.json()["errors"]] == [field], answer.text
