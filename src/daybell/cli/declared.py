"""Jobs and templates as files declare them.

A document is a job, with the fields of `POST /jobs`; or a template, which has a `job`, as
`POST /templates` takes it; or an object with `jobs` and `templates`, which are lists of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, Literal, cast

from daybell.cli.documents import Document, Path
from daybell.client.fields import check_fields
from daybell.core.limits import check_name
from daybell.errors import InvalidName, UsageError, shown

Noun = Literal["job", "template"]

_LISTS: Final[dict[str, Noun]] = {"templates": "template", "jobs": "job"}
# Fields of a request to create a job that mean nothing in a file, and what to do instead.
_NOT_IN_A_FILE: Final = {
    "tenant": "--tenant says whose jobs these are",
    "unique_key": "it is for a job that runs at once, and one from a file runs at its times",
    "source": "`daybell apply` says itself where a job comes from",
}


@dataclass(frozen=True)
class Declared:
    """A job or a template, and where it is said. The fields of a job are without its name."""

    noun: Noun
    name: str
    fields: dict[str, Any]
    document: Document
    path: Path = ()

    def place(self, field: str | None = None) -> str:
        """Where it is said, or one of its fields."""
        return self.document.place((*self.path, *(field.split(".") if field else ())))

    def told(self, error: Exception) -> str:
        """What is wrong with it, as a line that says where."""
        field = error.field if isinstance(error, UsageError) else None
        return f"{self.place(field)}: {self.noun} {shown(self.name)}: {error}"

    @property
    def dependencies(self) -> list[str]:
        """The jobs that it depends on, as far as that can be read."""
        listed = self.fields.get("dependencies")
        names = cast("list[Any]", listed) if isinstance(listed, list) else []
        return [one for one in names if isinstance(one, str)]


class Declarations:
    """What all documents declare, and all that is wrong with them."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.templates: dict[str, Declared] = {}
        self.jobs: dict[str, Declared] = {}
        self.faults: list[str] = []
        self.is_whole = True  # nothing is missing because it could not be read
        for document in documents:
            for noun, value, path in self._parts(document):
                self._add(noun, value, document, path)

    def in_order(self) -> list[Declared]:
        """The jobs, each after those that it depends on. A circle is a fault."""
        graph = {
            name: [other for other in job.dependencies if other in self.jobs and other != name]
            for name, job in self.jobs.items()
        }
        try:
            return [self.jobs[name] for name in TopologicalSorter(graph).static_order()]
        except CycleError as error:
            names = list(reversed(cast("list[str]", error.args[1])))
            circle = " -> ".join(map(shown, names))
            place = self.jobs[names[0]].place("dependencies")
            self.faults.append(f"{place}: dependencies lead in a circle: {circle}")
            return list(self.jobs.values())

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
        try:
            one = read_declared(noun, value, document, path)
        except UsageError as error:
            steps = error.field.split(".") if error.field else ()
            self._blame(document, str(error), *path, *steps)
            self.is_whole = False
            return
        known = self.templates if noun == "template" else self.jobs
        if one.name in known:
            other = known[one.name].place()
            text = f"{noun} {shown(one.name)} is declared twice: in {other}, too"
            self._blame(document, text, *path)
            return
        known[one.name] = one

    def _blame(self, document: Document, fault: str, *path: str | int) -> None:
        self.faults.append(f"{document.place(path)}: {fault}")


def read_declared(
    noun: Noun, value: Any, document: Document, path: Path = (), *, name: str | None = None
) -> Declared:
    """One job or template; `name` is what it is called if it does not say so itself."""
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
    return Declared(noun=noun, name=called, fields=fields, document=document, path=path)
