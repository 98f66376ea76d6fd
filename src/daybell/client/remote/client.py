"""The client of a server instead of a database, with its verbs for keys, tenants, the audit log and
secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, TypeAlias, Unpack, cast

import msgspec
from msgspec.structs import replace

from daybell.client.admin import (
    check_value,
    read_quotas,
    read_role,
    read_scope,
    require_secret_name,
)
from daybell.client.client import Client
from daybell.client.declarations import ApplyOutcome, normalize_fields, read_template
from daybell.client.jobs import JobFields
from daybell.client.remote import messages
from daybell.client.remote.executions import Events, Executions, ExecutionsByFilter, Logs, Overviews
from daybell.client.remote.transport import Transport, build_path
from daybell.client.requests import (
    EnqueueOptions,
    Id,
    JobFilters,
    Status,
    Time,
    read_bound,
    read_id,
    read_job_status,
    read_limit,
    read_text,
    read_whole,
    read_word,
)
from daybell.client.schedules import Backfill
from daybell.client.when import Arguments
from daybell.core.access import AuditCheck, AuditEntry, Key, Role, Secret, Tenant
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.ids import mint
from daybell.core.job import DELETED, Job, JobStatus, Template
from daybell.core.limits import (
    BACKFILL_CONCURRENCY_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    PAUSE_NOTE_CHARS_MAX,
    check_name,
)
from daybell.core.references import check_secret_name
from daybell.core.schedule import Schedule
from daybell.core.units import Duration, from_iso, to_iso
from daybell.core.views import Page, read_pages
from daybell.core.when.cursor import Only, Order
from daybell.errors import InvalidName, JobNotFound, TenantNotFound, UsageError, shown

# Keys, tenants and the audit log, over HTTP.


class Access:
    """The verbs of `Client` for who may do what, how much of it, and who did."""

    transport: Transport

    async def create_key(
        self,
        name: str,
        *,
        role: Role | str,
        expires: Duration | None = None,
        created_by: str = "",
        jobs: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
    ) -> tuple[Key, str]:
        """Make a key; answers it with its token, which is shown this once.

        Who has made it is whoever has the key that this is sent with.
        """
        body = {
            "name": check_name(name, what="key"),
            "role": str(read_role(role)),
            "expires": read_limit(expires, "expires"),
        }
        given = {"jobs": jobs, "queues": queues, "actions": actions}
        read_scope(role, **given)
        body |= {name: list(value) for name, value in given.items() if value is not None}
        # Not sent again: a server that kept the answer for that would keep a secret.
        return await self.transport.post("/keys", body, read=_with_token)

    async def keys(self) -> list[Key]:
        """The tenant's keys, newest first; revoked and expired ones too."""
        return await messages.whole(self.transport, "/keys", messages.key)

    async def revoke_key(self, id: Id) -> Key:
        """Let a key open nothing any more."""
        path = build_path("keys", read_id(id), "revoke")
        return await self.transport.post(path, read=messages.key)

    async def tenants(self) -> list[Tenant]:
        """All tenants with their quotas, by name."""
        return await messages.whole(self.transport, "/tenants", messages.tenant)

    async def tenant_record(self, name: str) -> Tenant:
        """A tenant with its quotas."""
        return await self.transport.get(_tenant_path(name), read=messages.tenant)

    async def add_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Create a tenant. One that exists is refused."""
        read_quotas(quotas)
        body = {"name": check_name(name, what="tenant"), **quotas}
        return await self.transport.post("/tenants", body, read=messages.tenant)

    async def update_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Change a tenant's quotas; those that are not named stay, None is no limit."""
        read_quotas(quotas)
        return await self.transport.patch(_tenant_path(name), quotas, read=messages.tenant)

    async def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        """Entries of the audit log, newest first."""
        asked = {
            "actor": actor,
            "action": action,
            "target": target,
            "since": None if since is None else messages.encode_time(since),
            "until": None if until is None else messages.encode_time(until),
            "limit": limit,
            "cursor": cursor,
        }
        return await self.transport.get("/audit", asked, read=messages.page_of(messages.entry))

    async def verify_audit(
        self, *, limit: int = PAGE_ITEMS_MAX, cursor: str | None = None
    ) -> AuditCheck:
        """Check the hashes of up to `limit` entries of the audit log, oldest first."""
        asked = {"limit": limit, "cursor": cursor}
        return await self.transport.get("/audit/verify", asked, read=messages.audit_check)


