"""Watched folders: publish an event for each file that has stopped changing.

Notifications of the system only wake the watcher. A listing, compared with the files on record,
decides. The id of an event is that of the content at its path, so that several schedulers, and one
that was stopped between event and record, fire it once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from daybell.core.event import NewEvent
from daybell.core.limits import EVENT_BATCH_MAX, text_fault
from daybell.core.units import Seconds, to_iso
from daybell.core.when.file import EVENT_PREFIX, FileMark, OnFile
from daybell.core.when.rule import Schedule as Rule
from daybell.engine.loop import Clock, Loop
from daybell.errors import InvalidSchedule, UsageError, shown
from daybell.store.protocol import Store

POLL_SECONDS: Final = 5.0  # between listings without a notification
FILES_MAX: Final = 100_000  # below one root
_DEPTH_MAX: Final = 20

logger = logging.getLogger("daybell.files")


class WatchRoot(msgspec.Struct, frozen=True):
    """A folder that schedules name."""

    tenant: str
    name: str
    path: Path


class FileWatcher:
    """Watches one root."""

    def __init__(self, store: Store, root: WatchRoot, *, clock: Clock) -> None:
        self._store = store
        self._root = root
        self._clock = clock
        self._known: dict[str, FileMark] | None = None  # that have fired; None: not read yet
        self._changing: dict[str, tuple[FileMark, Seconds]] = {}  # and since when they are the same
        self._notices: asyncio.Task[None] | None = None
        self._trouble: str | None = None
        self.loop = Loop(f"watch {root.name}", self.tick, interval=POLL_SECONDS, clock=clock)

    def start(self) -> None:
        self.loop.start()
        self._notices = asyncio.get_running_loop().create_task(self._listen())

    async def stop(self) -> None:
        if self._notices is not None:
            self._notices.cancel()
            await asyncio.gather(self._notices, return_exceptions=True)
        await self.loop.stop()

    async def _listen(self) -> None:
        """Wake with each change; without notifications, listings find it."""
        # Its import takes long, and only watchers need it.
        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]

        try:
            async for _ in awatch(self._root.path, watch_filter=None, debounce=200):
                self.loop.wake()
        except (OSError, RuntimeError) as error:
            logger.warning("no notifications for %s, listing instead: %s", self._root.name, error)

    async def tick(self) -> Seconds | None:
        """Publish the files that have settled; return the time until the next one may."""
        tenant, event = self._root.tenant, EVENT_PREFIX + self._root.name
        rules = _read_rules(
            [one.rule for one in await self._store.schedules.list_listeners(tenant, event)]
        )
        if not rules:
            self._changing.clear()
            return None
        if self._known is None:
            self._known = await self._store.schedules.watched_files(tenant, self._root.name)
        try:
            found = await asyncio.to_thread(list_files, self._root.path)
        except OSError as error:
            self._complain(f"cannot be listed: {error.strerror}")
            return None
        if len(found) > FILES_MAX:
            self._complain(f"has more than {FILES_MAX:,} files, which are too many to watch")
            return None
        self._trouble = None
        wanted = {
            path: mark
            for path, mark in found.items()
            if self._known.get(path) != mark and any(rule.fits(path) for rule in rules)
        }
        settled = self._settle(wanted, max(rule.settle for rule in rules))
        gone = [path for path in self._known if path not in found]
        seen = {path: wanted[path] for path in settled}
        for start in range(0, len(settled), EVENT_BATCH_MAX):
            some = settled[start : start + EVENT_BATCH_MAX]
            await self._publish({path: seen[path] for path in some})
        if settled or gone:
            await self._store.schedules.note_files(tenant, self._root.name, seen=seen, gone=gone)
            self._known |= seen
            for path in gone:
                del self._known[path]
        return self._until_next(max(rule.settle for rule in rules))

    def _settle(self, wanted: Mapping[str, FileMark], settle: Seconds) -> list[str]:
        """Return the files that have been the same for so long."""
        now, before = self._clock.monotonic(), self._changing
        self._changing = {}
        settled: list[str] = []
        for path, mark in wanted.items():
            same, since = before.get(path, (None, now))
            since = since if same == mark else now
            if now - since >= settle:
                settled.append(path)
            else:
                self._changing[path] = mark, since
        return sorted(settled)

    def _until_next(self, settle: Seconds) -> Seconds | None:
        if not self._changing:
            return None
        first = min(since for _, since in self._changing.values())
        return min(POLL_SECONDS, max(0.05, first + settle - self._clock.monotonic()))

    async def _publish(self, marks: Mapping[str, FileMark]) -> None:
        name = self._root.name
        events = [
            NewEvent(
                id=mark.event_id(path),
                source=f"/files/{name}",
                name=EVENT_PREFIX + name,
                data=msgspec.json.encode(
                    {
                        "root": name,
                        "path": path,
                        "size": mark.size,
                        "modified_at": to_iso(mark.changed_at / 1e9),
                    }
                ).decode(),
            )
            for path, mark in marks.items()
        ]
        await self._store.runs.publish_many(self._root.tenant, events)

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            logger.warning("the folder of root %s %s", self._root.name, trouble)
        self._trouble = trouble


def _read_rules(texts: Sequence[str]) -> list[OnFile]:
    rules: list[OnFile] = []
    for text in texts:
        with suppress(InvalidSchedule):
            rule = Rule.from_json(text)
            if isinstance(rule, OnFile):
                rules.append(rule)
    return rules


def list_files(root: Path) -> dict[str, FileMark]:
    """Return the regular files below a folder, by path. Symbolic links are not followed, so that
    nothing outside of the folder is found.
    """
    found: dict[str, FileMark] = {}
    for path, entry in _walk(root, "", 0):
        with suppress(FileNotFoundError):
            state = entry.stat(follow_symlinks=False)
            found[path] = FileMark(state.st_size, state.st_mtime_ns, state.st_ino)
        if len(found) > FILES_MAX:
            break
    return found


def _walk(folder: Path, before: str, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = before + entry.name
            if text_fault(path) is not None:
                continue
            if entry.is_file(follow_symlinks=False):
                yield path, entry
            elif entry.is_dir(follow_symlinks=False) and depth < _DEPTH_MAX:
                with suppress(FileNotFoundError, PermissionError):
                    yield from _walk(Path(entry.path), f"{path}/", depth + 1)


def read_root(text: str, *, tenant: str) -> WatchRoot:
    """Read `NAME=PATH`, or `TENANT/NAME=PATH`."""
    name, equals, path = text.partition("=")
    before, slash, last = name.rpartition("/")
    if not equals or not last or not path or (slash and not before):
        raise UsageError(
            f"{shown(text)} is not a root to watch; say NAME=PATH, such as incoming=/srv/incoming",
            field="watch_root",
        )
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise UsageError(
            f"root {last}: {shown(path)} is no folder; make it, or correct the path",
            field="watch_root",
        )
    return WatchRoot(before or tenant, last, folder.resolve())
