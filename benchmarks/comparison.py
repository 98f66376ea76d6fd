"""A comparison of store and floor: samples taken in turns, and their ratios."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from benchmarks.sides import SideName


@dataclass
class Sample:
    """One timed run of one side."""

    count: int
    seconds: float
    client_cpu: float = 0.0
    server_cpu: float = 0.0

    @property
    def rate(self) -> float:
        return self.count / self.seconds


@dataclass
class Comparison:
    """One line of the table. `bar`: the promised ratio, if there is one."""

    store: str
    what: str
    bar: float | None = None
    samples: dict[SideName, list[Sample]] = field(
        default_factory=lambda: {"store": [], "floor": []}
    )

    def rate(self, side: SideName) -> float:
        return median(sample.rate for sample in self.samples[side])

    def cpu(self, side: SideName, where: str) -> float:
        """Microseconds of processor time per execution, of the clients or of the server."""
        return median(getattr(sample, where) / sample.count * 1e6 for sample in self.samples[side])

    @property
    def ratios(self) -> list[float]:
        """Of neighbours in time: the machine's own changes of pace cancel out."""
        pairs = zip(self.samples["store"], self.samples["floor"], strict=True)
        return [ours.rate / theirs.rate for ours, theirs in pairs]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return f"{'pass' if self.ratio >= self.bar else 'FAIL'} (≥ {self.bar:.2f})"

    def as_json(self) -> dict[str, object]:
        return {
            "store": self.store,
            "what": self.what,
            "store_per_second": round(self.rate("store")),
            "floor_per_second": round(self.rate("floor")),
            "ratio": round(self.ratio, 3),
            "ratios": [round(ratio, 3) for ratio in self.ratios],
            "bar": self.bar,
            "verdict": self.verdict,
            "client_us": {s: round(self.cpu(s, "client_cpu"), 1) for s in self.samples},
            "server_us": {s: round(self.cpu(s, "server_cpu"), 1) for s in self.samples},
            "samples": {s: [round(one.rate) for one in v] for s, v in self.samples.items()},
        }
