"""Queues, workers, stats, tenants, keys, the audit log and health probes over HTTP."""

import re

import pytest

from daybell.api import create_api
from daybell.api.routes.workers import Readiness
from daybell.client import mint
from daybell.core.worker import SHARED
from daybell.errors import Unavailable
from tests.api.conftest import asking
from tests.builders import a_worker, apply, claim, success
from tests.sweeps import fold_stats

UNKNOWN = "01934b2e-7c00-7000-8000-000000000000"


async def test_queues_are_listed_paused_resumed_and_purged(http, client):
    await client.enqueue_many("resize", [{}] * 2)

    paused = await http.post("/queues/images/pause")
    (listed,) = (await http.get("/queues")).json()["items"]
    resumed = await http.post("/queues/images/resume")
    purged = await http.post("/queues/images/purge")

    assert paused.json() == {"name": "images", "is_paused": True}
    assert (listed["queued"], listed["is_paused"]) == (2, True)
    assert resumed.json()["is_paused"] is False
    assert purged.json() == {"name": "images", "cancelled": 2}
    assert (await http.post("/queues/a%00b/pause")).status_code == 422


async def test_a_queue_says_how_much_work_it_has(http, client):
    await client.enqueue_many("resize", [{}] * 3)
    worker = a_worker(queues=("images",), capacity=4)
    await client.store.queue.register(client.tenant, worker, lease=60.0)
    await client.store.queue.claim(
        client.tenant, worker=worker.id, lease=mint(), queues=["images"], limit=1
    )

    said = (await http.get("/queues/images/scaling")).json()

    assert (said["value"], said["queued"], said["running"]) == (3, 2, 1)
    assert (said["workers"], said["capacity"]) == (1, 4)
    assert (await http.get("/queues/unused/scaling")).json()["value"] == 0


async def test_workers_are_listed_and_drained(http, client):
    worker = a_worker(queues=("images",))
    await client.store.queue.register(client.tenant, worker, lease=60.0)

    drained = await http.post(f"/workers/{worker.id}/drain")
    (listed,) = (await http.get("/workers")).json()["items"]

    assert (drained.status_code, drained.json()["state"]) == (202, "draining")
    assert (listed["worker_id"], listed["state"]) == (str(worker.id), "draining")
    assert (await http.post(f"/workers/{UNKNOWN}/drain")).status_code == 404


@pytest.mark.parametrize(
    ("query", "first", "words"),
    [
        (
            "cron=0 9 * * mon-fri&tz=Europe/Berlin&from=2026-03-28",
            "2026-03-30T09:00:00+02:00",
            "09",
        ),
        ("every=5m&from=2026-01-01", "2026-01-01T00:00:00+00:00", "5 minutes"),
        ("at=2030-01-01T00:00:00Z", "2030-01-01T00:00:00+00:00", "2030"),
        ("rrule=FREQ=DAILY;BYHOUR=6;BYMINUTE=0;BYSECOND=0&from=2026-01-01", "2026-01-01T06", ""),
    ],
)
async def test_a_schedule_is_shown_before_it_is_used(http, query, first, words):
    said = (await http.get(f"/schedules/preview?count=1&{query.replace('+', '%2B')}")).json()

    assert said["next"][0].startswith(first)
    assert words in said["description"]


async def test_all_that_goes_on_at_a_glance(http, client):
    await client.enqueue_many("resize", [{}] * 3)

    said = (await http.get("/stats")).json()

    assert said["totals"]["queued"] == 3
    assert [one["name"] for one in said["queues"]] == ["images"]
    assert (said["rates"], said["dead_letters"]) == (None, [])
    assert (await http.get("/status")).json()["leaders"] == []


