"""Cron: wall-clock times, written in five to seven fields, in a zone.

Where clocks change, a fixed time happens once: in a gap at the first instant after it, of two the
first, unless asked otherwise. An expression whose minute or hour is open (`*`, `*/15`, `5/15`,
`H/15`, `0-23`) happens whenever the clock shows a time that matches, and so keeps its spacing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from daybell.core.instant import Instant
from daybell.core.when import fields
from daybell.core.when.effort import Effort
from daybell.core.when.fields import Field, Unit, parse_field
from daybell.core.when.hashing import bound, is_hashed
from daybell.core.when.pattern import Pattern, days_of_months
from daybell.core.when.rule import Schedule
from daybell.core.when.search import tick_after, tick_until
from daybell.core.when.zone import Fold, Gap
from daybell.errors import InvalidSchedule, shown

Dialect = Literal["unix", "quartz", "aws"]
DIALECTS: Final = ("unix", "quartz", "aws")

_COST: Final = 5  # of a question, where the answer is not years away
_TIME: Final = (fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH)
_QUARTZ: Final = (fields.SECOND, *_TIME, fields.WEEKDAY_FROM_ONE)
_LAYOUTS: Final[dict[str, tuple[tuple[Unit, ...], ...]]] = {
    "unix": (
        (*_TIME, fields.WEEKDAY),
        (fields.SECOND, *_TIME, fields.WEEKDAY),
        (fields.SECOND, *_TIME, fields.WEEKDAY, fields.YEAR),
    ),
    "quartz": (_QUARTZ, (*_QUARTZ, fields.YEAR)),
    "aws": ((*_TIME, fields.WEEKDAY_FROM_ONE, fields.YEAR),),
}


class Fields(NamedTuple):
    """The fields of an expression, with those that it leaves out."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field
    year: Field


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron(Schedule):
    """A cron expression. Its text is in capitals, its fields one space apart."""

    expression: str
    dialect: Dialect = "unix"
    gap: Gap = "shift"
    fold: Fold = "first"
    pattern: Pattern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", _pattern(self.expression, self.dialect))

    @property
    def is_hashed(self) -> bool:
        return is_hashed(self.expression)

    @property
    def is_same_daily(self) -> bool:
        return True

    def bind(self, name: str) -> Schedule:
        if not self.is_hashed:
            return self
        return _bound_cron(self, name)

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        effort.spend(_COST)
        gap, fold = self.rules
        return tick_after(self.pattern, after, tz=self.tz, gap=gap, fold=fold, effort=effort)

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        effort.spend(_COST)
        gap, fold = self.rules
        return tick_until(self.pattern, until, tz=self.tz, gap=gap, fold=fold, effort=effort)

    @property
    def rules(self) -> tuple[Gap, Fold]:
        """The rules for gaps and folds that count; one that is open follows the clock."""
        return ("skip", "both") if self.pattern.is_open else (self.gap, self.fold)

    def own_fields(self) -> dict[str, Any]:
        own: dict[str, Any] = {"cron": self.expression}
        if self.dialect != "unix":
            own["dialect"] = self.dialect
        dst = {"gap": self.gap, "fold": self.fold}
        if dst != {"gap": "shift", "fold": "first"}:
            own["dst"] = dst
        return own


def layout(expression: str, dialect: Dialect) -> tuple[Unit, ...]:
    """What the fields of an expression count, by how many there are."""
    count = len(expression.split())
    for units in _LAYOUTS[dialect]:
        if len(units) == count:
            return units
    takes = {
        "unix": "5 (minute hour day month weekday), 6 (seconds first) or 7 (a year last)",
        "quartz": "6 (second minute hour day month weekday) or 7 (a year last)",
        "aws": "6 (minute hour day month weekday year)",
    }
    raise InvalidSchedule(
        f"{shown(expression)} has {count} {'field' if count == 1 else 'fields'};"
        f" {dialect} cron takes {takes[dialect]}",
        field="cron",
    )


def read_fields(expression: str, dialect: Dialect) -> Fields:
    """Read all fields; an H is what it is for the empty name."""
    units = layout(expression, dialect)
    texts = bound(expression, units, name="").split()
    named = {unit.name: parse_field(text, unit) for text, unit in zip(texts, units, strict=True)}
    found = Fields(
        second=named.get("second") or parse_field("0", fields.SECOND),
        minute=named["minute"],
        hour=named["hour"],
        day=named["day of month"],
        month=named["month"],
        weekday=named["day of week"],
        year=named.get("year") or parse_field("*", fields.YEAR),
    )
    if dialect != "unix":
        _check_days(found, dialect)
    return found


def _check_days(found: Fields, dialect: Dialect) -> None:
    """Quartz and AWS let one field choose the day, and want a ? in the other."""
    day, weekday = found.day, found.weekday
    if [day.text, weekday.text].count("?") != 1:
        raise InvalidSchedule(
            f"day of month {shown(day.text)} and day of week {shown(weekday.text)}: {dialect} cron"
            " takes a ? in exactly one of them",
            field=weekday.unit.name,
        )


@lru_cache(maxsize=16_384)
def _pattern(expression: str, dialect: Dialect) -> Pattern:
    found = read_fields(expression, dialect)
    pattern = Pattern(
        seconds=found.second.bits,
        minutes=found.minute.bits,
        hours=found.hour.bits,
        months=found.month.bits,
        years=0 if found.year.text == "*" else found.year.bits,
        days=days_of_months(found.day, found.weekday),
        is_open=found.minute.is_open or found.hour.is_open,
    )
    if pattern.after(-1, Effort()) is None:
        raise InvalidSchedule(
            f"{shown(expression)} never fires: there is no such date. Day of month is"
            f" {shown(found.day.text)}, month {shown(found.month.text)}, day of week"
            f" {shown(found.weekday.text)}, year {shown(found.year.text)}",
            field="cron",
        )
    return pattern


@lru_cache(maxsize=16_384)
def _bound_cron(rule: Cron, name: str) -> Cron:
    units = layout(rule.expression, rule.dialect)
    return replace(rule, expression=bound(rule.expression, units, name=name))
