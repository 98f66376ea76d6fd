"""Reading views: filters, pages, search by content, counts, queues, and the health of the store."""

from __future__ import annotations

import re
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar, cast
from uuid import UUID

import msgspec

from daybell.core import payload
from daybell.core.execution import TERMINAL, Execution, Failure, State
from daybell.core.flow import base_needs
from daybell.core.limits import (
    COUNT_ITEMS_MAX,
    PAGE_BYTES_MAX,
    QUERY_CHARS_MAX,
    SCAN_ITEMS_MAX,
)
from daybell.core.options import Keep
from daybell.core.units import Instant, Seconds
from daybell.errors import PayloadError, QueryError, UsageError, shown

# Search of executions by content: arguments, unique key, error, end.
#
# Without an index, a search reads executions one by one, a bounded number per page. A page may be
# short or empty; its cursor continues the search.

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}


class Candidate(NamedTuple):
    """The columns of an execution for a search; unused ones are None."""

    id: UUID
    args: str | None = None
    unique_key: str | None = None
    error: str | None = None
    finished_at: Instant | None = None
    worker: UUID | None = None
    job: str | None = None
    started_at: Instant | None = None
    created_at: Instant | None = None

    @classmethod
    def of(cls, execution: Execution) -> Candidate:
        """Take the columns from an execution."""
        return cls(*(getattr(execution, name) for name in cls._fields))


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on the content of an execution; all must hold."""

    args: tuple[tuple[str, str], ...] = ()  # (name, value) as texts; a name may be a dotted path
    unique_key: str | None = None
    error: str | None = None  # the name of a class, or a part of the text, case-insensitive
    fingerprint: str | None = None  # of the error
    ended_since: Instant | None = None
    ended_until: Instant | None = None
    active_since: Instant | None = None  # not ended before
    workers: frozenset[UUID] | None = None  # any of them
    jobs: frozenset[str] | None = None  # any of them
    job_prefix: str = ""
    longer_than: Seconds | None = None  # from the last start to the end
    shorter_than: Seconds | None = None

    @property
    def is_of_ended(self) -> bool:
        """True if only ended executions can match."""
        ends = (self.ended_since, self.ended_until, self.longer_than, self.shorter_than)
        return any(one is not None for one in ends)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the conditions need."""
        given = {
            "args": self.args,
            "unique_key": self.unique_key is not None,
            "error": self.error is not None or self.fingerprint is not None,
            "finished_at": self.is_of_ended or self.active_since is not None,
            "worker": self.workers is not None,
            "job": self.jobs is not None or self.job_prefix,
            "started_at": self.longer_than is not None or self.shorter_than is not None,
        }
        return frozenset(name for name, is_needed in given.items() if is_needed)

    def matches(self, one: Candidate) -> bool:
        """Return True if an execution meets all conditions."""
        end = one.finished_at
        return (
            (self.unique_key is None or one.unique_key == self.unique_key)
            and (self.workers is None or one.worker in self.workers)
            and (self.ended_since is None or (end is not None and end >= self.ended_since))
            and (self.ended_until is None or (end is not None and end < self.ended_until))
            and (self.active_since is None or end is None or end >= self.active_since)
            and (self.jobs is None or one.job in self.jobs)
            and (one.job or "").startswith(self.job_prefix)
            and self._matches_duration(one)
            and (self.error is None or matches_error(one.error, self.error))
            and (self.fingerprint is None or fingerprint_of(one.error) == self.fingerprint)
            and (not self.args or matches_args(one.args, self.args))
        )

    def _matches_duration(self, one: Candidate) -> bool:
        if self.longer_than is None and self.shorter_than is None:
            return True
        if one.started_at is None or one.finished_at is None:
            return False
        took = one.finished_at - one.started_at
        return (self.longer_than is None or took > self.longer_than) and (
            self.shorter_than is None or took < self.shorter_than
        )


# The query language of executions: `status:dead job:etl* error:"timed out" arg.order_id:42`.
#
# query = [term] {space term};  term = name ":" value;  value = bare | quoted
# A bare value has no space and does not begin with a quote. In a quoted one, a backslash comes
# before a quote or a backslash.

