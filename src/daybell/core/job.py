"""Jobs: named, versioned definitions of what to run and under which policies.

A decorated Python function is a job of kind `task`. Changing a definition makes a new version;
executions remember the version that they were created under.
"""

from __future__ import annotations

from typing import Final, Literal
from uuid import UUID

import msgspec

from daybell.core.dependencies import OnFailure, any_jobs
from daybell.core.instant import Instant, Seconds
from daybell.core.kinds import needs_of
from daybell.core.overlap import Overlap, rule_of
from daybell.core.priority import Priority
from daybell.core.retry import Retry
from daybell.core.schedule import NewSchedule

DEFAULT_QUEUE = "default"
DEFAULT_TENANT = "default"


class JobDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is. Two equal definitions are the same version."""

    name: str
    kind: str = "task"  # which runner: task, command, http, sql, notify, workflow
    queue: str = DEFAULT_QUEUE
    priority: Priority = Priority.NORMAL
    retry: Retry = msgspec.field(default_factory=Retry)
    timeout: Seconds | None = None
    expires: Seconds | None = None  # not started this long after its time: skipped
    max_crashes: int = 3  # lost workers before it is taken to be what kills them
    on_lost: Literal["retry", "dead"] = "retry"
    store_result: bool = True
    description: str = ""
    user_id: str | None = None
    settings: str = "{}"  # JSON of the kind's own settings
    args: str = "{}"  # what it is called with by a schedule, or by who says nothing else
    schedules: tuple[str, ...] = ()  # JSON of `core.when.Schedule`
    overlap: Overlap | None = None  # None: skip with schedules, allow without
    misfire: str = ""  # JSON of `core.when.Misfire`; empty: the default
    pause_after_failures: int | None = None
    dependencies: tuple[str, ...] = ()  # jobs that must have succeeded before it runs
    on_dependency_failure: OnFailure = OnFailure.WAIT
    template: str = ""  # JSON of what it was made from: the template's name, version, parameters
    source: str = ""  # what it belongs to: "apply", for jobs that files declare
    once: bool = False  # made to run one time: it goes with its last execution

    @property
    def needs(self) -> str:
        """What a worker must offer to run it: its kind, and more for some."""
        return needs_of(self.kind, self.settings)

    @property
    def words(self) -> str:
        """What a search looks in: the name and the description, whatever their case."""
        return folded(f"{self.name}\n{self.description}")

    def overlap_rule(self, *, is_scheduled: bool = False) -> Overlap:
        """The rule for an execution, which may come from a schedule that was added later."""
        return rule_of(
            self.overlap,
            is_scheduled=is_scheduled or bool(self.schedules),
            is_dependent=self.fires_after,
        )

    @property
    def runs_by_itself(self) -> bool:
        """Whether somebody but people has it run: a schedule, or what it depends on."""
        return bool(self.schedules or self.dependencies)

    @property
    def upstream(self) -> tuple[str, ...]:
        """The jobs that it depends on, or of which any fires it."""
        return tuple(dict.fromkeys((*self.dependencies, *any_jobs(self.schedules))))

    @property
    def fires_after(self) -> bool:
        """Whether it is fired by what it depends on: it has no schedule that says when."""
        return bool(self.dependencies) and not self.schedules

    def to_json(self) -> str:
        """The definition as a store keeps it. Equal definitions give equal text."""
        retry = msgspec.Raw(self.retry.to_json().encode())
        fields = msgspec.structs.asdict(self) | {"retry": retry}
        # Left out where nothing is said: what was stored before they existed is still equal.
        for name in LATER_FIELDS:
            if fields[name] == _DEFAULTS[name]:
                del fields[name]
        if self.needs != self.kind:
            fields["needs"] = self.needs  # for what reads definitions in SQL
        return msgspec.json.encode(fields).decode()

    @classmethod
    def from_json(cls, text: str) -> JobDefinition:
        """Read a kept definition. Fields that a newer version wrote are passed over."""
        fields = msgspec.json.decode(text)
        retry = Retry.from_json(msgspec.json.encode(fields.pop("retry")).decode())
        return msgspec.structs.replace(msgspec.convert(fields, cls), retry=retry)


def task_of(definition: JobDefinition) -> str | None:
    """The task that a job of another name runs; None: the one of its own name."""
    if definition.kind != "task" or definition.settings == "{}":
        return None
    named = msgspec.json.decode(definition.settings).get("task")
    return named if isinstance(named, str) else None


def folded(text: str) -> str:
    """A text without a difference between capital and small letters, as stores can keep it."""
    return text.casefold().replace("\0", " ")


LATER_FIELDS: Final = (
    "args",
    "schedules",
    "overlap",
    "misfire",
    "pause_after_failures",
    "dependencies",
    "on_dependency_failure",
    "template",
    "source",
    "once",
)
_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(JobDefinition)}


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A definition to be stored. The id counts only if the name is new."""

    id: UUID
    definition: JobDefinition
    author: str = ""
    # None: whatever is there. 0: the name must be new. n: version n must be the current one.
    expect: int | None = None
    # Take the place of the job's declared schedules when this definition becomes the current one.
    schedules: tuple[NewSchedule, ...] = ()
    # A definition that was superseded is not made current again by old code in a rolling
    # deploy, unless this asks for it.
    promote: bool = False


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A stored job at one of its versions."""

    id: UUID
    tenant: str
    version: int
    definition: JobDefinition
    created_at: Instant  # of this version
    author: str = ""
    is_current: bool = True
    paused_at: Instant | None = None  # its schedules do not fire since then
    pause_note: str = ""  # why

    @property
    def name(self) -> str:
        return self.definition.name