async def test_tenants_are_created_and_changed(http):
    made = await http.post("/tenants", json={"name": "acme", "jobs": 3})
    again = await http.post("/tenants", json={"name": "acme"})
    changed = await http.patch("/tenants/acme", json={"jobs": None, "queued": 5})

    assert (made.status_code, made.headers["location"]) == (201, "/api/v1/tenants/acme")
    assert again.status_code == 409
    quotas = {"jobs": None, "queued": 5, "per_minute": None, "running": None}
    assert changed.json()["quotas"] == quotas
    assert (await http.get("/tenants/acme")).json() == changed.json()
    assert [one["name"] for one in (await http.get("/tenants")).json()["items"]] == [
        "acme",
        "default",
    ]
    assert (await http.get("/tenants/nobody")).status_code == 404
    assert (await http.patch("/tenants/nobody", json={"jobs": 1})).status_code == 404
    assert (await http.patch("/tenants/acme", json={"jobs": -1})).status_code == 422


async def test_the_place_of_a_tenant_is_written_for_addresses(http):
    made = await http.post("/tenants", json={"name": "Äpfel Öl"})

    assert made.status_code == 201
    assert made.headers["location"] == "/api/v1/tenants/%C3%84pfel%20%C3%96l"
    found = await http.get(made.headers["location"].removeprefix("/api/v1"))
    assert found.json() == made.json()


async def test_a_keys_token_is_shown_once(http, client):
    made = (
        await http.post("/keys", json={"name": "ci", "role": "viewer", "expires": "90d"})
    ).json()
    listed = (await http.get("/keys")).json()["items"]
    revoked = (await http.delete(f"/keys/{made['key_id']}")).json()

    assert made["token"].startswith("dbk_")
    assert "token" not in listed[0]
    assert made["token"] not in str(listed)
    found = await client.authenticate(made["token"])
    assert found is not None and found[0].revoked_at is not None
    assert revoked["revoked_at"] is not None
    assert (await http.post(f"/keys/{UNKNOWN}/revoke")).status_code == 404
    assert (await http.post("/keys", json={"name": "ci", "role": "root"})).status_code == 422


async def test_changes_are_on_record_with_who_and_what(http):
    await http.post("/jobs", json={"name": "a", "task": "resize", "schedule": "manual"})
    await http.patch("/jobs/a", json={"queue": "mail"})
    await http.post("/jobs/a/trigger")
    await http.post("/executions", json=[{"job": "a"}, {"job": "a"}])
    await http.post("/queues/mail/pause")
    await http.delete("/jobs/a")

    told = (await http.get("/audit")).json()["items"]
    of_jobs = (await http.get("/audit?action=job&limit=2")).json()

    assert [one["action"] for one in reversed(told)] == [
        "job.create",
        "job.update",
        "job.trigger",
        "execution.enqueue",
        "queue.pause",
        "job.delete",
    ]
    assert {(one["actor"], one["source"]) for one in told} == {("dev", "127.0.0.1")}
    update = told[-2]
    assert (update["target"], update["after"]) == ("a", {"queue": "mail"})
    assert update["before"]["queue"] == "images"
    assert [one["action"] for one in of_jobs["items"]] == ["job.delete", "job.trigger"]
    assert of_jobs["next_cursor"] is not None


async def test_what_is_refused_leaves_no_entry(http):
    await http.post("/jobs", json={"name": "a/b", "task": "resize"})
    await http.delete("/jobs/nobody")
    await http.post("/jobs/nobody/trigger")

    assert (await http.get("/audit")).json()["items"] == []


async def test_the_page_of_the_document_needs_nothing_from_elsewhere(http):
    page = (await http.get("http://localhost/docs")).text

    assert "GET /api/v1/executions/{id}" in page
    assert set(re.findall(r'(?:href|src)="([^"#]+)', page)) == {
        "/openapi.json"
    }  # examples are text
    assert "<script" not in page and "<link" not in page and "url(" not in page
    assert " style=" not in page and "<style" not in page  # the policy lets none of it in


