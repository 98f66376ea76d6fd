"""Between the names of jobs, which executions carry, and their ids, which callers may use."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from daybell.api.caller import Caller
from daybell.client import wire
from daybell.client.requests import id_in
from daybell.core.execution import Execution

KNOWN_MAX: Final = 10_000
KNOWN_SECONDS: Final = 600.0


class JobIds:
    """Ids of jobs by name. A job keeps its id, a deleted one that comes back too; a name gets
    another id only long after its job was removed. So they are remembered for a while.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._until = 0.0

    async def of(self, caller: Caller, names: Iterable[str]) -> dict[str, str]:
        """The ids of these jobs."""
        wanted = set(names)
        now = asyncio.get_running_loop().time()
        if now > self._until:
            self._known.clear()
            self._until = now + KNOWN_SECONDS
        place = caller.tenant
        known = {name: self._known[place, name] for name in wanted if (place, name) in self._known}
        if len(known) < len(wanted):
            for name, id in (await caller.client.job_ids(wanted - known.keys())).items():
                known[name] = self._known[place, name] = str(id)
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return known


async def told(
    ids: JobIds, caller: Caller, executions: Iterable[Execution]
) -> list[dict[str, Any]]:
    """Executions as answers have them: with the ids of their jobs."""
    found = list(executions)
    known = await ids.of(caller, (one.job for one in found))
    return [{**wire.execution(one), "job_id": known[one.job]} for one in found]


async def name_of(caller: Caller, job: str | None) -> str | None:
    """The name of a job that is given by its id or name; an unknown id raises JobNotFound."""
    if job is None or id_in(job) is None:
        return job
    return (await caller.client.standing(job)).job.name
