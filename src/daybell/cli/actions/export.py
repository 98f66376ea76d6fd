"""`daybell export`: executions, attempts, log lines and ticks, one page in memory at a time."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from importlib import import_module
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

import msgspec

from daybell.cli import output
from daybell.cli.connection import client_for
from daybell.cli.runtime import DONE, print_stderr
from daybell.cli.terminal import INTERRUPTED, current_actor
from daybell.client import answers, wire
from daybell.client.remote.client import AnyClient
from daybell.client.requests import read_bound
from daybell.client.when import DAY
from daybell.core.limits import CALENDAR_DAYS_MAX, PAGE_ITEMS_MAX
from daybell.core.monitoring.exports import LATE_SECONDS
from daybell.core.units import Instant, to_datetime, to_iso
from daybell.core.views import Page
from daybell.errors import UsageError, install_advice, shown
from daybell.settings import Settings

KINDS: Final = ("executions", "attempts", "logs", "ticks")
FORMATS: Final = ("jsonl", "parquet")
OF_EXECUTIONS: Final = frozenset({"executions", "attempts", "logs"})
TICKS: Final = "ticks:"  # the beginning of a cursor that continues among ticks
# The range of ticks that are read together. It doubles while there are none: the first may be
# years away.
WINDOW_SECONDS: Final = DAY
WINDOW_SECONDS_MAX: Final = CALENDAR_DAYS_MAX * DAY
GROUP_ROWS: Final = 10_000  # of a parquet file, in memory at a time

Record: TypeAlias = dict[str, Any]


class AttemptRow(wire.Attempt, frozen=True, kw_only=True):
    """One attempt of an exported execution."""

    execution_id: str
    job: str


class LogRow(wire.LogLine, frozen=True, kw_only=True):
    """One log line of an exported execution."""

    execution_id: str
    job: str


class TickRow(wire.Fire, frozen=True, kw_only=True):
    """One recorded tick of an exported schedule."""

    schedule_id: str
    job: str
    schedule: str


ROWS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "executions": wire.Execution,
    "attempts": AttemptRow,
    "logs": LogRow,
    "ticks": TickRow,
}


class Sink(Protocol):
    """A file in one of the formats."""

    def write(self, kind: str, row: msgspec.Struct) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class JsonLines:
    """One JSON object per line; `kind` names the type of its row."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, kind: str, row: msgspec.Struct) -> None:
        fields = {"kind": kind, **msgspec.structs.asdict(row)}
        self._stream.write(msgspec.json.encode(fields) + b"\n")

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.flush()


class ParquetFile:
    """A table with a column per field; values without a plain type are JSON."""

    def __init__(self, path: str, kind: str) -> None:
        try:
            self._arrow: Any = import_module("pyarrow")
            parquet: Any = import_module("pyarrow.parquet")
        except ImportError:
            advice = install_advice("parquet")
            raise UsageError(f"parquet files: {advice}", field="format") from None
        described: Any = msgspec.inspect.type_info(ROWS[kind])
        self._types: dict[str, str] = {one.name: _column(one.type) for one in described.fields}
        columns = [(name, self._type(one)) for name, one in self._types.items()]
        self._schema: Any = self._arrow.schema(columns)
        self._rows: list[Record] = []
        self._writer: Any = parquet.ParquetWriter(path, self._schema, compression="zstd")

    def _type(self, name: str) -> Any:
        is_time = name == "time"
        return self._arrow.timestamp("us", "UTC") if is_time else self._arrow.type_for_alias(name)

    def write(self, kind: str, row: msgspec.Struct) -> None:
        fields = msgspec.structs.asdict(row).items()
        self._rows.append({name: _plain(value, self._types[name]) for name, value in fields})
        if len(self._rows) >= GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, self._schema))
            self._rows.clear()

    def flush(self) -> None:
        """Do nothing: a file that is not closed cannot be read."""

    def close(self) -> None:
        self._write_group()
        self._writer.close()


_COLUMNS: Final[Mapping[Any, str]] = {
    msgspec.inspect.DateTimeType: "time",
    msgspec.inspect.IntType: "int64",
    msgspec.inspect.FloatType: "float64",
    msgspec.inspect.BoolType: "bool",
}


def _column(of: Any) -> str:
    """Return the type of a column: `time`, or a name that Arrow knows."""
    if isinstance(of, msgspec.inspect.Metadata):
        return _column(of.type)
    if isinstance(of, msgspec.inspect.UnionType):
        parts = [one for one in of.types if not isinstance(one, msgspec.inspect.NoneType)]
        return _column(parts[0]) if len(parts) == 1 else "string"
    return _COLUMNS.get(type(of), "string")