def _with_token(of: messages.Wire) -> tuple[Key, str]:
    return messages.key(of), str(of["token"])


def _tenant_path(name: str) -> str:
    """Where a tenant is. What cannot be a name is nobody's: a slash in it would lead astray."""
    try:
        return build_path("tenants", check_name(name, what="tenant"))
    except InvalidName:
        raise TenantNotFound(f"no tenant named {shown(name)}") from None


# Secrets over HTTP: the server seals them, and answers no value.


class Secrets:
    """The verbs of `Client` for secrets."""

    transport: Transport

    async def set_secret(self, name: str, value: str, *, author: str = "") -> Secret:
        """Keep a secret; one of the same name is replaced. The server has the key that seals it,
        and its author is whoever has the API key.
        """
        path = build_path("secrets", check_secret_name(name))
        return await self.transport.put(path, {"value": check_value(value)}, read=_secret)

    async def secrets(self) -> list[Secret]:
        """The tenant's secrets by name, without their values."""
        return await messages.whole(self.transport, "/secrets", _secret)

    async def delete_secret(self, name: str) -> None:
        """Forget a secret; what refers to it fails from then on. Raises SecretNotFound."""
        path = build_path("secrets", require_secret_name(name))
        await self.transport.delete(path, read=lambda _: None)


def _secret(of: messages.Wire) -> Secret:
    return Secret(
        name=of["name"],
        tenant=of["tenant"],
        key_id=of["key_id"],
        version=of["version"],
        created_at=from_iso(of["created_at"]),
        updated_at=from_iso(of["updated_at"]),
        author=of["author"],
    )


# Jobs and templates over HTTP.


LOOKS_MAX = 8  # jobs that are looked at together


