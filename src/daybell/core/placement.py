"""Where work may run: labels and resources that executions demand, and that workers have.

The demands of a job are a part of its needs, and so of its lane, as in
`task?{"requires":{"gpu":["a100"]}}`. A worker asks for the lanes that fit it, and counts what its
own executions use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Final, Literal, TypeAlias, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.flow import base_needs
from daybell.core.limits import LABEL_CHARS_MAX, LABELS_MAX, text_fault
from daybell.core.units import Instant, Seconds
from daybell.errors import UsageError, shown

MARK: Final = "?"  # between the capability and the demands
DEMANDS_CHARS_MAX: Final = 1_000  # an index entry of PostgreSQL holds 2,704 bytes
PREFER_SECONDS: Final[Seconds] = 5.0  # then any worker takes what prefers another one
PASSED_OVER_SECONDS: Final[Seconds] = 30.0  # then a worker keeps room free for it

SEATS: Final = 64  # so many lanes may a job with `near` have in a queue

Near: TypeAlias = Literal["parent"]
NEAR: Final[tuple[Near, ...]] = ("parent",)
Labels = Mapping[str, str]
Amounts = Mapping[str, float]
Choices = dict[str, tuple[str, ...]]


class Demands(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The demands of an execution on its worker."""

    requires: Choices = {}
    prefer: Choices = {}
    resources: dict[str, float] = {}
    seat: int | None = None  # of the worker that it prefers: see `seat_of`

    @property
    def text(self) -> str:
        """The demands at the end of the needs; equal ones give equal text."""
        return (
            "" if self == NO_DEMANDS else MARK + msgspec.json.encode(self, order="sorted").decode()
        )


NO_DEMANDS: Final = Demands()
DEMAND_OPTIONS: Final = ("requires", "prefer", "resources")  # what people write of them
_decode: Final = msgspec.json.Decoder(Demands).decode


@lru_cache(maxsize=4096)
def split_needs(needs: str) -> tuple[str, Demands]:
    """Return the capability and the demands of needs."""
    capability, mark, text = base_needs(needs).partition(MARK)
    return capability, _decode(text) if mark else NO_DEMANDS


def capability_of(needs: str) -> str:
    """Return the capability that a worker must offer: a kind, and more for some."""
    return base_needs(needs).partition(MARK)[0]


def seat_of(worker: UUID) -> int:
    """Return the number that stands for a worker in needs. Few workers have the same."""
    return worker.int % SEATS


