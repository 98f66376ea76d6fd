"""Readers of user input: job and enqueue options, filters, ids, times and plain values. Invalid
input is refused by the name of its field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any, Final, Literal, TypedDict, Unpack, cast
from uuid import UUID

from daybell.core import payload
from daybell.core.execution import PENDING, ExecutionCopies, NewExecution, Priority, State
from daybell.core.ids import mint, mint_many
from daybell.core.job import DELETED, MANUAL, PAUSED
from daybell.core.job_request import read_request
from daybell.core.kinds import KINDS, SETTINGS, settings_json
from daybell.core.kinds import read_settings as read_settings_of
from daybell.core.limits import (
    ARGS_BYTES_MAX,
    INSTANT_MAX,
    RETRIES_MAX,
    SEARCH_ARGS_MAX,
    SEARCH_CHARS_MAX,
    WORKFLOW_BYTES_MAX,
    check_key,
    check_name,
)
from daybell.core.options import (
    Arguments,
    JobDefinition,
    JobOptions,
    TaskOptions,
    read_args,
    read_flag,
    read_limit,
    read_mapping,
    read_whole,
    read_word,
)
from daybell.core.payload import EncodedArgs
from daybell.core.units import (
    Duration,
    Instant,
    Seconds,
    from_datetime,
    from_iso,
    parse_delay,
    parse_duration,
    to_iso,
)
from daybell.core.views import Content, ExecutionFilter, Term, parse_query, print_query
from daybell.core.workflow.graph import Graph
from daybell.errors import InvalidDuration, QueryError, UsageError, shown, suggested

Id = UUID | str
Time = datetime | str | float
Status = str | Iterable[str]


class EnqueueOptions(TypedDict, total=False):
    """The options of one enqueue; the job supplies those that are left out."""

    delay: Duration | None
    at: Time | None
    expires: Duration | None
    priority: str | int | None
    queue: str | None
    retries: int | None
    timeout: Duration | None
    force: bool  # regardless of the job's overlap rule
    cache: Literal["refresh"] | None  # run, although there may be a cached result


class JobFilters(TypedDict, total=False):
    """Restrictions of a list of jobs; one that is left out does not restrict."""

    prefix: str
    text: str | None
    user_id: str | None
    queue: str | None
    label: str | None  # team=billing, or team for any value


class Filters(TypedDict, total=False):
    """Restrictions of a list of executions; one that is left out does not restrict."""

    status: Status | None
    job: str | None  # by name or id
    queue: str | None
    worker: Id | None  # by id or name
    parent: Id | None
    nodes: bool  # also those that are nodes of a workflow's run, whichever
    since: Time | None  # created; a length of time such as "1h" means so long ago
    until: Time | None
    # By content: see `core.views.Content`.
    args: Mapping[str, Any] | None  # by name, or by a dotted path
    unique_key: str | None
    error: str | None  # the name of a class, or a part of the text
    ended_since: Time | None
    ended_until: Time | None
    q: str | None  # a query, see `read_query`; the other conditions must hold as well


COPIES_CHUNK: Final = 256  # ids are made together: that costs a fifth
ARGS_PREFIX: Final = "arg."  # before the name of an argument that is searched for
CONTENT: Final = frozenset({"args", "unique_key", "error", "ended_since", "ended_until", "q"})
BOUNDS: Final = ("since", "until", "ended_since", "ended_until")
JOB_OPTIONS: Final = frozenset(JobOptions.__optional_keys__ | {"author", "expect", "promote"})
JOB_FILTERS: Final = frozenset(JobFilters.__optional_keys__)
MANY_OPTIONS: Final = frozenset(EnqueueOptions.__optional_keys__ | {"parent"})
ONE_OPTIONS: Final = MANY_OPTIONS | {"unique_key"}


def read_definition(
    name: str,
    *,
    kind: str = "task",
    settings: Mapping[str, Any] | Graph | None = None,
    now: Instant | None = None,
    **options: Unpack[TaskOptions],
) -> JobDefinition:
    """Return a job's definition. With `now`, a schedule that is over is refused."""
    request = read_request(name, options, now=now, needs_kind=False)
    request.note("kind", read_word, kind, KINDS, "kind")
    kept = request.note("settings", _read_settings, settings, kind)
    return request.definition(kind=kind, settings=kept)


def _read_settings(value: object, kind: str) -> str:
    """Return the settings of a job's kind, as they are kept."""
    if kind == "workflow":
        kept, most = Graph.parse(value).to_settings(), WORKFLOW_BYTES_MAX
    else:
        given = {} if value is None else read_mapping(value, "settings")
        kept = settings_json(read_settings_of(kind, given)) if kind in SETTINGS else given
        most = ARGS_BYTES_MAX
    return payload.encode(kept, what="settings", bytes_max=most)