async def test_the_page_says_what_each_operation_takes(http):
    page = (await http.get("http://localhost/docs")).text
    one = page.partition('id="create_job"')[2].partition("<h3")[0]

    assert "Takes the role <em>admin</em>" in one
    assert "<li><code>name</code> (text, needed)" in one
    assert "<li><code>overlap</code> (skip, " in one and "): When the execution before" in one
    assert "<code>skip</code> the new one" in one and "`" not in one
    assert "429" not in one and page.count("<dt>429 ") == 1  # errors are listed once


# Probes, and what is answered where nothing is.


async def test_a_process_is_well_whatever_becomes_of_its_store(client):
    async def ask():
        raise Unavailable("postgresql://secret-host is gone")

    app = create_api(client, readiness=Readiness(ask))

    async with asking(app) as http:
        assert (await http.get("http://localhost/healthz")).json() == {"status": "ok"}
        answer = await http.get("http://localhost/readyz")

    assert answer.status_code == 503
    assert answer.json()["status"] == "unavailable"
    assert "secret-host" not in answer.text


async def test_probes_ask_the_store_once_a_second(client):
    asked, now = [], [0.0]

    async def ask():
        asked.append(now[0])

    app = create_api(client, readiness=Readiness(ask, monotonic=lambda: now[0]))

    async with asking(app) as http:
        for moment in (0.0, 0.5, 0.9, 1.0, 1.9):
            now[0] = moment
            assert (await http.get("http://localhost/readyz")).json() == {"status": "ready"}

    assert asked == [0.0, 1.0]


async def test_a_path_with_nothing_is_answered_with_a_problem(http):
    answer = await http.get("/nothing")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:daybell:problem:not-found"


async def test_a_method_that_is_not_there_is_answered_with_those_that_are(http):
    answer = await http.post("http://localhost/healthz")

    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert answer.headers["content-type"] == "application/problem+json"


async def test_all_methods_of_a_path_are_named(http):
    answer = await http.post("/jobs/resize")

    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PATCH, PUT"


@pytest.mark.parametrize("path", ["http://localhost/healthz", "http://localhost/readyz", "/jobs"])
async def test_head_is_answered_as_get_without_a_body(path, http):
    full, head = await http.get(path), await http.head(path)

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == full.headers


@pytest.mark.parametrize("path", ["/stream", "/executions/x/logs"])
async def test_head_does_not_begin_a_stream(path, http):
    answer = await http.head(path, headers={"Accept": "text/event-stream"})

    assert answer.status_code == 405


async def test_a_wrong_method_does_not_wait_for_the_document_of_all(http, monkeypatch):
    def made(*_: object, **__: object) -> None:
        raise AssertionError("it takes half a second, in which nobody else is answered")

    monkeypatch.setattr("daybell.api.openapi.document", made)

    assert (await http.delete("/executions")).headers["allow"] == "GET, HEAD, POST"


async def test_metrics_over_time_are_answered_by_steps(http, client):
    await client.enqueue_many("resize", [{}] * 2)

    answer = await http.get("/stats/series?metric=enqueued,run_p95&queue=images&since=2h&step=10m")

    body = answer.json()
    assert answer.status_code == 200
    assert (body["step"], body["queue"], body["job"]) == (600, "images", None)
    assert (body["totals"], set(body["series"])) == (
        {"enqueued": 2, "run_p95": None},
        {"enqueued", "run_p95"},
    )
    assert body["series"]["enqueued"][-1] == 2
    assert set(body["series"]["run_p95"]) == {None}


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("?metric=", 422, "metric"),
        ("?metric=latency", 422, "metric"),
        ("?metric=dead&step=90", 422, "step"),
        ("?metric=dead&since=never", 422, "since"),
        ("?metric=dead&job=nobody", 404, None),
        ("?metric=dead&nonsense=1", 422, "nonsense"),
    ],
)
async def test_a_series_that_makes_no_sense_is_refused(http, query, status, field):
    answer = await http.get(f"/stats/series{query}")

    assert answer.status_code == status
    fields = [one["field"] for one in answer.json().get("errors", [])]
    assert fields == ([field] if field else [])


