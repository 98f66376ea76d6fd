"""Load an app, connect it to its store, and warn of jobs that are missing."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from daybell.cli import runtime
from daybell.cli.apply.command import PRUNED_MAX
from daybell.cli.output import printable
from daybell.cli.runtime import print_stderr, use_store
from daybell.cli.terminal import interruptible
from daybell.client import Client
from daybell.client.job_checks import describe_uses
from daybell.core.job import DEFAULT_TENANT, Job, JobDefinition
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.views import Check
from daybell.core.workflow.graph import inner_jobs
from daybell.engine.claim import Queues
from daybell.errors import DaybellError, JobNotFound, QuotaExceeded, UsageError, listed, shown
from daybell.sdk.app import App
from daybell.sdk.loading import load_app, undeclared_modules
from daybell.sdk.modules import AppImportError, describe_import_error
from daybell.settings import Settings, masked_url
from daybell.store.protocol import Store

# All jobs of a tenant, in pages, for the checks of `daybell doctor`.


async def tenant_names(store: Store) -> list[str]:
    return [tenant.name for tenant in await store.admin.list_tenants()]


async def iterate_jobs(store: Store, tenant: str) -> AsyncGenerator[Job]:
    """Yield the jobs of a tenant, by name. Read it to its end."""
    cursor = None
    while True:
        page = await store.catalog.list_jobs(tenant, limit=PAGE_ITEMS_MAX, cursor=cursor)
        for job in page.items:
            yield job
        cursor = page.next_cursor
        if cursor is None:
            return


# Messages about jobs that others name, and that do not exist.


async def warn_missing_jobs(
    store: Store, tenant: str, definitions: Iterable[JobDefinition]
) -> None:
    """Warn of jobs that workflows in code run and that do not exist, in the words of a start. They
    may be created before a run comes to them.
    """
    users = defaultdict[str, list[str]](list)
    for one in definitions:
        for name in inner_jobs(one):
            users[name].append(one.name)
    for name, workflows in users.items():
        try:
            await store.catalog.get_job(tenant, name)
        except JobNotFound:
            runs = "workflow {} runs" if len(workflows) == 1 else "workflows {} run"
            said = f"{runs.format(listed(workflows))} {shown(name)}, and there is no such job"
            way_out = "create it, or start the app that has it, before a run comes to that node"
            print_stderr(f"warning: {printable(said)}; {way_out}")


async def check_missing_jobs(store: Store) -> list[Check]:
    """Check the jobs of all tenants, in one pass. A paused job needs nothing."""
    checks: list[Check] = []
    for tenant in await tenant_names(store):
        there, wanted = set[str](), defaultdict[str, list[str]](list)
        async for job in iterate_jobs(store, tenant):
            there.add(job.name)
            for name, use in _named_by(job):
                wanted[name].append(use)
        missing = {name: wanted[name] for name in sorted(wanted) if name not in there}
        if missing:
            checks.append(_missing(tenant, missing))
    return checks


def _named_by(job: Job) -> list[tuple[str, str]]:
    """Return the jobs that a job needs, each with the reason."""
    if job.paused_at is not None:
        return []
    needed = [(name, f"{job.name} waits for it") for name in job.definition.upstream]
    runs = sorted(inner_jobs(job.definition))
    return [*needed, *((name, f"workflow {job.name} runs it") for name in runs)]


def _missing(tenant: str, missing: dict[str, list[str]]) -> Check:
    of = "" if tenant == DEFAULT_TENANT else f" of tenant {tenant}"
    named = listed((f"{name} ({listed(uses)})" for name, uses in missing.items()), between="; ")
    return Check(
        name="missing jobs",
        is_ok=False,
        found=f"there is no job{of} named {named}",
        advice="create it, start a worker whose code has it, or change those that need it",
    )


SAMPLE_MAX: Final = 12


class HookError(DaybellError):
    """A hook of the app raised; its own error is the cause, and was shown."""

    code = "hook-error"
    remedy = "Correct the hook; its error was printed."


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
    """Print the place in the user's code that raises an error, as Python would have; the caller
    that catches the error prints its message. With DAYBELL_DEBUG=1 our own code is shown, too.
    """
    told = traceback.TracebackException.from_exception(error)
    if os.environ.get("DAYBELL_DEBUG") != "1":
        _only_theirs(told)
    lines = list(told.format())
    has_more = isinstance(error, BaseExceptionGroup) or hasattr(error, "__notes__")
    text = "".join(lines if has_more else lines[:-1])
    shown = printable(settings.mask(text), keep="\n")
    if runtime.spoken is not None:
        runtime.spoken.error("%s", shown.rstrip())
    else:
        sys.stderr.write(shown)


def _only_theirs(told: traceback.TracebackException) -> None:
    """Leave out our own code, and calls of the standard library by Daybell and Python."""
    kept: list[traceback.FrameSummary] = []
    is_ours = True  # the caller of the next frame is our code
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
async def run_hooks(app: App, settings: Settings) -> AsyncGenerator[None]:
    """Run the app's hooks around the body; an error of a hook is shown as Python would."""
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
        raise HookError(
            f"an {what} hook of the app failed: {describe_import_error(error)}"
        ) from error


