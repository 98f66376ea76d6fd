"""One line per start and end of an execution, for a person at a terminal."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TextIO
from uuid import UUID

from daybell.cli import output, runtime
from daybell.cli.views.transcripts import error_line
from daybell.core.execution import Claimed, Execution, State
from daybell.core.lifecycle import Ruling, Transition
from daybell.core.schedule import Decision
from daybell.core.units import Instant
from daybell.engine.events import Ended, Fired, RunEnded, Started, WorkerLost
from daybell.engine.loop import Clock

# Faster than a person reads. More of them are counted instead of printed.
LINES_PER_SECOND_MAX: Final = 40
ERROR_CHARS_MAX: Final = 200
RUNS_MAX: Final = 10_000  # workflow runs, with names kept for their nodes


class Narrator:
    """An observer of the engine's events.

    `quiet` leaves out events that are normal, `level` those that a log of that level leaves out.
    `on_gone` is called when the reader has gone. `who` is printed in each line where several
    processes share a stream.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        quiet: bool = False,
        out: TextIO | None = None,
        on_gone: Callable[[], None] = lambda: None,
        who: str = "",
        level: int = logging.NOTSET,
    ) -> None:
        self._clock = clock
        self._quiet = quiet
        self._level = level
        self._out = out or sys.stdout
        self._on_gone = on_gone
        self._who = f" {output.printable(who)}" if who else ""
        self._is_colourful = self._out.isatty()
        self._window = clock.monotonic()
        self._printed = 0
        self._left_out = 0
        self._runs: dict[UUID, str] = {}  # the workflows of runs that have begun here

    def __call__(self, event: object) -> None:
        if isinstance(event, Started):
            self._remember(event.claimed)
            if not self._quiet:
                again = f"attempt {event.claimed.attempt}" if event.claimed.attempt > 1 else ""
                self._say("started", event.claimed, again)
        elif isinstance(event, Ended):
            self._ended(event)
        elif isinstance(event, RunEnded):
            self._run_ended(event.run)
        elif isinstance(event, WorkerLost):
            then = f"its worker is gone; it is {event.transition.target} now"
            self._say("lost", event.claimed, then)
        elif isinstance(event, Fired):
            self._fired(event)

    def _ended(self, event: Ended) -> None:
        move, claimed = event.transition, event.claimed
        if event.verdict is not None and event.verdict.ruling is Ruling.STALE:
            self._say("too late", claimed, "somebody else has it now")
            return
        word = str(move.target)
        if event.verdict is not None and event.verdict.ruling is Ruling.CANCELLED:
            word = "cancelled"
        if self._quiet and word not in (State.RETRYING, State.DEAD):
            return
        word = "given back" if word == State.QUEUED else word
        if self._has_room(word):  # before the error is parsed: of many, most are left out
            self._print(word, claimed.id, f"{self._named(claimed)} {_end_of(move, word)}", claimed)

    def _run_ended(self, run: Execution) -> None:
        """Print the line for the end of an execution, which belongs to the line of its start."""
        if self._quiet and run.state is not State.DEAD:
            return
        took = _length_of(run)
        error = (error_line(run.error) or "")[:ERROR_CHARS_MAX]
        job = self._named(run)
        rest = f"{took}: {error}" if error else took
        self._line(str(run.state), run.id, f"{job} {rest}", run)

    def _fired(self, event: Fired) -> None:
        """Print ticks without an execution; a fired tick is printed when its execution starts."""
        for tick in event.firing.ticks:
            if tick.decision is Decision.MISSED:
                until = (
                    f" to {_clock_time(tick.until)}" if tick.until not in (None, tick.at) else ""
                )
                why = f": {tick.reason}" if tick.reason else ""
                number = output.format_count(tick.count, "tick")
                said = f"{event.job} {number} from {_clock_time(tick.at)}{until}{why}"
                self._line("missed", event.firing.schedule, said)

    def _say(self, word: str, claimed: Claimed, rest: str) -> None:
        self._line(word, claimed.id, f"{self._named(claimed)} {rest}", claimed)

    def _remember(self, claimed: Claimed) -> None:
        if claimed.kind == "workflow":
            self._runs[claimed.id] = claimed.job
            if len(self._runs) > RUNS_MAX:
                del self._runs[next(iter(self._runs))]

    def _named(self, one: Claimed | Execution) -> str:
        """Return its job; for a node, the workflow and the node. A node that runs another job is an
        execution of that job. Its workflow is known in the process where the run has begun.
        """
        if one.node is None or one.parent is None:
            return one.job
        return f"{self._runs.get(one.parent, one.job)}, {one.node}"

    def _line(self, word: str, id: UUID, rest: str, one: Claimed | Execution | None = None) -> None:
        if self._has_room(word):
            self._print(word, id, rest, one)

    def _has_room(self, word: str) -> bool:
        """Return True if a line is to be printed, and count one that is left out."""
        if _LEVELS.get(word, logging.INFO) < self._level:
            return False
        if not self._may_print():
            self._left_out += 1
            return False
        return True

    def _print(self, word: str, id: UUID, rest: str, one: Claimed | Execution | None) -> None:
        if runtime.spoken is not None:
            extra: dict[str, object] = {}
            if one is not None:
                extra = {"job": one.job, "execution_id": str(one.id), "attempt": one.attempt}
            said = f"{word} {output.printable(rest.rstrip())}"
            runtime.spoken.log(_LEVELS.get(word, logging.INFO), "%s", said, extra=extra)
            return
        time = datetime.fromtimestamp(self._clock.now(), UTC).astimezone().strftime("%H:%M:%S.%f")
        said = output.printable(rest.rstrip())
        if self._is_colourful:
            colour = _COLOURS.get(word, "")
            self._write(
                f"\x1b[2m{time[:-3]}{self._who}\x1b[0m {colour}{word:<10}\x1b[0m"
                f" \x1b[2m{id}\x1b[0m {said}"
            )
        else:
            self._write(f"{time[:-3]}{self._who} {word:<10} {id} {said}")

    def _may_print(self) -> bool:
        now = self._clock.monotonic()
        if now - self._window >= 1:
            self._window, self._printed = now, 0
            self._summarise()
        self._printed += 1
        if self._printed == LINES_PER_SECOND_MAX + 1:
            # Otherwise the last burst would go unmentioned.
            asyncio.get_running_loop().call_later(1.0, self._summarise)
        return self._printed <= LINES_PER_SECOND_MAX

    def _summarise(self) -> None:
        if self._left_out:
            self._write(f"… and {output.format_count(self._left_out, 'line')} more, left out")
            self._left_out = 0

    def _write(self, line: str) -> None:
        if runtime.spoken is not None:
            runtime.spoken.info("%s", line)
            return
        try:
            self._out.write(line + "\n")
            self._out.flush()
        except OSError:
            self._on_gone()