async def test_a_job_says_how_it_has_done(http, client):
    await client.enqueue("resize")

    body = (await http.get("/jobs/resize/stats?since=1d")).json()

    assert (body["job"], body["current"]["counts"]["enqueued"]) == ("resize", 1)
    assert (body["previous"]["success_rate"], body["trend"]["enqueued"]) == (None, None)
    assert (await http.get("/jobs/nobody/stats")).status_code == 404


async def test_metrics_name_the_numbers_of_the_contract(http, client):
    await client.enqueue_many("resize", [{}] * 3)
    hands = await claim(client.store, 2, queues=["images"])
    await apply(client.store, hands, *map(success, hands.executions))
    while await fold_stats(client.store):
        pass

    answer = await http.get("http://localhost/metrics")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if line[0] != "#")
    queued = 'daybell_queue_depth{queue="images",state="queued",tenant="default"}'
    labels = 'job="resize",kind="task",queue="images",state="succeeded",tenant="default"'
    ended = f"daybell_executions_finished_total{{{labels}}}"
    assert (float(lines[queued]), float(lines[ended])) == (1, 2)
    assert (
        float(lines['daybell_run_seconds_count{kind="task",queue="images",tenant="default"}']) == 2
    )
    assert (
        float(
            lines['daybell_start_delay_seconds_count{kind="task",queue="images",tenant="default"}']
        )
        == 2
    )
    for name in ("stale_reports_total", "lost_leases_total", "schedule_lateness_seconds_count"):
        assert float(lines[f"daybell_{name}"]) == 0


async def test_jobs_that_are_not_among_the_busiest_are_one(http, client, monkeypatch):
    monkeypatch.setattr("daybell.client.stats.JOBS_MAX", 1)
    await client.define("rare", queue="images")
    for job, number in (("resize", 3), ("rare", 1)):
        await client.enqueue_many(job, [{}] * number)
    hands = await claim(client.store, queues=["images"])
    await apply(client.store, hands, *map(success, hands.executions))
    while await fold_stats(client.store):
        pass

    text = (await http.get("http://localhost/metrics")).text

    name = "daybell_executions_finished_total"
    assert (
        f'{name}{{job="resize",kind="task",queue="images",state="succeeded",tenant="default"}} 3.0'
        in text
    )
    assert (
        f'{name}{{job="other",kind="task",queue="images",state="succeeded",tenant="default"}} 1.0'
        in text
    )
    assert 'job="rare"' not in text


async def test_a_worker_of_several_tenants_is_drained_by_a_superadmin(client):
    worker = a_worker(tenants=(client.tenant,))
    await client.store.queue.register(SHARED, worker, lease=60.0)
    app = create_api(client)
    path = f"/workers/{worker.id}/drain"

    answers = []
    for role in ("admin", "superadmin"):
        token = (await client.create_key(role, role=role)).token
        async with asking(app, headers={"Authorization": f"Bearer {token}"}) as http:
            (listed,) = (await http.get("/workers")).json()["items"]
            answers.append((listed["shared"], listed["state"], await http.post(path)))

    (_, _, refused), (is_shared, state, drained) = answers
    assert (refused.status_code, "only a superadmin" in refused.text) == (403, True)
    assert (is_shared, state, drained.status_code) == (True, "live", 202)
    renewal = await client.store.queue.renew(SHARED, worker=worker.id, lease=60.0, leases=[])
    assert renewal.state == "draining"


async def test_scaling_leaves_out_what_no_worker_like_these_could_run(http, client):
    await client.define("train", requires={"gpu": "a100"})
    await client.define("plain")
    await client.enqueue("train")
    await client.enqueue("plain")
    worker = a_worker(queues=("default",))

    async def scaling():
        found = (await http.get("/queues/default/scaling")).json()
        return found["value"], found["queued"], found["workers"]

    assert await scaling() == (2, 2, 0)
    await client.store.queue.register(client.tenant, worker, lease=60.0)
    assert await scaling() == (1, 1, 1)
