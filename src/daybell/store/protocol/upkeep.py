"""The upkeep port: leadership, retention, health, and gates."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from daybell.core.schedule import Miscount
from daybell.core.units import Instant, Seconds
from daybell.core.views import Health, Removed, Retention
from daybell.core.worker import Leadership


class Upkeep(Protocol):
    """What one node does for all."""

    async def lead(
        self, name: str, *, holder: UUID, lease: Seconds, since: Instant | None = None
    ) -> Leadership | None:
        """Take or keep the leadership of that name. None: another holder's lease lasts. A new
        holder gets a higher epoch.

        `since` is when the asker came up, by the store's clock. If nobody was there then who leads
        or asks, the schedules with `is_reboot` are due, in the same transaction. Whoever asks
        counts as there for a lease, so a leader may only find out later, when that of all others
        who were there before him has ended.
        """
        ...

    async def resign(self, name: str, *, holder: UUID) -> None:
        """Give leadership up, if held, so that another need not wait. Who does not lead is
        not there any more, either.
        """
        ...

    async def list_leaders(self) -> list[Leadership]:
        """Who leads now, by name. A leadership that has ended is not shown."""
        ...

    async def retain(self, policy: Retention) -> Removed:
        """Remove what is over and older than the policy keeps, a bounded amount a call, and
        prepare room for days to come. So are gates that made themselves, when nobody is inside or
        waits and no job needs them: the next one who does makes them again.

        A job that was deleted, or was made to run once (`JobDefinition.once`), goes with its last
        execution. One that no execution and no schedule to come belongs to is deleted, unless
        the definition of another job names it. When it was so for as long as executions are kept,
        and two days, it is removed with its versions. One that is in use is checked again a day
        later. Fills what jobs are
        found by, where an earlier program has left it empty.
        """
        ...

    async def check_writable(self) -> None:
        """Raise Unavailable unless the store takes writes; reading may work all the same."""
        ...

    async def health(self) -> Health:
        """Product, time, schema and the settings that durability depends on."""
        ...


# Gates: how many of a kind at a time.


class Gates(Protocol):
    """Admission: at most so many of a kind at a time. A slot is held from admission to the end,
    through retries.
    """

    async def set_gates(self, tenant: str, capacities: dict[str, int]) -> None:
        """Create gates or change their capacity. More room is given out at once; less takes
        nothing back from those inside.
        """
        ...

    async def admit(self, *, limit: int = 1000) -> int:
        """Admit what waits at gates of any tenant, is due, and finds room: delayed executions
        get in by this. Answers how many.
        """
        ...

    async def recount_gates(self, *, mend: bool = False) -> list[Miscount]:
        """Gates of any tenant that count more or fewer inside than there are. None should: a slot
        is counted with the write that gives or takes it. `mend` counts anew, and lets in what
        then finds room.
        """
        ...
