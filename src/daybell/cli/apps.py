"""From what was typed to an app that is connected and ready to be run."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from daybell.cli import edge
from daybell.cli.applying import PRUNED_MAX
from daybell.cli.edge import complain, use_store
from daybell.cli.missing import tell_missing
from daybell.cli.show import printable
from daybell.cli.stopping import interruptible
from daybell.client import Client
from daybell.client.uses import needs_of
from daybell.engine.queues import Queues
from daybell.errors import DaybellError, QuotaExceeded, UsageError, listed
from daybell.sdk.app import App
from daybell.sdk.loading import AppImportError, in_words, load_app, undeclared_modules
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
    """Print where in the user's code an error comes from, as Python would have; what it says is
    told by whoever has caught it. With DAYBELL_DEBUG=1 our own code is shown, too.
    """
    told = traceback.TracebackException.from_exception(error)
    if os.environ.get("DAYBELL_DEBUG") != "1":
        _only_theirs(told)
    lines = list(told.format())
    has_more = isinstance(error, BaseExceptionGroup) or hasattr(error, "__notes__")
    text = "".join(lines if has_more else lines[:-1])
    shown = printable(settings.mask(text), keep="\n")
    if edge.spoken is not None:
        edge.spoken.error("%s", shown.rstrip())
    else:
        sys.stderr.write(shown)


def _only_theirs(told: traceback.TracebackException) -> None:
    """Leave out our own code, and what of the standard library we and Python have called."""
    kept: list[traceback.FrameSummary] = []
    is_ours = True  # who has called what comes next
    for frame in told.stack:
        is_library = frame.filename.startswith(_LIBRARY) and "site-packages" not in frame.filename
        if not is_library or "importlib" in frame.filename:
            is_ours = frame.filename.startswith(_OURS) or is_library
        if not is_ours:
            kept.append(frame)
    told.stack[:] = kept
    for one in (told.__cause__, told.__context__):
        if one is not None:
            _only_theirs(one)


_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_LIBRARY: Final = ("<frozen", sysconfig.get_path("stdlib") + os.sep)


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
        raise HookError(f"an {what} hook of the app failed: {in_words(error)}") from error


@asynccontextmanager
async def connected(app: App, *, migrate: bool = False) -> AsyncGenerator[Store]:
    """Connect the app, define its jobs, and yield the store that it uses.

    The worker has to use that very store: what is in memory is nowhere else. Definitions that the
    store does not go by are told by `going_back`.
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
            with app.declaring.quietly():
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
        await client.delete_job(name, force=True)
    complain(f"removed {jobs} {sample(gone)}, which the code has no more")
    for name in gone[:PRUNED_MAX]:
        for warning in await needs_of(client.store, client.tenant, name):
            complain(f"warning: {printable(warning)}")


def queues_of(app: App, wanted: str) -> str:
    """The queues to work on: those that were asked for, or all that the app's tasks use."""
    return wanted or ",".join(sorted(app.queues))


def warn(app: App, queues: str, *, has_app: bool) -> None:
    """Say what was perhaps not meant, although it can be done."""
    if has_app and not app.tasks and not app.workflows:
        found = undeclared_modules(app)
        wanted = ", ".join(f'"{name}"' for name in found[:SAMPLE_MAX]) or '"package.module"'
        seen = f"; {sample(found)} {'look' if len(found) > 1 else 'looks'} like it" if found else ""
        complain(
            f"warning: the app in {app.module[0]} has no tasks. A task exists when the module that"
            f" declares it is imported{seen}: App(include=[{wanted}])"
        )
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