@lru_cache(maxsize=4096)
def seated_needs(needs: str, seat: int) -> str:
    """Return needs, of limited work or other, that prefer the worker with this seat."""
    base = base_needs(needs)
    capability, demands = split_needs(base)
    return needs.removesuffix(base) + capability + replace(demands, seat=seat).text


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has: its labels, its resources in total, and its seat."""

    labels: dict[str, str] = {}
    resources: dict[str, float] = {}
    seat: int | None = None

    def lacks(self, demands: Demands) -> list[str]:
        """Return what it has not and will never have, in words."""
        found = [
            f"{name}={' or '.join(values)}"
            for name, values in demands.requires.items()
            if self.labels.get(name) not in values
        ]
        lacking = {
            name: amount
            for name, amount in demands.resources.items()
            if self.resources.get(name, 0.0) < amount
        }
        return found + format_amounts(lacking)

    def is_preferred(self, demands: Demands) -> bool:
        """True if the execution prefers this worker, or has no preference."""
        if demands.seat not in (None, self.seat):
            return False
        return all(self.labels.get(name) in values for name, values in demands.prefer.items())


def words_of_needs(needs: str) -> str:
    """Return the capability and the demands of needs for people: `task with gpu=a100, memory=4`."""
    capability, demands = split_needs(needs)
    lacks = Site().lacks(demands)
    return f"{capability} with {', '.join(lacks)}" if lacks else capability


class DemandingLane(msgspec.Struct, frozen=True, kw_only=True):
    """A lane with demands, and its due work."""

    queue: str
    needs: str
    now: Instant
    oldest: Instant | None = None  # the earliest due time
    overdue: int = 0  # due for longer than PREFER_SECONDS; counted up to OVERDUE_MAX


OVERDUE_MAX: Final = 100


class ClaimPlan(msgspec.Struct, frozen=True):
    """A claim to make: of these queues and needs, at most so many."""

    queues: Sequence[str]
    needs: Sequence[str]
    most: float = inf


def plan_claims(
    site: Site,
    capabilities: Sequence[str],
    queues: Sequence[str],
    lanes: Iterable[DemandingLane],
    *,
    used: Amounts,
) -> list[ClaimPlan]:
    """Return the claims of a worker. The first is of all that needs no resources.

    Of a lane with resources it asks for as much as fits. While work was passed over for
    PASSED_OVER_SECONDS, other lanes get no resources that it demands, until it fits.
    """
    plain = list(capabilities)
    apart: list[ClaimPlan] = []
    fitting: list[tuple[DemandingLane, Demands]] = []
    for lane in _merge(lanes):
        capability, demands = split_needs(lane.needs)
        if capability not in capabilities or lane.queue not in queues or site.lacks(demands):
            continue
        if demands.resources:
            fitting.append((lane, demands))
        elif site.is_preferred(demands):
            plain.append(lane.needs)
        elif lane.overdue:
            apart.append(ClaimPlan([lane.queue], [lane.needs], lane.overdue))
    fitting.sort(key=lambda one: inf if one[0].oldest is None else one[0].oldest)
    free = {name: amount - used.get(name, 0.0) for name, amount in site.resources.items()}
    kept: set[str] = set()
    for lane, demands in fitting:
        most = fits(demands, free)
        if not site.is_preferred(demands):
            most = min(most, lane.overdue)
        if kept & demands.resources.keys():
            most = 0
        if most > 0:
            apart.append(ClaimPlan([lane.queue], [lane.needs], most))
        elif lane.oldest is not None and lane.now - lane.oldest >= PASSED_OVER_SECONDS:
            kept |= demands.resources.keys()
    return [ClaimPlan(queues, list(dict.fromkeys(plain))), *apart]


def _merge(lanes: Iterable[DemandingLane]) -> list[DemandingLane]:
    """Return lanes of the same queue and needs as one: those with and without limits."""
    found: dict[tuple[str, str], DemandingLane] = {}
    for lane in lanes:
        needs = base_needs(lane.needs)
        other = found.get((lane.queue, needs))
        if other is not None:
            times = [one.oldest for one in (lane, other) if one.oldest is not None]
            overdue = lane.overdue + other.overdue
            lane = replace(lane, oldest=min(times, default=None), overdue=overdue)
        found[lane.queue, needs] = replace(lane, needs=needs)
    return list(found.values())


def fits(demands: Demands, free: Amounts) -> int:
    """Return how many executions with these demands fit."""
    return int(min(free.get(name, 0.0) / amount for name, amount in demands.resources.items()))


def sum_used(needs: Iterable[str]) -> dict[str, float]:
    """Return the resources that executions with these needs use."""
    used: dict[str, float] = {}
    for one in needs:
        for name, amount in split_needs(one)[1].resources.items():
            used[name] = used.get(name, 0.0) + amount
    return used


def assign_devices(
    site: Site, demands: Demands, taken: Iterable[Mapping[str, Sequence[int]]]
) -> dict[str, list[int]]:
    """Return the numbers of devices for an execution: the lowest that are free. A resource has
    numbers if the worker and the execution have whole numbers of it, of at most DEVICES_MAX.
    """
    busy = list(taken)
    found: dict[str, list[int]] = {}
    for name, amount in demands.resources.items():
        total = site.resources.get(name, 0.0)
        if total > DEVICES_MAX or total != int(total) or amount != int(amount):
            continue
        used = {number for one in busy for number in one.get(name, ())}
        found[name] = [number for number in range(int(total)) if number not in used][: int(amount)]
    return found


DEVICES_MAX: Final = 1_024
_VISIBLE: Final = {"gpu": "CUDA_VISIBLE_DEVICES"}


def device_variables(devices: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Return the variables that tell a child process its devices."""
    said: dict[str, str] = {}
    for name, numbers in devices.items():
        text = ",".join(map(str, numbers))
        said[f"DAYBELL_DEVICES_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"] = text
        if name in _VISIBLE:
            said[_VISIBLE[name]] = text
    return said