def _length_of(run: Execution) -> str:
    if run.started_at is None or run.finished_at is None:
        return ""
    return f"after {output.format_duration(run.finished_at - run.started_at)}"


def _clock_time(at: Instant | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _end_of(move: Transition, word: str) -> str:
    """Describe an end."""
    took = "" if move.ran is None else f"after {output.format_duration(move.ran)}"
    if word == State.SCHEDULED:
        return _again(move)
    if word not in (State.RETRYING, State.DEAD):
        return took
    error = (error_line(move.error) or "")[:ERROR_CHARS_MAX]
    if word == State.RETRYING:
        return f"in {output.format_duration(move.delay)}: {error}"
    return f"{took}: {error}" if error else took


def _again(move: Transition) -> str:
    """Describe when a task that raised RetryLater is run again, and why."""
    at = None if move.at is None else datetime.fromtimestamp(move.at, UTC).astimezone()
    when = (
        f"in {output.format_duration(move.delay)}" if at is None else f"at {at:%Y-%m-%d %H:%M:%S}"
    )
    return f"{when}: {move.reason}" if move.reason else when


_LEVELS: Final = {
    "retrying": logging.WARNING,
    "too late": logging.WARNING,
    "missed": logging.WARNING,
    "lost": logging.ERROR,
    "dead": logging.ERROR,
}
_COLOURS: Final = {
    "started": "\x1b[36m",
    "succeeded": "\x1b[32m",
    "retrying": "\x1b[33m",
    "dead": "\x1b[1;31m",
    "lost": "\x1b[31m",
    "too late": "\x1b[31m",
    "cancelled": "\x1b[35m",
    "skipped": "\x1b[35m",
    "missed": "\x1b[35m",
}