def read_pattern(
    job: str,
    *,
    id: UUID | None = None,
    args: str = "{}",
    unique_key: str | None = None,
    parent: UUID | None = None,
    delay: Duration | None = None,
    at: Time | None = None,
    expires: Duration | None = None,
    priority: str | int | None = None,
    queue: str | None = None,
    retries: int | None = None,
    timeout: Duration | None = None,
    force: bool = False,
    cache: Literal["refresh"] | None = None,
) -> NewExecution:
    """Return an execution as its options describe it. Ids, keys and arguments are taken as they
    are; the options are checked.
    """
    if delay is not None and at is not None:
        raise UsageError("delay and at are two ways to say the same; give one", field="at")
    return NewExecution(
        id=mint() if id is None else id,
        job=check_name(job, what="job"),
        args=args,
        unique_key=unique_key,
        parent=parent,
        delay=None if delay is None else parse_delay(delay),
        at=None if at is None else read_time(at, "at"),
        expires_in=None if expires is None else read_limit(expires, "expires"),
        priority=None if priority is None else Priority.parse(priority),
        queue=None if queue is None else check_name(queue, what="queue"),
        retries=None if retries is None else read_whole(retries, "retries", most=RETRIES_MAX),
        timeout=None if timeout is None else read_limit(timeout, "timeout"),
        force=force is not False and read_flag(force, "force"),
        refresh=cache is not None and read_word(cache, ("refresh",), "cache") == "refresh",
    )


def check_options(given: Iterable[str], known: frozenset[str], what: str) -> None:
    """Refuse an option that does not exist, before it is ignored or fails far from here."""
    for name in given:
        if name not in known:
            names = sorted(known)
            hint = suggested(name, names, otherwise=f"it takes {', '.join(names)}")
            raise UsageError(f"{what} has no {shown(name)}; {hint}", field=name)


def copies(pattern: NewExecution, args: Iterable[Arguments]) -> Iterator[NewExecution]:
    """Yield one execution per item, each with an id of its own. Ids are made for some at a time."""
    rest, position = iter(args), 0
    while chunk := list(islice(rest, COPIES_CHUNK)):
        yield from copy_all(pattern, chunk, first=position)
        position += len(chunk)


def copy_all(
    pattern: NewExecution, args: Sequence[Arguments], *, first: int = 0
) -> ExecutionCopies:
    """Return one execution per item, each with an id of its own. `first` is their position."""
    texts = [
        one.text if type(one) is EncodedArgs else _read_text(one, position)
        for position, one in enumerate(args, first)
    ]
    return ExecutionCopies(pattern, mint_many(len(texts)), texts)


def _read_text(args: Arguments, position: int) -> str:
    return "{}" if args == {} else read_args(args, what=f"args[{position}]")


def read_filter(
    *,
    status: Status | None = None,
    job: str | None = None,
    queue: str | None = None,
    worker: Id | None = None,
    workers: frozenset[UUID] | None = None,
    parent: Id | None = None,
    nodes: bool = False,
    now: Instant | None = None,
    args: Mapping[str, Any] | None = None,
    unique_key: str | None = None,
    error: str | None = None,
    jobs: frozenset[str] | None = None,
    job_prefix: str = "",
    fingerprint: str | None = None,
    longer_than: Seconds | None = None,
    shorter_than: Seconds | None = None,
    **bounds: Time | None,
) -> ExecutionFilter:
    """Return the filter of the executions asked for. Lengths of time count from `now`."""
    check_options(bounds, Filters.__optional_keys__, "a filter")
    at = {
        name: None if value is None else read_bound(value, name, now=now)
        for name, value in bounds.items()
    }
    since, until, ended_since, ended_until = (at.get(name) for name in BOUNDS)
    content = Content(
        args=read_searched_args(args or {}),
        unique_key=None if unique_key is None else check_key(unique_key, what="unique_key"),
        error=None if error is None else read_searched(error, "error"),
        ended_since=ended_since,
        ended_until=ended_until,
        workers=workers,
        jobs=jobs,
        job_prefix=job_prefix,
        fingerprint=fingerprint,
        longer_than=longer_than,
        shorter_than=shorter_than,
    )
    is_named = (job, queue, worker, workers, parent, job_prefix or None) != (None,) * 6
    return ExecutionFilter(
        hides_messages=not is_named,
        states=None if status is None else read_status(status),
        job=job,
        queue=queue,
        worker=None if worker is None else read_id(worker, "worker"),
        parent=None if parent is None else read_id(parent, "parent"),
        with_nodes=read_flag(nodes, "nodes"),
        since=since,
        until=until,
        content=None if content == Content() else content,
    )


