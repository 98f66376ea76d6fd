"""Keys that are limited to some jobs, queues and actions: every operation of the document."""

import re
from uuid import UUID

import pytest

from daybell.api.router import Reach
from daybell.core.access import Action, Role, role_for
from daybell.core.execution import State
from daybell.core.worker import NewWorker
from tests.api.test_auth_walk import NEEDED
from tests.api.worlds import World, world
from tests.builders import apply, claim, death

OURS, THEIRS, MISSING = "billing-sum", "canary-pay", "nothing-there"
NOWHERE = str(UUID(int=7))
# Closed to every key with a scope.
CLOSED = {
    "create_key", "revoke_key", "delete_key", "create_hook", "rotate_hook", "revoke_hook",
    "create_tenant", "list_tenants", "get_tenant", "update_tenant",
} | NEEDED[Role.WORKER]  # fmt: skip
HIDDEN = {"openapi", "docs"}
# Closed to a key that is limited to jobs or queues.
OF_TENANT = {
    "list_limits", "get_limit", "set_limit", "pause_limit", "resume_limit",
    "get_metrics", "get_stats", "get_template", "list_audit", "list_events", "list_keys",
    "list_hooks",
    "list_secrets",
    "list_next", "list_templates", "list_upcoming", "list_workers", "verify_audit",
    "publish_event", "drain_worker",
    "create_template", "delete_template", "set_template", "delete_secret", "set_secret",
    "create_alert", "list_alerts", "get_alert", "set_alert", "delete_alert", "silence_alert",
    "test_alert", "list_incidents", "acknowledge_incident",
    "create_subscription", "list_subscriptions", "get_subscription", "update_subscription",
    "delete_subscription", "test_subscription", "list_exports", "hold_export", "release_export",
}  # fmt: skip
PUBLIC = {"healthz", "readyz", "create_session", "receive_hook"}
BODIES = {
    "create_job": {
        "name": "canary-new",
        "task": OURS,
        "queue": "canary-queue",
        "schedule": "manual",
    },
    "apply_job": {"task": OURS},
    "update_job": {"description": "changed"},
    "rollback_job": {"version": 1},
    "backfill_job": {"since": "2026-11-01", "until": "2026-11-02"},
    "signal_execution": {"name": "go"},
    "enqueue_executions": [{"job": THEIRS}],
    "cancel_executions": {"filter": {}},
    "retry_executions": {"filter": {}},
    "retry_dead_letters": {"filter": {}},
    "discard_dead_letters": {"filter": {}},
    "publish_event": {"type": "go"},
    "set_secret": {"value": "some value"},
    "create_key": {"name": "k", "role": "viewer"},
}


