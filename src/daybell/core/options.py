"""The one table of job options, and all that follows from it: reading, change, file format, schema.

A row of OPTIONS has the name of an option, its type as a JSON schema, its reader, its default, its
meaning in one sentence, and its merge rule. The definition and the typed dictionaries are beside
it, for editors and type checkers; a test compares them with the table. From the table follow the
request bodies of the API, the files of `daybell apply`, the flags of `daybell jobs create` and
`update`, the differences between versions, and `docs/reference/options.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypedDict, TypeVar, cast

import msgspec

from daybell.core import payload
from daybell.core.alerts.notifications import SCHEMA as NOTIFICATIONS
from daybell.core.alerts.notifications import JobNotification, read_notifications
from daybell.core.collapse import (
    CONFLICTS,
    KEY_SPEC_CHARS_MAX,
    SCOPES,
    CollapseRule,
    Conflict,
    Debounce,
    Kind,
    RequestThrottle,
    Scope,
    Singleton,
    parse_key,
)
from daybell.core.execution import Priority
from daybell.core.flow import (
    CAPACITY_MAX,
    ON_FULL,
    ConcurrencyOption,
    Limit,
    LimitRule,
    OnFull,
    RateOption,
    arguments_of,
    entry_needs,
    read_concurrency,
    read_rates,
    rules_of,
)
from daybell.core.flow.shares import LEVELS_MAX, USER, ShareOption, read_share, write_share
from daybell.core.ids import id_in
from daybell.core.kinds import SETTINGS, needs_of
from daybell.core.kinds.schema import (
    DURATION,
    PRIORITY,
    TEXT,
    Schema,
    any_of,
    list_of,
    ref,
)
from daybell.core.kinds.settings import BESIDE, read_env
from daybell.core.limits import (
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
from daybell.core.placement import NEAR, Demands, Near, read_amounts, read_choices
from daybell.core.retry import Retry
from daybell.core.schedule import OnFailure, Overlap, any_jobs, has_times, is_event, rule_of
from daybell.core.units import (
    Duration,
    Seconds,
    format_duration,
    parse_duration,
    parse_limit,
)
from daybell.core.when import Calendar, Misfire
from daybell.core.when.declared import (
    When,
    check_dst,
)
from daybell.core.when.event import without_event
from daybell.core.when.rule import Dependency, name_of
from daybell.core.when.zone import Fold, Gap, Moment, parse_moment, zone_named
from daybell.errors import (
    InvalidName,
    InvalidSchedule,
    PayloadError,
    UsageError,
    shown,
)

DEFAULT_QUEUE: Final = "default"

Arguments = Mapping[str, Any]


class Keep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long the parts of ended executions are kept, in seconds; None: as the next policy says.

    The policy of a job comes first, then that of its tenant, then that of the cluster.
    """

    executions: Seconds | None = None  # with an end that has no time of its own
    succeeded: Seconds | None = None
    dead: Seconds | None = None  # dead letters; without a time they are kept until a person decides
    cancelled: Seconds | None = None
    skipped: Seconds | None = None
    results: Seconds | None = None
    logs: Seconds | None = None

    @classmethod
    def parse(cls, value: Any, *, what: str = "keep") -> Keep:
        """Parse times by name, the text `succeeded=1d,logs=7d`, or one time for all executions."""
        if value is None:
            return cls()
        if isinstance(value, str):
            parts = [one.partition("=") for one in value.split(",") if one.strip()]
            value = {name.strip(): time.strip() for name, sign, time in parts if sign}
            plain = [name.strip() for name, sign, _ in parts if not sign]
            if len(plain) > 1 or (plain and "executions" in value):
                raise UsageError(f"{what} has several times for all executions", field=what)
            if plain:
                value["executions"] = plain[0]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            value = {"executions": value}
        given = read_mapping(value, what)
        for name in given:
            if name not in cls.__struct_fields__:
                raise UsageError(
                    f"{what}: {shown(name)} is not kept by itself; there are"
                    f" {', '.join(cls.__struct_fields__)}",
                    field=what,
                )
        return cls(**{name: read_limit(time, f"{what}.{name}") for name, time in given.items()})

    def to_json(self) -> str | None:
        """Return the policy as a store keeps that of a tenant."""
        return None if self == Keep() else msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | None) -> Keep:
        """Read a kept policy."""
        return cls() if text is None else msgspec.json.decode(text, type=cls)

    def write(self) -> dict[str, str]:
        """Return the times as people write them, by name."""
        times = msgspec.structs.asdict(self).items()
        return {name: format_duration(time) for name, time in times if time is not None}


class PlainOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that a definition and the answers about a job have in the same form."""

    queue: str = DEFAULT_QUEUE
    timeout: Seconds | None = None
    expires: Seconds | None = None
    max_crashes: int = CRASHES_MAX_DEFAULT
    on_lost: Literal["retry", "dead"] = "retry"
    store_result: bool = True
    description: str = ""
    user_id: str | None = None
    overlap: Overlap | None = None  # None: skip with schedules, allow without
    pause_after_failures: int | None = None
    on_dependency_failure: OnFailure = OnFailure.WAIT
    notifications: tuple[JobNotification, ...] = ()
    source: str = ""
    keep: Annotated[
        Keep, msgspec.Meta(description="Seconds for which its ended executions are kept.")
    ] = Keep()
    debounce: Debounce | None = None
    max_wait: Seconds | None = None
    throttle: RequestThrottle | None = None
    singleton: Singleton | None = None
    on_conflict: Conflict = "return"
    cache_for: Seconds | None = None
    cache_key: str | None = None
    cache_version: str = ""
    concurrency: tuple[ConcurrencyOption, ...] = ()
    rate: tuple[RateOption, ...] = ()
    on_full: OnFull = "wait"
    share: ShareOption | None = None
    labels: dict[str, str] = {}
    requires: dict[str, tuple[str, ...]] = {}
    prefer: dict[str, tuple[str, ...]] = {}
    near: Near | None = None
    resources: dict[str, float] = {}
    once: Annotated[
        bool,
        msgspec.Meta(description="Made to run one time: it is deleted with its last execution."),
    ] = False


OF_NO_LIMIT: Final[Mapping[str, Any]] = {"concurrency": (), "rate": (), "on_full": "wait"}


BATCH_CRASHES_MIN: Final = 3


class JobDefinition(PlainOptions, frozen=True, kw_only=True):
    """What a job is. Two equal definitions are the same version."""

    name: str
    kind: str = "task"  # which runner: task, command, http, sql, notify, workflow
    settings: str = "{}"  # JSON of the kind's own settings
    priority: Priority = Priority.NORMAL
    retry: Retry = msgspec.field(default_factory=Retry)
    args: str = "{}"  # of executions that name no arguments
    schedules: tuple[str, ...] = ()  # JSON of `core.when.Schedule`
    misfire: str = ""  # JSON of `core.when.Misfire`; empty: the default
    dependencies: tuple[str, ...] = ()  # jobs that must have succeeded before it runs
    template: str = ""  # JSON of its origin: the template's name, version, parameters
    signature: str = ""  # JSON Schema of a function's arguments, given by its code

    @property
    def needs(self) -> str:
        """The capability that a worker must offer, and the demands: see `core.placement`."""
        return needs_of(self.kind, self.settings) + self.demands.text

    @property
    def demands(self) -> Demands:
        """The labels and resources that its executions need of a worker."""
        return Demands(requires=self.requires, prefer=self.prefer, resources=self.resources)

    @property
    def collapse(self) -> CollapseRule | None:
        """The rule by which requests of a key become one execution."""
        rules: list[tuple[Kind, Debounce | RequestThrottle | Singleton | None]] = [
            ("debounce", self.debounce),
            ("throttle", self.throttle),
            ("singleton", self.singleton),
        ]
        if self.cache_for is not None:
            return CollapseRule(
                kind="cache",
                key=() if self.cache_key is None else parse_key(self.cache_key),
                keep=self.cache_for,
                version=self.cache_version,
            )
        for kind, of in rules:
            if of is not None:
                own = msgspec.structs.asdict(of)
                key = own.pop("key")
                return CollapseRule(
                    kind=kind,
                    key=() if key is None else parse_key(key),
                    most=self.max_wait,
                    conflict=self.on_conflict,
                    **own,
                )
        return None

    @property
    def key_arguments(self) -> tuple[str, ...]:
        """The arguments of which the keys of requests and limits are made."""
        rule = self.collapse
        parts = () if rule is None else rule.key
        keys = () if self.share is None or self.share.key == (USER,) else self.share.key
        others = arguments_of(self.concurrency, self.rate, keys)
        return (*(part[0] for part in parts if not isinstance(part, str)), *others)

    @property
    def is_limited(self) -> bool:
        """True if its executions have to be admitted before a worker can claim them."""
        return bool(self.concurrency or self.rate or self.share)

    @property
    def lane_needs(self) -> str:
        """The needs of the lane that its executions enter."""
        return entry_needs(self.needs) if self.is_limited else self.needs

    @property
    def rules(self) -> tuple[LimitRule, ...]:
        """Its limits."""
        return rules_of(self.name, self.concurrency, self.rate)

    @property
    def words(self) -> str:
        """The text that a search reads: name, description and labels, case-folded."""
        labels = "".join(f"\t{name}={value}\n" for name, value in self.labels.items())
        return fold_case(f"{self.name}\n{self.description}" + (f"\n{labels}" if labels else ""))

    def overlap_rule(self, *, is_scheduled: bool = False) -> Overlap:
        """Return the rule for an execution, which may come from a schedule that was added later."""
        return rule_of(
            self.overlap,
            is_scheduled=is_scheduled or has_times(self.schedules),
            is_dependent=self.fires_after,
        )

    @property
    def crashes_allowed(self) -> int:
        """The number of lost workers after which an execution is dead.

        An item of a batch has three: the first loss is that of the batch, and at the second one all
        its items run beside each other. Only then suspects run one at a time.
        """
        if self.max_crashes >= BATCH_CRASHES_MIN or '"batch"' not in self.settings:
            return self.max_crashes
        is_batch = self.kind == "task" and "batch" in msgspec.json.decode(self.settings)
        return BATCH_CRASHES_MIN if is_batch else self.max_crashes

    @property
    def runs_by_itself(self) -> bool:
        """True if a schedule or a dependency triggers it."""
        return bool(self.schedules or self.dependencies)

    @property
    def upstream(self) -> tuple[str, ...]:
        """The jobs that it depends on, or of which any fires it."""
        return tuple(dict.fromkeys((*self.dependencies, *any_jobs(self.schedules))))

    @property
    def called_args(self) -> str:
        """The arguments of a trigger without any, and of schedules with times: those that an event
        would fill are left out.
        """
        return without_event(self.args) if any(map(is_event, self.schedules)) else self.args

    @property
    def fires_after(self) -> bool:
        """True if its dependencies fire it: it has no schedule with times."""
        return bool(self.dependencies) and not self.schedules

    def to_json(self) -> str:
        """Return the definition as a store keeps it. Equal definitions give equal text."""
        retry = msgspec.Raw(self.retry.to_json().encode())
        fields = msgspec.structs.asdict(self) | {"retry": retry}
        if self.lane_needs != self.kind:
            fields["needs"] = self.lane_needs  # for statements that read definitions in SQL
        if self.crashes_allowed != self.max_crashes:
            fields["crashes"] = self.crashes_allowed  # for readers that leave the settings out
        for name in ("concurrency", "rate", "on_full"):
            if fields[name] == OF_NO_LIMIT[name]:
                del fields[name]
        if self.keep == Keep():
            del fields["keep"]  # so that stores find the jobs that have a policy by this word
        if not self.signature:
            del fields["signature"]
        for name in _RARE:
            if fields[name] == _RARE[name]:
                del fields[name]
        if (rule := self.collapse) is not None:
            fields["collapse"] = rule
        if self.near is not None:  # the task that the worker of a parent must have
            fields["beside"] = (task_of(self) or self.name) if self.kind == "task" else ""
        return msgspec.json.encode(fields).decode()

    @classmethod
    def from_json(cls, text: str) -> JobDefinition:
        """Read a kept definition. Unknown fields are ignored."""
        fields = msgspec.json.decode(text)
        retry = Retry.from_json(msgspec.json.encode(fields.pop("retry")).decode())
        return msgspec.structs.replace(msgspec.convert(fields, cls), retry=retry)


# Options that a stored definition has only where they differ from this.
_RARE: Final[dict[str, object]] = {
    "share": None,
    "debounce": None,
    "max_wait": None,
    "throttle": None,
    "singleton": None,
    "on_conflict": "return",
    "cache_for": None,
    "cache_key": None,
    "cache_version": "",
    "labels": {},
    "requires": {},
    "prefer": {},
    "near": None,
    "resources": {},
}


def words_of_label(label: str | None) -> str | None:
    """Return the part of `JobDefinition.words` that a job has which has this label: `team=billing`,
    or `team` for any value.
    """
    if label is None:
        return None
    name, _, value = label.partition("=")
    return fold_case(f"\t{name}={value}\n" if value else f"\t{name}=")


def fold_case(text: str) -> str:
    """Return a text without a difference between capital and small letters, as stores can keep."""
    return text.casefold().replace("\0", " ")


def task_of(definition: JobDefinition) -> str | None:
    """Return the task that a job of another name runs; None: the one of its own name."""
    if definition.kind != "task" or definition.settings == "{}":
        return None
    named = msgspec.json.decode(definition.settings).get("task")
    return named if isinstance(named, str) else None


def is_by_code(definition: JobDefinition) -> bool:
    """Return True if code defines a job: a task under its own name."""
    return definition.kind == "task" and task_of(definition) is None


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
    concurrency: int | Limit | Mapping[str, Any] | Sequence[int | Limit | Mapping[str, Any]] | None
    rate: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None
    on_full: Literal["wait", "skip", "cancel_oldest", "keep_newest"]
    share: Literal[True] | str | Sequence[str] | Mapping[str, Any] | None
    keep: Duration | Mapping[str, Duration | None] | None
    debounce: Duration | Mapping[str, Any] | None
    max_wait: Duration | None
    throttle: str | Mapping[str, Any] | None
    singleton: Scope | Mapping[str, Any] | None
    on_conflict: Literal["return", "replace", "cancel", "error"]
    cache_for: Duration | None
    cache_key: str | None
    cache_version: str
    labels: Mapping[str, str] | None
    requires: Mapping[str, str | Sequence[str]] | None
    prefer: Mapping[str, str | Sequence[str]] | None
    near: Near | None
    resources: Mapping[str, float | str] | None
    notifications: Sequence[Mapping[str, Any]] | None


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


def read_pattern(value: object, what: str) -> str:
    """Return a name, or the beginning of names with `*` after it."""
    if isinstance(value, str) and value.endswith("*") and len(value) > 1:
        check_name(value[:-1].rstrip(), what=what)
        return value
    return check_name(value, what=what)


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
    if type(args) is payload.EncodedArgs:
        return args.text
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


def read_dependencies(value: Any, what: str) -> tuple[str, ...]:
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


def _labels(value: Any, what: str) -> dict[str, str]:
    choices = read_choices(value, what)
    labels: dict[str, str] = {}
    for name, texts in choices.items():
        if len(texts) != 1 or "\n" in texts[0]:
            raise UsageError(f"{what}.{name} must be one text of one line", field=f"{what}.{name}")
        labels[name] = texts[0]
    return labels


def _write_choices(value: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {name: list(some) if len(some) > 1 else some[0] for name, some in value.items()}


def _key(value: Any, what: str) -> str:
    parse_key(value, what)
    return value


def _write(value: Any) -> Any:
    return None if value is None else value.write()


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
_LABELS: Final[Schema] = {
    "type": "object",
    "additionalProperties": any_of(TEXT, list_of(TEXT, minItems=1)),
}
_KEY: Final[Schema] = {**TEXT, "examples": ["account", "order.account", "{account}:{region}"]}
_MOMENT: Final[Schema] = {**TEXT, "examples": ["2030-12-24T18:00:00+01:00"]}


def _keyed(value: Schema, name: str) -> Schema:
    """Return the schema of a value by itself, or with a key."""
    properties = {name: value, "key": _KEY}
    by_key = {"type": "object", "properties": properties, "required": [name],
              "additionalProperties": False}  # fmt: skip
    return {"anyOf": [*value.get("anyOf", [value]), by_key]}


def text_of(most: int, **more: Any) -> Schema:
    return {**TEXT, "maxLength": most, **more}


def _limits_of(short: Schema, fields: Schema, required: str, examples: list[Any]) -> Schema:
    """Return the schema of limits: the short form, an object, or a list of these."""
    whole: Schema = {
        "type": "object", "properties": fields, "required": [required],
        "additionalProperties": False,
    }  # fmt: skip
    return {**any_of(short, whole, list_of(any_of(short, whole))), "examples": examples}


_SHARE_KEYS: Final = (
    {"type": "boolean", "const": True}, TEXT,
    {"type": "array", "items": TEXT, "minItems": 1, "maxItems": LEVELS_MAX},
)  # fmt: skip


def _write_limits(limits: Sequence[ConcurrencyOption | RateOption]) -> list[Any]:
    return msgspec.to_builtins(limits)


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
        text_of(NAME_CHARS_MAX), read=_name, metavar="NAME",
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
        ' {"at"}, {"delay"}, {"rrule"}, {"event", "filter"}, {"file", "settle"},'
        ' {"after_any": [jobs]}, a list of these, or "manual". A new job of the API without a'
        " schedule runs once, now.",
        schema={
            **any_of(TEXT, _OBJECT, list_of(any_of(TEXT, _OBJECT))),
            "examples": ["0 0 * * *", {"every": "5m", "mode": "delay"}],
        },
        merge="keep", part="schedule",
    ),
    Option(
        name="tz", meaning="The zone of its clock, such as Europe/Berlin; by default UTC.",
        schema=text_of(NAME_CHARS_MAX, examples=["Europe/Berlin"]), read=_zone,
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
        read=lambda value, what: check_dst(value), merge="keep", part="schedule",
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
        schema=text_of(DESCRIPTION_CHARS_MAX), read=_text(DESCRIPTION_CHARS_MAX), default="",
        metavar="TEXT",
    ),
    Option(
        name="queue", meaning="The queue in which its executions wait.",
        schema=text_of(QUEUE_NAME_CHARS_MAX), read=_name, default=DEFAULT_QUEUE, inherited=True,
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
        schema=text_of(USER_CHARS_MAX), read=_text(USER_CHARS_MAX), metavar="ID", flag="user",
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
        schema=list_of(text_of(NAME_CHARS_MAX), maxItems=DEPENDENCIES_MAX), read=read_dependencies,
        default=(), part="schedule", metavar="JOB", flag="depends-on",
    ),
    Option(
        name="on_dependency_failure",
        meaning="When a dependency has failed for good: `wait`, `skip` this time, or `run` all the"
        " same.",
        schema={"enum": [str(one) for one in OnFailure]}, read=_word(OnFailure), default="wait",
        merge="reset", part="schedule", metavar="WORD",
    ),
    Option(
        name="concurrency",
        meaning="How many of its executions run at a time: a number, or limits with a key (one for"
        " each value of an argument) or a name (shared by all jobs that use it).",
        schema=_limits_of(
            {"type": "integer", "minimum": 1, "maximum": CAPACITY_MAX},
            {"limit": {"type": "integer", "minimum": 1, "maximum": CAPACITY_MAX},
             "name": text_of(NAME_CHARS_MAX), "key": text_of(KEY_SPEC_CHARS_MAX)},
            "limit", [{"limit": 2, "key": "account"}, {"name": "stripe", "limit": 10}],
        ),
        read=read_concurrency, write=_write_limits, default=(), metavar="N",
    ),
    Option(
        name="rate",
        meaning="How many of its executions start in a time, such as 100/m: no minute sees more."
        " A limit may have a key, a name, a `burst` and a `cost`.",
        schema=_limits_of(
            TEXT,
            {"rate": TEXT, "name": text_of(NAME_CHARS_MAX), "key": text_of(KEY_SPEC_CHARS_MAX),
             "burst": {"type": "integer", "minimum": 1},
             "cost": any_of({"type": "integer", "minimum": 1}, TEXT)},
            "rate", ["100/m", [{"rate": "10/s", "burst": 2}, "100000/d"]],
        ),
        read=read_rates, write=_write_limits, default=(), metavar="RATE",
    ),
    Option(
        name="on_full",
        meaning="When a limit has no room: `wait`, `skip` the new one, `cancel_oldest` that runs,"
        " or `keep_newest`, which skips those that wait already.",
        schema={"enum": list(ON_FULL)}, read=_word(ON_FULL), default="wait", metavar="WORD",
    ),
    Option(
        name="share",
        meaning="Whose turns its executions take, such as `customer`: the keys of a queue take"
        " turns, whatever their backlogs. `true` is the user, several arguments are a tree, and an"
        " object also has `weights`.",
        schema={
            **any_of(*_SHARE_KEYS, {
                "type": "object",
                "properties": {
                    "key": any_of(*_SHARE_KEYS),
                    "weights": {"type": "object", "additionalProperties": {"type": "number"}},
                },
                "additionalProperties": False,
            }),
            "examples": ["customer", ["org", "user"], {"key": "customer", "weights": {"acme": 3}}],
        },
        read=read_share, write=write_share, default=None, metavar="KEY",
    ),
    Option(
        name="keep",
        meaning='How long its ended executions are kept: {"succeeded": "1d", "dead": "90d",'
        ' "logs": "7d"}, or one time. The rest is as the tenant or the cluster keeps it, 30 days by'
        " default; a dead letter stays until a person decides.",
        schema={
            "anyOf": [
                *DURATION["anyOf"],
                {
                    "type": "object",
                    "properties": {name: DURATION for name in Keep.__struct_fields__},
                    "additionalProperties": False,
                },
            ],
            "examples": [{"succeeded": "1d", "logs": "7d"}],
        },
        read=lambda value, what: Keep.parse(value, what=what), write=Keep.write, default={},
        metavar="TIMES",
    ),
    Option(
        name="debounce",
        meaning="A request waits until no other of its key came for this long. They are one"
        ' execution, with the last arguments. {"wait": "5s", "key": "account"}: by an argument.',
        schema=_keyed(DURATION, "wait"), read=Debounce.parse, write=_write, metavar="DURATION",
    ),
    Option(
        name="max_wait", meaning="Of `debounce`: it runs at the latest this long after the first.",
        schema=DURATION, read=read_limit, write=_duration, merge="reset", metavar="DURATION",
    ),
    Option(
        name="throttle",
        meaning="The number of requests of a key that run in any such time, `1/10m`. A request"
        ' beyond it is answered with the latest execution. {"rate": "1/10m", "key": "account"}:'
        " by an argument.",
        schema=_keyed({**TEXT, "examples": ["1/10m"]}, "rate"), read=RequestThrottle.parse,
        write=_write, metavar="RATE",
    ),
    Option(
        name="singleton",
        meaning="One execution of a key at a time takes requests: while it is `unfinished`, or"
        " while it is `running`; then one more may wait. `on_conflict` decides about the others."
        ' {"scope": "running", "key": "account"}: by an argument.',
        schema=_keyed({"enum": list(SCOPES)}, "scope"), read=Singleton.parse, write=_write,
        metavar="WORD",
    ),
    Option(
        name="on_conflict",
        meaning="Of `singleton`: `return` the execution in the way, `replace` it (which cancels"
        " it), `cancel` the new one, or `error`.",
        schema={"enum": list(CONFLICTS)}, read=_word(CONFLICTS), default="return",
        merge="reset", metavar="WORD",
    ),
    Option(
        name="cache_for",
        meaning="A request with the same arguments as an execution that succeeded at most this"
        " long ago is answered with that one. Requests during the run are answered with the run.",
        schema=DURATION, read=read_limit, write=_duration, metavar="DURATION",
    ),
    Option(
        name="cache_key",
        meaning="Of `cache_for`: the arguments that count, as an argument's name, a dotted path or"
        " a template; by default all.",
        schema=_KEY, read=_key, merge="reset", metavar="KEY",
    ),
    Option(
        name="cache_version",
        meaning="Of `cache_for`: another text makes earlier results invalid.",
        schema=text_of(NAME_CHARS_MAX), read=_text(NAME_CHARS_MAX), default="", merge="reset",
        metavar="TEXT",
    ),
    Option(
        name="labels",
        meaning='Labels of the job, {"team": "billing"}, by which jobs are listed. They do not'
        " choose workers: `requires` does.",
        schema={"type": "object", "additionalProperties": TEXT}, read=_labels, write=dict,
        default={}, metavar="JSON",
    ),
    Option(
        name="requires",
        meaning='Labels that a worker must have, {"gpu": "a100", "zone": ["eu", "us"]}: each with'
        " one of these values.",
        schema=_LABELS, read=read_choices, write=_write_choices, default={}, inherited=True,
        metavar="JSON",
    ),
    Option(
        name="prefer",
        meaning="Labels of the workers that take it first; after five seconds any other may.",
        schema=_LABELS, read=read_choices, write=_write_choices, default={}, inherited=True,
        metavar="JSON",
    ),
    Option(
        name="near",
        meaning="With `parent`, the worker of the execution that enqueues it takes it first, if it"
        " can; after five seconds any other may.",
        schema={"enum": list(NEAR)}, read=_word(NEAR), inherited=True, metavar="WORD",
    ),
    Option(
        name="resources",
        meaning='The amounts that an execution uses of the resources of its worker, {"gpu": 1,'
        ' "memory": "4GB"}. A worker takes no more than it has.',
        schema={"type": "object", "additionalProperties": {"type": ["number", "string"]}},
        read=read_amounts, write=dict, default={}, inherited=True, metavar="JSON",
    ),
    Option(
        name="notifications",
        meaning="Messages about it: `on` is a list of dead (it has dead letters), succeeded and"
        " late (a time of its schedules is over without a success), `to` a list of addresses as"
        " `notify` takes them. Each is an alert rule in a short form.",
        schema=NOTIFICATIONS,
        read=read_notifications,
        write=msgspec.to_builtins, default=(),
    ),
    _kind(
        "source",
        "The set that the job belongs to: `apply` for jobs of files.",
        text_of(NAME_CHARS_MAX, examples=["apply:nightly"]), read=_text(NAME_CHARS_MAX),
        default="",
    ),
)  # fmt: skip
OPTIONS: Final[Mapping[str, Option]] = {one.name: one for one in _ROWS}

# One of these names the kind of a job.
CHOICES: Final = ("task", *SETTINGS, "workflow", "template")
OF_COMMAND: Final = BESIDE
OF_TEMPLATE: Final = "parameters"
KIND_FIELDS: Final = (*CHOICES, *OF_COMMAND, OF_TEMPLATE)
# The field that a line or an address stands for, where settings may be given as that alone.
SHORT_FOR: Final = {"command": "run", "http": "url"}
INHERITED: Final = tuple(one.name for one in OPTIONS.values() if one.inherited)
OF_MISFIRE: Final = ("misfire_limit", "misfire_within", "misfire_grace")
GROUPED: Final = {
    *(name for name, one in OPTIONS.items() if one.part in ("schedule", "misfire", "retries")),
    *KIND_FIELDS,
}