_SPACE: Final = re.compile(r"\s*")
_NAME: Final = re.compile(r"[^\s:\"]+")
_BARE: Final = re.compile(r"[^\s\"]\S*")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"(?=\s|$)')
_ESCAPED: Final = re.compile(r'\\(["\\])')
QUERY_EXAMPLE: Final = 'status:dead job:etl* error:"timed out"'


class Term(msgspec.Struct, frozen=True):
    """A condition of a query. The position counts characters of the text, from 0."""

    name: str
    value: str
    position: int = 0


def parse_query(text: str) -> tuple[Term, ...]:
    """Return the terms of a query. Raises QueryError."""
    if len(text) > QUERY_CHARS_MAX:
        raise QueryError(f"has more than {QUERY_CHARS_MAX:,} characters", position=QUERY_CHARS_MAX)
    terms: list[Term] = []
    at = _end(_SPACE, text, 0)
    while at < len(text):
        name = _NAME.match(text, at)
        if name is None:
            raise QueryError(f"expected a name such as status, not {text[at]!r}", position=at)
        start = name.end() + 1
        if text[name.end() : start] != ":":
            raise QueryError(
                f"{shown(name[0])} is no condition; write NAME:VALUE, as in {QUERY_EXAMPLE}",
                position=at,
            )
        value, end = _read_value(text, start, name[0])
        terms.append(Term(name[0], value, at))
        at = _end(_SPACE, text, end)
    return tuple(terms)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _read_value(text: str, at: int, name: str) -> tuple[str, int]:
    if text[at : at + 1] == '"':
        found = _QUOTED.match(text, at)
        if found is None:
            raise QueryError(
                'this quote has no end; write a quote inside of a value as \\"', position=at
            )
        return _ESCAPED.sub(r"\1", found[1]), found.end()
    found = _BARE.match(text, at)
    if found is None:
        raise QueryError(f'{name} has no value; write {name}:"" for an empty text', position=at)
    return found[0], found.end()


def print_query(terms: Iterable[Term]) -> str:
    """Return the text of a query, from which `parse_query` makes the same terms."""
    return " ".join(f"{one.name}:{_print_value(one.value)}" for one in terms)


