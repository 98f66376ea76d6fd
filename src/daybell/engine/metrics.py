"""Metrics of one process: counted at the border to the store, and from events of the scheduler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, cast

from daybell.core.lifecycle import Ruling
from daybell.core.monitoring.metrics import Distribution, Labels, Reading
from daybell.core.monitoring.stats import bucket_of
from daybell.core.units import Seconds
from daybell.engine.events import Fired
from daybell.engine.lease import NO_WORKER
from daybell.engine.loop import Clock, Loop
from daybell.errors import DaybellError, LeaseLost
from daybell.store.protocol import Store

LAG_SECONDS: Final = 1.0  # between two looks at the lag of the event loop
PORTS: Final = ("queue", "schedules", "runs", "catalog", "admin")


class Meter:
    """Counters, histograms and gauges of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, Labels], float] = {}
        self._distributions: dict[tuple[str, Labels], tuple[dict[int, int], list[float]]] = {}
        self._gauges: list[Callable[[], Iterator[Reading]]] = []
        self._lost: set[object] = set()  # workers whose lease was lost
        self._looked_at = clock.monotonic()
        self.loop = Loop("lag", self._tick, interval=LAG_SECONDS, clock=clock)

    def count(self, name: str, *labels: str, number: float = 1) -> None:
        """Add to a counter."""
        key = name, labels
        self._counts[key] = self._counts.get(key, 0) + number

    def observe(self, name: str, *labels: str, seconds: Seconds) -> None:
        """Add a duration to a histogram."""
        found = self._distributions.get((name, labels))
        if found is None:
            found = self._distributions[name, labels] = ({}, [0.0])
        buckets, total = found
        bucket = bucket_of(seconds)
        buckets[bucket] = buckets.get(bucket, 0) + 1
        total[0] += seconds

    def gauge(self, read: Callable[[], Iterator[Reading]]) -> None:
        """Read these values whenever the metrics are read."""
        self._gauges.append(read)

    def readings(self) -> Iterator[Reading]:
        """Read all values."""
        for (name, labels), value in list(self._counts.items()):
            yield Reading(name, labels, value)
        for (name, labels), (buckets, total) in list(self._distributions.items()):
            yield Reading(name, labels, Distribution(dict(buckets), total[0]))
        for read in self._gauges:
            yield from read()

    def __call__(self, event: object) -> None:
        """Observe the events of the scheduler."""
        if isinstance(event, Fired):
            self.observe("schedule_lateness_seconds", seconds=max(0.0, event.late))
            for tick in event.firing.ticks:
                self.count("ticks_total", str(tick.decision), number=tick.count)

    async def _tick(self) -> Seconds | None:
        now = self._clock.monotonic()
        self.observe(
            "event_loop_lag_seconds", seconds=max(0.0, now - self._looked_at - LAG_SECONDS)
        )
        self._looked_at = now
        return None

    def watch_slots(self, used: Callable[[], int], capacity: int) -> None:
        """Report the slots of a worker."""

        def read() -> Iterator[Reading]:
            yield Reading("worker_slots", ("used",), used())
            yield Reading("worker_slots", ("free",), max(0, capacity - used()))

        self.gauge(read)

    def metered(self, store: Store) -> Store:
        """Return this store with its operations counted and timed, and its connections counted."""

        def read() -> Iterator[Reading]:
            yield Reading("store_connections_total", (), store.connections_made)

        self.gauge(read)
        return cast("Store", MeteredStore(store, self))

    def timed(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        """Return an operation that is counted and timed."""
        watch = _WATCHES.get(name)

        async def call(*args: Any, **options: Any) -> Any:
            began = self._clock.monotonic()
            try:
                answer = await method(*args, **options)
            except DaybellError as error:
                self.count("store_errors_total", name, error.code)
                if isinstance(error, LeaseLost):
                    self._lose(options.get("worker"))
                raise
            finally:
                elapsed = self._clock.monotonic() - began
                self.observe("store_operation_seconds", name, seconds=elapsed)
            if watch is not None:
                watch(self, answer, options)
            return answer

        return call

    def _lose(self, worker: object) -> None:
        """Count the lease of a worker as lost, once."""
        if worker not in (None, NO_WORKER) and worker not in self._lost:
            self._lost.add(worker)
            self.count("lost_leases_total")

    def _claimed(self, answer: Any, options: dict[str, Any]) -> None:
        self.count("claims_total", "some" if answer.executions else "none")
        self.count("claimed_executions_total", number=len(answer.executions))

    def _applied(self, answer: Any, options: dict[str, Any]) -> None:
        if options.get("wait", True):  # the reaper takes what it can get
            stale = sum(verdict.ruling is Ruling.STALE for verdict in answer)
            self.count("stale_reports_total", number=stale)

    def _reported(self, answer: Any, options: dict[str, Any]) -> None:
        self.count("stale_reports_total", number=len(answer))

    def _renewed(self, answer: Any, options: dict[str, Any]) -> None:
        self.count("lease_renewals_total")

    def _registered(self, answer: Any, options: dict[str, Any]) -> None:
        self._lose(options.get("replaces"))


_WATCHES: Final[dict[str, Callable[[Meter, Any, dict[str, Any]], None]]] = {
    "claim": Meter._claimed,  # pyright: ignore[reportPrivateUsage]
    "apply": Meter._applied,  # pyright: ignore[reportPrivateUsage]
    "report": Meter._reported,  # pyright: ignore[reportPrivateUsage]
    "renew": Meter._renewed,  # pyright: ignore[reportPrivateUsage]
    "register": Meter._registered,  # pyright: ignore[reportPrivateUsage]
}


class MeteredPort:
    """A port, or the store itself, whose asynchronous operations are timed."""

    def __init__(self, port: Any, meter: Meter) -> None:
        self._port = port
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        found: Any = getattr(self._port, name)
        if not callable(found):
            return found
        if name == "audited":
            return found
        timed = self._meter.timed(name, cast("Callable[..., Awaitable[Any]]", found))
        setattr(self, name, timed)  # looked up once
        return timed


class MeteredStore(MeteredPort):
    """A store whose operations are timed."""

    def __init__(self, store: Store, meter: Meter) -> None:
        super().__init__(store, meter)
        for name in PORTS:
            setattr(self, name, MeteredPort(getattr(store, name), meter))
