"""A finding: one measured number, its limit, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`bar` is the promised limit, from above or from below; None: for information only."""

    store: str
    what: str
    value: float
    unit: str
    detail: str = ""
    bar: float | None = None
    is_upper: bool = True

    @classmethod
    def at_most(cls, store: str, what: str, value: float, bar: float, detail: str) -> Finding:
        return cls(store, what, value, "x", detail, bar)

    @classmethod
    def at_least(cls, store: str, what: str, value: float, bar: float, detail: str) -> Finding:
        return cls(store, what, value, "x", detail, bar, is_upper=False)

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        holds = self.value <= self.bar if self.is_upper else self.value >= self.bar
        return f"{'pass' if holds else 'FAIL'} ({'≤' if self.is_upper else '≥'} {self.bar:g})"

    @property
    def shown(self) -> str:
        is_fine = self.unit == "x" or abs(self.value) < 10
        number = f"{self.value:.2f}" if is_fine else f"{self.value:,.0f}"
        return f"{number} {self.unit}".replace(" x", "x")

    @property
    def line(self) -> str:
        return f"{self.store:9} {self.what}: {self.shown} {self.verdict}  {self.detail}".rstrip()

    def as_json(self) -> dict[str, object]:
        return {
            "store": self.store,
            "what": self.what,
            "value": round(self.value, 3),
            "unit": self.unit,
            "detail": self.detail,
            "bar": self.bar,
            "verdict": self.verdict,
        }