class Jobs:
    """The verbs of `Client` for jobs."""

    transport: Transport

    async def jobs(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **where: Unpack[JobFilters],
    ) -> Page[Job]:
        """Jobs by name."""
        found = await self.standings_page(limit=limit, cursor=cursor, **where)
        return Page(items=tuple(one.job for one in found.items), next_cursor=found.next_cursor)

    async def standings_page(
        self,
        *,
        status: Status | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **where: Unpack[JobFilters],
    ) -> Page[JobStatus]:
        """How jobs stand, by name. With a status, a page may be short and not the last one."""
        asked = {
            "prefix": where.get("prefix") or None,
            "q": where.get("text"),
            "user_id": where.get("user_id"),
            "queue": where.get("queue"),
            "status": None if status is None else sorted(read_job_status(status)),
            "limit": limit,
            "cursor": cursor,
        }
        return await messages.complete_page(self.transport, "/jobs", messages.standing, asked)

    async def standings(self, jobs: Iterable[Job]) -> list[JobStatus]:
        """How jobs in hand stand now."""
        limit = asyncio.Semaphore(LOOKS_MAX)

        async def look(job: Job) -> JobStatus:
            async with limit:
                return replace(await self.standing(job.name), job=job)

        return await asyncio.gather(*map(look, jobs))

    async def standing(self, job: str) -> JobStatus:
        """How a job stands, a deleted one too: its status, and when it runs next."""
        return await self.transport.get(_job_path(job), read=messages.standing)

    async def job(self, name: str, *, version: int | None = None) -> Job:
        """A job, at its current version or the one asked for."""
        if version is None:
            found = await self.versions_page(name, limit=1)
            return found.items[0]
        return await self.transport.get(
            _job_path(name, "versions", str(version)), read=messages.job
        )

    async def versions_page(
        self, name: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[Job]:
        """Versions of a job, newest first."""
        asked = {"limit": limit, "cursor": cursor}
        path = _job_path(name, "versions")
        return await messages.complete_page(self.transport, path, messages.job, asked)

    async def versions(self, name: str) -> list[Job]:
        """All versions of a job, newest first."""
        read = partial(self.versions_page, name, limit=PAGE_ITEMS_MAX)
        return [job async for page in read_pages(lambda at: read(cursor=at)) for job in page]

    async def create(self, name: str, *, author: str = "", **fields: Unpack[JobFields]) -> Job:
        """Make a job. One of `task`, `command`, `http`, `sql`, `notify` and `template` says what it
        runs; without a schedule it runs when it is triggered. Its author is whoever has the key.
        """
        said = messages.encode_definition(name, fields, "create()")
        if not await self._is_scheduled(said):
            said["schedule"] = "manual"  # left out, it would mean once and now
        body = {**said, "name": check_name(name, what="job")}
        made = await self.transport.post("/jobs", body, once=True, read=messages.standing)
        return made.job

    async def launch(
        self, name: str, run: NewExecution, *, author: str = "", **fields: Unpack[JobFields]
    ) -> tuple[Job, Enqueued]:
        """Make a job without a schedule as `create` does, and have it run: both or neither. Of the
        execution, its arguments and its unique key count; the rest is as the job says.
        """
        given = {key: value for key, value in fields.items() if key != "schedule" or value}
        said = messages.encode_definition(name, cast("JobFields", given), "launch()")
        if await self._is_scheduled(said):
            raise UsageError("what is launched runs once, without a schedule", field="schedule")
        body = {
            **said,
            "name": check_name(name, what="job"),
            "args": msgspec.Raw((run.args or "{}").encode()),
            "unique_key": run.unique_key,
        }
        return await self.transport.post("/jobs", body, once=True, read=messages.launched)

    async def _is_scheduled(self, said: messages.Body) -> bool:
        """Whether a job has a schedule or runs after others, by itself or by its template."""
        is_said = "schedule" in said or bool(said.get("dependencies"))
        if is_said or said.get("template") is None:
            return is_said
        template = await self.transport.get(
            build_path("templates", check_name(said["template"], what="template")),
            read=messages.template,
        )
        job = template.template.job
        return job.get("schedule") is not None or bool(job.get("dependencies"))

    async def update(
        self,
        name: str,
        *,
        author: str = "",
        expect: int | None = None,
        **fields: Unpack[JobFields],
    ) -> Job:
        """Change what is said of a job; all else stays. Answers its new version.

        With `expect`, only if it is at that version still.
        """
        body = messages.encode_definition(name, fields, "update()", is_change=True)
        path = _job_path(name)
        changed = await self.transport.patch(path, body, version=expect, read=messages.standing)
        return changed.job

    async def apply_job(
        self,
        name: str,
        *,
        author: str = "",
        expect: int | None = None,
        dry_run: bool = False,
        **fields: Unpack[JobFields],
    ) -> ApplyOutcome:
        """Make a job be what is said here, and nothing else. Without a schedule it never runs by
        itself. One that is like that already is left alone.
        """
        said = messages.encode_definition(
            name, cast("JobFields", normalize_fields(fields)), "apply_job()"
        )
        path = build_path("jobs", check_name(name, what="job"))
        how: dict[str, Any] = {"parameters": {"dry_run": "true" if dry_run else None}}
        return await self.transport.put(path, said, version=expect, read=messages.applied, **how)

    async def warnings(self, job: str, *, deleting: bool = False) -> list[str]:
        """What looks wrong with a job as things are now, in sentences for people; or, of one that
        is to be deleted or was, what goes wrong without it.
        """
        read = messages.items_of(str)
        asked = {"deleting": "true"} if deleting else {}
        return await self.transport.get(_job_path(job, "warnings"), asked, read=read)

    async def rollback(
        self, name: str, version: int, *, author: str = "", expect: int | None = None
    ) -> Job:
        """Make an older version the current one again, as a new version."""
        path = _job_path(name, "rollback")
        changed = await self.transport.post(
            path, {"version": version}, version=expect, read=messages.standing
        )
        return changed.job

    async def delete_job(self, name: str, *, expect: int | None = None, force: bool = False) -> int:
        """Delete a job and cancel its unfinished executions; answers how many."""
        asked = {"force": "true"} if force else None
        return await self.transport.delete(
            _job_path(name), version=expect, parameters=asked, read=messages.cancelled
        )

    async def pause(self, job: str, note: str = "") -> None:
        """Let a job's schedules fire no more until it is resumed. It can still be triggered."""
        if len(read_text(note, "note")) > PAUSE_NOTE_CHARS_MAX:
            raise UsageError(
                f"note has {len(note):,} characters; the limit is {PAUSE_NOTE_CHARS_MAX}",
                field="note",
            )
        path = _job_path(job, "pause")
        await self.transport.post(path, {"note": note}, read=messages.standing)

    async def resume(self, job: str) -> None:
        """Let a job's schedules fire again, from now on."""
        await self.transport.post(_job_path(job, "resume"), read=messages.standing)

    async def schedules(self, job: str) -> list[Schedule]:
        """The schedules of a job, by name."""
        found = await self.standing(job)
        if found.status == DELETED:
            raise JobNotFound(f"no job named {shown(job)}")
        return list(found.schedules)

    async def trigger(
        self,
        job: str,
        args: Arguments | None = None,
        *,
        unique_key: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Enqueued:
        """Run a job now. Without arguments it is called as its schedules would do it.

        Raises ExecutionInTheWay if its overlap rule does not let it in; `force=True` does.
        """
        body = messages.encode_execution(
            job, args, unique_key=unique_key, what="trigger()", **options
        )
        path = _job_path(job, "trigger")
        return await self.transport.post(path, body, once=True, read=messages.enqueued)

    async def backfill(
        self,
        job: str,
        since: Time,
        until: Time,
        *,
        only: Literal["missing", "failed", "all"] = "missing",
        concurrency: int = 1,
        order: Literal["oldest", "newest"] = "oldest",
        dry_run: bool = False,
    ) -> Backfill:
        """Run a job for ticks of its schedules from `since` to before `until`, as they are now."""
        body = {
            "since": to_iso(read_bound(since, "since")),
            "until": to_iso(read_bound(until, "until")),
            "only": str(read_word(only, tuple(Only), "only")),
            "order": str(read_word(order, tuple(Order), "order")),
            "concurrency": read_whole(
                concurrency, "concurrency", least=1, most=BACKFILL_CONCURRENCY_MAX
            ),
            "dry_run": dry_run,
        }
        path = _job_path(job, "backfill")
        read = partial(messages.backfill, none=mint())
        return await self.transport.post(path, body, once=not dry_run, read=read)

    async def job_named(self, id_or_name: Id) -> Job:
        """A job by its id, or by its name."""
        return await self.job(str(id_or_name))


def _job_path(name: str, *verb: str) -> str:
    """Where a job is. What cannot be a name is no job's: a slash in it would lead astray."""
    try:
        check_name(name, what="job")
    except InvalidName:
        raise JobNotFound(f"no job named {shown(name)}") from None
    return build_path("jobs", name, *verb)


# Templates over HTTP.


class Templates:
    """The verbs of `Client` for templates."""

    transport: Transport

    async def set_template(
        self, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
    ) -> Template:
        """Keep a template: an object with `name`, `parameters` and `job`. One of the same name is
        replaced. Its author is whoever has the key.

        With `expect`, it must be at that version; 0 is for a name that must be new.
        """
        name = read_template(value).name
        if expect == 0:
            return await self.transport.post("/templates", value, once=True, read=messages.template)
        return await self.transport.put(
            _template_path(name), value, version=expect, read=messages.template
        )

    async def template(self, name: str) -> Template:
        """A template. Raises TemplateNotFound."""
        return await self.transport.get(_template_path(name), read=messages.template)

    async def templates_page(
        self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[Template]:
        """Templates, by name."""
        asked = {"limit": limit, "cursor": cursor}
        return await messages.complete_page(self.transport, "/templates", messages.template, asked)

    async def templates(self) -> list[Template]:
        """All templates, by name."""
        pages = read_pages(lambda at: self.templates_page(limit=PAGE_ITEMS_MAX, cursor=at))
        return [one async for page in pages for one in page]

    async def delete_template(self, name: str, *, expect: int | None = None) -> None:
        """Remove a template. Jobs that were made from it stay."""
        await self.transport.delete(_template_path(name), version=expect, read=lambda _: None)


def _template_path(name: str) -> str:
    return build_path("templates", check_name(name, what="template"))


class RemoteClient(
    Jobs, Templates, Executions, Events, Overviews, ExecutionsByFilter, Logs, Access, Secrets
):
    """A tenant's jobs, executions, queues and workers, by way of a `daybell server`.

    It has the verbs of `Client` that a server offers, with the same answers and errors. The key
    decides whose jobs these are; a superadmin's may name another tenant. Entering it connects to
    nobody yet; leaving it closes the connections that were made.
    """

    def __init__(self, url: str, *, key: str | None = None, tenant: str | None = None) -> None:
        self.tenant = None if tenant is None else check_name(tenant, what="tenant")
        self.transport = Transport(url, key=key, tenant=self.tenant)

    @property
    def place(self) -> str:
        """The server, for messages."""
        return self.transport.place

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()


AnyClient: TypeAlias = Client | RemoteClient
