"""What was refused to whom: told to the audit log, and not once per try."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import msgspec

from daybell.api.caller import Caller
from daybell.core.audit import NewEntry
from daybell.core.instant import Seconds

QUIET_SECONDS: Final = 60.0  # the same again is counted, and told after so long
DENIALS_MAX: Final = 1_000  # that are remembered

Place = tuple[UUID | None, str]  # a key, and what it asked for


class Denial(msgspec.Struct):
    """The same thing refused to the same key."""

    caller: Caller
    target: str
    count: int = 0  # that nobody was told of
    told_at: Seconds | None = None

    @property
    def place(self) -> Place:
        return (None if self.caller.key is None else self.caller.key.id, self.target)

    def entry(self) -> NewEntry:
        """How the audit log is told of it."""
        told = {"role": self.caller.role, "times": self.count}
        return self.caller.entry("access.deny", self.target, after=told)


class Denials:
    """Remembers what is to be told, in bounded memory.

    The first time is told at once. What comes after that is one entry a minute.
    """

    def __init__(self) -> None:
        self._known: dict[Place, Denial] = {}

    def note(self, caller: Caller, target: str) -> bool:
        """Take note; answers whether somebody should be told now."""
        new = Denial(caller, target)
        denial = self._known.get(new.place)
        if denial is None:
            if len(self._known) >= DENIALS_MAX:
                return False
            denial = self._known[new.place] = new
        denial.count += 1
        return denial.told_at is None

    def take(self, now: Seconds) -> list[Denial]:
        """What is to be told by now. It counts as told, unless it is put back."""
        taken: list[Denial] = []
        for place, denial in list(self._known.items()):
            if denial.told_at is not None and now - denial.told_at < QUIET_SECONDS:
                continue
            if not denial.count:
                del self._known[place]
                continue
            taken.append(msgspec.structs.replace(denial))
            denial.count, denial.told_at = 0, now
        return taken

    def put_back(self, taken: Iterable[Denial]) -> None:
        """Remember what could not be told."""
        for denial in taken:
            since = self._known.get(denial.place)
            denial.count += 0 if since is None else since.count
            self._known[denial.place] = denial
