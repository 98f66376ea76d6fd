"""What a job depends on: other jobs, by name.

They are recorded only. What they do, and that one job waits for another, comes with workflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from daybell.core.job import JobDefinition
from daybell.core.limits import DEPENDENCIES_MAX, check_name
from daybell.errors import InvalidName, JobNotFound, UsageError, shown
from daybell.store.protocol import Store


def read_dependencies(value: object, *, job: str) -> tuple[str, ...]:
    """The names of the jobs that a job depends on; one that is said twice counts once."""
    if value is None:
        return ()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise UsageError(
            f'dependencies {shown(value)} must be a list of names, such as ["extract"]',
            field="dependencies",
        )
    given = cast("Sequence[Any]", value)
    if len(given) > DEPENDENCIES_MAX:
        raise UsageError(
            f"{len(given):,} dependencies are too many; the limit is {DEPENDENCIES_MAX:,}",
            field="dependencies",
        )
    try:
        names = tuple(dict.fromkeys(check_name(name, what="job") for name in given))
    except InvalidName as error:
        raise UsageError(f"dependencies: {error}", field="dependencies") from None
    if job in names:
        raise UsageError(f"job {shown(job)} cannot depend on itself", field="dependencies")
    return names


async def check_dependencies(store: Store, tenant: str, definition: JobDefinition) -> None:
    """Refuse dependencies that do not exist, or that lead back to the job itself.

    What others define at the same moment is not seen.
    """
    paths: dict[str, tuple[str, ...]] = {}  # how each was come to
    waiting = [(name, (definition.name,)) for name in definition.dependencies]
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
        try:
            found = (await store.get_job(tenant, name)).definition
        except JobNotFound:
            if len(before) > 1:
                continue  # of a job that was deleted since; its own concern
            raise UsageError(
                f"there is no job named {shown(name)} to depend on; create it first",
                field="dependencies",
            ) from None
        waiting += [(other, paths[name]) for other in found.dependencies]
