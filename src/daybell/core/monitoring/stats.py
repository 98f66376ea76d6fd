"""Statistics over time: counts and histograms by minute and hour, series, percentiles, trends.

A `Tally` has the numbers of one subject in one period. Tallies are added: minutes to a step of a
series, the queues of a job to the job. The subjects are everything, a queue, and a job in a queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from daybell.core.execution import Outcome, State
from daybell.core.flow import base_needs
from daybell.core.units import Instant, Seconds
from daybell.errors import UsageError, shown

# Durations are counted in buckets whose bounds rise by a fifth: 12 for each factor of ten, from a
# millisecond to eleven days. So a percentile is off by a tenth at most. Bucket 0 is below the first
# bound. The bounds are part of the schema: never change them.
BOUNDS: Final = tuple(
    round(first * 10.0**power, 6)
    for power in range(-3, 6)
    for first in (1.0, 1.2, 1.5, 1.8, 2.2, 2.7, 3.3, 3.9, 4.7, 5.6, 6.8, 8.2)
)
LATE_SECONDS: Final = 60.0  # a start that comes so long after its time is late

COUNTS: Final = (
    "enqueued", "started", "succeeded", "dead", "cancelled", "skipped",
    "failed_attempts", "lost", "retried", "late", "missed",
)  # fmt: skip
DURATIONS: Final = ("run", "delay")
TALLY_COLUMNS: Final = ", ".join((*COUNTS, *DURATIONS))  # of a row in a store
PERCENTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
METRICS: Final = (
    *COUNTS,
    *(f"{name}_{percentile}" for name in DURATIONS for percentile in PERCENTILES),
)

MINUTE: Final = 60
HOUR: Final = 3600
ALWAYS: Final = 0  # the grain of totals
MINUTES_KEPT_SECONDS: Final = 2 * 86400.0
HOURS_KEPT_SECONDS: Final = 90 * 86400.0
SECONDS_KEPT: Final = {MINUTE: MINUTES_KEPT_SECONDS, HOUR: HOURS_KEPT_SECONDS}  # by grain
POINTS_MAX: Final = 1500  # of a series

Histogram = dict[int, int]  # bucket to count, without empty ones


def bucket_of(seconds: Seconds) -> int:
    """Return the bucket of a duration; one below zero, as after a clock was set back, is zero."""
    return bisect_right(BOUNDS, seconds)


def encode(histogram: Histogram) -> bytes:
    """Write a histogram as pairs of variable-length numbers: steps between buckets, and counts."""
    written = bytearray()
    last = 0
    for bucket in sorted(histogram):
        for number in (bucket - last, histogram[bucket]):
            while number > 0x7F:
                written.append(number & 0x7F | 0x80)
                number >>= 7
            written.append(number)
        last = bucket
    return bytes(written)


def decode(written: bytes) -> Histogram:
    """Read what `encode` wrote."""
    numbers = _numbers(written)
    histogram: Histogram = {}
    bucket = 0
    for step, count in zip(numbers, numbers, strict=True):
        bucket += step
        histogram[bucket] = count
    return histogram


def _numbers(written: bytes) -> Iterator[int]:
    number, shift = 0, 0
    for byte in written:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            yield number
            number, shift = 0, 0


def quantile(histogram: Histogram, q: float) -> Seconds | None:
    """Return a quantile of durations, interpolated within its bucket; None: there are none."""
    total = sum(histogram.values())
    if not total:
        return None
    rank, before = q * total, 0
    for bucket in sorted(histogram):
        count = histogram[bucket]
        if before + count >= rank:
            low = 0.0 if bucket == 0 else BOUNDS[bucket - 1]
            high = BOUNDS[min(bucket, len(BOUNDS) - 1)]
            return low + (high - low) * max(0.0, rank - before) / count
        before += count
    raise AssertionError


class Tally:
    """The numbers of one subject in one period."""

    __slots__ = ("counts", "delay", "run")

    def __init__(
        self,
        counts: Sequence[int] | None = None,
        run: Histogram | None = None,
        delay: Histogram | None = None,
    ) -> None:
        self.counts = [0] * len(COUNTS) if counts is None else list(counts)
        self.run: Histogram = {} if run is None else run
        self.delay: Histogram = {} if delay is None else delay

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> Tally:
        """Read a tally from TALLY_COLUMNS."""
        *counts, run, delay = row
        return cls(counts, decode(run), decode(delay))

    def to_row(self) -> tuple[Any, ...]:
        """Return TALLY_COLUMNS."""
        return (*self.counts, encode(self.run), encode(self.delay))

    def count(self, name: str, number: int = 1) -> None:
        """Add to one of COUNTS."""
        self.counts[_PLACES[name]] += number

    def add(self, other: Tally) -> None:
        """Add another tally."""
        for place, number in enumerate(other.counts):
            self.counts[place] += number
        for mine, theirs in ((self.run, other.run), (self.delay, other.delay)):
            for bucket, number in theirs.items():
                mine[bucket] = mine.get(bucket, 0) + number

    def value(self, metric: str) -> float | None:
        """Return one of METRICS; None: a percentile of nothing."""
        if metric in _PLACES:
            return self.counts[_PLACES[metric]]
        name, _, percentile = metric.partition("_")
        return quantile(getattr(self, name), PERCENTILES[percentile])

    def values(self, metrics: Iterable[str] = METRICS) -> dict[str, float | None]:
        """Return several of METRICS."""
        return {metric: self.value(metric) for metric in metrics}

    @property
    def success_rate(self) -> float | None:
        """The part of the executions that ended by themselves which succeeded."""
        succeeded, dead = self.counts[_PLACES["succeeded"]], self.counts[_PLACES["dead"]]
        return succeeded / (succeeded + dead) if succeeded + dead else None


_PLACES: Final = {name: place for place, name in enumerate(COUNTS)}


# Folding: what the end of an attempt or an execution counts for.


# Kinds of jobs, by their codes in totals: the order is part of the schema.
KINDS: Final = ("task", "command", "http", "sql", "notify", "workflow")


def kind_code(needs: str) -> int:
    """Return the code of the kind of a job, by what a lane says that its executions need."""
    word = base_needs(needs).partition(":")[0]
    return KINDS.index(word) if word in KINDS else 0


class EndCount(NamedTuple):
    """Attempts or executions that ended alike, and how many. Minutes are since 1970."""

    tenant: int
    job: int
    queue: str
    kind: int  # its code
    outcome: Outcome | None  # of the attempt; None: there was none
    state: State | None  # of the execution; None: it goes on
    number: int
    ended: int  # minute
    created: int | None = None  # minute; None: counted at another end, or not ended
    started: int | None = None  # minute
    run: int | None = None  # bucket
    delay: int | None = None  # bucket; None: the time from which it could start is not known
    is_late: bool = False


class StatKey(NamedTuple):
    """A subject in a period: a minute, or an hour, since 1970. Job 0: all; the queue '' as well.
    Totals have no period, but a kind.
    """

    tenant: int
    job: int
    queue: str
    at: int


Tallies = dict[StatKey, Tally]

_FAILED: Final = frozenset({Outcome.FAILED, Outcome.TIMED_OUT})
_UNSUCCESSFUL: Final = _FAILED | {Outcome.LOST}
_RAN: Final = _FAILED | {Outcome.SUCCEEDED}


def fold(ends: Iterable[EndCount]) -> dict[int, Tallies]:
    """Add up ends by minutes, by hours, and altogether."""
    minutes: Tallies = {}
    totals: Tallies = {}
    for end in ends:
        for minute, tally in _parts(end):
            for job, queue in ((end.job, end.queue), (0, end.queue), (0, "")):
                _tally_of(minutes, StatKey(end.tenant, job, queue, minute)).add(tally)
                _tally_of(totals, StatKey(end.tenant, job, queue, end.kind)).add(tally)
    return {MINUTE: minutes, HOUR: _add_hours(minutes), ALWAYS: totals}


class MissedTicks(NamedTuple):
    """Times of a schedule that no scheduler fired: of a job, in a minute since 1970. They are in no
    queue.
    """

    tenant: int
    job: int
    minute: int
    number: int


def fold_missed(missed: Iterable[MissedTicks]) -> dict[int, Tallies]:
    """Add up missed times by minutes and by hours."""
    minutes: Tallies = {}
    for one in missed:
        for job in (one.job, 0):
            tally = _tally_of(minutes, StatKey(one.tenant, job, "", one.minute))
            tally.count("missed", one.number)
    return {MINUTE: minutes, HOUR: _add_hours(minutes)}


def _add_hours(minutes: Tallies) -> Tallies:
    hours: Tallies = {}
    for key, tally in minutes.items():
        _tally_of(hours, key._replace(at=key.at // 60)).add(tally)
    return hours


def _tally_of(tallies: Tallies, key: StatKey) -> Tally:
    found = tallies.get(key)
    if found is None:
        found = tallies[key] = Tally()
    return found


def _parts(end: EndCount) -> Iterator[tuple[int, Tally]]:
    """Yield the minutes that an end counts in: those in which it was created, started and ended."""
    number = end.number
    if end.created is not None:
        created = Tally()
        created.count("enqueued", number)
        yield end.created, created
    if end.started is not None:
        started = Tally()
        started.count("started", number)
        if end.delay is not None:
            started.delay = {end.delay: number}
        if end.is_late:
            started.count("late", number)
        yield end.started, started
    ended = Tally()
    if end.state is not None:
        ended.count(end.state.value, number)
    if end.outcome in _FAILED:
        ended.count("failed_attempts", number)
    elif end.outcome is Outcome.LOST:
        ended.count("lost", number)
    if end.state is None and end.outcome in _UNSUCCESSFUL:
        ended.count("retried", number)
    if end.run is not None and end.outcome in _RAN:
        ended.run = {end.run: number}
    yield end.ended, ended


# Reading.


class StatTotal(NamedTuple):
    """All that was ever counted of a job in a queue, or of a queue, by the kind of jobs."""

    job: str | None
    queue: str
    kind: str
    tally: Tally


class StatQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a series, and its time: from `since` to before `until`, in steps."""

    job: str | None = None
    queue: str | None = None
    since: Instant
    until: Instant
    step: int

    @property
    def grain(self) -> int:
        """The length of the periods that are read, in seconds: a minute, or an hour."""
        return HOUR if self.step % HOUR == 0 else MINUTE

    @property
    def periods(self) -> tuple[int, int]:
        """The first period, and the first after the last."""
        return int(self.since // self.grain), int(self.until // self.grain)

    def add_up(self, rows: Iterable[Sequence[Any]]) -> dict[int, Tally]:
        """Add up rows of a period and TALLY_COLUMNS by the number of the step."""
        tallies: dict[int, Tally] = {}
        for at, *columns in rows:
            tally = tallies.setdefault(at // (self.step // self.grain), Tally())
            tally.add(Tally.of_row(columns))
        return tallies


class StatRows(msgspec.Struct, frozen=True, kw_only=True):
    """The tallies of a query by step, and the unfinished executions that were created in each step.
    Of very many unfinished ones only the newest are counted.
    """

    tallies: dict[int, Tally]  # by the number of the step
    unfinished: dict[int, int]
    is_complete: bool = True


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Values by step, and of the whole time. Percentiles of nothing are None."""

    since: Instant
    until: Instant
    step: int
    values: dict[str, list[float | None]]
    totals: dict[str, float | None]
    at_least: tuple[str, ...] = ()  # metrics that may be larger


def plan_query(
    *,
    now: Instant,
    since: Instant,
    until: Instant | None = None,
    step: Seconds | None = None,
    job: str | None = None,
    queue: str | None = None,
) -> StatQuery:
    """Return the query of a series; without a step, the one that gives about a hundred points."""
    end = now if until is None else min(until, now)
    if since >= end:
        raise UsageError("since is not before until, or lies in the future", field="since")
    span = end - since
    is_old = since < now - MINUTES_KEPT_SECONDS
    if step is None:
        least = HOUR if is_old else MINUTE
        step = next((one for one in _STEPS if one >= least and span / one <= _POINTS), _STEPS[-1])
    size = round(step)
    if size < MINUTE or size % MINUTE or abs(size - step) > 1e-6:
        raise UsageError("step is a number of whole minutes, at least 1m", field="step")
    if is_old and size % HOUR:
        raise UsageError(
            "minutes are kept for two days; since then, step is a number of whole hours",
            field="step",
        )
    if span / size > POINTS_MAX:
        raise UsageError(
            f"{span / size:,.0f} points; the limit is {POINTS_MAX:,}: a longer step has fewer",
            field="step",
        )
    # The step of now is under way: it counts also if it has just begun.
    last = _ceil(end, size) if end < now else end_of_step(now, size)
    return StatQuery(job=job, queue=queue, since=since // size * size, until=last, step=size)


_STEPS: Final = (60, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
_POINTS: Final = 180


def _ceil(instant: Instant, step: int) -> Instant:
    return -(-instant // step) * step


def end_of_step(instant: Instant, step: int) -> Instant:
    """Return the end of the step that an instant is in."""
    return (instant // step + 1) * step


def check_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of metrics, each once."""
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        if name not in METRICS:
            raise UsageError(
                f"no metric named {shown(name)}; there are {', '.join(METRICS)}", field="metric"
            )
    if not wanted:
        raise UsageError("name at least one metric", field="metric")
    return wanted


def make_series(query: StatQuery, rows: StatRows, metrics: Sequence[str]) -> Series:
    """Arrange the rows of a query."""
    first = int(query.since // query.step)
    steps = range(first, int(query.until // query.step))
    total = Tally()
    tallies: list[Tally] = []
    for step in steps:
        tally = rows.tallies.get(step, Tally())
        if step in rows.unfinished:
            tally.count("enqueued", rows.unfinished[step])
        tallies.append(tally)
        total.add(tally)
    return Series(
        since=query.since,
        until=query.until,
        step=query.step,
        values={name: [tally.value(name) for tally in tallies] for name in metrics},
        totals=total.values(metrics),
        at_least=() if rows.is_complete or "enqueued" not in metrics else ("enqueued",),
    )


def total_of(rows: StatRows) -> Tally:
    """Add up all steps."""
    total = Tally()
    for tally in rows.tallies.values():
        total.add(tally)
    total.count("enqueued", sum(rows.unfinished.values()))
    return total


def trend(
    now: Mapping[str, float | None], before: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Compare numbers with those of an earlier time: 0.5 is half as much again. None: there is
    nothing to compare with.
    """
    changes: dict[str, float | None] = {}
    for name, value in now.items():
        earlier = before[name]
        changes[name] = None if value is None or not earlier else (value - earlier) / earlier
    return changes