# Reading.

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_UNITS: Final = {
    "": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12,
    "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
AMOUNT_MAX: Final = 1e18


def read_choices(value: object, what: str) -> Choices:
    """Return required labels: a text or a list of texts by name."""
    found: Choices = {}
    for name, one in _by_name(value, what, 'labels, as in {"zone": ["eu", "us"]}').items():
        _check_name(name, what)
        texts = [one] if isinstance(one, str) else one
        if not isinstance(texts, list | tuple) or not texts:
            raise UsageError(
                f"{what}.{name}={shown(one)} must be a text or a list of texts",
                field=f"{what}.{name}",
            )
        for text in cast("Sequence[object]", texts):
            if (
                not isinstance(text, str)
                or not text
                or len(text) > LABEL_CHARS_MAX
                or text_fault(text)
            ):
                raise UsageError(
                    f"{what}.{name}: {shown(text)} is not a text of 1 to {LABEL_CHARS_MAX}"
                    " characters",
                    field=f"{what}.{name}",
                )
        found[name] = tuple(dict.fromkeys(cast("Sequence[str]", texts)))
    return dict(sorted(found.items()))


def read_amounts(value: object, what: str) -> dict[str, float]:
    """Return amounts by name: a number, or a text such as 64GB."""
    found: dict[str, float] = {}
    for name, one in _by_name(value, what, 'amounts, as in {"gpu": 1, "memory": "4GB"}').items():
        _check_name(name, what)
        found[name] = _read_amount(one, f"{what}.{name}")
    return dict(sorted(found.items()))


def _by_name(value: object, what: str, wanted: str) -> Mapping[Any, Any]:
    """Return values by name, of which there are not too many."""
    given = cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else None
    if given is None or len(given) > LABELS_MAX:
        said = shown(cast("object", value))
        raise UsageError(f"{what}={said} must name {wanted}", field=what)
    return given


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or len(name) > LABEL_CHARS_MAX or not _NAME.fullmatch(name):
        raise UsageError(
            f"{what}: {shown(name)} is not a name of at most {LABEL_CHARS_MAX} letters, digits and"
            " . _ -",
            field=what,
        )


def _read_amount(value: object, what: str) -> float:
    amount = 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        amount = float(value)
    elif isinstance(value, str) and (found := _AMOUNT.fullmatch(value.strip())):
        amount = float(found[1]) * _UNITS.get(found[2].lower(), 0.0)
    if not 0 < amount <= AMOUNT_MAX:
        raise UsageError(
            f"{what}={shown(value)} must be a number above 0, or a size such as 64GB or 512MiB",
            field=what,
        )
    return amount


_LARGE: Final = tuple(
    (unit, _UNITS[unit.lower()]) for unit in ("TB", "GB", "MB", "TiB", "GiB", "MiB")
)


def format_amounts(amounts: Amounts) -> list[str]:
    """Write amounts so that `parse_amounts` reads them: `gpu=2`, `memory=64GB`."""
    return [f"{name}={_format_amount(amount)}" for name, amount in amounts.items()]


def _format_amount(amount: float) -> str:
    for unit, size in _LARGE:
        if amount >= size and amount % size == 0:
            return f"{amount / size:.0f}{unit}"
    return f"{amount:f}".rstrip("0").rstrip(".")


def parse_amounts(text: str, what: str = "resources") -> dict[str, float]:
    """Parse `gpu=2,memory=64GB`."""
    given: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise UsageError(f"{shown(part)}: write {what} as name=amount,name=amount", field=what)
        if name in given:
            raise UsageError(f"{shown(name)} is given twice in {shown(text)}", field=what)
        given[name] = amount
    return read_amounts(given, what)


def check_demands(demands: Demands) -> None:
    """Refuse demands that are too long for the name of a lane."""
    if len(demands.text) > DEMANDS_CHARS_MAX:
        raise UsageError(
            f"requires, prefer and resources have {len(demands.text):,} characters together; the"
            f" limit is {DEMANDS_CHARS_MAX:,}",
            field="requires",
        )