def _plain(value: Any, column: str) -> Any:
    if column != "string" or value is None:
        return value
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


class Export:
    """One run of the command. `cursor` is where another run continues."""

    def __init__(self, client: AnyClient, kinds: frozenset[str], cursor: str | None) -> None:
        self._client = client
        self._kinds = kinds
        self.cursor = cursor
        self.counts = dict.fromkeys((kind for kind in KINDS if kind in kinds), 0)

    async def write(self, sink: Sink, since: Instant, until: Instant) -> AsyncGenerator[None]:
        """Write all rows; yield after each page, which is written as a whole."""
        if self._kinds & OF_EXECUTIONS and not (self.cursor or "").startswith(TICKS):
            async for page in self._executions(since, until):
                for one in page:
                    async for kind, row in self._of_execution(one):
                        self._put(sink, kind, row)
                sink.flush()
                yield
        if "ticks" in self._kinds:
            begin = float((self.cursor or TICKS).removeprefix(TICKS) or since)
            window = WINDOW_SECONDS
            while begin < until:
                end = min(begin + window, until)
                window = min(2 * window, WINDOW_SECONDS_MAX)
                async for row in self._ticks(begin, end):
                    self._put(sink, "ticks", row)
                    window = WINDOW_SECONDS
                sink.flush()
                begin, self.cursor = end, f"{TICKS}{end!r}"
                yield

    def _put(self, sink: Sink, kind: str, row: msgspec.Struct) -> None:
        sink.write(kind, row)
        self.counts[kind] += 1

    async def _executions(
        self, since: Instant, until: Instant
    ) -> AsyncGenerator[tuple[wire.Execution, ...]]:
        """Yield pages of executions that ended in the range, newest first."""
        while True:
            page = await self._client.executions(
                ended_since=to_datetime(since),
                ended_until=to_datetime(until),
                nodes=True,
                limit=PAGE_ITEMS_MAX,
                cursor=self.cursor,
            )
            yield page.items
            self.cursor = page.next_cursor or f"{TICKS}{since!r}"
            if page.next_cursor is None:
                return

    async def _of_execution(
        self, one: wire.Execution
    ) -> AsyncGenerator[tuple[str, msgspec.Struct]]:
        of: dict[str, Any] = {"execution_id": str(one.execution_id), "job": one.job}
        is_retried = one.attempt > 1 and "attempts" in self._kinds
        if one.truncated or is_retried:
            detail = await self._client.execution(one.execution_id)
            attempts = detail.attempts
            names = one.__struct_fields__
            one = wire.Execution(**{name: getattr(detail, name) for name in names})
        else:
            attempts = [] if one.outcome is None else [_only_attempt(one)]
        if "executions" in self._kinds:
            yield "executions", one
        if "attempts" in self._kinds:
            for attempt in attempts:
                yield "attempts", AttemptRow(**msgspec.structs.asdict(attempt), **of)
        if "logs" in self._kinds and (one.started_at is not None or one.attempt > 1):
            async for part in self._client.log_parts(one.execution_id):
                for line in answers.log_lines(part):
                    yield "logs", LogRow(**msgspec.structs.asdict(line), **of)

    async def _ticks(self, begin: Instant, end: Instant) -> AsyncGenerator[TickRow]:
        """Yield the recorded ticks of all schedules."""
        cursor = None
        while True:
            page = await self._calendar(begin, end, cursor)
            async for row in self._of_schedules(page, begin, end, cursor):
                yield row
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _calendar(
        self, begin: Instant, end: Instant, cursor: str | None
    ) -> Page[wire.CalendarEntry]:
        return await self._client.upcoming(
            since=to_datetime(begin), until=to_datetime(end), limit=PAGE_ITEMS_MAX, cursor=cursor
        )

    async def _of_schedules(
        self,
        page: Page[wire.CalendarEntry],
        begin: Instant,
        end: Instant,
        cursor: str | None,
    ) -> AsyncGenerator[TickRow]:
        """Yield the ticks of the schedules on a page. A range with too many is halved."""
        if any(one.has_more for one in page.items):
            half = (begin + end) / 2
            for part in ((begin, half), (half, end)):
                page = await self._calendar(*part, cursor)
                async for row in self._of_schedules(page, *part, cursor):
                    yield row
            return
        for one in page.items:
            for fire in one.fires:
                if fire.decision != "upcoming" and fire.at >= to_datetime(begin):
                    yield TickRow(
                        **msgspec.structs.asdict(fire),
                        schedule_id=str(one.schedule_id),
                        job=one.job,
                        schedule=one.name,
                    )


