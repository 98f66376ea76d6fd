"""What executions said, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from itertools import groupby
from typing import Any

import msgspec

from daybell.client.logs import START
from daybell.client.remote.transport import Transport, path_of
from daybell.client.requests import Id, read_id
from daybell.core.instant import from_iso
from daybell.core.log import LAST, Line, LogPart, joined


class Logs:
    """The verb of `Client` for logs."""

    transport: Transport

    async def log_parts(self, id: Id, *, after: tuple[int, int] = START) -> AsyncGenerator[LogPart]:
        """All parts that there are by now, a few in memory at a time.

        Lines of an attempt that come with one answer are one part here.
        """
        cursor = None if after == START else f"{after[0]}.{after[1]}"
        path = path_of("executions", read_id(id), "logs")
        while True:
            parts, cursor = await self.transport.get(path, {"cursor": cursor}, read=_page)
            for part in parts:
                yield part
            if cursor is None:
                return


def _page(of: dict[str, Any]) -> tuple[list[LogPart], str | None]:
    return list(_parts(of)), of["next_cursor"]


def _parts(page: dict[str, Any]) -> Iterator[LogPart]:
    """The lines of each attempt. Where the page ends is where the last of them is asked on from."""
    if not page["items"]:
        return
    end, _, number = page["end_cursor"].partition(".")
    for attempt, lines in groupby(page["items"], key=lambda line: line["attempt"]):
        text = joined(_line(line) for line in lines)
        yield LogPart(attempt, int(number) if attempt == int(end) else LAST, text)


def _line(of: dict[str, Any]) -> str:
    line = Line(from_iso(of["at"]), of["level"], of["source"], of["message"])
    return msgspec.json.encode(line).decode()
