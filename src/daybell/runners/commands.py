"""The commands of one worker: started, watched over, and ended with all that they have started."""

from __future__ import annotations


class Commands:
    """All commands of an event loop, and the warden that outlives the worker if need be."""

    async def close(self) -> None:
        """End the warden. Commands must have ended before."""
