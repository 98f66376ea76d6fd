"""What an execution said, printed: once, or as it comes until the execution has ended."""

from __future__ import annotations

import sys
from typing import Final
from uuid import UUID

import typer

from daybell.cli import show
from daybell.cli.edge import DONE, complain
from daybell.cli.lines import attempt_heading, line_json, line_text
from daybell.cli.patience import Patience
from daybell.cli.run_transcript import follow_run
from daybell.client.logs import START
from daybell.client.remote.client import AnyClient
from daybell.client.waiting import why_idle
from daybell.client.workflows import WorkflowRun
from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.instant import Seconds
from daybell.core.log import LogPart
from daybell.engine.clock import Clock, SystemClock
from daybell.errors import Unavailable, UsageError

POLL_SECONDS: Final[Seconds] = 0.5
LAST_PART: Final = 2**31 - 1  # no attempt has a part after it
NODES_MAX: Final = 20  # whose logs are pointed to


class Transcript:
    """Prints parts of one execution's log, and remembers how far it is."""

    def __init__(self, *, attempt: int | None, as_json: bool) -> None:
        self._wanted = attempt
        self._as_json = as_json
        self._attempt = 0  # whose lines were printed last
        self.after = START if attempt is None else (attempt - 1, LAST_PART)
        self.is_empty = True

    async def print_new(self, client: AnyClient, id: UUID, *, has_several: bool) -> None:
        """Print what has come since the last time. Several attempts each get a heading."""
        async for part in client.log_parts(id, after=self.after):
            if self._wanted is not None and part.attempt > self._wanted:
                break
            self.after = (part.attempt, part.number)
            self._print(part, has_several=has_several)
        sys.stdout.flush()  # whoever reads through a pipe wants it now

    def _print(self, part: LogPart, *, has_several: bool) -> None:
        if part.attempt != self._attempt and not self._as_json and self._wanted is None:
            if has_several or part.attempt > 1:
                typer.echo(attempt_heading(part.attempt))
            self._attempt = part.attempt
        for line in part.lines:
            self.is_empty = False
            typer.echo(line_json(part.attempt, line) if self._as_json else line_text(line))


async def tell(
    client: AnyClient,
    id: UUID,
    *,
    follow: bool,
    attempt: int | None,
    as_json: bool,
    clock: Clock | None = None,
) -> int:
    """Print an execution's log. With `follow`, go on until nothing more can come; of a workflow's
    run, with the logs of its nodes.
    """
    clock = clock or SystemClock()
    if follow and await _is_run(client, id, clock):
        if attempt is not None:
            raise UsageError(
                f"{id} is a workflow's run, and an attempt is one of a node: follow that node, or"
                " leave out --attempt",
                field="attempt",
            )
        return await follow_run(client, id, as_json=as_json, clock=clock)
    patience = Patience(clock)
    transcript = Transcript(attempt=attempt, as_json=as_json)
    is_told = False  # what it waits for
    while True:
        try:
            # Looked at before the log is read: what has ended by then has said everything.
            execution = (await client.execution(id)).execution
            await transcript.print_new(client, id, has_several=execution.attempt > 1)
        except Unavailable as error:
            if not follow:
                raise
            await patience.bear(error)
            continue
        patience.renew()
        if not follow or _is_over(execution, attempt):
            break
        if not is_told and execution.state is not State.RUNNING:
            complain(f"{id} is {execution.state}; waiting")
            if why := await why_idle(client, execution):
                complain(why)
        is_told = True
        await clock.sleep(POLL_SECONDS)
    if transcript.is_empty:
        _say_nothing(execution, attempt)
        _say_where(await client.run(id), id)
    return DONE


async def _is_run(client: AnyClient, id: UUID, clock: Clock) -> bool:
    patience = Patience(clock)
    while True:
        try:
            return await client.run(id) is not None
        except Unavailable as error:
            await patience.bear(error)


def _is_over(execution: Execution, attempt: int | None) -> bool:
    is_past = attempt is not None and execution.attempt > attempt
    return execution.state in TERMINAL or is_past


def _say_nothing(execution: Execution, attempt: int | None) -> None:
    if attempt is not None and attempt > execution.attempt:
        complain(f"execution {execution.id} has had no attempt {attempt} yet; it is at attempt"
                 f" {execution.attempt}")  # fmt: skip
        return
    yet = "" if execution.state in TERMINAL else " so far"
    of = "" if attempt is None else f" in attempt {attempt}"
    complain(f"execution {execution.id} said nothing{of}{yet}; it is {execution.state}")


def _say_where(run: WorkflowRun | None, id: UUID) -> None:
    """A workflow's run says nothing itself; its nodes do."""
    if run is None:
        return
    complain("it is a workflow's run, and each of its nodes has its own log:")
    for node in [one for one in run.nodes if one.is_begun][:NODES_MAX]:
        how = f"logs {node.execution}" if node.execution else f"list --workflow {id}"
        complain(f"  {show.printable(node.name)}: daybell executions {how}")
    complain(f"all of them: daybell executions list --workflow {id}")
