"""What workflows are called with, looked at before there is a run that would die of it.

Whoever goes around this, a function in the database for instance, is told by the run: it is dead at
once, and its error says the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from daybell.core.execution import NewExecution
from daybell.core.instant import Seconds
from daybell.core.job import Job, JobDefinition
from daybell.core.params import Params, check_given, decoded, params_of
from daybell.core.schedule import Schedule
from daybell.errors import InvalidArguments, NotFound, Unavailable, shown
from daybell.store.protocol import Store

WORKFLOW: Final = "workflow"
KEPT_SECONDS: Final = 5.0  # definitions may be large; a refusal is never by what was kept
OTHERS_KEPT_SECONDS: Final = 60.0  # that a job is no workflow, which hardly ever changes
KEPT_MAX: Final = 10_000

# Of each job, and since when that is known. None: it is no workflow, whose worker will look itself.
Kept = dict[str, tuple[Seconds, Params | None]]


class WorkflowCalls:
    """The part of `Client` that looks at what workflows are called with."""

    store: Store
    tenant: str
    _kept: Kept
    _asking: dict[str, asyncio.Task[Params | None]]  # by the job that is asked for

    def note_params(self, jobs: Iterable[Job]) -> None:
        """Keep in mind what these take: they were just defined."""
        for job in jobs:
            if job.is_current:
                self._keep(job.name, _params_in(job.definition))

    async def check_calls(self, executions: Sequence[NewExecution]) -> None:
        """Refuse what workflows among these cannot be called with. Raises InvalidArguments."""
        names = {new.job for new in executions}
        if all(map(self._is_no_workflow, names)):
            return
        unknown = [name for name in names if not self._is_known(name)]
        answers = await asyncio.gather(*map(self.params_of, unknown)) if unknown else ()
        found = dict(zip(unknown, answers, strict=True))
        for name in names:
            params = found[name] if name in found else await self.params_of(name)
            if params is None:
                continue
            try:
                _check_all(name, params, executions)
            except InvalidArguments:
                # Perhaps it has changed since.
                params = await self.params_of(name, is_fresh=True)
                _check_all(name, params or (), executions if params is not None else ())

    def checked_calls(
        self, params: Params | None, executions: Iterable[NewExecution]
    ) -> Iterator[NewExecution]:
        """These, each looked at when it is asked for."""
        for position, new in enumerate(executions):
            if params is not None:
                _check_one(params, new, position)
            yield new

    async def params_of(self, job: str, *, is_fresh: bool = False) -> Params | None:
        """What a workflow takes; None: it is none, or nothing is known of it."""
        if not is_fresh and self._is_known(job):
            return self._kept[job][1]
        if job not in self._asking:  # of many that begin together, the first asks for all
            self._asking[job] = asyncio.get_running_loop().create_task(self._ask(job))
        return await asyncio.shield(self._asking[job])

    async def _ask(self, job: str) -> Params | None:
        try:
            definition = (await self.store.get_job(self.tenant, job)).definition
        except (NotFound, Unavailable):
            return None  # whoever enqueues it says so
        finally:
            del self._asking[job]
        self._keep(job, _params_in(definition))
        return self._kept[job][1]

    def _is_no_workflow(self, job: str) -> bool:
        return self._is_known(job) and self._kept[job][1] is None

    def _is_known(self, job: str) -> bool:
        if job not in self._kept:
            return False
        since, params = self._kept[job]
        kept = OTHERS_KEPT_SECONDS if params is None else KEPT_SECONDS
        return asyncio.get_running_loop().time() < since + kept

    def _keep(self, job: str, params: Params | None) -> None:
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[job] = asyncio.get_running_loop().time(), params


def check_call(definition: JobDefinition) -> JobDefinition:
    """Refuse a workflow that its schedules, or whoever triggers it without a word, would call in
    vain.
    """
    is_called = definition.runs_by_itself or definition.args != "{}"
    if definition.kind == WORKFLOW and is_called:
        what = f"its {'schedule' if definition.runs_by_itself else 'args'} would call it in vain:"
        way_out = "; say args" if definition.args == "{}" else ""
        check_args(definition, definition.args, what=what, way_out=way_out)
    return definition


def check_args(definition: JobDefinition, args: str, *, what: str = "", way_out: str = "") -> None:
    """Refuse what a workflow cannot be called with."""
    if definition.kind != WORKFLOW:
        return
    try:
        given = decoded(args)
        check_given(
            params_of(definition.settings), given, what=f"workflow {shown(definition.name)}"
        )
    except InvalidArguments as error:
        said = f"{what} {error}{way_out}".strip()
        raise InvalidArguments(said, field=_field(error)) from None


def vain_schedules(definition: JobDefinition, schedules: Iterable[Schedule]) -> list[str]:
    """What is wrong with those of a workflow's schedules that were added at run time, before it
    took what it takes now; in sentences for people.
    """
    told: list[str] = []
    for one in schedules:
        if one.is_declared or not one.is_to_fire:
            continue
        name = f"schedule {shown(one.name)}, which was added at run time,"
        try:
            check_args(definition, one.args, what=f"{name} would call it in vain:")
        except InvalidArguments as error:
            told.append(f"{error}; schedule it anew with other args, or unschedule it")
    return told


def _params_in(definition: JobDefinition) -> Params | None:
    return params_of(definition.settings) if definition.kind == WORKFLOW else None


def _check_all(job: str, params: Params, executions: Sequence[NewExecution]) -> None:
    is_one = len(executions) == 1
    for position, new in enumerate(executions):
        if new.job == job:
            _check_one(params, new, None if is_one else position)


def _check_one(params: Params, new: NewExecution, position: int | None) -> None:
    try:
        check_given(params, decoded(new.args), what=f"workflow {shown(new.job)}")
    except InvalidArguments as error:
        if position is None:
            raise InvalidArguments(str(error), field=_field(error)) from None
        raise InvalidArguments(
            f"executions[{position}]: {error}", field=f"[{position}].{_field(error)}"
        ) from None


def _field(error: InvalidArguments) -> str:
    return "args" if error.field is None else f"args.{error.field}"
