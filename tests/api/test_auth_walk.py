"""Every operation of the document, asked by everybody: without a key, with each role, and by
somebody of another tenant."""

import re
from uuid import UUID

import pytest

from daybell.core.access import Role
from tests.api.worlds import World, world

# Who may do what. An operation that is not here has been given to nobody on purpose.
NEEDED = {
    Role.VIEWER: {
        "list_jobs", "get_job", "list_job_versions", "get_job_version", "list_executions",
        "list_job_executions", "list_job_schedules",
        "count_executions", "get_execution", "get_execution_logs", "search_logs",
        "explain_execution",
        "explain_job", "explain_queue", "list_limits", "get_limit", "get_job_signature",
        "list_dead_letters", "group_dead_letters", "list_queues", "get_queue_scaling",
        "list_workers",
        "preview_schedule", "preview_any_schedule", "list_upcoming", "list_next",
        "get_stats", "get_series", "get_job_stats", "get_metrics", "get_status", "stream",
        "list_job_warnings",
        "list_templates", "get_template", "list_events", "get_session", "delete_session",
        "create_login", "list_incidents",
    },
    Role.OPERATOR: {
        "trigger_job", "pause_job", "resume_job", "enqueue_executions",
        "cancel_executions", "retry_executions", "cancel_execution", "retry_execution",
        "retry_dead_letters", "discard_dead_letters", "pause_queue", "resume_queue",
        "set_limit", "pause_limit", "resume_limit",
        "purge_queue", "drain_worker", "publish_event", "signal_execution", "approve_execution",
        "silence_alert", "test_alert", "acknowledge_incident", "test_subscription",
    },
    Role.ADMIN: {
        "create_job", "update_job", "delete_job", "rollback_job", "backfill_job", "create_key",
        "list_keys", "revoke_key", "delete_key", "list_audit", "verify_audit", "list_secrets",
        "set_secret", "delete_secret", "apply_job", "create_template", "set_template",
        "delete_template", "create_alert", "list_alerts", "get_alert", "set_alert", "delete_alert",
        "create_subscription", "list_subscriptions", "get_subscription", "update_subscription",
        "delete_subscription", "create_hook", "list_hooks", "rotate_hook", "revoke_hook",
        "list_exports", "hold_export", "release_export",
    },
    Role.SUPERADMIN: {"create_tenant", "list_tenants", "get_tenant", "update_tenant"},
    Role.WORKER: {
        "register_worker", "claim_executions", "renew_lease", "report_results", "report_progress",
        "write_logs", "record_steps", "get_held_details", "begin_run", "leave_lease",
    },
}  # fmt: skip
OPEN = {"healthz", "readyz"}
LOGIN = {"create_session"}  # brings its key in the body
HOOKS = {"receive_hook"}  # brings its token in the path
# They make what is not there, in one's own tenant.
DECLARING = {"hold_export", "apply_job", "set_alert", "set_template", "set_secret"}
HIDDEN = ["/openapi.json", "/docs"]

# Bodies that would do something, for who may.
BODIES = {
    "set_limit": {"limit": 1},
    "create_hook": {"name": "x"},
    "update_job": {"description": "changed"},
    "rollback_job": {"version": 1},
    "backfill_job": {"since": "2026-11-01", "until": "2026-11-02"},
    "update_tenant": {"jobs": 1},
    "signal_execution": {"name": "go"},
    "update_subscription": {"description": "changed"},
}
UNKNOWN = str(UUID(int=7))


def address(path: str, ids: dict[str, str]) -> str:
    """A path with these ids in it."""
    return re.sub(r"\{(\w+)\}", lambda found: ids[_kind(path, found[1])], path)


def _kind(path: str, name: str) -> str:
    if name == "version":
        return name
    noun = path.removeprefix("/api/v1/").partition("/")[0]
    nouns = (
        "job",
        "execution",
        "key",
        "worker",
        "secret",
        "template",
        "alert",
        "incident",
        "subscription",
        "export",
    )
    return next((one for one in nouns if noun == f"{one}s"), noun)


def needed_for(operation: str) -> Role | None:
    """The role that an operation takes; None: none."""
    return next((role for role, names in NEEDED.items() if operation in names), None)


async def test_somebody_has_decided_about_every_operation():
    async with world() as here:
        there_are = {operation for _, _, operation, _ in here.operations()}

    assert there_are == set().union(*NEEDED.values(), OPEN, LOGIN, HOOKS)


async def test_without_a_key_nothing_is_shown_but_health():
    async with world() as here:
        for method, path, operation, _ in here.operations():
            answer = await here.ask(method, address(path, Everything()))
            expected = 200 if operation in OPEN else 422 if operation in LOGIN else 401
            assert answer.status_code == expected, (method, path)
            asks = expected == 401 and operation not in HOOKS
            assert ("www-authenticate" in answer.headers) == asks, (method, path)
        for path in HIDDEN:
            assert (await here.ask("GET", path)).status_code == 401


@pytest.mark.parametrize("role", list(Role))
async def test_each_role_may_what_it_may(role):
    async with world() as here:
        denied = set()
        for method, path, operation, _ in here.operations():
            is_stream = operation == "stream" and role.may(Role.VIEWER)
            if operation in OPEN | LOGIN | HOOKS or is_stream:
                continue
            answer = await here.ask(method, address(path, Everything(here.ids)), here.keys[role])
            if not role.may(needed_for(operation)):
                assert answer.status_code == 403, (method, path)
                denied.add(f"{method} {path}")
            else:
                assert answer.status_code not in (401, 403, 500), (method, path, answer.text)
        for path in HIDDEN:
            expected = 200 if role.may(Role.VIEWER) else 403
            assert (await here.ask("GET", path, here.keys[role])).status_code == expected

        await here.keeper.tick()
        entries = (await here.client.audit(action="access.deny", limit=500)).items
        hidden = set() if role.may(Role.VIEWER) else {f"GET {path}" for path in HIDDEN}
        assert {entry.target for entry in entries} == denied | hidden