class Scoped:
    """A tenant with a job and an execution in the scope of a key, and others outside of it."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.client = here.client
        self.ids: dict[str, UUID] = {}  # of executions and jobs, by the names of jobs
        self.jobs: dict[str, UUID] = {}

    async def fill(self) -> None:
        for name, queue in ((OURS, "mail"), ("billing-tax", "mail"), (THEIRS, "canary-queue")):
            job = await self.client.define(name, queue=queue)
            self.jobs[name] = job.job_id
            self.ids[name] = (await self.client.enqueue(name, {"of": name})).id
        await self.client.define("canary-after", dependencies=[OURS], queue="canary-queue")
        worker = NewWorker(id=UUID(int=2), name="canary-worker", queues=("mail", "canary-queue"))
        await self.client.store.queue.register("default", worker, lease=600)
        await self.client.set_secret("CANARY_SECRET", "some value")
        await self.client.set_template({"name": "canary-template", "job": {"command": "true"}})
        await self.client.publish("canary.event")

    async def key(self, role: Role = Role.ADMIN, **limits) -> str:
        return (await self.client.create_key("scoped", role=role, **limits)).token

    async def ask(self, token: str, method: str, path: str, **more):
        return await self.here.ask(method, f"/api/v1{path}", token, **more)

    async def states(self) -> dict[str, State]:
        found = await self.client.executions(limit=100)
        return {one.job: one.status for one in found.items}


@pytest.fixture
async def scoped():
    async with world() as here:
        made = Scoped(here)
        await made.fill()
        yield made


def address(path: str, job: str, execution: object, other: str) -> str:
    path = path.removeprefix("/api/v1").replace("{job}", job)
    if path.startswith("/executions"):
        path = path.replace("{id}", str(execution))
    return re.sub(r"\{\w+\}", other, path)


async def test_every_operation_has_an_action_or_is_closed(scoped):
    routes = {one.id: one for one in scoped.here.app.router.routes if one.role is not None}
    there_are = {operation for _, _, operation, _ in scoped.here.operations()} - PUBLIC
    actions = {id: one.action for id, one in routes.items() if one.action is not None}

    assert there_are == routes.keys() - HIDDEN
    assert routes.keys() - actions.keys() == CLOSED
    for operation, action in actions.items():
        if operation not in HIDDEN and action is not Action.READ:
            assert routes[operation].role is role_for(action), operation
    assert set(actions.values()) == set(Action)
    tenant = {id for id, one in routes.items() if one.reach is Reach.TENANT}
    assert tenant == CLOSED | OF_TENANT


@pytest.mark.parametrize(
    "limits",
    [{"jobs": ["billing-*"]}, {"queues": ["mail"]}, {"jobs": [OURS, "b*"], "queues": ["ma*"]}],
    ids=["jobs", "queues", "both"],
)
async def test_no_operation_shows_or_changes_what_is_out_of_scope(scoped, limits):
    token, before = await scoped.key(**limits), await scoped.states()
    walked = 0
    for method, path, operation, _ in scoped.here.operations():
        if operation in PUBLIC:
            continue
        body = BODIES.get(operation)
        more = {} if body is None else {"json": body}
        here = [
            address(path, THEIRS, scoped.ids[THEIRS], "canary-queue"),
            address(path, str(scoped.jobs[THEIRS]), scoped.ids[THEIRS], "CANARY_SECRET"),
        ]
        for where in here:
            answer = await scoped.ask(token, method, where, **more)
            said = answer.text
            for asked in (*where.split("/"), *re.findall(r"canary-[a-z]+", str(body))):
                said = said.replace(asked, "…") if asked else said  # what was asked is no news
            assert "canary" not in said.lower(), (operation, answer.text)
            assert str(scoped.ids[THEIRS]) not in said, (operation, answer.text)
            assert answer.status_code in (200, 201, 202, 403, 404, 422), (operation, answer.text)
            walked += 1
    assert walked > 90
    after = await scoped.states()
    assert all(after[name] is before[name] for name in (THEIRS, "resize"))
    assert (await scoped.client.job(THEIRS)).version == 1
    assert [one.is_paused for one in await scoped.client.queues()] == [False, False, False]


async def test_what_is_out_of_scope_looks_like_what_does_not_exist(scoped):
    token = await scoped.key(jobs=["billing-*"])
    for method, path, operation, _ in scoped.here.operations():
        if "{job}" not in path and not path.startswith("/api/v1/executions/{id}"):
            continue
        if operation == "apply_job":
            continue  # creates a job
        answers = []
        for job, id in (
            (THEIRS, scoped.ids[THEIRS]),
            (str(scoped.jobs[THEIRS]), scoped.ids[THEIRS]),
            (MISSING, NOWHERE),
            (NOWHERE, NOWHERE),
        ):
            where = address(path, job, id, "")
            answer = await scoped.ask(token, method, where, json=BODIES.get(operation, {}))
            said = answer.text.replace(where, "…").replace(job, "…").replace(str(id), "…")
            answers.append((answer.status_code, said, sorted(answer.headers)))
        assert answers[0][0] == 404, (operation, answers)
        assert answers[0] == answers[2] and answers[1] == answers[3], (operation, answers)


async def test_lists_show_what_is_in_scope(scoped):
    token = await scoped.key(jobs=["billing-*"])
    exact = await scoped.key(jobs=[OURS])
    both = await scoped.key(queues=["mail"])

    async def listed(token, path, field="name"):
        answer = await scoped.ask(token, "GET", path)
        assert answer.status_code == 200, answer.text
        return [one[field] for one in answer.json()["items"]]

    assert await listed(token, "/jobs") == [OURS, "billing-tax"]
    assert await listed(token, "/jobs?q=canary") == []
    assert await listed(token, "/jobs?prefix=canary") == []
    assert await listed(token, "/jobs?prefix=billing-t") == ["billing-tax"]
    assert await listed(exact, "/jobs") == [OURS]
    assert await listed(both, "/jobs") == [OURS, "billing-tax"]
    assert await listed(both, "/queues") == ["mail"]
    assert await listed(token, f"/executions?job_id={OURS}", "job") == [OURS]
    assert await listed(exact, "/executions", "job") == [OURS]
    assert await listed(both, "/executions", "job") == ["billing-tax", OURS]
    for path in ("/executions", f"/executions?job_id={THEIRS}", "/counts", "/dead-letters"):
        refused = await scoped.ask(token, "GET", path)
        assert refused.status_code == 403
        assert "limited to jobs billing-*; name one" in refused.json()["detail"]
    assert (await scoped.ask(token, "GET", "/queues")).status_code == 403
    scaling = await scoped.ask(both, "GET", "/queues/canary-queue/scaling")
    assert scaling.status_code == 403
    assert "limited to queues mail" in scaling.json()["detail"]


async def test_such_a_key_does_its_work(scoped):
    token = await scoped.key(jobs=["billing-*"])
    id = scoped.ids[OURS]

    for method, path, body, status in (
        ("GET", f"/jobs/{OURS}", None, 200),
        ("GET", f"/jobs/{scoped.jobs[OURS]}/versions", None, 200),
        ("GET", f"/jobs/{OURS}/schedules", None, 200),
        ("GET", f"/executions/{id}", None, 200),
        ("GET", f"/executions/{id}/why", None, 200),
        ("GET", f"/executions/{id}/logs", None, 200),
        ("POST", f"/jobs/{OURS}/trigger", {"args": {}}, 202),
        ("POST", "/executions", [{"job": OURS}, {"job": "billing-tax"}], 202),
        ("POST", f"/jobs/{OURS}/pause", {}, 200),
        ("POST", f"/jobs/{OURS}/resume", {}, 200),
        ("POST", "/executions/cancel", {"filter": {"job_id": OURS}}, 200),
        ("PATCH", f"/jobs/{OURS}", {"description": "changed"}, 200),
        ("POST", "/jobs", {"name": "billing-new", "task": OURS, "dependencies": [OURS]}, 201),
        ("DELETE", "/jobs/billing-new", None, 200),
        ("GET", "/status", None, 200),
    ):
        answer = await scoped.ask(token, method, path, json=body)
        assert answer.status_code == status, (method, path, answer.text)
    told = (await scoped.ask(token, "GET", f"/jobs/{OURS}/warnings?deleting=true")).json()
    assert told["items"] == []  # canary-after needs it, and is out of scope


async def test_bulk_operations_touch_nothing_out_of_scope(scoped):
    token = await scoped.key(jobs=["billing-*"])
    ids = [str(one) for one in scoped.ids.values()]

    for path, body in (
        ("/executions/cancel", {"filter": {}}),
        ("/executions/cancel", {"filter": {"job_id": THEIRS}}),
        ("/executions/retry", {"filter": {"queue": "canary-queue"}}),
        ("/dead-letters/discard", {"filter": {}}),
        ("/dead-letters/retry", {"filter": {}}),
        ("/queues/mail/purge", {}),
        ("/queues/mail/pause", {}),
    ):
        assert (await scoped.ask(token, "POST", path, json=body)).status_code == 403, path
    mixed = await scoped.ask(token, "POST", "/executions", json=[{"job": OURS}, {"job": THEIRS}])
    cancelled = await scoped.ask(token, "POST", "/executions/cancel", json={"ids": ids})

    assert mixed.status_code == 404
    assert cancelled.json() == {"matched": 2, "cancelled": 2, "unknown": 1}
    assert (await scoped.states())[THEIRS] is State.QUEUED


async def test_an_answer_that_another_key_got_is_not_repeated(scoped):
    whole, token = scoped.here.keys[Role.OPERATOR], await scoped.key(jobs=["billing-*"])
    headers = {"Idempotency-Key": "one"}

    first = await scoped.ask(whole, "POST", f"/jobs/{THEIRS}/trigger", headers=headers)
    other = await scoped.ask(token, "POST", f"/jobs/{THEIRS}/trigger", headers=headers)
    own = [
        await scoped.ask(token, "POST", f"/jobs/{OURS}/trigger", headers={"Idempotency-Key": "two"})
        for _ in range(2)
    ]

    assert (first.status_code, other.status_code) == (202, 422)
    assert first.json()["execution_id"] not in other.text
    assert own[0].json() == own[1].json()


async def test_dead_letters_by_id_are_limited_as_well(scoped):
    hands = await claim(scoped.client.store, queues=("canary-queue",))
    await apply(scoped.client.store, hands, death(hands.one))
    token = await scoped.key(jobs=["billing-*"])
    ids = {"ids": [str(scoped.ids[THEIRS])]}

    retried = await scoped.ask(token, "POST", "/dead-letters/retry", json=ids)
    discarded = await scoped.ask(token, "POST", "/dead-letters/discard", json=ids)
    again = await scoped.ask(token, "POST", "/executions/retry", json=ids)

    assert retried.json()["matched"] == discarded.json()["matched"] == again.json()["matched"] == 0
    assert len((await scoped.client.dead_letters()).items) == 1


async def test_a_run_in_scope_shows_its_nodes_and_opens_none_that_is_not(scoped):
    nodes = [{"name": "sum", "job": OURS}, {"name": "pay", "job": THEIRS}]
    await scoped.client.create(
        "billing-all", workflow={"nodes": nodes}, queue="mail", schedule="manual"
    )
    token = await scoped.key(jobs=["billing-*"])

    made = await scoped.ask(token, "POST", "/jobs/billing-all/trigger")
    id = made.json()["execution_id"]

    assert made.status_code == 202
    assert (await scoped.ask(token, "GET", f"/executions/{id}")).status_code == 200
    assert (await scoped.ask(token, "GET", f"/executions/{id}/why")).status_code == 200
    listed = await scoped.ask(token, "GET", f"/executions?workflow_id={id}")
    assert listed.json() == {"items": [], "next_cursor": None}
    theirs = await scoped.ask(token, "GET", f"/executions?workflow_id={scoped.ids[THEIRS]}")
    assert theirs.json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize(
    "definition",
    [
        {"name": THEIRS + "2", "task": OURS},
        {"name": "billing-x", "task": OURS, "queue": "canary-queue"},
        {"name": "billing-x", "task": OURS, "dependencies": [THEIRS], "queue": "mail"},
        {
            "name": "billing-x",
            "workflow": {"nodes": [{"name": "n", "job": THEIRS}]},
            "queue": "mail",
        },
        {"name": "billing-x", "task": THEIRS, "queue": "mail"},
        {"name": "billing-x", "template": "canary-template", "queue": "mail"},
    ],
    ids=["name", "queue", "dependency", "node", "task", "template"],
)
async def test_a_definition_reaches_nothing_out_of_scope(scoped, definition):
    token = await scoped.key(jobs=["billing-*"], queues=["mail"])
    body = {**definition, "schedule": "manual"}
    if "dependencies" in body:
        del body["schedule"]
    whole = (await scoped.client.create_key("whole", role=Role.ADMIN)).token

    created = await scoped.ask(token, "POST", "/jobs", json=body)
    applied = await scoped.ask(token, "PUT", f"/jobs/{body.pop('name')}", json=body)

    assert created.status_code in (403, 404, 422), created.text
    assert applied.status_code in (403, 404, 422), applied.text
    assert "billing-x" not in {one.name for one in (await scoped.client.jobs()).items}
    allowed = await scoped.ask(whole, "POST", "/jobs", json={"name": "billing-x", **body})
    assert allowed.status_code == 201, allowed.text  # so it was the scope


async def test_a_version_that_reaches_out_of_scope_is_not_made_current(scoped):
    await scoped.client.create("billing-x", task=OURS, dependencies=[THEIRS])
    await scoped.client.update("billing-x", dependencies=[], schedule="manual")
    token = await scoped.key(jobs=["billing-*"])

    refused = await scoped.ask(token, "POST", "/jobs/billing-x/rollback", json={"version": 1})

    assert refused.status_code == 422, refused.text
    assert (await scoped.client.job("billing-x")).version == 2


async def test_a_key_of_a_queue_cannot_take_the_job_of_another_queue(scoped):
    token = await scoped.key(queues=["mail"])
    body = {"task": OURS, "queue": "mail"}

    for name in (THEIRS, str(scoped.jobs[THEIRS])):
        applied = await scoped.ask(token, "PUT", f"/jobs/{name}", json=body)
        assert applied.status_code == 403 or name != THEIRS, applied.text
    created = await scoped.ask(
        token, "POST", "/jobs", json={"name": THEIRS, "schedule": "manual", **body}
    )

    assert created.status_code == 403, created.text
    kept = await scoped.client.job(THEIRS)
    assert (kept.version, kept.definition.queue) == (1, "canary-queue")


async def test_a_key_is_limited_to_actions(scoped):
    token = await scoped.key(Role.OPERATOR, actions=["trigger"])
    reader = await scoped.key(Role.ADMIN, actions=["read"])

    assert (await scoped.ask(token, "POST", f"/jobs/{THEIRS}/trigger")).status_code == 202
    assert (await scoped.ask(token, "POST", "/executions", json=[{"job": OURS}])).status_code == 202
    refused = await scoped.ask(token, "GET", "/jobs")
    assert refused.status_code == 403
    assert refused.json()["detail"] == (
        "this key is limited to actions trigger; this takes the action read"
    )
    assert (await scoped.ask(reader, "GET", "/audit")).status_code == 200
    for method, path, operation, _ in scoped.here.operations():
        routes = {one.id: one.action for one in scoped.here.app.router.routes}
        if operation in PUBLIC or routes[operation] is Action.READ:
            continue
        where = address(path, OURS, scoped.ids[OURS], "mail")
        answer = await scoped.ask(reader, method, where, json=BODIES.get(operation, {}))
        assert answer.status_code == 403, operation


async def test_secrets_in_arguments_take_a_key_that_may_define(scoped):
    body = {"args": {"of": {"secret": "CANARY_SECRET"}}}
    trigger = await scoped.key(Role.ADMIN, actions=["trigger"])
    define = await scoped.key(Role.ADMIN, actions=["trigger", "define"])

    refused = await scoped.ask(trigger, "POST", f"/jobs/{OURS}/trigger", json=body)

    assert refused.status_code == 403 and "the action define" in refused.json()["detail"]
    done = await scoped.ask(define, "POST", f"/jobs/{OURS}/trigger", json=body)
    assert done.status_code == 202


async def test_limits_are_given_and_shown_over_http(scoped):
    admin = scoped.here.keys[Role.ADMIN]
    limits = {"jobs": ["billing-*"], "queues": ["mail"], "actions": ["read"]}

    made = await scoped.ask(
        admin, "POST", "/keys", json={"name": "k", "role": "operator", **limits}
    )

    assert made.status_code == 201
    assert {name: made.json()[name] for name in limits} == limits
    shown = (await scoped.ask(admin, "GET", "/keys")).json()["items"]
    assert {name: shown[0][name] for name in limits} == limits
    assert {name: shown[1][name] for name in limits} == dict.fromkeys(limits)
    (entry,) = (await scoped.client.audit(action="key.create", limit=1)).items
    assert entry.after["jobs"] == ["billing-*"]
    token = made.json()["token"]
    assert (await scoped.ask(token, "GET", f"/jobs/{OURS}")).status_code == 200
    assert (await scoped.ask(token, "GET", f"/jobs/{THEIRS}")).status_code == 404
    assert (await scoped.ask(token, "POST", f"/jobs/{OURS}/trigger")).status_code == 403
    for role, wrong, field in (
        ("viewer", {"actions": ["trigger"]}, "actions"),
        ("viewer", {"actions": ["fly"]}, "actions"),
        ("viewer", {"jobs": []}, "jobs"),
        ("viewer", {"jobs": ["a*b"]}, "jobs"),
        ("viewer", {"queues": ["*"]}, "queues"),
        ("worker", {"jobs": ["mail"]}, "jobs"),
        ("worker", {"actions": ["read"]}, "actions"),
    ):
        body = {"name": "k", "role": role, **wrong}
        refused = await scoped.ask(admin, "POST", "/keys", json=body)
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["field"].startswith(field), refused.text
