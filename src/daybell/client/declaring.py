"""Jobs as files declare them: all that a job is, as a request that would make it again, and what
has changed between two of those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Unpack, cast

import msgspec

from daybell.client.definitions import Definitions, check_version
from daybell.client.dependencies import check_dependencies
from daybell.client.fields import JobFields
from daybell.client.kinds import is_by_code, said_of
from daybell.client.warnings import warnings_about
from daybell.core import payload
from daybell.core.duration import format_duration
from daybell.core.instant import Seconds
from daybell.core.job import Job, JobDefinition
from daybell.errors import DuplicateKey, InvalidSchedule, JobNotFound, VersionConflict, shown

CREATED: Final = "created"
CHANGED: Final = "changed"
UNCHANGED: Final = "unchanged"

# Said of a job that runs a task even where it is as usual: left out, they are as the task has them.
_ALWAYS_OF_TASKS: Final = (
    "queue", "priority", "retries", "timeout", "expires", "max_crashes", "on_lost", "store_result",
)  # fmt: skip
# A task may have a limit, and a job of it none.
_NONE_IS_NONE: Final = ("timeout", "expires")


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What declaring a job has done, or would do."""

    action: str  # created, changed or unchanged
    before: dict[str, Any] | None  # the request for what it was; None: there was none
    after: dict[str, Any]
    job: Job | None  # None: in a dry run it does not exist
    warnings: list[str]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A field that is not as it was. What was not said, or is no longer, is UNSET."""

    field: str  # by its path: "schedule", "http.headers.Accept"
    before: Any = msgspec.UNSET
    after: Any = msgspec.UNSET


def request_of(definition: JobDefinition) -> dict[str, Any]:
    """The request that would make this job: its name and its fields, without what is as usual.

    Applying it gives an equal definition. Of a job that runs a task, what could come from the task
    is always said.
    """
    fields = _fields_of(definition)
    usual = _fields_of(JobDefinition(name=definition.name))
    always = _ALWAYS_OF_TASKS if definition.kind == "task" else ()
    if fields["backoff"] != usual["backoff"]:
        always = (*always, "retries")  # else as many as there are waits
    rest = {name: value for name, value in fields.items() if value != usual[name] or name in always}
    return {"name": definition.name, **said_of(definition), **rest}


def _fields_of(definition: JobDefinition) -> dict[str, Any]:
    """All fields of a request but what the job runs, in the order of reading."""
    retry = payload.decode(definition.retry.to_json())
    retries = retry.pop("retries")
    rules = [payload.decode(text) for text in definition.schedules]
    return {
        "args": payload.decode(definition.args),
        "schedule": _schedule_of(rules),
        "description": definition.description,
        "queue": definition.queue,
        "priority": definition.priority.label,
        "retries": retries,
        "backoff": retry,
        "timeout": _duration(definition.timeout),
        "expires": _duration(definition.expires),
        "max_crashes": definition.max_crashes,
        "on_lost": definition.on_lost,
        "store_result": definition.store_result,
        "user_id": definition.user_id,
        "overlap": None if definition.overlap is None else str(definition.overlap),
        "misfire": payload.decode(definition.misfire or "{}"),
        "pause_after_failures": definition.pause_after_failures,
        "dependencies": list(definition.dependencies),
        "on_dependency_failure": str(definition.on_dependency_failure),
        "made_from": payload.decode(definition.template or "null"),
        "source": definition.source,
    }


def _duration(seconds: Seconds | None) -> str | None:
    return None if seconds is None else format_duration(seconds)


def _schedule_of(rules: list[dict[str, Any]]) -> Any:
    """Schedules as people would write them: one by itself, and a cron expression as text."""
    plain = [rule["cron"] if rule.keys() == {"cron"} else rule for rule in rules]
    return None if not plain else plain[0] if len(plain) == 1 else plain


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differs between two requests, field by field. Objects are gone into, lists are not."""
    return list(_differences(before, after, ""))


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[Change]:
    found: list[Change] = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, msgspec.UNSET), after.get(name, msgspec.UNSET)
        where = f"{path}.{name}" if path else name
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
            found += _differences(*inner, where)
        elif not is_same(old, new):
            found.append(Change(field=where, before=old, after=new))
    return found


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same as JSON: 1 is not true, and the order of keys is nothing."""
    if one is msgspec.UNSET or other is msgspec.UNSET:
        return one is other
    return _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)  # takes half a surrogate pair, too


class Declarations(Definitions):
    """The verb of `Client` for jobs that files declare, beside those for definitions by hand."""

    async def apply_job(
        self,
        name: str,
        *,
        author: str = "",
        expect: int | None = None,
        dry_run: bool = False,
        **fields: Unpack[JobFields],
    ) -> Applied:
        """Make a job be what is said here, and nothing else. Without a schedule it never runs by
        itself. One that is like that already is left alone.

        With `expect`, it must be at that version; 0 is for a name that must be new. A job that code
        defines is refused.
        """
        said = cast("JobFields", declared(fields))
        how: dict[str, Any] = {"what": "apply_job()", "is_dry": dry_run}
        definition = await self.definition_of(name, said, is_new=False, **how)
        there, version = await self._there(definition.name)
        if expect is not None and there is None and expect != 0:
            raise VersionConflict(f"there is no job named {shown(name)}, at no version")
        if there is not None:
            check_version(there, expect)
            if is_by_code(there.definition):
                raise DuplicateKey(
                    f"job {shown(name)} is defined by code, which says what it is; take another"
                    " name"
                )
        before = None if there is None else request_of(there.definition)
        after = request_of(definition)
        warnings = await warnings_about(self.store, self.tenant, definition)
        if before is not None and is_same(before, after):
            return Applied(
                action=UNCHANGED, before=before, after=after, job=there, warnings=warnings
            )
        if there is None or there.definition.schedules != definition.schedules:
            definition = await self.definition_of(name, said, **how)
        await check_dependencies(self.store, self.tenant, definition, is_dry=dry_run)
        job = there
        if not dry_run:
            (job,) = await self.define_jobs(
                [definition], author=author, expect=version, promote=True
            )
        action = CREATED if before is None else CHANGED
        return Applied(action=action, before=before, after=after, job=job, warnings=warnings)

    async def _there(self, name: str) -> tuple[Job | None, int]:
        """The job as it is now, and the version that a change follows."""
        try:
            job = await self.store.get_job(self.tenant, name)
            return job, job.version
        except JobNotFound:
            pass
        try:
            page = await self.store.list_versions(self.tenant, name, limit=1)
            return None, page.items[0].version
        except JobNotFound:
            return None, 0


def declared(fields: JobFields) -> dict[str, Any]:
    """What is declared, without what says nothing. What would be something else each time that it
    is declared is refused.
    """
    schedule = fields.get("schedule")
    given = cast("list[Any]", schedule if isinstance(schedule, list | tuple) else [schedule])
    for one in given:
        if isinstance(one, Mapping) and "delay" in one:
            raise InvalidSchedule(
                "a delay counts from now, so it would be another time whenever this is applied;"
                " give a time with at",
                field="schedule",
            )
    return {
        name: value for name, value in fields.items() if value is not None or name in _NONE_IS_NONE
    }


def changes_between(before: Job | None, after: Job) -> list[Change]:
    """What a version of a job says otherwise than the one before it; of the first, nothing."""
    if before is None:
        return []
    return changes(request_of(before.definition), request_of(after.definition))