async def test_what_another_tenant_has_looks_like_what_does_not_exist():
    async with world() as here:
        before = await state(here)
        walked = 0
        for method, path, operation, said in here.operations():
            if (
                "{" not in path
                or operation in NEEDED[Role.SUPERADMIN] | NEEDED[Role.WORKER] | DECLARING | HOOKS
            ):
                continue
            body = BODIES.get(operation, {} if "requestBody" in said else None)
            answers = []
            by_id = here.ids | {"job": str((await here.client.job("resize")).job_id)}
            unknown = {name: UNKNOWN for name in here.ids}
            for ids in (here.ids, unknown | {"job": "nosuch"}, by_id, unknown):
                where = address(path, Everything(ids))
                answer = await here.ask(method, where, here.foreign, json=body)
                text = answer.text.replace(where, "…")
                for id in ids.values():
                    text = text.replace(id, "…")
                answers.append((answer.status_code, text, sorted(answer.headers)))
            # A job by its name, then by its id, which the answer calls so.
            assert answers[0] == answers[1], (method, path)
            assert answers[2] == answers[3], (method, path)
            assert answers[0][0] == answers[2][0], (method, path)
            if "queues" not in path:  # every tenant has all of those
                assert answers[0][0] == 404, (method, path, answers)
            walked += 1

        assert walked > 15
        assert await state(here) == before


async def test_a_filter_by_what_another_tenant_has_finds_nothing():
    async with world() as here:
        await here.client.enqueue("resize", {"width": 2})
        job = await here.client.job("resize")
        own = here.keys[Role.ADMIN]
        page = await here.ask("GET", "/api/v1/executions?limit=1", own)
        cursor = page.json()["next_cursor"]
        assert cursor is not None

        for query in (
            f"executions?job_id={job.job_id}",
            "executions?job_id=resize",
            f"executions?worker_id={here.ids['worker']}",
            f"executions?cursor={cursor}",
            f"dead-letters?job_id={job.job_id}",
            f"audit?target={job.job_id}",
        ):
            answer = await here.ask("GET", f"/api/v1/{query}", here.foreign)
            assert answer.status_code in (200, 404, 422), query
            assert not answer.json().get("items"), query
            stranger = query.replace(str(job.job_id), UNKNOWN).replace("resize", "nothing")
            stranger = stranger.replace(here.ids["worker"], UNKNOWN)
            unknown = await here.ask("GET", f"/api/v1/{stranger}", here.foreign)
            assert (answer.status_code, answer.json().get("items")) == (
                unknown.status_code, unknown.json().get("items"),
            ), query  # fmt: skip
        for verb in ("cancel", "retry"):
            where = {"filter": {"job_id": str(job.job_id)}}
            answer = await here.ask("POST", f"/api/v1/executions/{verb}", here.foreign, json=where)
            assert answer.status_code in (200, 404), answer.text
            assert answer.json().get("matched", 0) == 0
        assert (await here.client.count()).total == 2
        assert "cancelled" not in (await here.client.count()).executions


@pytest.mark.parametrize("tenant", ["default", "nobody"])
async def test_another_tenant_cannot_be_named_by_who_is_not_a_superadmin(tenant):
    async with world() as here:
        answer = await here.ask("GET", f"/api/v1/jobs?tenant={tenant}", here.foreign)
        allowed = await here.ask("GET", f"/api/v1/jobs?tenant={tenant}", here.keys[Role.SUPERADMIN])

    assert answer.status_code == 403
    assert allowed.status_code == (200 if tenant == "default" else 404)


async def test_a_list_shows_nothing_of_another_tenant():
    lists = ("jobs", "executions", "counts", "dead-letters", "queues", "workers")
    async with world() as here:
        await here.client.store.admin.lead("backfill default", holder=UUID(int=2), lease=60)
        await here.client.store.admin.lead("scheduler", holder=UUID(int=3), lease=60)
        for path in (*lists, "stats", "status", "audit"):
            answer = await here.ask("GET", f"/api/v1/{path}", here.foreign)
            assert answer.status_code == 200, path
            assert "resize" not in answer.text and here.ids["execution"] not in answer.text, path
            assert "backfill" not in answer.text, path
        counts = (await here.ask("GET", "/api/v1/counts", here.foreign)).json()
        assert not any(counts["executions"].values())
        leaders = (await here.ask("GET", "/api/v1/status", here.foreign)).json()["leaders"]
        assert [one["role"] for one in leaders] == ["scheduler"]
        listed = (await here.ask("GET", "/api/v1/keys", here.foreign)).json()
        assert [key["name"] for key in listed["items"]] == ["an admin"]


async def state(here: World) -> list[object]:
    """All that somebody of another tenant must not have changed."""
    page = await here.client.executions()
    return [
        await here.client.job("resize"),
        page.items,
        await here.client.queues(),
        await here.client.workers(),
        [(key.key_id, key.revoked_at) for key in await here.client.keys()],
        (await here.client.audit(limit=100)).items,
        await here.client.secrets(),
        await here.client.templates(),
        await here.client.alerts(),
        (await here.client.incidents()).items,
    ]


class Everything(dict[str, str]):
    """Ids, and something for the rest."""

    def __missing__(self, key: str) -> str:
        return {"queues": "images", "limits": "stripe", "tenants": "default", "version": "1"}.get(
            key, UNKNOWN
        )