@asynccontextmanager
async def connect_app(app: App, *, migrate: bool = False) -> AsyncGenerator[Store]:
    """Connect the app, define its jobs, and yield the store that it uses.

    The worker has to use the same store object: a memory store exists only there. Definitions that
    the store does not follow are reported by `actions.definitions.restore_superseded`.
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
    """Return the tenant's quota error with the app's count of tasks: the code creates the jobs."""
    count = len(app.tasks)
    tasks = f"{count:,} task{'s, each a job' if count != 1 else ', which is a job'}"
    return QuotaExceeded(
        f"the app has {tasks}: {error}", quota=error.quota, retry_after=error.retry_after
    )


async def report_removed_jobs(app: App, *, prune: bool) -> None:
    """Report the jobs that have left the code while their schedules still fire; or remove them.
    Report also the jobs that the code runs, and that do not exist.
    """
    client = await app.open()
    await warn_missing_jobs(client.store, client.tenant, app.definitions())
    gone = await client.abandoned(app.author, {*app.tasks, *app.workflows})
    if not gone:
        return
    jobs = "job" if len(gone) == 1 else "jobs"
    if not prune:
        left, fire = ("has left", "fires") if len(gone) == 1 else ("have left", "fire")
        print_stderr(
            f"warning: {jobs} {list_sample(gone)} {left} the code and still {fire};"
            " --prune removes such"
        )
        return
    for name in gone:
        await client.delete_job(name, force=True)
    print_stderr(f"removed {jobs} {list_sample(gone)}, which the code has no more")
    for name in gone[:PRUNED_MAX]:
        for warning in await describe_uses(client.store, client.tenant, name):
            print_stderr(f"warning: {printable(warning)}")


def select_queues(app: App, wanted: str) -> str:
    """Return the queues to work on: the requested ones, or all that the app's tasks use."""
    return wanted or ",".join(sorted(app.queues))


def warn_about_app(app: App, queues: str, *, has_app: bool) -> None:
    """Warn of settings that are allowed, but perhaps not intended."""
    if has_app and not app.tasks and not app.workflows:
        found = undeclared_modules(app)
        wanted = ", ".join(f'"{name}"' for name in found[:SAMPLE_MAX]) or '"package.module"'
        seen = (
            f"; {list_sample(found)} {'look' if len(found) > 1 else 'looks'} like it"
            if found
            else ""
        )
        print_stderr(
            f"warning: the app in {app.module[0]} has no tasks. A task exists when the module that"
            f" declares it is imported{seen}: App(include=[{wanted}])"
        )
    used = app.queues
    unused = [name for name in Queues.parse(queues).names if name not in used]
    if unused and app.tasks:
        print_stderr(
            f"warning: no task of the app uses {'queue' if len(unused) == 1 else 'queues'}"
            f" {list_sample(map(repr, unused))}; its tasks use {list_sample(sorted(used))}"
        )
    if app.url.startswith("memory:"):
        print_stderr(
            "warning: memory:// is seen by this process alone, so others cannot enqueue into it;"
            " use sqlite:///file.db"
        )


def list_sample(names: Iterable[str]) -> str:
    """Return a list of names, cut to a readable length."""
    return listed(names, most=SAMPLE_MAX)
