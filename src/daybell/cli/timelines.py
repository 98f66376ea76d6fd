"""What happened to an execution, moment by moment, for a person."""

from __future__ import annotations

from typing import Any

from daybell.cli import show
from daybell.cli.columns import Column
from daybell.cli.describing import precise
from daybell.core.instant import from_iso


def echo_timeline(moments: list[dict[str, Any]]) -> None:
    """Print moments, oldest first, each with the time since the first."""
    times = [from_iso(one["at"]) for one in moments]
    rows = [
        (
            precise(at),
            f"+{show.length(max(0.0, at - times[0]))}",
            one.get("node"),
            _event(one),
            _step(one),
            one.get("attempt"),
            one.get("worker_id"),
        )
        for at, one in zip(times, moments, strict=True)
    ]
    columns = (
        Column("at", rank=0),
        Column("since", rank=3),
        Column("node", least=10, rank=1),
        Column("event", rank=0),
        Column("step", least=10, rank=2),
        Column("attempt", rank=4),
        Column("worker", rank=5),
    )
    left_out = [name for name in ("node", "step") if not any(name in one for one in moments)]
    kept = [n for n, column in enumerate(columns) if column.name not in left_out]
    show.echo_table(
        [columns[n] for n in kept], ([row[n] for n in kept] for row in rows), empty="nothing yet"
    )


def _step(moment: dict[str, Any]) -> str | None:
    until = moment.get("until")
    return moment.get("step") if until is None else f"{moment['step']} (until {until})"


def _event(moment: dict[str, Any]) -> str:
    status = moment.get("status")
    return moment["event"] if status is None else f"{moment['event']}: {status}"
