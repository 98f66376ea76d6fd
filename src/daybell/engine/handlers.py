"""What the engine needs to know to run a job: given from outside, by whoever knows how."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from daybell.core.execution import Claimed
from daybell.core.instant import Seconds
from daybell.core.masking import Masks
from daybell.core.retry import Retry
from daybell.core.run import Plan


class Running(Protocol):
    """One execution while it runs, as its handler sees it."""

    claimed: Claimed
    is_hopeless: bool  # set by the handler before it raises what will be no different next time
    # Set likewise: what its worker would have to offer, of which nothing has been done.
    lacking: str | None
    is_watchful: bool  # set by the task's context: it looks by itself whether it is to stop
    durable: Any  # set by the task's context: what it has done durably

    @property
    def ledger(self) -> Any:
        """Where it writes down its steps; None: nowhere."""
        ...

    @property
    def is_cancelled(self) -> bool:
        """Whether it was asked to stop."""
        ...

    @property
    def patience(self) -> Seconds:
        """Once it was asked to stop: how long it may take to end by itself. After a lost lease,
        not at all.
        """
        ...

    def report(
        self,
        *,
        progress: float | None = None,
        note: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Show how far it is. Written in batches, a moment later; may be called from any thread."""
        ...

    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None:
        """Add a line to its log. Written a moment later; may be called from any thread."""
        ...

    def hide(self, values: Iterable[str]) -> None:
        """Mask these secrets in all that is kept of it: it has opened them."""
        ...

    def without_secrets(self, text: str) -> str:
        """A text of its own without the secrets that it has opened, and without settings of its
        worker.
        """
        ...

    def mask(self, text: str) -> str:
        """The same, as the app masks it. All that is kept is masked anyway; this is for what is cut
        before, since half a secret is not found.
        """
        ...

    async def begin(self) -> Any:
        """Begin its one transaction, which commits with its end; answers the connection."""
        ...

    async def undo(self) -> None:
        """Roll its transaction back, if it has one."""
        ...

    async def expand(self, plan: Plan) -> None:
        """Become a run of a workflow. From then on it is in nobody's hands, and ends by itself."""
        ...

    def print(self, stream: str, text: str) -> None:
        """Add what it wrote to a stream, which need not be whole lines."""
        ...


class Handler(Protocol):
    """How one job is run."""

    @property
    def retry(self) -> Retry: ...
    @property
    def timeout(self) -> Seconds | None: ...
    @property
    def goes_on(self) -> bool:
        """Whether it may go on when its worker has lost its lease, and others may run it, too."""
        ...

    @property
    def grace(self) -> Seconds:
        """How long it is waited for once it was stopped, beyond what all are waited for."""
        ...

    @property
    def starts_once(self) -> bool:
        """Whether what has begun and was not ended must not be begun again: `on_lost="dead"`."""
        ...

    async def run(self, running: Running) -> str | None:
        """Do the work and return the result as JSON text, or None for no result to keep.

        Cancelling the awaiting task stops the work, as far as that is possible.
        """
        ...


class Handlers(Protocol):
    """All jobs that a worker can run."""

    def find(self, claimed: Claimed) -> Handler | None:
        """What is known to run this version of the job; None: ask."""
        ...

    async def ask(self, claimed: Claimed) -> Handler | None:
        """Find it by what the job's definition says; None: not here."""
        ...

    def lacking(self, claimed: Claimed) -> str | None:
        """What would have to be here for what `ask` did not find: `task:NAME`; None: not known."""
        ...

    def mask(self, text: str) -> str:
        """A text as the app's own masks leave it."""
        ...

    @property
    def settings(self) -> Masks:
        """The settings of this worker that no output may show."""
        ...
