"""Waiting for a store that is not there yet, as a process does that is to run for long."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from daybell.cli.stopping import Stop
from daybell.engine.clock import SystemClock
from daybell.errors import Unavailable
from daybell.settings import masked_url

logger = logging.getLogger("daybell.cli")

T = TypeVar("T")

PAUSE_MIN_SECONDS: Final = 0.2
PAUSE_MAX_SECONDS: Final = 5.0


async def until_there(connect: Callable[[], Awaitable[T]], url: str, stop: Stop) -> T:
    """What `connect` answers as soon as the store does.

    A server that is just being restarted is no reason to end: perhaps nobody would start this
    process again. What no waiting can mend is raised: a wrong password, an unknown database, a
    schema that is too old.
    """
    clock, pause = SystemClock(), PAUSE_MIN_SECONDS
    with stop.heeding():
        while True:
            try:
                found = await connect()
            except Unavailable as error:
                if error.is_lasting:
                    raise
                if pause == PAUSE_MIN_SECONDS:
                    logger.warning("%s is away, waiting for it: %s", masked_url(url), error)
            else:
                if pause > PAUSE_MIN_SECONDS:
                    logger.info("%s is there", masked_url(url))
                return found
            # A fleet that was started together must not come together, either.
            await clock.sleep(pause * (0.5 + clock.jitter() / 2))
            pause = min(PAUSE_MAX_SECONDS, 2 * pause)
