"""How an app's jobs come to the store, and what is said where that goes by another version."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from daybell.client import Client
from daybell.client.superseded import Superseded, described, superseded, traced, way_back
from daybell.core.job import Job, JobDefinition
from daybell.sdk.isolation import here

logger = logging.getLogger("daybell.sdk")


class Declaring:
    """Tells the store of definitions, and remembers those that it does not go by: `superseded`, by
    tenant and name. They are logged, once each.
    """

    def __init__(self) -> None:
        self.superseded: dict[tuple[str, str], Superseded] = {}
        self._is_quiet = False

    @contextmanager
    def quietly(self) -> Generator[None]:
        """Leave it to the caller to say something of `superseded`."""
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False

    async def define(
        self, client: Client, definitions: Sequence[JobDefinition], *, author: str
    ) -> list[Job]:
        """Define these jobs; answers the version of each that is current then."""
        jobs = await client.define_jobs(definitions, author=author)
        found = {
            (one.current.tenant, one.current.name): one for one in superseded(definitions, jobs)
        }
        new = [one for key, one in found.items() if self.superseded.get(key) != one]
        self.superseded |= found
        # What a child logs is its task's, and the worker that has it has said so.
        if new and not self._is_quiet and not here.is_child:
            logger.warning("%s", await warning(client, new))
        return jobs

    async def go_back(self, client: Client, *, author: str) -> list[Job]:
        """Make those that the store did not go by current again, as new versions."""
        mine = [one for (tenant, _), one in self.superseded.items() if tenant == client.tenant]
        definitions = [one.definition for one in mine]
        jobs = await client.define_jobs(definitions, author=author, promote=True)
        for job in jobs:
            del self.superseded[job.tenant, job.name]
        return jobs


async def warning(client: Client, found: Sequence[Superseded]) -> str:
    """What is said to who has definitions that do not count any more."""
    known = await traced(client.store, found)
    jobs = "a job" if len(found) == 1 else f"{len(found):,} jobs"
    return (
        f"this code has an older version of {jobs}, which does not become current by itself:"
        f" {described(known)}. If this code is the one that should count, go"
        f" back with {way_back(known)}"
    )
