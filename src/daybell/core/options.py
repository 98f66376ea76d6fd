"""The one table of job options, and all that follows from it: reading, change, file format, schema.

A row of OPTIONS has the name of an option, its type as a JSON schema, its reader, its default, its
meaning in one sentence, and its merge rule. The definition and the typed dictionaries are beside
it, for editors and type checkers; a test compares them with the table. From the table follow the
request bodies of the API, the files of `daybell apply`, the flags of `daybell jobs create` and
`update`, the differences between versions, and `docs/reference/options.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, cast

import msgspec

from daybell.core import payload
from daybell.core.execution import Priority
from daybell.core.ids import id_in
from daybell.core.kinds import KINDS, SETTINGS, needs_of, read_settings, settings_json
from daybell.core.kinds.schema import (
    COMPONENTS,
    DURATION,
    PRIORITY,
    TEXT,
    Schema,
    an_object,
    any_of,
    list_of,
    ref,
    says,
)
from daybell.core.kinds.settings import BESIDE, command_of, read_env
from daybell.core.limits import (
    ARGS_BYTES_MAX,
    CRASHES_MAX_DEFAULT,
    DEPENDENCIES_MAX,
    DESCRIPTION_CHARS_MAX,
    EXECUTIONS_MAX,
    MISFIRE_LIMIT_MAX,
    NAME_CHARS_MAX,
    QUEUE_NAME_CHARS_MAX,
    RETRIES_MAX,
    USER_CHARS_MAX,
    check_name,
    text_fault,
)
from daybell.core.retry import Retry
from daybell.core.schedule import OnFailure, Overlap, any_jobs, rule_of
from daybell.core.units import (
    Duration,
    Instant,
    Seconds,
    format_duration,
    parse_duration,
    parse_limit,
)
from daybell.core.when import After, Calendar, Misfire
from daybell.core.when import Schedule as Rule
from daybell.core.when.declared import (
    OF_EACH,
    When,
    check_not_manual,
    is_after,
    is_after_any,
    keep_options,
    read_dst,
    read_misfire,
    read_schedules,
    split_dependencies,
    without_times,
)
from daybell.core.when.language import KEYS
from daybell.core.when.rule import OPTIONS as OF_SCHEDULE
from daybell.core.when.rule import Dependency, name_of
from daybell.core.when.zone import Fold, Gap, Moment, parse_moment, zone_named
from daybell.errors import (
    InvalidFields,
    InvalidName,
    InvalidSchedule,
    PayloadError,
    UsageError,
    shown,
    suggested,
)

DEFAULT_QUEUE: Final = "default"

Arguments = Mapping[str, Any]


class JobDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is. Two equal definitions are the same version."""

    name: str
    kind: str = "task"  # which runner: task, command, http, sql, notify, workflow
    queue: str = DEFAULT_QUEUE
    priority: Priority = Priority.NORMAL
    retry: Retry = msgspec.field(default_factory=Retry)
    timeout: Seconds | None = None
    expires: Seconds | None = None
    max_crashes: int = CRASHES_MAX_DEFAULT
    on_lost: Literal["retry", "dead"] = "retry"
    store_result: bool = True
    description: str = ""
    user_id: str | None = None
    settings: str = "{}"  # JSON of the kind's own settings
    args: str = "{}"  # of executions that name no arguments
    schedules: tuple[str, ...] = ()  # JSON of `core.when.Schedule`
    overlap: Overlap | None = None  # None: skip with schedules, allow without
    misfire: str = ""  # JSON of `core.when.Misfire`; empty: the default
    pause_after_failures: int | None = None
    dependencies: tuple[str, ...] = ()  # jobs that must have succeeded before it runs
    on_dependency_failure: OnFailure = OnFailure.WAIT
    template: str = ""  # JSON of its origin: the template's name, version, parameters
    source: str = ""  # the set that it belongs to: "apply", for jobs that files declare
    once: bool = False  # made to run one time: it goes with its last execution

    @property
    def needs(self) -> str:
        """The capability that a worker must offer: its kind, and more for some."""
        return needs_of(self.kind, self.settings)

    @property
    def words(self) -> str:
        """The text that a search reads: the name and the description, case-folded."""
        return fold_case(f"{self.name}\n{self.description}")

    def overlap_rule(self, *, is_scheduled: bool = False) -> Overlap:
        """Return the rule for an execution, which may come from a schedule that was added later."""
        return rule_of(
            self.overlap,
            is_scheduled=is_scheduled or bool(self.schedules),
            is_dependent=self.fires_after,
        )

    @property
    def runs_by_itself(self) -> bool:
        """True if a schedule or a dependency triggers it."""
        return bool(self.schedules or self.dependencies)

    @property
    def upstream(self) -> tuple[str, ...]:
        """The jobs that it depends on, or of which any fires it."""
        return tuple(dict.fromkeys((*self.dependencies, *any_jobs(self.schedules))))

    @property
    def fires_after(self) -> bool:
        """True if its dependencies fire it: it has no schedule with times."""
        return bool(self.dependencies) and not self.schedules

    def to_json(self) -> str:
        """Return the definition as a store keeps it. Equal definitions give equal text."""
        retry = msgspec.Raw(self.retry.to_json().encode())
        fields = msgspec.structs.asdict(self) | {"retry": retry}
        # Fields with their defaults are left out, except for those that every definition has had.
        for name in LATER_FIELDS:
            if fields[name] == _DEFAULTS[name]:
                del fields[name]
        if self.needs != self.kind:
            fields["needs"] = self.needs  # for statements that read definitions in SQL
        return msgspec.json.encode(fields).decode()

    @classmethod
    def from_json(cls, text: str) -> JobDefinition:
        """Read a kept definition. Unknown fields, of a newer version, are skipped."""
        fields = msgspec.json.decode(text)
        retry = Retry.from_json(msgspec.json.encode(fields.pop("retry")).decode())
        return msgspec.structs.replace(msgspec.convert(fields, cls), retry=retry)


