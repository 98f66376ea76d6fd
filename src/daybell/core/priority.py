"""Which work goes first."""

from __future__ import annotations

from enum import IntEnum

from daybell.errors import InvalidPriority, shown


class Priority(IntEnum):
    """Lower goes first; the numbers are stored, so they never change their meaning."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3

    @property
    def label(self) -> str:
        """The name as users write it and see it: "high"."""
        return self.name.lower()

    @classmethod
    def parse(cls, value: object) -> Priority:
        """Read a name in any case ("medium" means normal) or one of the numbers 0 to 3."""
        if isinstance(value, str):
            name = value.strip().upper()
            found = cls.__members__.get("NORMAL" if name == "MEDIUM" else name)
            if found is not None:
                return found
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= cls.LOW:
            return cls(value)
        raise InvalidPriority(
            f"{shown(value)} is not a priority; use critical, high, normal (or medium) or low",
            field="priority",
        )
