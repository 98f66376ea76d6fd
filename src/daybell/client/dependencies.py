"""What a job depends on: other jobs, by name. `core.dependencies` says when they let it run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

from daybell.core.dependencies import Ended, OnFailure, Upstream, any_jobs, is_held_up
from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.instant import to_iso
from daybell.core.job import JobDefinition
from daybell.core.limits import DEPENDENCIES_MAX, check_name
from daybell.core.standing import Standing, WaitsFor
from daybell.core.when.after import Dependency, name_of
from daybell.errors import InvalidName, JobNotFound, UsageError, shown
from daybell.store.protocol import Store

__all__ = [
    "Dependencies",
    "Dependency",
    "check_dependencies",
    "read_dependencies",
    "read_fired_by",
    "read_on_failure",
    "waits_for",
]


class Dependencies:
    """The verb of `Client` for what executions wait for."""

    store: Store
    tenant: str

    async def held_up_by(self, execution: Execution) -> list[tuple[str, str]]:
        """The jobs that keep an execution of a schedule waiting as things are now, each with how it
        stands, in words.
        """
        definition = (await self.store.get_job(self.tenant, execution.job)).definition
        at = execution.run_at if execution.scheduled_for is None else execution.scheduled_for
        asked = [(name, at) for name in definition.dependencies]
        policy = definition.on_dependency_failure
        found = zip(asked, await self.store.upstream(self.tenant, asked), strict=True)
        held = [(name, one) for (name, _), one in found if is_held_up(policy, one)]
        return [(name, await self._words_of(name, one)) for name, one in held]

    async def _words_of(self, name: str, one: Upstream) -> str:
        if one == Upstream():  # nothing is known of it
            try:
                await self.store.get_job(self.tenant, name)
            except JobNotFound:
                return "there is no such job any more; create it, or depend on it no longer"
        return _words(one)


async def waits_for(store: Store, tenant: str, standing: Standing) -> tuple[WaitsFor, ...]:
    """How each dependency of a job stands: whether it has succeeded since the job was fired last,
    or, of one with times of its own, as its latest execution stands.
    """
    names = standing.job.definition.dependencies
    if not names:
        return ()
    following = [one for one in standing.schedules if one.since is not None]
    after = next((one for one in following if not any_jobs((one.rule,))), None)
    if after is None or after.since is None:
        now = (await store.health()).now
        stand = await store.upstream(tenant, [(name, now) for name in names])
        return tuple(
            WaitsFor(name, one.state is State.SUCCEEDED, str(one.state or "it has not run yet"))
            for name, one in zip(names, stand, strict=True)
        )
    ended = await store.ended_since(tenant, [(name, after.since) for name in names])
    # What ended before belongs to a round that is over: it may well have succeeded then.
    is_first = not after.fired and not after.skipped
    when = "yet" if is_first else f"since this job was fired last, at {to_iso(after.since)}"
    return tuple(_told(name, one, when) for name, one in zip(names, ended, strict=True))


def _told(name: str, one: Ended, when: str) -> WaitsFor:
    if one.succeeded_at is not None:
        return WaitsFor(name, True, f"succeeded at {to_iso(one.succeeded_at)}")
    not_met = f"has not succeeded {when}"
    if one.state is None:
        return WaitsFor(name, False, not_met)
    then = "; retry it, or let it run again" if one.state is State.DEAD else ""
    return WaitsFor(name, False, f"{not_met}, its last one is {one.state}{then}")


def _words(one: Upstream) -> str:
    if one.is_behind:
        return "its schedule is still to fire"
    if one.state is None:
        failed = "what it did since has failed; retry it, or let it run again"
        return failed if one.has_newer_failure else "it has not run yet"
    if one.state in TERMINAL:
        return f"{one.state}; retry it, or let it run again"
    return str(one.state)


def read_dependencies(value: object, *, job: str, after: Iterable[str] = ()) -> tuple[str, ...]:
    """The names of the jobs that a job depends on, with those that it runs after; one that is said
    twice counts once.
    """
    if value is None:
        value = ()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise UsageError(
            f'dependencies {shown(value)} must be a list of names, such as ["extract"]',
            field="dependencies",
        )
    given = [*cast("Sequence[Any]", value), *after]
    if len(given) > DEPENDENCIES_MAX:
        raise UsageError(
            f"{len(given):,} dependencies are too many; the limit is {DEPENDENCIES_MAX:,}",
            field="dependencies",
        )
    try:
        names = tuple(dict.fromkeys(check_name(name_of(one), what="job") for one in given))
    except InvalidName as error:
        raise UsageError(f"dependencies: {error}", field="dependencies") from None
    if job in names:
        raise UsageError(f"job {shown(job)} cannot depend on itself", field="dependencies")
    return names


def read_fired_by(schedules: Sequence[str], *, job: str) -> tuple[str, ...]:
    """Read the names of the jobs of which any fires a job, from its schedules as JSON."""
    names = any_jobs(schedules)
    if job in names:
        raise UsageError(f"job {shown(job)} cannot be fired by itself", field="schedule")
    return names


def read_on_failure(
    value: str, dependencies: Sequence[str], *, fired_by: Sequence[str] = ()
) -> OnFailure:
    """What becomes of a job when one that it depends on has failed. Where there are none it is
    refused: whoever wrote it believes that it does something. Jobs of which any fires it do so
    when they succeed; with "run", also when they fail.
    """
    if value not in tuple(OnFailure):
        raise UsageError(
            f"on_dependency_failure {shown(value)} is not one of {', '.join(OnFailure)}",
            field="on_dependency_failure",
        )
    policy = OnFailure(value)
    is_of_any = bool(fired_by) and policy is OnFailure.RUN
    if policy is not OnFailure.WAIT and not dependencies and not is_of_any:
        raise UsageError(
            f"on_dependency_failure={policy} is for a job that depends on others, and this one has"
            ' no dependencies; add them, as in dependencies=["extract"], or leave it out',
            field="on_dependency_failure",
        )
    return policy


async def check_dependencies(
    store: Store,
    tenant: str,
    definition: JobDefinition,
    *,
    beside: Iterable[JobDefinition] = (),
    is_dry: bool = False,
) -> None:
    """Refuse dependencies that do not exist, or that lead back to the job itself, and the same of
    jobs of which any fires it. Those `beside` it are defined together with it. If it is only
    tried, jobs of which any fires it need not be there.

    What others define at the same moment is not seen.
    """
    named = definition.dependencies if is_dry else definition.upstream
    if not named:
        return  # as it is with most, and an app has many
    together = {one.name: one for one in beside}
    paths: dict[str, tuple[str, ...]] = {}  # how each was come to
    missing: list[str] = []
    waiting = [(name, (definition.name,)) for name in named]
    while waiting:
        name, before = waiting.pop()
        if name in paths:
            continue
        paths[name] = (*before, name)
        if name == definition.name:
            raise UsageError(
                f"dependencies lead in a circle: {' -> '.join(map(shown, paths[name]))}",
                field="dependencies",
            )
        found = together.get(name)
        if found is None:
            try:
                found = (await store.get_job(tenant, name)).definition
            except JobNotFound:
                if len(before) == 1:  # others were deleted since, and are their job's concern
                    missing.append(name)
                continue
        waiting += [(other, paths[name]) for other in found.upstream]
    if missing:
        raise _missing(definition, [name for name in named if name in missing])


def _is_id(name: str) -> bool:
    with suppress(ValueError):
        return bool(UUID(name))
    return False


def _missing(definition: JobDefinition, names: Sequence[str]) -> UsageError:
    is_one = len(names) == 1
    jobs = "is no job" if is_one else "are no jobs"
    ids = [name for name in names if _is_id(name)]
    named = [name for name in names if name not in ids]
    which = [f"named {', '.join(map(shown, named))}"] if named else []
    which += [f"with the id {', '.join(ids)}"] if ids else []
    return UsageError(
        f"there {jobs} {' or '.join(which)} to depend on, as"
        f" {shown(definition.name)} does; create {'it' if is_one else 'them'} first",
        field="dependencies" if names[0] in definition.dependencies else "schedule",
    )
