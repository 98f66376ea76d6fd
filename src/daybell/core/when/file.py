"""Schedules that files fire: patterns, and the mark by which a file's content is recognized."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Final, NamedTuple, cast

from daybell.core.limits import NAME_CHARS_MAX, check_name, text_fault
from daybell.core.units import Seconds, format_duration, parse_duration
from daybell.core.when.rule import Schedule
from daybell.errors import DaybellError, InvalidSchedule, shown

EVENT_PREFIX: Final = "daybell.file."  # with the name of a root: the event of a file there
SETTLE_DEFAULT: Final[Seconds] = 2.0
SETTLE_MAX: Final[Seconds] = 86_400.0
_DEPTH_MAX: Final = 20  # segments of a pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class OnFile(Schedule):
    """Fires with each file below a root that fits a pattern, once it has stopped changing."""

    has_times: ClassVar[bool] = False

    root: str  # its name, which schedulers map to a folder
    pattern: str  # of paths below the root
    settle: Seconds = SETTLE_DEFAULT

    @property
    def listens_to(self) -> str | None:
        return EVENT_PREFIX + self.root

    def own_fields(self) -> dict[str, Any]:
        said: dict[str, Any] = {"file": f"{self.root}/{self.pattern}"}
        return said | {"settle": format_duration(self.settle)}

    def accepts(self, data: Any) -> bool:
        path = cast("Mapping[str, Any]", data).get("path") if isinstance(data, Mapping) else None
        return isinstance(path, str) and self.fits(path)

    def fits(self, path: str) -> bool:
        """Return True if a path below the root fits the pattern."""
        return _fits(path.split("/"), self.pattern.split("/"))


def read_file_schedule(given: Mapping[str, Any]) -> OnFile:
    """Parse `{"file": "ROOT/PATTERN", "settle": …}`."""
    said = given["file"]
    if not isinstance(said, str) or len(said) > NAME_CHARS_MAX or text_fault(said):
        raise _fault(f"file {shown(said)} is not a pattern such as 'incoming/*.csv'")
    root, slash, pattern = said.partition("/")
    parts = pattern.split("/")
    if not slash or not root or "" in parts or "." in parts or ".." in parts:
        raise _fault(
            f"file {shown(said)} is not the name of a root and a pattern below it, such as"
            " 'incoming/*.csv'; a scheduler is given the root with --watch-root incoming=PATH"
        )
    if len(parts) > _DEPTH_MAX:
        raise _fault(f"file {shown(said)} has more than {_DEPTH_MAX} folders")
    try:
        check_name(root, what="root")
        settle = given.get("settle")
        seconds = SETTLE_DEFAULT if settle is None else parse_duration(settle, what="settle")
    except DaybellError as error:
        raise InvalidSchedule(str(error), field="file") from None
    if not 0 < seconds <= SETTLE_MAX:
        raise InvalidSchedule(f"settle {shown(settle)} must be from 1 ms to a day", field="settle")
    return OnFile(root=root, pattern=pattern, settle=seconds)


def _fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Match part by part: * and ? stop at a slash, and ** is any number of folders."""
    places = {0}  # of the path, up to which the pattern so far fits
    for part in (*pattern, "*") if pattern[-1] == "**" else pattern:
        if part == "**":
            places = {later for one in places for later in range(one, len(path) + 1)}
        else:
            places = {one + 1 for one in places if one < len(path) and fnmatchcase(path[one], part)}
    return len(path) in places


def _fault(message: str) -> InvalidSchedule:
    return InvalidSchedule(message, field="file")


class FileMark(NamedTuple):
    """The state of a file. Another content has another mark."""

    size: int
    changed_at: int  # nanoseconds
    inode: int

    def event_id(self, path: str) -> str:
        """Return the id of the event of this content at this path: the same on every scheduler."""
        digest = hashlib.sha256(path.encode()).hexdigest()[:40]
        return f"{digest}-{self.size}-{self.changed_at}-{self.inode}"