# The names of a query, in the order in which they are suggested.
QUERY_NAMES: Final = (
    *("status", "job", "queue", "worker", "user", "workflow", "since", "until", "finished"),
    *("duration", "error", "fingerprint", "key", "arg.NAME"),
)
_PLAIN_NAMES: Final = {
    name: name
    for name in ("job", "queue", "worker", "user", "since", "until", "error", "fingerprint")
} | {"workflow": "parent", "key": "unique_key"}


def expand_query(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return filters with the conditions of their query in place of it. `user`, `job_prefix`,
    `longer_than` and `shorter_than` come from queries alone. Raises QueryError and UsageError.
    """
    given = dict(filters)
    text = given.pop("q", None)
    if text is None:
        return given
    asked = read_query(text)
    for name, value in asked.items():
        known = given.get(name)
        if name == "status" and known is not None:
            value = read_status(known) & read_status(value)
        elif known not in (None, False, {}):
            raise UsageError(f"{name} is in the query as well; give it once", field=name)
        given[name] = value
    return given


def read_query(text: str) -> dict[str, Any]:
    """Return the conditions of a query as filters. Raises QueryError."""
    found: dict[str, Any] = {}
    for term in parse_query(text):
        try:
            _read_term(term, found)
        except QueryError:
            raise
        except UsageError as error:
            raise QueryError(str(error), position=term.position) from None
    return found


def _read_term(term: Term, found: dict[str, Any]) -> None:
    name, value = term.name, term.value
    if name == "status":
        found["status"] = found.get("status", frozenset[State]()) | read_status(value.split(","))
        return
    if name.startswith(ARGS_PREFIX):
        key, value = "args", {name.removeprefix(ARGS_PREFIX): value}
        read_searched_args(value)
        if not found.get(key, {}).keys() & value.keys():
            found[key] = {**found.get(key, {}), **value}
            return
    elif name in ("finished", "duration"):
        key, value = (_read_finished if name == "finished" else _read_took)(value)
    elif name == "job" and value.endswith("*"):
        key, value = "job_prefix", value[:-1]
    elif name in _PLAIN_NAMES:
        key = _PLAIN_NAMES[name]
        if key in BOUNDS:
            read_bound(value, name, now=0.0)
    else:
        raise UsageError(f"there is no condition {shown(name)}; {suggested(name, QUERY_NAMES)}")
    if key in found:
        raise UsageError(f"{name} is given twice; give it once")
    found[key] = value


def _read_finished(text: str) -> tuple[str, str]:
    """Read `<1d` (less than a day ago), `>1d`, or the same with a time: `>2026-11-01`."""
    sign, rest = (text[0], text[1:]) if text[:1] in ("<", ">") else ("", text)
    read_bound(rest, "finished", now=0.0)
    is_later = sign != ">" if read_ago(rest) is not None else sign != "<"
    return ("ended_since" if is_later else "ended_until"), rest


def _read_took(text: str) -> tuple[str, Seconds]:
    if text[:1] not in ("<", ">"):
        raise UsageError(f"duration takes < or >, as in duration:>5m, not {shown(text)}")
    seconds = parse_duration(text[1:])
    return ("longer_than" if text[0] == ">" else "shorter_than"), seconds


def pin_query(text: str, now: Instant) -> str:
    """Return a query with times in place of lengths of time."""
    pinned: list[Term] = []
    for term in parse_query(text):
        name, value = term.name, term.value
        sign = value[:1] if name == "finished" and value[:1] in ("<", ">") else ""
        rest = value.removeprefix(sign)
        if name in ("since", "until", "finished") and read_ago(rest) is not None:
            is_later = name == "finished" and sign != ">"
            sign = (">" if is_later else "<") if name == "finished" else ""
            value = sign + to_iso(read_bound(rest, name, now=now))
        pinned.append(Term(name, value))
    return print_query(pinned)


def read_searched_args(args: object) -> tuple[tuple[str, str], ...]:
    """Return the arguments that are searched for, as texts by their paths."""
    if not isinstance(args, Mapping):
        raise UsageError(
            f'args={shown(args)} must name arguments, as in {{"order_id": 42}}', field="args"
        )
    given = cast("Mapping[Any, Any]", args)
    if len(given) > SEARCH_ARGS_MAX:
        raise UsageError(
            f"{len(given):,} arguments are too many for one search; the limit is"
            f" {SEARCH_ARGS_MAX:,}",
            field="args",
        )
    found: list[tuple[str, str]] = []
    for name, value in given.items():
        if not isinstance(name, str) or not all(name.split(".")) or len(name) > SEARCH_CHARS_MAX:
            raise UsageError(
                f"{shown(name)} is not the name of an argument; write arg.order_id=42, or"
                " arg.order.id=42 for a value inside of one",
                field=f"{ARGS_PREFIX}{name}",
            )
        if isinstance(value, str):
            text = read_searched(value, f"arg.{name}", least=0)
        elif value is None or isinstance(value, bool | int | float):
            text = payload.encode(value, what=f"arg.{name}")
        else:
            raise UsageError(
                f"arg.{name} must be a text, a number, true, false or null; name a value inside of"
                f" an object or a list by its path, as in arg.{name}.id=42",
                field=f"arg.{name}",
            )
        found.append((name, text))
    return tuple(found)


def read_searched(value: object, what: str, *, least: int = 1) -> str:
    """Return a text that is searched for."""
    if not isinstance(value, str) or not least <= len(value) <= SEARCH_CHARS_MAX:
        raise UsageError(
            f"{what}={shown(value)} must be a text of {least} to {SEARCH_CHARS_MAX} characters",
            field=what,
        )
    return value


def read_status(status: Status) -> frozenset[State]:
    """Return the states that a filter names; "pending" stands for four of them."""
    found: set[State] = set()
    for word in [status] if isinstance(status, str) else status:
        if word == "pending":
            found |= PENDING
        elif word in _STATES:
            found.add(State(word))
        else:
            known = ", ".join(("pending", *_STATES))
            raise UsageError(f"{shown(word)} is not a status; there are {known}", field="status")
    return frozenset(found)


def read_job_status(status: Status) -> frozenset[str]:
    """Return the restrictions of a list of jobs: states, and the words for jobs."""
    words = {status} if isinstance(status, str) else set(status)
    if DELETED in words:
        raise UsageError(
            "deleted jobs are not listed; ask for one by its name or id", field="status"
        )
    known = (*_STATES, PAUSED, MANUAL)
    for word in words - {"pending"}:
        if word not in known:
            said = ", ".join(("pending", *known))
            raise UsageError(
                f"{shown(word)} is not a job's status; there are {said}", field="status"
            )
    pending = set(map(str, PENDING)) if "pending" in words else set[str]()
    return frozenset(words - {"pending"} | pending)


def read_id(value: Id, what: str = "id") -> UUID:
    """Return an id that may be text."""
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(
            f"{shown(value)} is not an id, which is a UUID; lists show the ids that there are",
            field=what,
        ) from None


def check_range(since: Instant | None, until: Instant | None, *, prefix: str = "") -> None:
    """Refuse a range of times that is empty: no list could have anything in it."""
    if since is not None and until is not None and since >= until:
        raise UsageError(
            f"{prefix}since {to_iso(since)} is not before {prefix}until {to_iso(until)}",
            field=f"{prefix}until",
        )


def read_time(value: Time, what: str) -> Instant:
    """Return a moment: an aware datetime, ISO 8601 with an offset, or seconds since 1970."""
    given = cast("object", value)
    if isinstance(given, datetime):
        instant = from_datetime(given)
    elif isinstance(given, str):
        instant = from_iso(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        instant = float(given)
    else:
        raise UsageError(f"{what}={shown(given)} is not a time", field=what)
    if not 0 <= instant <= INSTANT_MAX:
        raise UsageError(f"{what}={shown(given)} is not between 1970 and 9999", field=what)
    return instant


def read_bound(value: Time, what: str, *, now: Instant | None = None) -> Instant:
    """Return the time at which a list begins or ends; a date stands for its first moment in UTC.
    With `now`, a length of time means so long before.
    """
    if not isinstance(value, str):
        return read_time(value, what)
    if (day := _read_date(value)) is not None:
        return read_time(datetime(day.year, day.month, day.day, tzinfo=UTC), what)
    if now is None:
        return read_time(value, what)
    ago = read_ago(value)
    if ago is not None:
        return max(0.0, now - ago)
    try:
        return read_time(value, what)
    except UsageError as error:
        more = "or a date such as 2026-11-15, or 1h for an hour ago"
        raise UsageError(f"{error}, {more}", field=what) from None


def read_ago(value: object) -> Seconds | None:
    """Return the length of time of a relative bound: `1h`, `90s ago`. None: another form."""
    if not isinstance(value, str) or _read_date(value) is not None:
        return None
    try:
        return parse_duration(value.strip().removesuffix("ago"))
    except InvalidDuration:
        return None


def _read_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        return None


_STATES: Final = tuple(str(state) for state in State)