def _only_attempt(one: wire.Execution) -> wire.Attempt:
    """Return the attempt of an execution that had one."""
    assert one.outcome is not None
    assert one.finished_at is not None
    return wire.Attempt(
        attempt=one.attempt,
        outcome=one.outcome,
        worker_id=one.worker_id,
        started_at=one.started_at,
        ended_at=one.finished_at,
        error=one.error,
    )


async def export(
    settings: Settings,
    *,
    since: str | None,
    until: str | None,
    format: str,
    what: str,
    file: str | None,
    cursor: str | None,
    policy: str | None,
    tenant: str | None,
) -> int:
    if policy is not None and (since or until or cursor):
        raise UsageError("--policy knows where it continues; leave --since, --until and --cursor")
    kinds = _read_kinds(what)
    if format not in FORMATS:
        raise UsageError(f"--format {shown(format)} is not one of {', '.join(FORMATS)}")
    if format == "parquet" and (file is None or len(kinds) > 1 or cursor is not None):
        raise UsageError(
            "a parquet file has one kind of rows and is written as a whole: name --output FILE and"
            " one of --what executions, attempts, logs, ticks, without --cursor"
        )
    async with client_for(settings, tenant=tenant) as client:
        now = (await client.health()).now
        begin = 0.0 if since is None else read_bound(since, "since", now=now)
        end = now if until is None else read_bound(until, "until", now=now)
        if policy is not None:
            begin, end = await _exported_until(client, policy), now - LATE_SECONDS
            if begin >= end:
                print_stderr(f"nothing to export since {to_iso(begin)}")
                return DONE
        if begin >= end:
            raise UsageError("--since must be before --until", field="since")
        run = Export(client, kinds, cursor)
        with ExitStack() as stack:
            sink = _open(stack, format, file, kinds, is_continued=cursor is not None)
            say = stack.enter_context(output.show_status("exporting", quiet=file is None))
            try:
                async for _ in run.write(sink, begin, end):
                    say(f"exported {_counted(run.counts)}")
            except (asyncio.CancelledError, BrokenPipeError):
                _advise(run, begin, end, what, file, format)
                return INTERRUPTED
            sink.close()
        if policy is not None:
            await client.hold_export(policy, to_iso(end), author=current_actor())
    print_stderr(f"exported {_counted(run.counts)}; ended before {to_iso(end)}")
    return DONE


async def _exported_until(client: AnyClient, policy: str) -> Instant:
    """Return where a repeated export continues, and hold retention there from the first on."""
    known = {one.name: one.until for one in await client.export_policies()}
    if policy in known:
        return known[policy].timestamp()
    await client.hold_export(policy, to_iso(0.0), author=current_actor())
    return 0.0


async def release(settings: Settings, *, name: str, tenant: str | None) -> int:
    async with client_for(settings, tenant=tenant) as client:
        await client.release_export(name)
    print_stderr(f"retention waits no longer for export {name}")
    return DONE


def _read_kinds(what: str) -> frozenset[str]:
    kinds = frozenset(one.strip() for one in what.split(","))
    if unknown := kinds - {*KINDS}:
        raise UsageError(
            f"--what {shown(min(unknown))} cannot be exported; there are {', '.join(KINDS)}",
            field="what",
        )
    return kinds


def _open(
    stack: ExitStack, format: str, file: str | None, kinds: frozenset[str], *, is_continued: bool
) -> Sink:
    if format == "parquet":
        assert file is not None
        (kind,) = kinds
        _refuse_existing(file)
        return ParquetFile(file, kind)
    if file is None:
        return JsonLines(sys.stdout.buffer)
    if not is_continued:
        _refuse_existing(file)
    try:
        return JsonLines(stack.enter_context(open(file, "ab")))
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", field="output") from error


def _refuse_existing(file: str) -> None:
    if os.path.lexists(file):
        raise UsageError(
            f"{file} exists; name another file, or remove it. --cursor continues one",
            field="output",
        )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {kind}" for kind, number in counts.items())


def _advise(
    run: Export, begin: Instant, end: Instant, what: str, file: str | None, format: str
) -> None:
    """Print the command that continues. It writes the rows of the interrupted page again."""
    words = ["daybell", "export", "--since", to_iso(begin), "--until", to_iso(end), "--what", what]
    words += [] if file is None else ["--output", file]
    words += [] if run.cursor is None else ["--cursor", run.cursor]
    done = f"stopped after {_counted(run.counts)}"
    more = "" if format == "parquet" else f"; continue with: {shlex.join(words)}"
    print_stderr(done + more)