def _print_value(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def fingerprint_of(kept: str | None) -> str | None:
    """Return the fingerprint of a stored error."""
    return None if kept is None else Failure.of_kept(kept).fingerprint


class LetterGroup(msgspec.Struct, kw_only=True):
    """Dead letters of one job with one fingerprint of an error."""

    job: str
    fingerprint: str | None  # None: they have no error, but a reason
    error: str  # the class, or the reason
    message: str  # of the newest, its first line
    count: int = 0
    first_seen: Instant
    last_seen: Instant
    execution: UUID  # the newest


def group_letters(found: Iterable[Execution]) -> Iterable[LetterGroup]:
    """Group dead letters, newest first."""
    groups: dict[tuple[str, str | None, str], LetterGroup] = {}
    known: dict[str, tuple[Failure, str]] = {}  # many have the same error
    for one in found:
        if one.error is not None and one.error not in known:
            kept = Failure.of_kept(one.error)
            known[one.error] = kept, kept.fingerprint
        failure, fingerprint = (None, None) if one.error is None else known[one.error]
        error = str(one.reason or "") if failure is None else failure.type
        ended = one.created_at if one.finished_at is None else one.finished_at
        group = groups.get((one.job, fingerprint, error))
        if group is None:
            group = groups[one.job, fingerprint, error] = LetterGroup(
                job=one.job,
                fingerprint=fingerprint,
                error=error,
                message="" if failure is None else failure.message.partition("\n")[0],
                first_seen=ended,
                last_seen=ended,
                execution=one.id,
            )
        group.count += 1
        group.first_seen = min(group.first_seen, ended)
        group.last_seen = max(group.last_seen, ended)
    return groups.values()


def matches_error(kept: str | None, wanted: str) -> bool:
    """Return True if an error is of the class `wanted` or a subclass, or has the text in its first
    line or message. The traceback is not searched, as source lines contain too many words.
    """
    if kept is None:
        return False
    failure = Failure.of_kept(kept)
    if wanted.casefold() in f"{failure.type}: {failure.message}".casefold():
        return True
    return any(name == wanted or name.endswith(f".{wanted}") for name in failure.names)


def matches_args(text: str | None, wanted: Iterable[tuple[str, str]]) -> bool:
    """Return True if arguments have each of the values at its path."""
    if text is None:
        return False
    try:
        args = payload.decode(text)
    except PayloadError:
        return False
    return all(
        any(_equals(found, value) for found in _values_at(args, name.split(".")))
        for name, value in wanted
    )


def _values_at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the values at a path. Keys may contain dots; numbers select list items."""
    if not path:
        yield value
    elif isinstance(value, dict):
        for length in range(1, len(path) + 1):
            key = ".".join(path[:length])
            if key in value:
                yield from _values_at(cast("dict[str, Any]", value)[key], path[length:])
    elif isinstance(value, list) and path[0].isdecimal() and len(path[0]) < 10:
        items = cast("list[Any]", value)
        if int(path[0]) < len(items):
            yield from _values_at(items[int(path[0])], path[1:])


def _equals(value: Any, wanted: str) -> bool:
    """Return True if a JSON value equals a text: `42` matches the number and the string."""
    if isinstance(value, str):
        return value == wanted
    if isinstance(value, bool) or value is None:
        return wanted in _WORDS and value is _WORDS[wanted]
    if isinstance(value, int | float):
        number = _NUMBER.fullmatch(wanted)
        return number is not None and value == (float if any(number.groups()) else int)(wanted)
    return False  # objects and lists need a path


T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list, newest first. The cursor names its last item, so that writes do not shift
    pages.
    """

    items: tuple[T, ...]
    next_cursor: str | None = None  # None on the last page


# Added for each item: ids, names and times as JSON.
ITEM_BYTES: Final = 1_500


def cut_page(
    found: Iterable[T],
    limit: int,
    *,
    size: Callable[[T], int],
    cursor: Callable[[T], str],
    more: str | None = None,
) -> Page[T]:
    """Take a page from the start of a list: at most `limit` items and PAGE_BYTES_MAX bytes, and at
    least one item. Read up to the first item that does not fit. `more` is the cursor behind the
    last item of `found`, if there is more to read.
    """
    items: list[T] = []
    left = PAGE_BYTES_MAX
    for one in found:
        left -= size(one) + ITEM_BYTES
        if items and (left < 0 or len(items) == limit):
            return Page(items=tuple(items), next_cursor=cursor(items[-1]))
        items.append(one)
    return Page(items=tuple(items), next_cursor=more)


async def read_pages(
    read: Callable[[str | None], Awaitable[Page[T]]],
) -> AsyncGenerator[tuple[T, ...]]:
    """Yield all pages of a list; `read` gets the cursor of each page."""
    cursor = None
    while True:
        page = await read(cursor)
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return


async def read_found(read: Callable[[str | None], Awaitable[Page[T]]]) -> Page[T]:
    """Return the first page with items: a page may be empty and have a cursor."""
    page = await read(None)
    while not page.items and page.next_cursor is not None:
        page = await read(page.next_cursor)
    return page


def bytes_of(*texts: str | None) -> int:
    """Count the bytes of texts in UTF-8."""
    return sum(
        len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        for text in texts
        if text is not None
    )


def execution_bytes(of: Execution) -> int:
    """Count the bytes of an execution's values."""
    return bytes_of(of.args, of.result, of.error, of.checkpoint)


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on jobs; all must hold."""

    prefix: str = ""  # of the name
    text: str | None = None  # in the name or description, case-insensitive
    user_id: str | None = None
    queue: str | None = None
    label: str | None = None  # team=billing, or team for any value
    queues: tuple[str, ...] = ()  # patterns of a scope, one of which the queue matches
    mentions: str | None = None  # a name in the definition; a superset of the dependent jobs


ALL_JOBS: Final = JobFilter()


class OrderBy(StrEnum):
    """The times by which executions are sorted."""

    CREATED = "created"
    STARTED = "started"
    ENDED = "ended"
    DURATION = "duration"  # from the last start to the end, or until now


ORDERS: Final = tuple(f"{sign}{by}" for by in OrderBy for sign in ("-", ""))


class SortOrder(msgspec.Struct, frozen=True):
    """An order of executions. Those without such a time come last."""

    by: OrderBy
    is_descending: bool = False

    @classmethod
    def parse(cls, value: object) -> SortOrder:
        """Parse the name of a time; a minus before it means the latest or longest first."""
        if not isinstance(value, str) or value not in ORDERS:
            raise UsageError(f"sort {shown(value)} is not one of {', '.join(ORDERS)}", field="sort")
        return cls(OrderBy(value.removeprefix("-")), value.startswith("-"))

    def key(self, one: Candidate, now: Instant) -> float | None:
        """Return the time of an execution."""
        if self.by is not OrderBy.DURATION:
            times = (one.created_at, one.started_at, one.finished_at)
            return times[(OrderBy.CREATED, OrderBy.STARTED, OrderBy.ENDED).index(self.by)]
        if one.started_at is None:
            return None
        return (now if one.finished_at is None else one.finished_at) - one.started_at


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on executions; all must hold."""

    states: frozenset[State] | None = None
    job: str | None = None
    queue: str | None = None
    worker: UUID | None = None
    schedule: UUID | None = None
    parent: UUID | None = None
    since: Instant | None = None  # created at or after
    until: Instant | None = None  # created before
    dead_letters: bool = False  # dead, and not discarded
    ids: frozenset[UUID] | None = None  # at most a page
    # Include nodes of workflow runs. With `parent` or `ids`, nodes are always included.
    with_nodes: bool = False
    content: Content | None = None  # compared by `scan`
    order: SortOrder | None = None  # of a list; None: by id, newest first
    # Leave out deliveries of subscriptions and messages of alerts, but for dead ones.
    hides_messages: bool = False

    @property
    def sort_columns(self) -> frozenset[str]:
        """The columns that a sort needs, with those of the conditions."""
        columns = frozenset({"created_at", "started_at", "finished_at"})
        return columns if self.content is None else columns | self.content.columns

    @property
    def shows_nodes(self) -> bool:
        """True if nodes of workflow runs are included."""
        return self.with_nodes or self.parent is not None or self.ids is not None

    def without_content(self, ids: Iterable[UUID] | None = None) -> ExecutionFilter:
        """Return the conditions that indexes answer: at the start of a search, or with the ids that
        it found, at its end.
        """
        if self.content is None and self.order is None:
            return self
        states = self.states
        if self.content is not None and self.content.is_of_ended:
            states = TERMINAL if states is None else states & TERMINAL
        chosen = self.ids if ids is None else frozenset(ids)
        return msgspec.structs.replace(self, content=None, order=None, states=states, ids=chosen)


class Found(NamedTuple):
    """The result of one scan: matching ids, newest first, and the position of the next scan."""

    ids: list[UUID]
    next_cursor: str | None


def scan(candidates: Iterable[Candidate], content: Content, limit: int) -> Found:
    """Read candidates, newest first, until `limit` match or the limits of a scan are reached:
    SCAN_ITEMS_MAX executions or PAGE_BYTES_MAX bytes, and at least one execution.
    """
    ids: list[UUID] = []
    last: UUID | None = None
    left = PAGE_BYTES_MAX
    for number, one in enumerate(candidates):
        left -= ITEM_BYTES + bytes_of(one.args, one.error)
        if last is not None and (number == SCAN_ITEMS_MAX or left < 0 or len(ids) == limit):
            return Found(ids, str(last))
        last = one.id
        if content.matches(one):
            ids.append(one.id)
    return Found(ids, None)


class Total(int):
    """A number of executions. An inexact one is a lower bound, formatted as `10,000+`."""

    is_exact: bool

    def __new__(cls, number: int, *, is_exact: bool = True) -> Self:
        made = super().__new__(cls, number)
        made.is_exact = is_exact
        return made

    def __bool__(self) -> bool:
        """False if there is none for certain."""
        return self > 0 or not self.is_exact

    def __format__(self, spec: str) -> str:
        return int(self).__format__(spec) + ("" if self.is_exact else "+")


class Counts(dict[State, int]):
    """Executions by state, without empty states. A count has a limit: the numbers of states in
    `at_least` are lower bounds, also if they are missing.
    """

    def __init__(
        self, counts: Mapping[State, int] | None = None, *, at_least: Iterable[State] = ()
    ) -> None:
        super().__init__({state: n for state, n in (counts or {}).items() if n})
        self.at_least = frozenset(at_least)

    @property
    def total(self) -> Total:
        """The sum of all states."""
        return Total(sum(self.values()), is_exact=not self.at_least)

    def of(self, state: State) -> Total:
        """Return the number of one state."""
        return Total(self.get(state, 0), is_exact=state not in self.at_least)


def bounded_total(count: int) -> Total:
    """Return the number of a count that read at most COUNT_ITEMS_MAX, and one more."""
    return Total(min(count, COUNT_ITEMS_MAX), is_exact=count <= COUNT_ITEMS_MAX)


def total_of(totals: Iterable[Total]) -> Total:
    """Add several numbers."""
    added = list(totals)
    return Total(sum(added), is_exact=all(total.is_exact for total in added))


# Numbers of a queue that may be in its `at_least`.
QUEUE_NUMBERS: Final = ("queued", "scheduled", "retrying", "running", "waiting")


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its numbers of executions; those in `at_least` are lower bounds."""

    name: str
    is_paused: bool
    queued: int  # due, not claimed
    scheduled: int  # in the future: delayed or retrying
    retrying: int = 0  # of these, failed before
    running: int
    waiting: int
    oldest_run_at: Instant | None = None  # of due executions: the delay of the queue
    at_least: tuple[str, ...] = ()  # of QUEUE_NUMBERS

    def number(self, name: str) -> Total:
        """Return one of QUEUE_NUMBERS."""
        return Total(getattr(self, name), is_exact=name not in self.at_least)


HOLDERS_MAX: Final = 10  # of a gate, that are named


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The place of an unfinished execution in line: at its gate, or in its queue."""

    ahead: Total = Total(0)  # due, and admitted or claimed before it; up to COUNT_ITEMS_MAX each
    holders: tuple[UUID, ...] = ()  # other executions in its gate, oldest first
    capacity: int | None = None  # slots of its gate; None: it has none


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Due executions of a queue that need the same of a worker."""

    needs: str
    due: Total
    oldest_run_at: Instant


def join_backlogs(backlogs: Iterable[Backlog]) -> list[Backlog]:
    """Join those of executions with and without limits that need the same of a worker."""
    found: dict[str, list[Backlog]] = {}
    for one in backlogs:
        found.setdefault(base_needs(one.needs), []).append(one)
    return [
        Backlog(
            needs=needs,
            due=total_of(one.due for one in some),
            oldest_run_at=min(one.oldest_run_at for one in some),
        )
        for needs, some in sorted(found.items())
    ]


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Activity since an earlier query; no decision depends on it."""

    now: Instant
    enqueued: int = 0
    failed: int = 0  # attempts that failed, timed out or were lost
    recent: int = 0  # number of recent ids, which the next query compares


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Retention times, where jobs and tenants have none of their own."""

    finished: Seconds = 30 * 86400.0  # executions and their attempts
    ticks: Seconds = 30 * 86400.0
    workers: Seconds = 86400.0  # dead ones
    keep: Keep = Keep()  # of the cluster; a time of it wins over `finished`

    @classmethod
    def parse(cls, keep: str | None) -> Retention:
        """Parse the setting `keep`."""
        return cls(keep=Keep.parse(keep, what="DAYBELL_KEEP"))


DEFAULT_RETENTION: Final = Retention()


class _Kept(msgspec.Struct):
    keep: Keep = Keep()


_DEFINITION: Final = msgspec.json.Decoder(_Kept)


def read_keep(definition: str) -> Keep:
    """Return the policy in a stored definition."""
    return _DEFINITION.decode(definition).keep


class Terms(NamedTuple):
    """The times for which the executions of one job are kept after their end."""

    ends: Mapping[State, Seconds]
    results: Seconds
    logs: Seconds
    dead_letters: Seconds | None  # None: until a person decides


class Fate(NamedTuple):
    """The decision of retention about an ended execution."""

    is_over: bool = False
    is_result_over: bool = False
    is_log_over: bool = False


class KeepPolicies:
    """The policies of the cluster, of tenants and of jobs. A store names tenants and jobs by its
    numbers; equal policies are equal objects.
    """

    def __init__(
        self, policy: Retention, tenants: Mapping[int, Keep], jobs: Mapping[int, tuple[int, Keep]]
    ) -> None:
        self.parts = policy, dict(tenants), dict(jobs)
        finished = policy.finished
        self._rest = _terms(finished, policy.keep)
        self.tenants = {n: _terms(finished, keep, policy.keep) for n, keep in tenants.items()}
        self.jobs = {
            n: _terms(finished, keep, tenants.get(tenant, Keep()), policy.keep)
            for n, (tenant, keep) in jobs.items()
        }
        every = [self._rest, *self.tenants.values(), *self.jobs.values()]
        self.longest: Seconds = max(max(one.ends.values()) for one in every)
        """The time after which nothing is kept but dead letters."""
        times = {time for one in every for time in (*one.ends.values(), one.results, one.logs)}
        self.ages: tuple[Seconds, ...] = tuple(sorted(one for one in times if one < self.longest))
        """The shorter times after which an execution has to be judged."""
        self.shortest = min((*self.ages, self.longest))
        self.ends_dead_letters = any(one.dead_letters is not None for one in every)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeepPolicies) and self.parts == other.parts

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def of(self, tenant: int, job: int) -> Terms:
        return self.jobs.get(job) or self.tenants.get(tenant) or self._rest

    def judge(
        self, tenant: int, job: int, state: State, age: Seconds, *, is_letter: bool = False
    ) -> Fate:
        """Decide about an execution that ended so long ago, or about a dead letter."""
        terms = self.of(tenant, job)
        if is_letter:
            return Fate(terms.dead_letters is not None and age > terms.dead_letters)
        return Fate(age > terms.ends[state], age > terms.results, age > terms.logs)


def _terms(finished: Seconds, *keeps: Keep) -> Terms:
    """Return the times of policies, the first of which wins."""

    def first(*names: str) -> Seconds | None:
        times = (getattr(keep, name) for keep in keeps for name in names)
        return next((time for time in times if time is not None), None)

    rest = first("executions") or finished
    dead = first("dead")
    ends = {
        State.SUCCEEDED: first("succeeded", "executions") or finished,
        State.CANCELLED: first("cancelled", "executions") or finished,
        State.SKIPPED: first("skipped", "executions") or finished,
        # Of a dead letter about which a person has decided.
        State.DEAD: rest if dead is None else min(dead, rest),
    }
    most = max(ends.values())
    results, logs = first("results") or most, first("logs") or most
    return Terms(ends, min(results, most), min(logs, most), dead)


JOB_AGAIN_SECONDS: Final = 86400.0  # until a job that is in use is checked again
JOB_UNUSED_SECONDS: Final = 2 * 86400.0  # added to the retention: history is dropped by whole days


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that one round of retention removed. Rows of dropped partitions are not counted."""

    executions: int = 0
    attempts: int = 0
    ticks: int = 0
    workers: int = 0
    log_parts: int = 0
    jobs: int = 0  # deleted jobs and one-off jobs without history
    gates: int = 0  # created on demand, and unused
    partitions: int = 0
    others: int = 0  # requests, keys, audit entries, each with its own retention
    is_complete: bool = True  # False: call again


class Miscount(msgspec.Struct, frozen=True, kw_only=True):
    """A gate with a wrong count."""

    tenant: str
    gate: str
    counted: int
    inside: int  # the correct number


class SweepKind(StrEnum):
    """A part of upkeep, over all tenants."""

    EXPIRE = "expire"  # skip unstarted executions past their expiry, time out waits for events
    REARM = "rearm"  # set fixed delays whose execution has ended without a report
    ADVANCE = "advance"  # continue runs whose process is gone, or that waited for a quota
    ADMIT = "admit"  # admit due executions at gates with room
    RECOUNT = "recount"  # correct the counts of gates
    FOLD = "fold"  # add what has ended to the statistics
    RETAIN = "retain"  # remove old rows, create storage for the next days


SWEEPS: Final = tuple(SweepKind)


class Folded(NamedTuple):
    """The state of the statistics and the outbox after a fold of ends."""

    has_more: bool = False  # there may be more ends
    is_told: bool = False  # there are subscriptions, or outgoing events


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one call of upkeep."""

    expired: int = 0
    rearmed: int = 0
    advanced: int = 0  # runs
    admitted: int = 0
    miscounts: tuple[Miscount, ...] = ()
    folded: Folded = Folded()
    removed: Removed = Removed()

    def is_full(self, limit: int) -> bool:
        """True if a bounded sweep has more to do."""
        most = max(self.expired, self.rearmed, self.advanced, self.admitted)
        return self.folded.has_more or most >= limit


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check of `daybell doctor`."""

    name: str
    is_ok: bool
    found: str
    advice: str = ""  # for a failed check


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a store."""

    product: str  # such as "PostgreSQL 18.4"
    now: Instant
    schema: int
    checks: tuple[Check, ...]
