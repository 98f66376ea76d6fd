"""Jobs and templates as declared in files, with all errors and their lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Final, Literal, cast

from daybell.cli.apply.files import Document, Path
from daybell.core.job_request import check_fields, unknown_field
from daybell.core.limits import check_name
from daybell.core.options import OPTIONS
from daybell.core.workflow.graph import describe_cycle
from daybell.errors import InvalidName, UsageError, faults_of, shown

Noun = Literal["job", "template"]

_LISTS: Final[dict[str, Noun]] = {"templates": "template", "jobs": "job"}
# Fields of a request to create a job that mean nothing in a file, and the alternative to each.
_NOT_IN_A_FILE: Final = {
    "tenant": "--tenant says whose jobs these are",
    "unique_key": "it is for a job that runs at once, and one from a file runs at its times",
    "source": "`daybell apply` says itself where a job comes from",
}


@dataclass(frozen=True)
class Declaration:
    """A job or a template, and its place. The fields of a job are without its name."""

    noun: Noun
    name: str
    fields: dict[str, Any]
    document: Document
    path: Path = ()
    is_whole: bool = True  # without unknown fields, one of which may be its kind misspelt

    def place(self, field: str | None = None) -> str:
        """Return the place of the declaration, or of one of its fields."""
        return self.document.place((*self.path, *steps_to(field)))

    def told(self, error: Exception) -> list[str]:
        """Return the lines of an error, each with its place."""
        faults = faults_of(error) if isinstance(error, UsageError) else (error,)
        return [
            f"{self.document.place((*self.path, *self.blamed(one)))}: {self.noun}"
            f" {shown(self.name)}: {one}"
            for one in faults
        ]

    def blamed(self, error: Exception) -> Path:
        """Return the way to the field that an error is about, as far as that is known."""
        steps = steps_to(error.field) if isinstance(error, UsageError) else ()
        if steps[:1] == ("schedule",) and isinstance(self.fields.get("schedule"), Mapping):
            inner = cast("Mapping[str, Any]", self.fields["schedule"])
            if "cron" in inner and not {*steps[1:]} & {*inner}:
                return ("schedule", "cron")
        return steps

    @property
    def dependencies(self) -> list[str]:
        """Return the jobs that it depends on, as far as they can be read."""
        return [one for one in _listed(self.fields, "dependencies") if isinstance(one, str)]

    @property
    def upstream(self) -> list[str]:
        """Return the jobs that it depends on, or of which any fires it."""
        return [*self.dependencies, *self.fired_by]

    @property
    def fired_by(self) -> list[str]:
        """Return the jobs of which any fires it, as far as they can be read."""
        schedule = self.fields.get("schedule")
        schedules = cast("list[Any]", schedule if isinstance(schedule, list) else [schedule])
        return [
            job for one in schedules for job in _listed(one, "after_any") if isinstance(job, str)
        ]

    @property
    def inner_jobs(self) -> list[tuple[str, str]]:
        """Return the jobs that nodes of a workflow run, each with its field."""
        nodes = enumerate(_listed(self.fields.get("workflow"), "nodes"))
        named = [(n, cast("dict[str, Any]", one).get("job")) for n, one in nodes if _is_object(one)]
        return [(job, f"workflow.nodes[{n}].job") for n, job in named if isinstance(job, str)]


def steps_to(field: str | None) -> Path:
    """Return the path to a field by its name: `workflow.nodes[3].task`."""
    steps: list[str | int] = []
    for part in field.split(".") if field else ():
        name, _, place = part.partition("[")
        steps.append(name)
        if place.endswith("]") and place[:-1].isdecimal():
            steps.append(int(place[:-1]))
    return tuple(steps)


def _listed(value: Any, name: str) -> list[Any]:
    inner = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return cast("list[Any]", inner) if isinstance(inner, list) else []


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


class Declarations:
    """The declarations of all documents, and all errors in them."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.templates: dict[str, Declaration] = {}
        self.jobs: dict[str, Declaration] = {}
        self.faults: list[str] = []
        self.is_whole = True  # nothing is missing because it could not be read
        for document in documents:
            for noun, value, path in self._parts(document):
                self._add(noun, value, document, path)

    def in_order(self) -> list[Declaration]:
        """Return the jobs, each after those that it depends on. A circle is a fault."""
        graph = {
            name: [
                other
                for other in (*job.upstream, *(inner for inner, _ in job.inner_jobs))
                if other in self.jobs and other != name
            ]
            for name, job in self.jobs.items()
        }
        try:
            return [self.jobs[name] for name in TopologicalSorter(graph).static_order()]
        except CycleError as error:
            self._blame_circle(list(reversed(cast("list[str]", error.args[1]))))
            return list(self.jobs.values())

    def _blame_circle(self, names: list[str]) -> None:
        """Report the jobs of a circle, at a place in a file."""
        steps = [(self.jobs[one], other) for one, other in pairwise(names)]
        waiting = [
            (job, "dependencies" if other in job.dependencies else "schedule")
            for job, other in steps
            if other in job.upstream
        ]
        first, second = steps[0]
        if all(other in dict(job.inner_jobs) for job, other in steps):
            place, said = first.place(dict(first.inner_jobs)[second]), describe_cycle(names)
        else:
            circle = " -> ".join(map(shown, names))
            job, field = waiting[0]
            place = job.place(field)
            said = f"dependencies lead in a circle: {circle}"
            if len(waiting) < len(steps):
                said = f"each of these jobs needs the next, so none can be made first: {circle}"
        self.faults.append(f"{place}: {said}")

    def _parts(self, document: Document) -> Iterator[tuple[Noun, Any, Path]]:
        value = document.value
        if not isinstance(value, dict):
            self._blame(document, "a document must be an object; put a list of jobs under `jobs`")
            self.is_whole = False
            return
        said = cast("dict[str, Any]", value)
        if not _LISTS.keys() & said.keys():
            yield ("template" if "job" in said else "job"), said, ()
            return
        for field in said.keys() - _LISTS.keys():
            self._blame(document, f"beside jobs and templates there is no {shown(field)}", field)
        for field, noun in _LISTS.items():
            listed = said.get(field)
            if listed is not None and not isinstance(listed, list):
                self._blame(document, f"{field} must be a list", field)
                self.is_whole = False
                continue
            for number, one in enumerate(cast("list[Any]", listed or [])):
                yield noun, one, (field, number)

    def _add(self, noun: Noun, value: Any, document: Document, path: Path) -> None:
        fields, is_whole = value, True
        if noun == "job" and isinstance(value, Mapping):
            fields = self._without_unknown(cast("Mapping[str, Any]", value), document, path)
            is_whole = len(fields) == len(cast("Mapping[str, Any]", value))
        try:
            one = replace(read_declaration(noun, fields, document, path), is_whole=is_whole)
        except UsageError as error:
            self._blame(document, str(error), *path, *steps_to(error.field))
            self.is_whole = False
            return
        known = self.templates if noun == "template" else self.jobs
        if one.name in known:
            other = known[one.name].place()
            text = f"{noun} {shown(one.name)} is declared twice: in {other}, too"
            self._blame(document, text, *path)
            return
        known[one.name] = one

    def _without_unknown(
        self, fields: Mapping[str, Any], document: Document, path: Path
    ) -> dict[str, Any]:
        """Return a job without unknown fields. Each unknown field is a fault."""
        what = f"job {shown(fields['name'])}" if "name" in fields else "a job"
        known = {*OPTIONS, "name", *_NOT_IN_A_FILE}
        for name in [one for one in fields if one not in known]:
            for error in unknown_field(name, "", fields, what):
                self._blame(document, str(error), *path, str(error.field))
        return {name: value for name, value in fields.items() if name in known}

    def _blame(self, document: Document, fault: str, *path: str | int) -> None:
        self.faults.append(f"{document.place(path)}: {fault}")


def read_declaration(
    noun: Noun, value: Any, document: Document, path: Path = (), *, name: str | None = None
) -> Declaration:
    """Return one job or template; `name` is its name if its fields have none."""
    if not isinstance(value, Mapping):
        raise UsageError(f"a {noun} must be an object, with a name")
    fields = dict(cast("Mapping[str, Any]", value))
    said = fields.get("name", name)
    if said is None:
        raise UsageError(f"the {noun} has no name", field="name")
    try:
        called = check_name(said, what=noun)
    except InvalidName as error:
        raise InvalidName(str(error), field="name") from None
    if name is not None and called != name:
        raise UsageError(
            f"this is job {shown(called)}, not {shown(name)}; name it so, or leave its name out",
            field="name",
        )
    if noun == "job":
        fields.pop("name", None)
        for field in _NOT_IN_A_FILE.keys() & fields.keys():
            raise UsageError(
                f"{field} cannot be said in a file; {_NOT_IN_A_FILE[field]}", field=field
            )
        check_fields(fields, f"job {shown(called)}")
    return Declaration(noun=noun, name=called, fields=fields, document=document, path=path)
