"""Gates: how many of a kind at a time."""

from __future__ import annotations

from typing import Protocol

from daybell.core.overlap import Miscount


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
