"""What `daybell top` does: one look after the other, on a screen of its own or as text."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from rich.console import RenderableType
from rich.live import Live

from daybell.cli import show
from daybell.cli.connecting import client_for
from daybell.cli.edge import DONE
from daybell.cli.glance import as_json as glance_json
from daybell.cli.glance import echo, screen
from daybell.cli.keys import Keys
from daybell.cli.stopping import BrokenOff, Stop
from daybell.client.overview import Overview
from daybell.client.remote.client import AnyClient
from daybell.core.duration import parse_duration
from daybell.core.instant import Seconds
from daybell.engine.clock import Clock, SystemClock
from daybell.errors import Unavailable, UsageError
from daybell.runners.waiting import first_of
from daybell.settings import Settings, masked_url

INTERVAL_MIN_SECONDS: Final = 0.1
INTERVAL_MAX_SECONDS: Final = 60.0


async def watch(
    settings: Settings, *, interval: str, once: bool, tenant: str | None, as_json: bool
) -> int:
    """Look at everything, once or until somebody quits."""
    seconds = parse_duration(interval, what="interval")
    if not INTERVAL_MIN_SECONDS <= seconds <= INTERVAL_MAX_SECONDS:
        raise UsageError(
            f"interval {interval} is not from {INTERVAL_MIN_SECONDS:g}s to"
            f" {INTERVAL_MAX_SECONDS:g}s",
            field="interval",
        )
    url, clock = masked_url(settings.api_url or settings.database_url), SystemClock()
    async with client_for(settings, tenant=tenant) as client:
        first = await client.overview()
        if once or as_json or not sys.stdout.isatty():
            await clock.sleep(seconds)  # a rate needs two looks
            seen = await client.overview(earlier=first)
            if as_json:
                show.echo_json(glance_json(seen, store=url))
            else:
                echo(seen, store=url)
            return DONE
        display = Display(url, first)
        keys = Keys(display.press, on_end=display.quit)
        with Stop(on_second=display.leave(keys)) as stop:
            display.stop = stop
            with keys, display.live, _resized(display.draw):
                await _look_on(client, display, settings, interval=seconds, clock=clock)
    return DONE


class Display:
    """The screen, and what it shows."""

    def __init__(self, url: str, first: Overview) -> None:
        self._url = url
        self._trouble = ""
        self.seen = first
        self.stop: Stop | None = None
        self._console = show.console()
        self.live = Live(
            get_renderable=self._render,
            console=self._console,
            screen=True,
            auto_refresh=False,
            vertical_overflow="crop",
        )

    def show(self, seen: Overview) -> None:
        self.seen, self._trouble = seen, ""
        self.draw()

    def complain(self, trouble: str) -> None:
        self._trouble = trouble
        self.draw()

    def draw(self) -> None:
        self.live.refresh()

    def press(self, key: str) -> None:
        if key in "qQ":
            self.quit()

    def quit(self) -> None:
        if self.stop is not None:
            self.stop.request()

    def leave(self, keys: Keys) -> Callable[[], None]:
        """What puts the terminal right when the process ends in the middle of something."""

        def restore() -> None:
            self.live.stop()
            keys.restore()

        return restore

    def _render(self) -> RenderableType:
        size = self._console.size
        return screen(
            self.seen,
            store=self._url,
            trouble=self._trouble,
            columns=size.width,
            lines=size.height,
        )


async def _look_on(
    client: AnyClient, display: Display, settings: Settings, *, interval: Seconds, clock: Clock
) -> None:
    stop = display.stop
    assert stop is not None
    earlier: Overview | None = display.seen
    display.draw()
    took: Seconds = 0.0
    while True:
        # A store that is slow to answer rests as long as it worked.
        await first_of(stop.wait(), clock.sleep(max(interval - took, took)))
        if stop.is_requested:
            return
        began = clock.monotonic()
        try:
            with stop.heeding():
                earlier = await client.overview(earlier=earlier)
            display.show(earlier)
        except BrokenOff:
            return
        except Unavailable as error:
            earlier = None  # by the next answer it is too old to tell a rate
            display.complain(settings.mask(str(error)))
        took = clock.monotonic() - began


@contextmanager
def _resized(redraw: Callable[[], None]) -> Generator[None]:
    """Have the screen drawn again when it has another size."""
    loop = asyncio.get_running_loop()

    def hear(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(redraw)

    before = signal.signal(signal.SIGWINCH, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
