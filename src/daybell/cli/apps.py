"""From what was typed to an app that is connected and ready to be run."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

from daybell.cli.edge import complain, use_store
from daybell.cli.missing import tell_missing
from daybell.cli.show import printable
from daybell.cli.stopping import interruptible
from daybell.client import Client
from daybell.engine.queues import Queues
from daybell.errors import DaybellError, QuotaExceeded, UsageError, listed
from daybell.sdk.app import App
from daybell.sdk.loading import AppImportError, load_app
from daybell.settings import Settings, masked_url
from daybell.store.protocol import Store

SAMPLE_MAX: Final = 12


class HookError(DaybellError):
    """A hook of the app raised; its own error is the cause, and was shown."""


def find_app(spec: str | None, settings: Settings, *, flag: str | None) -> App:
    """Load the app that was named here or in the settings; if none was, one without tasks, which
    runs jobs without code. `flag` is a --database-url.
    """
    spec = spec or settings.app
    if flag is not None:
        # An App() without a URL asks the environment, and so do the processes that we start.
        os.environ["DAYBELL_DATABASE_URL"] = flag
    if spec is None:
        return App()
    try:
        with interruptible():
            app = load_app(spec)
    except AppImportError as error:
        if error.__cause__ is not None:
            show_traceback(error.__cause__, settings)
        raise
    if flag is not None and app.url != flag:
        raise UsageError(
            f"--database-url is {masked_url(flag)}, but the code of {spec} says"
            f" {masked_url(app.url)}; leave one of them out"
        )
    return app


def show_traceback(error: BaseException, settings: Settings) -> None:
    """Print an error of the user's code as Python would have, from where that code begins."""
    text = "".join(traceback.format_exception(error.with_traceback(_own(error.__traceback__))))
    sys.stderr.write(printable(settings.mask(text), keep="\n"))


def _own(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that comes after ours and the standard library's machinery."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_NOT_THEIRS) and "importlib" not in file:
            return trace
        trace = trace.tb_next
    return None


_NOT_THEIRS = ("<frozen", contextlib.__file__, str(Path(__file__).parents[1]) + os.sep)


@asynccontextmanager
async def alive(app: App, settings: Settings) -> AsyncGenerator[None]:
    """Run the app's hooks around what is done; an error of theirs is shown as Python would."""
    lifespan = app.lifespan()
    with _shown(settings, "on_start"):
        await lifespan.__aenter__()
    try:
        yield
    finally:
        with _shown(settings, "on_stop"):
            await lifespan.__aexit__(None, None, None)


@contextmanager
def _shown(settings: Settings, what: str) -> Generator[None]:
    try:
        yield
    except Exception as error:
        show_traceback(error, settings)
        raise HookError(f"an {what} hook of the app failed: {error!r}") from error


@asynccontextmanager
async def connected(app: App, *, migrate: bool = False) -> AsyncGenerator[Store]:
    """Connect the app, define its jobs, and yield the store that it uses.

    The worker has to use that very store: what is in memory is nowhere else.
    """
    use_store(app.url)
    if migrate and app.url.startswith("postgres"):
        client = Client(app.url)
        try:
            await client.migrate()
        finally:
            await client.close()
    try:
        try:
            client = await app.open()
        except QuotaExceeded as error:
            raise _too_many(app, error) from None
        yield client.store
    finally:
        await app.close()


def _too_many(app: App, error: QuotaExceeded) -> QuotaExceeded:
    """What a tenant may have, said of what the code has: nobody made these jobs by hand."""
    count = len(app.tasks)
    tasks = f"{count:,} task{'s, each a job' if count != 1 else ', which is a job'}"
    return QuotaExceeded(
        f"the app has {tasks}: {error}", quota=error.quota, retry_after=error.retry_after
    )


async def settle_gone(app: App, *, prune: bool) -> None:
    """Say which jobs have left the code while their schedules still fire; or remove them. Say also
    which ones the code runs, and nobody has.
    """
    client = await app.open()
    await tell_missing(client.store, client.tenant, app.definitions())
    gone = await client.abandoned(app.author, {*app.tasks, *app.workflows})
    if not gone:
        return
    jobs = "job" if len(gone) == 1 else "jobs"
    if not prune:
        left, fire = ("has left", "fires") if len(gone) == 1 else ("have left", "fire")
        complain(
            f"warning: {jobs} {sample(gone)} {left} the code and still {fire}; --prune removes such"
        )
        return
    for name in gone:
        await client.delete_job(name)
    complain(f"removed {jobs} {sample(gone)}, which the code has no more")


def queues_of(app: App, wanted: str) -> str:
    """The queues to work on: those that were asked for, or all that the app's tasks use."""
    return wanted or ",".join(sorted(app.queues))


def warn(app: App, queues: str) -> None:
    """Say what was perhaps not meant, although it can be done."""
    used = app.queues
    unused = [name for name in Queues.parse(queues).names if name not in used]
    if unused and app.tasks:
        complain(
            f"warning: no task of the app uses {'queue' if len(unused) == 1 else 'queues'}"
            f" {sample(map(repr, unused))}; its tasks use {sample(sorted(used))}"
        )
    if app.url.startswith("memory:"):
        complain(
            "warning: memory:// is seen by this process alone, so nobody else can enqueue into it;"
            " use sqlite:///file.db"
        )


def sample(names: Iterable[str]) -> str:
    """A list of names, cut where nobody reads on."""
    return listed(names, most=SAMPLE_MAX)