def fold_case(text: str) -> str:
    """Return a text without a difference between capital and small letters, as stores can keep."""
    return text.casefold().replace("\0", " ")


LATER_FIELDS: Final = (
    "args", "schedules", "overlap", "misfire", "pause_after_failures", "dependencies",
    "on_dependency_failure", "template", "source", "once",
)  # fmt: skip
_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(JobDefinition)}


# The same options as typed dictionaries, for editors and type checkers.


class Dst(TypedDict, total=False):
    """The rule for times that a change of the clocks leaves out (gap) or repeats (fold)."""

    gap: Gap
    fold: Fold


class TaskOptions(TypedDict, total=False):
    """Options of every job, whatever its kind. The table OPTIONS says what each means."""

    schedule: When | Sequence[When] | None
    tz: str | None
    calendar: Calendar | Mapping[str, Any] | None
    dst: Dst | None
    start_at: Moment | None
    end_at: Moment | None
    max_executions: int | None
    jitter: Duration | None
    args: Arguments | None
    queue: str
    priority: str | int
    retries: int | Retry | Mapping[str, Any] | None
    timeout: Duration | None
    expires: Duration | None
    max_crashes: int
    on_lost: Literal["retry", "dead"]
    store_result: bool
    description: str
    user_id: str | None
    overlap: Literal["skip", "queue", "queue_all", "replace", "allow"] | None
    misfire: Literal["fire_once", "skip", "fire_all"] | Misfire | Mapping[str, Any] | None
    misfire_limit: int | None
    misfire_within: Duration | None
    misfire_grace: Duration | None
    pause_after_failures: int | None
    dependencies: Sequence[Dependency] | None
    on_dependency_failure: Literal["wait", "skip", "run"]


class JobOptions(TaskOptions, total=False):
    """The same for `define`, which takes a kind with its settings."""

    kind: str
    settings: Mapping[str, Any] | None


class JobFields(TaskOptions, total=False):
    """Fields of a request for a job: exactly one of task, command, http, sql, notify, workflow and
    template names its kind.
    """

    task: str | None
    command: str | Sequence[Any] | Mapping[str, Any] | None
    shell: bool | None
    env: Mapping[str, Any] | None
    http: str | Mapping[str, Any] | None
    sql: Mapping[str, Any] | None
    notify: Mapping[str, Any] | None
    workflow: Mapping[str, Any] | None
    template: str | None
    parameters: Mapping[str, Any] | None
    made_from: Mapping[str, Any] | None
    backoff: str | Mapping[str, Any] | None
    source: str | None


# Readers of plain values. Each names the option in its message and in the field of its error.

T = TypeVar("T", bound=str)
R = TypeVar("R")
Reader = Callable[[Any, str], Any]


def read_whole(value: object, what: str, *, least: int = 0, most: int) -> int:
    """Return a whole number within its bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(
            f"{what}={shown(value)} must be a whole number from {least} to {most:,}", field=what
        )
    return value


def read_text(value: object, what: str, *, most: int | None = None) -> str:
    """Return a text of at most so many characters."""
    if not isinstance(value, str):
        raise UsageError(f"{what}={shown(value)} must be text", field=what)
    if fault := text_fault(value):
        raise UsageError(f"{what} {shown(value)} {fault}", field=what)
    if most is not None and len(value) > most:
        raise UsageError(f"{what} has {len(value):,} characters; the limit is {most:,}", field=what)
    return value


def read_flag(value: object, what: str) -> bool:
    """Return a yes or no."""
    if not isinstance(value, bool):
        raise UsageError(f"{what}={shown(value)} must be true or false", field=what)
    return value


def read_word(value: T, words: tuple[str, ...], what: str) -> T:
    """Return one of a few words."""
    if not isinstance(cast("object", value), str) or value not in words:
        raise UsageError(f"{what} {shown(value)} is not one of {', '.join(words)}", field=what)
    return value


def read_seconds(value: Duration | None, what: str) -> Seconds | None:
    """Return a duration in seconds, or None for none."""
    return None if value is None else parse_duration(value, what=what)


def read_limit(value: Duration | None, what: str) -> Seconds | None:
    """Return a limit of time in seconds, which cannot be zero, or None for none."""
    return None if value is None else parse_limit(value, what=what)


def read_args(args: Arguments | None, *, what: str = "args") -> str:
    """Return arguments as JSON text. They are given by name."""
    if args is None:
        return "{}"
    if not isinstance(cast("object", args), dict | Mapping):  # a dict is recognised faster
        raise PayloadError(
            f"{what}: arguments are given by name, as a dict, not as {type(args).__name__}",
            field="args",
        )
    for name in cast("Mapping[object, Any]", args):
        if not isinstance(name, str):
            raise PayloadError(f"{what}: {shown(name)} is not an argument's name", field="args")
    return payload.encode(args if isinstance(args, dict) else dict(args), what=what)


def read_mapping(value: object, what: str) -> dict[str, Any]:
    """Return values by name."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{what}={shown(value)} must be given by name, as an object", field=what)
    return dict(cast("Mapping[str, Any]", value))


def _whole(least: int, most: int) -> Reader:
    return lambda value, what: read_whole(value, what, least=least, most=most)


def _text(most: int) -> Reader:
    return lambda value, what: read_text(value, what, most=most)


def _word(words: Iterable[str]) -> Reader:
    known = tuple(map(str, words))
    return lambda value, what: read_word(value, known, what)


def _name(value: Any, what: str) -> str:
    return check_name(value, what=what)


def _moment(value: Any, what: str) -> Any:
    parse_moment(value, what=what, tz="UTC")
    return value  # read again by the clock of each schedule


