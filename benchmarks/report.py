"""Results: kept as JSON by day and commit, and shown as one page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.comparison import Comparison
from benchmarks.finding import Finding
from benchmarks.machine import commit, facts

FOLDER: Final = Path(__file__).parent / "results"
Report = dict[str, Any]

TITLES: Final = {
    "throughput": "Throughput of stores",
    "growth": "Growth",
    "size": "Size",
    "firing": "Firing",
    "language": "Language of schedules",
    "serving": "Serving the API",
    "dashboard": "Calls of the dashboard",
    "workflow": "Workflows",
    "durable": "Durable functions",
    "engine throughput": "Engine: throughput",
    "engine logs": "Engine: logs",
    "engine latency": "Engine: latency",
    "engine concurrency": "Engine: concurrency",
    "engine idle": "Engine: idle",
    "engine help": "Engine: help",
    "features": "Features beside a plain job",
    "earlier": "Beside an earlier commit",
    "peers": "Beside other queues",
    "neighbours": "A tenant beside another",
}
EXPLAINED: Final = {
    "throughput": "Executions per second; medians of {rounds} rounds in which store and floor take"
    " turns. The ratio is the median over the rounds, of neighbours in time. In brackets:"
    " microseconds of processor time per execution, clients + server.",
    "growth": "Each figure compares two states of the same store, which are asked in turns.",
    "size": "Executions with arguments of about 90 bytes and a result of about 20.",
    "firing": "One scheduler, as `daybell scheduler` runs it, and a floor that makes the same"
    " writes in the same batches; medians of {rounds} rounds taken in turns, after one that is"
    " dropped.",
    "language": "Finding the next time, beside other libraries that find the same ones: processor"
    " time per call, medians of {rounds} rounds taken in turns. How many times as long they take.",
    "serving": "Processor time per enqueued execution, of `daybell server` and the database"
    " together, as a multiple of what the store's own calls cost (the same batches, or as many"
    " callers at once); medians of {rounds} rounds taken in turns, after one that is dropped. Who"
    " sends the requests is not counted.",
    "dashboard": "Milliseconds of a call to `daybell server`, of 20 in turn, after two that are"
    " dropped: a million executions, 2,000 jobs, 10 runs of 500 nodes.",
    "workflow": "One worker process; times by the store's clock, from the creation of a run to its"
    " end. Plain jobs are enqueued together while the worker waits, in turns with the others;"
    " medians of up to {rounds} rounds, after one that is dropped.",
    "durable": "Steps per second of functions in one worker, from their enqueue to the last step,"
    " and plain inserts of the same rows, fenced by the execution and its attempt, with as many"
    " callers; medians of {rounds} rounds taken in turns, after one that is dropped. Steps that are"
    " made at the same time share a write, so that many at once may beat what is plain.",
    "engine throughput": "Jobs per second from a full queue to the last end, by whole worker"
    " processes as `daybell worker` runs them (column store/s), next to as many clients of the"
    " floor with batches of 500 and the same rows; medians of {rounds} rounds taken in turns, after"
    " one that is dropped. History and attempt log are on; after every run it is checked that each"
    " job ran once, by a counter in the task and by SQL.",
    "engine logs": "Jobs per second of a task that logs one line, with what it says kept (column"
    " store/s) and, as the floor, not; both as `daybell worker` runs them, in turns.",
    "engine latency": "By one monotonic clock for the process that enqueues and the one that works,"
    " from the call of `enqueue` to the first line of the task. A round trip is a bare `SELECT 1`"
    " on a connection of its own, the median of those made between the jobs, at the same rate.",
    "engine concurrency": "One worker process, watched from outside: memory as the system counts"
    " it, heartbeats as the store has dated them.",
    "engine idle": "Processes started by their own commands, left alone. Processor time is the"
    " system's; statements are counted in the server's log with log_statement = all.",
    "engine help": "Processor time, user and system, of the whole process.",
    "features": "One `daybell worker` process drains a full queue of each kind of job; rates as"
    " parts of that of plain jobs, which have three arguments and record one effect; medians of "
    " {rounds} rounds. Processor time per job: worker + server (`python -m benchmarks.features`).",
    "earlier": "Ratios to an earlier commit, more is better: both sides in processes of their own,"
    " on databases of one server, in turns; medians of {rounds} rounds"
    " (`python -m benchmarks.earlier COMMIT`).",
    "peers": "Each queue with its own client and worker as its documentation advises, on databases"
    " of one server; medians of {rounds} interleaved passes (`python -m benchmarks.peers RIG`).",
    "neighbours": "Waits of one tenant's requests (triggers and lists, 50 a second) while another"
    " tenant enqueues 10,000 executions per request on 12 connections, by one server; medians of"
    " {rounds} rounds (`python -m benchmarks.neighbours COMMIT`).",
}


def new_report(rounds: int) -> Report:
    """An empty report of this commit and machine."""
    today = datetime.now(UTC).date().isoformat()
    return {"date": today, "commit": commit(), "rounds": rounds, "machine": facts()}


def add(report: Report, part: str, lines: list[Comparison] | list[Finding]) -> None:
    report.setdefault(part, []).extend(line.as_json() for line in lines)


def save(report: Report) -> Path:
    """Write the report. Parts that were measured earlier on this day and commit are kept."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{report['date']}-{report['commit'].rstrip('+')}.json"
    if file.exists():
        report = merged(json.loads(file.read_text()), report)
    file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    (FOLDER / "latest.md").write_text(page(report))
    return file


def merged(old: Report, new: Report) -> Report:
    """The new figures, and those of the old that were not measured again."""
    result = old | {key: value for key, value in new.items() if key not in TITLES}
    for part in TITLES:
        fresh = new.get(part, [])
        measured = {(line["store"], line["what"]) for line in fresh}
        kept = [one for one in old.get(part, []) if (one["store"], one["what"]) not in measured]
        if fresh or kept:
            result[part] = kept + fresh
    return result


def page(report: Report) -> str:
    """The report for people."""
    changed = ", with uncommitted changes" if report["commit"].endswith("+") else ""
    text = [
        "# Benchmarks",
        "",
        f"Commit {report['commit'].rstrip('+')}{changed}, {report['date']}. Made by `make bench`.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in report["machine"].items()),
    ]
    for part, title in TITLES.items():
        if part in report:
            explained = EXPLAINED[part].format(rounds=report["rounds"])
            text += ["", f"## {title}", "", explained, ""]
            show = comparisons if "ratios" in report[part][0] else findings
            text += show(report[part])
    return "\n".join(text) + "\n"


def comparisons(lines: list[dict[str, Any]]) -> list[str]:
    text = [
        "| store | what | store/s | floor/s | ratio | range | bar |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for line in lines:
        cpu = {
            side: f"{line['client_us'][side]:.0f} + {line['server_us'][side]:.0f}"
            for side in ("store", "floor")
        }
        low, high = min(line["ratios"]), max(line["ratios"])
        text.append(
            f"| {line['store']} | {line['what']} | {line['store_per_second']:,} ({cpu['store']})"
            f" | {line['floor_per_second']:,} ({cpu['floor']}) | {line['ratio']:.2f}"
            f" | {low:.2f} to {high:.2f} | {line['verdict']} |"
        )
    return text


def findings(lines: list[dict[str, Any]]) -> list[str]:
    text = ["| store | what | figure | bar | detail |", "|---|---|--:|---|---|"]
    for line in lines:
        shown = Finding(line["store"], line["what"], line["value"], line["unit"]).shown
        text.append(
            f"| {line['store']} | {line['what']} | {shown} | {line['verdict']} | {line['detail']} |"
        )
    return text
