"""Metrics for Prometheus: their names, labels and texts, and their exposition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from daybell.core.monitoring.stats import BOUNDS, Histogram

PREFIX: Final = "daybell_"
LIMITS_MAX: Final = 200  # of a tenant, by name
JOBS_MAX: Final = 200  # with a label of their own; the others are `other`
OTHER: Final = "other"


class Metric(NamedTuple):
    """A metric: its name without the prefix, its type, its labels and its meaning."""

    name: str
    kind: str  # counter, gauge or histogram
    labels: tuple[str, ...]
    about: str


# Of the store as a whole: only servers report them, and each server reports the same values.
OF_STORE: Final = (
    Metric(
        "executions_finished_total", "counter", ("tenant", "queue", "kind", "job", "state"),
        "Executions that ended, by the state in which they ended.",
    ),
    Metric(
        "attempts_total", "counter", ("tenant", "queue", "kind", "outcome"),
        "Attempts: started, failed, lost with their worker, retried, or started a minute late.",
    ),
    Metric(
        "start_delay_seconds", "histogram", ("tenant", "queue", "kind"),
        "Time from when an attempt could start to its start.",
    ),
    Metric("run_seconds", "histogram", ("tenant", "queue", "kind"), "Run time of attempts."),
    Metric(
        "queue_depth", "gauge", ("tenant", "queue", "state"),
        "Unfinished executions. Counts end at 10,000 of a kind.",
    ),
    Metric(
        "queue_oldest_seconds", "gauge", ("tenant", "queue"),
        "Age of the oldest execution that could start and was not claimed.",
    ),
    Metric("queue_paused", "gauge", ("tenant", "queue"), "1 for a queue that is paused."),
    Metric(
        "limit_executions", "gauge", ("tenant", "limit", "state"),
        "Executions that have a limit, or wait for one. Counts end at 10,000.",
    ),
    Metric("workers", "gauge", ("tenant", "state"), "Workers, by state."),
    Metric("worker_capacity", "gauge", ("tenant",), "Slots of all live workers."),
    Metric("schedules_due", "gauge", (), "Schedules whose time has come, up to 1,000."),
    Metric("schedule_overdue_seconds", "gauge", (), "Age of the oldest time that did not fire."),
    Metric("leader_epoch", "gauge", ("role",), "How many leaders a role has had."),
    Metric(
        "store_oldest_transaction_seconds", "gauge", (),
        "Age of the oldest open transaction (PostgreSQL).",
    ),
    Metric(
        "store_dead_tuples", "gauge", ("table",),
        "Dead rows of the tables of the hot path (PostgreSQL).",
    ),
    Metric(
        "store_missing_partitions", "gauge", (),
        "Partitions of today and the next day that do not exist (PostgreSQL).",
    ),
    Metric("store_log_bytes", "gauge", (), "Size of the logs of tasks (PostgreSQL)."),
    Metric("store_bytes", "gauge", (), "Size of the database."),
    Metric("store_wal_bytes", "gauge", (), "Size of the write-ahead log (SQLite)."),
)  # fmt: skip

# Of one process: each process reports its own.
OF_PROCESS: Final = (
    Metric("claims_total", "counter", ("result",), "Claims that took some executions, or none."),
    Metric("claimed_executions_total", "counter", (), "Executions that claims took."),
    Metric("worker_slots", "gauge", ("state",), "Slots of the worker that are used or free."),
    Metric("lease_renewals_total", "counter", (), "Renewals of leases."),
    Metric("lost_leases_total", "counter", (), "Leases that ended while their worker was alive."),
    Metric(
        "stale_reports_total", "counter", (),
        "Reports that the fence rejected: the execution was given to another worker.",
    ),
    Metric(
        "schedule_lateness_seconds", "histogram", (),
        "Time from a tick of a schedule until the scheduler fired it.",
    ),
    Metric("ticks_total", "counter", ("decision",), "Ticks: fired, skipped or missed."),
    Metric("store_operation_seconds", "histogram", ("operation",), "Time of store operations."),
    Metric("store_errors_total", "counter", ("operation", "code"), "Store operations that failed."),
    Metric(
        "store_connections_total", "counter", (),
        "Connections to the database that were opened: the first ones, and reconnects.",
    ),
    Metric("event_loop_lag_seconds", "histogram", (), "How late the event loop runs what is due."),
)  # fmt: skip
METRICS: Final[Mapping[str, Metric]] = {one.name: one for one in (*OF_STORE, *OF_PROCESS)}


class Distribution(NamedTuple):
    """The value of a histogram: durations by the buckets of `core.monitoring.stats`."""

    buckets: Histogram
    seconds: float | None = None  # their sum, if it is known; otherwise it is estimated


Labels = tuple[str, ...]
Value = float | Distribution


class Reading(NamedTuple):
    """A value of a metric."""

    metric: str
    labels: Labels
    value: Value


# Three bounds for each factor of ten, out of those that are counted.
_LE: Final = tuple(
    (place, bound)
    for place, bound in enumerate(BOUNDS)
    if f"{bound:e}"[:3] in ("1.0", "2.2", "4.7") and bound <= 100_000
)


def expose(readings: Iterable[Reading], metrics: Iterable[Metric]) -> bytes:
    """Write these metrics in the text format of Prometheus. Counters and histograms without labels
    begin at zero.
    """
    # It takes a tenth of a second, and most processes are never asked.
    from prometheus_client import core, generate_latest

    families = _Families(list(_families(core, readings, metrics)))
    return generate_latest(families)  # pyright: ignore[reportArgumentType]


class _Families:
    """A registry of values that were read before."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        return self._families


def _families(
    families: Any, readings: Iterable[Reading], metrics: Iterable[Metric]
) -> Iterator[Any]:
    by_name: dict[str, dict[Labels, Value]] = {}
    for name, labels, value in readings:
        by_name.setdefault(name, {})[labels] = value
    kinds = {
        "counter": families.CounterMetricFamily,
        "gauge": families.GaugeMetricFamily,
        "histogram": families.HistogramMetricFamily,
    }
    for metric in metrics:
        values = by_name.get(metric.name, {})
        if not values and not metric.labels and metric.kind != "gauge":
            values = {(): Distribution({}, 0.0) if metric.kind == "histogram" else 0.0}
        family: Any = kinds[metric.kind](PREFIX + metric.name, metric.about, labels=metric.labels)
        for labels, value in sorted(values.items(), key=lambda one: one[0]):
            if isinstance(value, Distribution):
                family.add_metric(labels, _cumulative(value), sum_value=_sum(value))
            else:
                family.add_metric(labels, value)
        yield family


def _cumulative(value: Distribution) -> list[tuple[str, float]]:
    """The number of durations up to each bound."""
    total = 0
    found: list[tuple[str, float]] = []
    last = 0
    for place, bound in _LE:
        total += sum(value.buckets.get(bucket, 0) for bucket in range(last, place + 1))
        last = place + 1
        found.append((str(bound), total))
    found.append(("+Inf", sum(value.buckets.values())))
    return found


def _sum(value: Distribution) -> float:
    if value.seconds is not None:
        return value.seconds
    return sum(
        count * (BOUNDS[min(bucket, len(BOUNDS) - 1)] + (BOUNDS[bucket - 1] if bucket else 0.0)) / 2
        for bucket, count in value.buckets.items()
    )