def _zone(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidSchedule(f"tz {shown(value)} is not the name of a zone", field=what)
    zone_named(value)
    return value


def _policy(value: Any, what: str) -> Any:
    """Return a retry policy, or its parts: of `retries` and `backoff`, each may have the other."""
    if what == "backoff":
        said = {"backoff": value} if isinstance(value, str) else value
        if not isinstance(said, Mapping):
            raise UsageError(
                f'backoff={shown(value)} must be a word such as "fixed", or an object', field=what
            )
        policy = dict(cast("Mapping[str, Any]", said))
        Retry.parse(policy)
        return policy
    Retry.parse(value)
    return value


def _made_from(value: Any, what: str) -> str:
    """Return a template's name, version and parameters, as they are kept."""
    known = ("name", "version", "parameters")
    if not isinstance(value, Mapping) or set(cast("Mapping[str, Any]", value)) != set(known):
        raise UsageError(f"made_from must be an object with {', '.join(known)}", field=what)
    given = cast("Mapping[str, Any]", value)
    note = {
        "name": check_name(given["name"], what="template"),
        "version": read_whole(given["version"], "made_from.version", least=1, most=2**31 - 1),
        "parameters": read_mapping(given["parameters"], "made_from.parameters"),
    }
    return payload.encode(note, what=what)


def _dependencies(value: Any, what: str) -> tuple[str, ...]:
    """Return names of jobs; one that is said twice counts once."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise UsageError(
            f'{what} {shown(value)} must be a list of names, such as ["extract"]', field=what
        )
    given = cast("Sequence[Any]", value)
    if len(given) > DEPENDENCIES_MAX:
        raise UsageError(
            f"{len(given):,} dependencies are too many; the limit is {DEPENDENCIES_MAX:,}",
            field=what,
        )
    try:
        return tuple(dict.fromkeys(check_name(name_of(one), what="job") for one in given))
    except InvalidName as error:
        raise UsageError(f"{what}: {error}", field=what) from None


def _env(value: Any, what: str) -> dict[str, Any]:
    return read_env(value)


def _as_it_is(value: Any, what: str) -> Any:
    return value  # read with the others of its group, or against the store


def _same(value: Any) -> Any:
    return value


def _duration(seconds: Seconds | None) -> str | None:
    return None if seconds is None else format_duration(seconds)


def read_job_name(name: str) -> str:
    """Return a name that a job may get. One that is a UUID would be taken for another job's id."""
    if id_in(check_name(name, what="job")) is not None:
        raise InvalidName(
            f"job name {shown(name)} looks like an id, and jobs are found by both; give it a name"
            " that is no UUID",
            field="name",
        )
    return name


# The table.

Merge = Literal["replace", "keep", "reset"]
MERGES: Final[Mapping[Merge, str]] = {
    "replace": "A new value takes the place of the old one.",
    "keep": "A new value keeps the parts of the old one that it does not name.",
    "reset": "It returns to its default with the option that it belongs to, unless it is named.",
}


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a job.

    `read` returns the value as a definition has it; null, and an option that is missing, stand for
    `default`. An option that is a `part` is read together with the others of its group. A change
    merges the option by `merge`; all options that a change does not name stay.
    """

    name: str
    meaning: str
    schema: Schema
    read: Reader = _as_it_is
    write: Callable[[Any], Any] = _same  # the value of a definition, as a request writes it
    default: Any = None  # as a request writes it
    merge: Merge = "replace"
    part: str = ""  # the group it is read with: schedule, misfire, retries, command, template
    inherited: bool = False  # a job that runs a task has it from there
    null_is_none: bool = False  # null is no limit, also where a task has one
    in_code: bool = True  # `@app.task` takes it, too
    metavar: str = ""  # of its flag; empty: the command line has flags of another form for it
    flag: str = ""  # the name of its flag, where that is not its own

    @property
    def flag_name(self) -> str:
        """The flag of the command line, as it is typed."""
        return f"--{self.flag or self.name.replace('_', '-')}"


_COUNT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": RETRIES_MAX}
_FLAG: Final[Schema] = {"type": "boolean"}
_OBJECT: Final[Schema] = {"type": "object"}
_MOMENT: Final[Schema] = {**TEXT, "examples": ["2030-12-24T18:00:00+01:00"]}


def _text_of(most: int, **more: Any) -> Schema:
    return {**TEXT, "maxLength": most, **more}


def _kind(name: str, meaning: str, schema: Schema, **more: Any) -> Option:
    return Option(name=name, meaning=meaning, schema=schema, in_code=False, **more)


_ROWS: Final = (
    _kind("task", "Run a task of an app, by its name.", TEXT, read=read_text, metavar="NAME"),
    _kind(
        "command",
        "Run a program: a line, which is split as a shell would and run without one, its words, or"
        " an object with `run` and more. Only on workers that allow commands.",
        any_of(TEXT, list_of(ref("Words")), ref("Command")),
        merge="keep", metavar="LINE",
    ),
    _kind("shell", "Of a command: run its line by `sh -c`.", _FLAG, read=read_flag, part="command"),
    _kind(
        "env",
        "Of a command: variables of its environment.",
        {"type": "object", "additionalProperties": ref("Words")}, read=_env, part="command",
    ),
    _kind(
        "http",
        "Send a request: an address, or an object with `url` and more.",
        any_of(TEXT, ref("HttpRequest")), merge="keep", metavar="URL",
    ),
    _kind(
        "sql", "Run a statement in a database that workers know by name.", ref("Statement"),
        metavar="STATEMENT",
    ),
    _kind(
        "notify", "Send a message to people: by mail, chat or webhook.", ref("Message"),
        metavar="ADDRESS",
    ),
    _kind(
        "workflow",
        "Run a graph: `nodes`, each of which is one of the above or another job, and `edges`"
        " between them. `args` give values to its `params`.",
        ref("Workflow"),
    ),
    _kind(
        "template",
        "Make the job from a template, by its name; fields beside it win.",
        _text_of(NAME_CHARS_MAX), read=_name, metavar="NAME",
    ),
    _kind(
        "parameters", "The parameters of the template, by name.", _OBJECT,
        read=read_mapping, part="template",
    ),
    _kind(
        "made_from",
        "The template that the job was made from: a note for people.",
        ref("MadeFrom"), read=_made_from, merge="reset",
    ),
    Option(
        name="schedule",
        meaning='When it runs: a cron expression, {"cron", "tz", "jitter"}, {"every", "mode"},'
        ' {"at"}, {"delay"}, {"rrule"}, {"after_any": [jobs]}, a list of these, or "manual". A new'
        " job of the API without a schedule runs once, now.",
        schema={
            **any_of(TEXT, _OBJECT, list_of(any_of(TEXT, _OBJECT))),
            "examples": ["0 0 * * *", {"every": "5m", "mode": "delay"}],
        },
        merge="keep", part="schedule",
    ),
    Option(
        name="tz", meaning="The zone of its clock, such as Europe/Berlin; by default UTC.",
        schema=_text_of(NAME_CHARS_MAX, examples=["Europe/Berlin"]), read=_zone,
        part="schedule", metavar="ZONE",
    ),
    Option(
        name="calendar",
        meaning='Days on which it does not fire: {"country": "DE"}, and more in the guide.',
        schema=_OBJECT, read=lambda value, what: Calendar.parse(value),
        part="schedule", metavar="COUNTRY",
    ),
    Option(
        name="dst",
        meaning="The rule for times that a change of the clocks leaves out (`gap`) or repeats"
        " (`fold`).",
        schema={
            "type": "object",
            "properties": {"gap": {"enum": ["shift", "skip"]},
                           "fold": {"enum": ["first", "second", "both"]}},
            "additionalProperties": False,
        },
        read=lambda value, what: read_dst(value), part="schedule",
    ),
    Option(
        name="start_at", meaning="It does not fire before this time, or date in its zone.",
        schema=_MOMENT, read=_moment, part="schedule", metavar="TIME",
    ),
    Option(
        name="end_at", meaning="It does not fire after this time, or date in its zone.",
        schema=_MOMENT, read=_moment, part="schedule", metavar="TIME",
    ),
    Option(
        name="max_executions", meaning="The number of times that it fires, at most.",
        schema={"type": "integer", "minimum": 1, "maximum": EXECUTIONS_MAX},
        read=_whole(1, EXECUTIONS_MAX), part="schedule", metavar="N",
    ),
    Option(
        name="jitter", meaning="Each tick is up to this much later, to spread the load.",
        schema=DURATION, read=read_seconds, part="schedule", metavar="DURATION",
    ),
    Option(
        name="args",
        meaning="Its arguments by name, of executions that name none. A value may stand for a"
        " secret.",
        schema=_OBJECT, read=lambda value, what: read_args(value),
        write=payload.decode, default={}, merge="reset", metavar="JSON",
    ),
    Option(
        name="description", meaning="A description for people.",
        schema=_text_of(DESCRIPTION_CHARS_MAX), read=_text(DESCRIPTION_CHARS_MAX), default="",
        metavar="TEXT",
    ),
    Option(
        name="queue", meaning="The queue in which its executions wait.",
        schema=_text_of(QUEUE_NAME_CHARS_MAX), read=_name, default=DEFAULT_QUEUE, inherited=True,
        metavar="NAME",
    ),
    Option(
        name="priority", meaning="Its place in the queue: critical, high, normal (or medium), low.",
        schema=PRIORITY, read=lambda value, what: Priority.parse(value),
        write=lambda value: value.label, default="normal",
        inherited=True, metavar="WORD",
    ),
    Option(
        name="retries", meaning="The number of tries after the first one failed.",
        schema={"anyOf": [{"type": "integer", "minimum": 0, "maximum": RETRIES_MAX}, _OBJECT]},
        read=_policy, default=Retry().retries, merge="keep", part="retries", inherited=True,
        metavar="N",
    ),
    Option(
        name="backoff",
        meaning='The wait before each retry: "exponential", "fixed", or an object with base,'
        " factor, cap, delay, delays, jitter.",
        schema={**any_of(TEXT, _OBJECT), "examples": [{"backoff": "fixed", "delay": "30s"}]},
        read=_policy, default="exponential", merge="keep", part="retries", in_code=False,
        metavar="RULE",
    ),
    Option(
        name="timeout", meaning="The longest time of one try; then it is stopped, and has failed.",
        schema=DURATION, read=read_limit, write=_duration, inherited=True, null_is_none=True,
        metavar="DURATION",
    ),
    Option(
        name="expires",
        meaning="An execution that has not started this long after its time is skipped.",
        schema=DURATION, read=read_limit, write=_duration, inherited=True, null_is_none=True,
        metavar="DURATION",
    ),
    Option(
        name="max_crashes", meaning="An execution is dead once it has lost this many workers.",
        schema=_COUNT, read=_whole(1, RETRIES_MAX), default=CRASHES_MAX_DEFAULT, inherited=True,
        metavar="N",
    ),
    Option(
        name="on_lost",
        meaning="When its worker was lost: `retry` runs it again, `dead` leaves that to a person.",
        schema={"enum": ["retry", "dead"]}, read=_word(("retry", "dead")), default="retry",
        inherited=True, metavar="WORD",
    ),
    Option(
        name="store_result", meaning="Keep the value that it returns.",
        schema=_FLAG, read=read_flag, default=True, inherited=True, metavar="FLAG",
    ),
    Option(
        name="user_id", meaning="Its owner in your own accounts; jobs are listed by it.",
        schema=_text_of(USER_CHARS_MAX), read=_text(USER_CHARS_MAX), metavar="ID", flag="user",
    ),
    Option(
        name="overlap",
        meaning="When the execution before has not ended: `skip` the new one, `queue` it (and skip"
        " a second), `queue_all`, `replace` the one before, or `allow` both.",
        schema={"enum": [str(one) for one in Overlap]},
        read=lambda value, what: Overlap(read_word(value, tuple(Overlap), what)),
        write=lambda value: None if value is None else str(value), metavar="RULE",
    ),
    Option(
        name="misfire",
        meaning="Missed ticks: `fire_once` runs the latest, `skip` none, `fire_all` each.",
        schema=any_of({"enum": ["fire_once", "skip", "fire_all"]}, _OBJECT),
        read=lambda value, what: Misfire.parse(value), part="misfire", metavar="RULE",
    ),
    Option(
        name="misfire_limit", meaning="Of `fire_all`: this many ticks at most, the latest of them.",
        schema={"type": "integer", "minimum": 1, "maximum": MISFIRE_LIMIT_MAX},
        read=_whole(1, MISFIRE_LIMIT_MAX), merge="keep", part="misfire", metavar="N",
    ),
    Option(
        name="misfire_within", meaning="Of `fire_all`: no tick that is older.",
        schema=DURATION, read=read_seconds, merge="keep", part="misfire", metavar="DURATION",
    ),
    Option(
        name="misfire_grace", meaning="A tick that is later than this counts as missed.",
        schema=DURATION, read=read_seconds, merge="keep", part="misfire", metavar="DURATION",
    ),
    Option(
        name="pause_after_failures",
        meaning="The job is paused after this many dead executions in a row.",
        schema=_COUNT, read=_whole(1, RETRIES_MAX), metavar="N",
    ),
    Option(
        name="dependencies",
        meaning="Jobs that must have succeeded before it runs: with a schedule, their latest"
        " executions that were due at its time; without one, since it ran last, which fires it.",
        schema=list_of(_text_of(NAME_CHARS_MAX), maxItems=DEPENDENCIES_MAX), read=_dependencies,
        default=(), part="schedule", metavar="JOB", flag="depends-on",
    ),
    Option(
        name="on_dependency_failure",
        meaning="When a dependency has failed for good: `wait`, `skip` this time, or `run` all the"
        " same.",
        schema={"enum": [str(one) for one in OnFailure]}, read=_word(OnFailure), default="wait",
        merge="reset", part="schedule", metavar="WORD",
    ),
    _kind(
        "source",
        "The set that the job belongs to: `apply` for jobs of files.",
        _text_of(NAME_CHARS_MAX, examples=["apply:nightly"]), read=_text(NAME_CHARS_MAX),
        default="",
    ),
)  # fmt: skip
OPTIONS: Final[Mapping[str, Option]] = {one.name: one for one in _ROWS}

# Options of features that are not built yet: refused by name.
LATER: Final[Mapping[str, str]] = {
    "labels": "labels of jobs",
    "requires": "choosing workers by label",
    "resources": "limits by resource",
    "concurrency": "limits on how many run at a time",
    "rate": "limits on how many start in a time",
    "cache": "keeping results",
    "notifications": "telling people how it went",
}
# One of these names the kind of a job.
CHOICES: Final = ("task", *SETTINGS, "workflow", "template")
OF_COMMAND: Final = BESIDE
OF_TEMPLATE: Final = "parameters"
KIND_FIELDS: Final = (*CHOICES, *OF_COMMAND, OF_TEMPLATE)
# The field that a line or an address stands for, where settings may be given as that alone.
SHORT_FOR: Final = {"command": "run", "http": "url"}
INHERITED: Final = tuple(one.name for one in OPTIONS.values() if one.inherited)
_OF_RETRIES: Final = ("retries", "backoff")
_OF_MISFIRE: Final = ("misfire_limit", "misfire_within", "misfire_grace")
_GROUPED: Final = {
    *(name for name, one in OPTIONS.items() if one.part in ("schedule", "misfire", "retries")),
    *KIND_FIELDS,
}


# Reading. All that is wrong with a request is found at once.


class JobRequest(msgspec.Struct, kw_only=True):
    """A request for a job as it was read, with all that is wrong with it."""

    name: str
    fields: dict[str, Any]  # as they were written
    choice: str | None = None  # the field that names the kind; None: no field does
    values: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])  # of a JobDefinition
    faults: list[UsageError] = msgspec.field(default_factory=list[UsageError])

    def note(self, field: str, read: Callable[..., R], *args: Any, **named: Any) -> R | None:
        """Return what `read` returns. An error of it becomes a fault of this field."""
        try:
            return read(*args, **named)
        except UsageError as error:
            error.field = self._place(error.field, field)
            self.faults.append(error)
            return None

    def _place(self, field: str | None, of: str) -> str:
        """Return the way to a field that an error names, within the one that was read."""
        begin = (field or of).partition(".")[0].partition("[")[0]
        if of not in OPTIONS:
            return of  # such as the name
        if field is None or begin in OPTIONS:
            if of == "task":
                return field or of  # of the choice among kinds
            return field if field and (begin in self.fields or begin == of) else of
        if of == "schedule" and field in ("gap", "fold"):
            return f"dst.{field}" if "dst" in self.fields else f"schedule.dst.{field}"
        return field if begin == of else f"{of}.{field}"

    def check(self) -> None:
        """Raise what is wrong, if anything is."""
        raise_all(self.faults)

    def definition(self, **more: Any) -> JobDefinition:
        """Return the definition. Raises all faults."""
        self.check()
        return JobDefinition(name=self.name, **{**more, **self.values})


def raise_all(faults: Sequence[UsageError]) -> None:
    """Raise an error, or several as one, if there are any."""
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise InvalidFields(faults)


def read_request(
    name: Any,
    fields: Mapping[str, Any],
    *,
    what: str = "a job",
    now: Instant | None = None,
    needs_kind: bool = True,
    is_draft: bool = False,
) -> JobRequest:
    """Read a request for a job. With `now`, a schedule that is over is refused. A draft, with a
    delay that counts from now, is read again later.

    The graph of a workflow and the fields of a template are read against the store, later.
    """
    request = JobRequest(name=name, fields=dict(fields))
    request.note("name", read_job_name, name)
    read: dict[str, Any] = {}
    for key, value in fields.items():
        option = OPTIONS.get(key)
        if option is None:
            request.faults += unknown_field(key, value, fields, what)
        elif value is not None:
            faults = len(request.faults)
            found = request.note(key, option.read, value, key)
            if len(request.faults) == faults:
                read[key] = found
        elif option.null_is_none:
            read[key] = None
    request.values = {key: value for key, value in read.items() if key not in _GROUPED}
    if "made_from" in read:
        request.values["template"] = request.values.pop("made_from")
    request.choice = request.note("task", require_choice if needs_kind else read_choice, fields)
    if request.choice in SETTINGS and not any(one.field == "env" for one in request.faults):
        settings = _read_settings(request, request.choice)
        request.values |= {"kind": request.choice, "settings": settings}
    _read_retries(request, read)
    _read_misfire(request, read)
    _read_times(request, read, now, is_draft=is_draft)
    return request


def _read_settings(request: JobRequest, kind: str) -> str:
    try:
        return payload.encode(
            read_kind(kind, request.fields), what="settings", bytes_max=ARGS_BYTES_MAX
        )
    except UsageError as error:
        error.field = _place_in_kind(error.field, kind)
        request.faults.append(error)
        return "{}"


def _place_in_kind(field: str | None, kind: str) -> str:
    """Return the way to a field in a request, from its name in the rules of a kind."""
    if field in (None, "secret", "settings"):
        return kind
    begin = field.partition(".")[0]
    if begin == kind or (kind == "command" and begin in OF_COMMAND):
        return field
    return f"{kind}.{field}"


def _read_retries(request: JobRequest, read: Mapping[str, Any]) -> None:
    """Make one policy of the tries and the waits between them."""
    retries, backoff = read.get("retries"), read.get("backoff")
    if backoff is None:
        if retries is not None:
            request.values["retry"] = Retry.parse(retries)
    elif retries is not None and not isinstance(retries, int):
        fault = "retries says how long to wait, too; leave out backoff"
        request.faults.append(UsageError(fault, field="backoff"))
    else:
        more = {} if retries is None else {"retries": retries}
        policy = request.note("backoff", Retry.parse, {**backoff, **more})
        request.values["retry"] = policy or Retry()


def _read_misfire(request: JobRequest, read: Mapping[str, Any]) -> None:
    if "misfire" in read or any(name in read for name in _OF_MISFIRE):
        parts = {name.removeprefix("misfire_"): read.get(name) for name in _OF_MISFIRE}
        request.values["misfire"] = request.note(
            "misfire", read_misfire, read.get("misfire"), **parts
        )


def _read_times(
    request: JobRequest, read: Mapping[str, Any], now: Instant | None, *, is_draft: bool
) -> None:
    """Read when the job runs: its schedules with their common options, and its dependencies."""
    common = {name: read[name] for name in OF_EACH if name in read}
    value, faults = request.fields.get("schedule"), len(request.faults)
    schedules = request.note("schedule", read_schedules, value, common, now=now, is_draft=is_draft)
    schedules = schedules or []
    is_read = len(request.faults) == faults
    after, schedules = request.note("schedule", split_dependencies, schedules) or ([], [])
    if is_read and all(isinstance(one, After) for one in schedules):
        for name in common:
            fault = f"{name} is about a schedule, and there is none; give one, or leave it out"
            request.faults.append(UsageError(fault, field=name))
    own = read.get("dependencies", ())
    needed = request.note("dependencies", _dependencies, (*own, *after), "dependencies") or ()
    rules = tuple(one.to_json() for one in schedules)
    fired_by = any_jobs(rules)
    for names, field, verb in ((needed, "dependencies", "depend on"), (fired_by, "schedule", "")):
        if request.name in names:
            fault = f"job {shown(request.name)} cannot {verb or 'be fired by'} itself"
            request.faults.append(UsageError(fault, field=field))
    request.note("schedule", check_not_manual, value, needed)
    request.values |= {"schedules": rules, "dependencies": needed}
    if request.values.get("overlap") is None and any(isinstance(one, After) for one in schedules):
        request.values["overlap"] = Overlap.QUEUE  # no other time would come
    if "on_dependency_failure" in read:
        policy = OnFailure(read["on_dependency_failure"])
        request.values["on_dependency_failure"] = policy
        is_of_any = bool(fired_by) and policy is OnFailure.RUN
        if is_read and policy is not OnFailure.WAIT and not needed and not is_of_any:
            fault = (
                f"on_dependency_failure={policy} is for a job that depends on others, and this one"
                ' has no dependencies; add them, as in dependencies=["extract"], or leave it out'
            )
            request.faults.append(UsageError(fault, field="on_dependency_failure"))


# Fields of a part of a job, which people write beside the part.
_INNER: Final[Mapping[str, frozenset[str]]] = {
    **{kind: frozenset(settings.__struct_fields__) for kind, settings in SETTINGS.items()},
    "schedule": frozenset((*KEYS, *OF_SCHEDULE)),
}
_BESIDE_INNER: Final = {**SHORT_FOR, "schedule": "cron"}


def unknown_field(name: Any, value: Any, fields: Mapping[str, Any], what: str) -> list[UsageError]:
    """Return the fault of a field that does not exist: where it belongs, or a similar name."""
    if name in LATER:
        fault = f"not available yet: {LATER[name]}"
        return [] if value is None else [UsageError(fault, field=name)]
    parts = [part for part, inner in _INNER.items() if name in inner]
    if parts:
        part = next((one for one in parts if fields.get(one) is not None), parts[0])
        beside = f", beside {_BESIDE_INNER[part]}" if part in _BESIDE_INNER else ""
        hint = f"it goes under {part}{beside}"
    else:
        hint = suggested(
            name,
            sorted(OPTIONS),
            otherwise=f"it has what it runs ({', '.join(CHOICES)}), schedule, args, retries,"
            " timeout, queue and more, as POST /jobs",
        )
    return [UsageError(f"{what} has no field {shown(name)}; {hint}", field=str(name))]


def check_fields(fields: Mapping[str, Any], what: str) -> None:
    """Refuse fields that do not exist."""
    raise_all(
        [
            fault
            for name, value in fields.items()
            if name not in OPTIONS
            for fault in unknown_field(name, value, fields, what)
        ]
    )


def read_choice(fields: Mapping[str, Any]) -> str | None:
    """Return the field that names the kind of a job; None: no field does. Two are refused, and so
    is a field that goes with another kind.
    """
    said = [name for name in CHOICES if fields.get(name) is not None]
    if len(said) > 1:
        raise UsageError(
            f"{said[0]} and {said[1]} are two things to run; a job runs one", field=said[1]
        )
    choice = said[0] if said else None
    if fields.get(OF_TEMPLATE) is not None and choice != "template":
        raise UsageError(
            "parameters are a template's, and no template is named; a task takes args",
            field=OF_TEMPLATE,
        )
    for name in OF_COMMAND:
        if choice not in (None, "command") and fields.get(name) is not None:
            raise UsageError(
                f"{name} is for a command, and this job is said to run {choice}", field=name
            )
    return choice


def require_choice(fields: Mapping[str, Any]) -> str:
    """Return the field that names the kind of a new job, which has to run something."""
    choice = read_choice(fields)
    if choice is not None:
        return choice
    for name in OF_COMMAND:
        if fields.get(name) is not None:
            raise UsageError(f"{name} is for a command, and there is none", field="command")
    raise UsageError(
        f"nothing says what it runs; give one of {', '.join(CHOICES)}", field=CHOICES[0]
    )


def read_kind(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a kind without code, as they are kept."""
    value = command_of(fields[kind], fields) if kind == "command" else fields[kind]
    return settings_json(read_settings(kind, value))


# Writing: `read_request` makes the same definition of it.


def write_kind(definition: JobDefinition) -> dict[str, Any]:
    """Return the fields of a request that name the kind of a job."""
    kind = definition.kind
    if kind == "task":
        return {"task": task_of(definition) or definition.name}
    if kind not in KINDS:
        return {}
    settings = cast("dict[str, Any]", payload.decode(definition.settings))
    if kind == "command":
        beside = {name: settings.pop(name) for name in OF_COMMAND if name in settings}
        return {"command": settings["run"] if settings.keys() == {"run"} else settings, **beside}
    if kind == "http" and settings.keys() == {"url"} and isinstance(settings["url"], str):
        return {"http": settings["url"]}
    return {kind: settings}


def write_options(definition: JobDefinition) -> dict[str, Any]:
    """Return all options of a job but its kind, as a request has them."""
    retry = payload.decode(definition.retry.to_json())
    grouped = {
        "made_from": payload.decode(definition.template or "null"),
        "schedule": _write_schedules([payload.decode(text) for text in definition.schedules]),
        "retries": retry.pop("retries"),
        "backoff": retry,
        "misfire": payload.decode(definition.misfire or "{}"),
        "dependencies": list(definition.dependencies),
        "on_dependency_failure": str(definition.on_dependency_failure),
    }
    own = set(JobDefinition.__struct_fields__)
    return {
        name: grouped[name] if name in grouped else one.write(getattr(definition, name))
        for name, one in OPTIONS.items()
        if name in grouped or (name in own and name not in _GROUPED)
    }


def _write_schedules(rules: list[dict[str, Any]]) -> Any:
    """Return schedules as people write them: one by itself, and a cron expression as text."""
    plain = [rule["cron"] if rule.keys() == {"cron"} else rule for rule in rules]
    return None if not plain else plain[0] if len(plain) == 1 else plain


def build_request(definition: JobDefinition) -> dict[str, Any]:
    """Return the request that makes this job: its name and its fields without defaults. Of a job
    that runs a task, options that the task may have are always in it.
    """
    fields, usual = write_options(definition), write_options(JobDefinition(name=definition.name))
    always = set(INHERITED if definition.kind == "task" else ())
    if fields["backoff"] != usual["backoff"]:
        always.add("retries")  # else as many as there are waits
    rest = {name: value for name, value in fields.items() if value != usual[name] or name in always}
    return {"name": definition.name, **write_kind(definition), **rest}


def task_of(definition: JobDefinition) -> str | None:
    """Return the task that a job of another name runs; None: the one of its own name."""
    if definition.kind != "task" or definition.settings == "{}":
        return None
    named = msgspec.json.decode(definition.settings).get("task")
    return named if isinstance(named, str) else None


def is_by_code(definition: JobDefinition) -> bool:
    """Return True if code defines a job: a task under its own name."""
    return definition.kind == "task" and task_of(definition) is None


# Change: the options that a job has, merged with those that are named, by the rule of each.


def merge_options(
    old: JobDefinition, given: Mapping[str, Any], kind: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all options of a job after a change, but those of its `kind`. Those that the change
    does not name stay; null returns one to its default.
    """
    fields = write_options(old)
    before = [payload.decode(text) for text in old.schedules]
    fields |= {name: value for name, value in given.items() if name not in KIND_FIELDS}
    if kind and "made_from" not in given:
        fields["made_from"] = None
    if kind and old.kind not in kind and "args" not in given:
        fields["args"] = None
    if not isinstance(given.get("retries"), int | None):
        fields["backoff"] = given.get("backoff")  # a whole policy has its own
    _merge_misfire(fields, old, given)
    _merge_schedules(fields, old, before, given)
    schedule = fields["schedule"]
    if "on_dependency_failure" not in given and not (
        fields["dependencies"] or is_after_any(schedule) or any(map(is_after, as_list(schedule)))
    ):
        fields["on_dependency_failure"] = None
    return fields


def _merge_misfire(fields: dict[str, Any], old: JobDefinition, given: Mapping[str, Any]) -> None:
    if "misfire" not in given:
        named = {name.removeprefix("misfire_") for name in _OF_MISFIRE if name in given}
        kept = payload.decode(old.misfire or "{}")
        fields["misfire"] = {name: value for name, value in kept.items() if name not in named}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and a value by itself as the only one of a list."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]


def _merge_schedules(
    fields: dict[str, Any],
    old: JobDefinition,
    before: Sequence[dict[str, Any]],
    given: Mapping[str, Any],
) -> None:
    """Merge the schedule, and the dependencies if they change with it.

    | `schedule` in the change | schedule |
    |---|---|
    | missing | the old one, but for the common options that the change names |
    | empty | none; a job with dependencies runs after these |
    | given | the new one, with the options of the old one that it does not name |
    """
    dst = given.get("dst")
    apart = {"dst"} if isinstance(dst, Mapping) else set[str]()  # it may name one of two rules
    named = [name for name in OF_EACH if name in given]
    if "schedule" not in given:
        if named and not before:
            raise UsageError(
                f"job {old.name} has no schedule that {named[0]} could be for", field=named[0]
            )
        names = {*named} - apart
        fields["schedule"] = [_without(one, names) for one in before] or None
    elif not given["schedule"]:
        is_said = "dependencies" in given
        fields["schedule"] = without_times(
            old.name, fields["dependencies"] or (), fires_after=is_said or old.fires_after
        )
    else:
        names = given.keys() - apart
        fields["schedule"] = keep_options(given["schedule"], before, named=names)
        if "dependencies" not in given and any(map(is_after, as_list(given["schedule"]))):
            fields["dependencies"] = ()  # it runs after others now
    if isinstance(dst, Mapping) and isinstance(fields["schedule"], list):
        del fields["dst"]
        for one in cast("list[Any]", fields["schedule"]):
            if isinstance(one, dict) and ("cron" in one or "rrule" in one):
                one["dst"] = {**(one.get("dst") or {}), **dst}


def _without(schedule: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in schedule.items() if name not in names}


def merge_kind(old: JobDefinition, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job's kind after a change; nothing, if the change leaves the kind.

    A line or an address takes the place of the old one and keeps the other settings; an object is
    all settings. Of a command, `shell` and `env` are settings, too.
    """
    choice = read_choice(given)
    is_command = old.kind == "command"
    beside = {
        name: given[name]
        for name in OF_COMMAND
        if name in given and (is_command or given[name] is not None)
    }
    if choice is None and given.get(old.kind, "") is None:
        raise UsageError(
            f"a job runs something, and there is no default for that; leave {old.kind} out, or say"
            " what it runs instead",
            field=old.kind,
        )
    if choice is None and not beside:
        return {}
    if is_by_code(old):
        raise UsageError(
            f"job {old.name} is defined by code, which says what it runs; create another job",
            field=choice or next(iter(beside)),
        )
    if choice is None and not is_command:
        field = next(iter(beside))
        raise UsageError(f"{field} is for a command, and this job runs none", field=field)
    kind = choice or "command"
    value = given.get(kind)
    if kind != old.kind or kind not in SHORT_FOR or isinstance(value, Mapping):
        return {name: given[name] for name in KIND_FIELDS if given.get(name) is not None}
    settings = payload.decode(old.settings) | beside
    return {kind: settings if value is None else settings | {SHORT_FOR[kind]: value}}


# JSON: values as Python programs write them, for requests over HTTP.


def encode_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request as plain data."""
    said = {name: _plain(value) for name, value in fields.items()}
    retries = fields.get("retries")
    if isinstance(retries, Retry):
        policy = payload.decode(retries.to_json())
        said |= {"retries": policy.pop("retries"), "backoff": policy}
    if "dependencies" in fields and isinstance(fields["dependencies"], list | tuple):
        said["dependencies"] = [name_of(one) for one in cast("list[Any]", fields["dependencies"])]
    return said


def _plain(value: Any) -> Any:
    if isinstance(value, Rule | Calendar | Misfire):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("list[Any]", value)]
    if isinstance(value, Priority):
        return value.label
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, datetime) else value


# JSON schemas of the bodies of requests, for the OpenAPI document.

_NAME: Final = says("The job's name.", _text_of(NAME_CHARS_MAX, minLength=1))


def _or_null(schema: Schema) -> Schema:
    """Return a schema of a value that may be null."""
    notes = {name: schema[name] for name in ("examples",) if name in schema}
    rest = {name: value for name, value in schema.items() if name not in notes}
    kinds = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    return {"anyOf": [*kinds, {"type": "null"}], **notes}


_FIELDS: Final = {name: says(one.meaning, _or_null(one.schema)) for name, one in OPTIONS.items()}
BODIES: Final[Mapping[str, Schema]] = {
    "NewJob": an_object(
        "A job to be created.",
        {
            "name": _NAME,
            **_FIELDS,
            "unique_key": says(
                "Of the one execution of a job without a schedule.", _or_null(_text_of(500))
            ),
            "tenant": says(
                "Another tenant; for a superadmin's key.", _or_null(_text_of(NAME_CHARS_MAX))
            ),
        },
        required=("name",),
    ),
    "DeclaredJob": an_object(
        "All that a job is. Without a schedule it never runs by itself.",
        {"name": says("As in the address.", _or_null(_text_of(NAME_CHARS_MAX))), **_FIELDS},
    ),
    "JobChange": an_object(
        "A change of a job. Options that it does not name stay; null is back to the default.",
        _FIELDS,
    ),
    **COMPONENTS,
}
