"""Limits: how many executions run at a time, and how many start in a time.

A job with limits has rules. The arguments of an execution choose one bucket of each rule: the key
`account` gives each account a bucket. An execution starts once all its buckets have room. It takes
all of them or none, so it never holds one limit while it waits for another.

The functions decide about buckets that the caller has locked. They do not know the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, Literal, TypeAlias, cast
from uuid import UUID

import msgspec

from daybell.core.collapse import digest, item_of, parse_key, parsed_key
from daybell.core.flow.shares import ShareOption, SharePath
from daybell.core.limits import check_name
from daybell.core.units import Instant, Seconds, format_duration, parse_duration
from daybell.errors import DaybellError, UsageError, shown

LIMITS_MAX: Final = 8  # of one job
CAPACITY_MAX: Final = 100_000
RATE_MAX: Final = 10_000_000
COST_MAX: Final = 1_000_000
FOR_LIMIT: Final = "limit"  # the reason of an execution that waits for room
BUCKET_SECONDS_KEPT: Final[Seconds] = 3600.0  # without use
GUARD_SECONDS: Final[Seconds] = 0.001  # two clocks that read the same instant may round apart

OnFull: TypeAlias = Literal["wait", "skip", "cancel_oldest", "keep_newest"]
ON_FULL: Final[tuple[OnFull, ...]] = ("wait", "skip", "cancel_oldest", "keep_newest")


# Lanes of limited work.
#
# Enqueueing puts an execution into the entry lane of its queue, which no worker claims from. When
# it has taken its limits it moves to the admitted lane, which workers claim from. On its way back,
# for a retry or after the loss of its worker, it returns to the entry lane.

# Work with a fair share waits in the lane of its key, and moves to the ordered lane when it is its
# turn. From there it takes its limits, if it has any.

_ENTRY: Final = "limited:"
_ADMITTED: Final = "admitted:"
_ORDERED: Final = "ordered:"
_SHARED: Final = re.compile(r"shares:\d+:")


def entry_needs(needs: str) -> str:
    """Return the needs of the lane in which limited executions ask for admission."""
    return _ENTRY + needs


def admitted_needs(needs: str) -> str:
    """Return the needs of the lane of executions that hold their limits."""
    return _ADMITTED + needs


def is_admitted(needs: str) -> bool:
    """Return True for the lane of executions that hold their limits."""
    return needs.startswith(_ADMITTED)


def base_needs(needs: str) -> str:
    """Return what a worker has to offer for a lane, limited or not."""
    if needs.startswith((_ENTRY, _ADMITTED, _ORDERED)):
        return needs.partition(":")[2]
    match = _SHARED.match(needs)
    return needs if match is None else needs[match.end() :]


def claimed_needs(kinds: Iterable[str]) -> list[str]:
    """Return the needs that a worker claims by, which offers these kinds."""
    known = list(dict.fromkeys(kinds))
    return [*known, *map(admitted_needs, known)]


# Options of jobs.


class Limit:
    """A limit on how many executions run at a time, for `concurrency`.

    `Limit(2, key="account")` is a limit for each account. `Limit("stripe", 10)` has a name: all
    jobs that use the name share it.
    """

    def __init__(
        self, *args: str | int, name: str | None = None, limit: int | None = None,
        key: str | None = None,
    ) -> None:  # fmt: skip
        for value in args:
            if isinstance(value, str) and name is None:
                name = value
            elif not isinstance(value, str) and limit is None:
                limit = value
            else:
                raise UsageError(
                    f"Limit{args!r}: a limit has one name and one number, as in"
                    ' Limit("stripe", 10)',
                    field="concurrency",
                )
        self.name, self.limit, self.key = name, limit, key

    def __repr__(self) -> str:
        return f"Limit(name={self.name!r}, limit={self.limit!r}, key={self.key!r})"

    def to_fields(self) -> dict[str, Any]:
        """Return the limit as JSON has it."""
        fields = {"name": self.name, "limit": self.limit, "key": self.key}
        return {name: value for name, value in fields.items() if value is not None}


class ConcurrencyOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit on how many run at a time."""

    limit: int
    name: str | None = None  # shared by all jobs that name it; None: of this job alone
    key: str | None = None  # an argument, a path in it, or a template: a limit for each value


class RateOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit on how many start in a time."""

    rate: str  # such as 100/m
    name: str | None = None
    key: str | None = None
    burst: int | None = None  # at most so many at once; None: all of the rate
    cost: int | str = 1  # of one start: a number, or the argument that has it


def read_concurrency(value: Any, what: str) -> tuple[ConcurrencyOption, ...]:
    """Return limits on how many run at a time."""
    options = [_read_limit(one, where) for one, where in _items(value, what)]
    _check_names([(one.name, one.key) for one in options], what)
    return tuple(options)


def _read_limit(value: Any, what: str) -> ConcurrencyOption:
    if isinstance(value, Limit):
        value = value.to_fields()
    if isinstance(value, int) and not isinstance(value, bool):
        value = {"limit": value}
    given = _fields(value, ("name", "limit", "key"), what, example='{"limit": 2, "key": "account"}')
    return ConcurrencyOption(
        limit=_count(given.get("limit"), f"{what}.limit", CAPACITY_MAX),
        name=_name(given.get("name"), what),
        key=_key(given.get("key"), what),
    )


def read_rates(value: Any, what: str) -> tuple[RateOption, ...]:
    """Return limits on how many start in a time."""
    options = [_read_rate(one, where) for one, where in _items(value, what)]
    return tuple(options)


def _read_rate(value: Any, what: str) -> RateOption:
    if isinstance(value, str):
        value = {"rate": value}
    fields = ("rate", "name", "key", "burst", "cost")
    given = _fields(value, fields, what, example='"100/m"')
    rate = given.get("rate")
    count, seconds = parse_rate(rate, what)
    burst, cost = given.get("burst"), given.get("cost", 1)
    if isinstance(cost, str):
        if "{" in cost:
            raise UsageError(f"{what}.cost {shown(cost)} must name one argument", field=what)
        parse_key(cost, f"{what}.cost")
    else:
        _count(cost, f"{what}.cost", COST_MAX)
    if burst is not None:
        _count(burst, f"{what}.burst", count)
    return RateOption(
        rate=format_rate(count, seconds),
        name=_name(given.get("name"), what),
        key=_key(given.get("key"), what),
        burst=burst,
        cost=cost,
    )


_RATE: Final = re.compile(r"\s*([0-9][0-9_,]{0,12})\s*(?:/|per)\s*(.+?)\s*")
_UNITS: Final = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d"}


def parse_rate(value: object, what: str = "rate") -> tuple[int, Seconds]:
    """Return the count and the seconds of a rate such as 100/m, 10/s or 5/10m."""
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise UsageError(
            f'{what} {shown(value)} is no rate; write a number per time, such as "100/m", "10/s"'
            ' or "5/10m"',
            field=what,
        )
    count = int(match[1].replace("_", "").replace(",", ""))
    unit = _UNITS.get(match[2].removesuffix("s") if len(match[2]) > 2 else "", match[2])
    try:
        seconds = parse_duration(unit if unit[0].isdigit() else f"1{unit}", what=what)
    except DaybellError:
        raise UsageError(
            f"{what} {shown(value)}: {shown(match[2])} is no time; write s, m, h or d, or a length"
            " such as 10m",
            field=what,
        ) from None
    if not 1 <= count <= RATE_MAX:
        raise UsageError(f"{what} {shown(value)}: from 1 to {RATE_MAX:,} are possible", field=what)
    if seconds < 0.1:
        raise UsageError(f"{what} {shown(value)}: the time must be at least 0.1s", field=what)
    return count, seconds


def format_rate(count: int, seconds: Seconds) -> str:
    """Return a rate as people write it."""
    unit = format_duration(seconds)
    return f"{count}/{unit[1:] if unit in ('1s', '1m', '1h', '1d') else unit}"


def check_combination(
    concurrency: Sequence[ConcurrencyOption], rates: Sequence[RateOption]
) -> None:
    """Refuse limits of one job that contradict each other."""
    if len(concurrency) + len(rates) > LIMITS_MAX:
        raise UsageError(
            f"{len(concurrency) + len(rates)} limits are too many for one job; {LIMITS_MAX} are"
            " possible",
            field="rate" if rates else "concurrency",
        )
    keys: dict[str, str | None] = {}
    for one in (*concurrency, *rates):
        if one.name is not None and keys.setdefault(one.name, one.key) != one.key:
            raise UsageError(
                f"limit {shown(one.name)} has two keys, {shown(keys[one.name])} and"
                f" {shown(one.key)}; give each key a limit with a name of its own",
                field="rate",
            )


def _items(value: Any, what: str) -> list[tuple[Any, str]]:
    """Return the items of a list, or one item that is given alone, each with its name in errors."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items = cast("Sequence[Any]", value)
        return [(one, f"{what}[{n}]") for n, one in enumerate(items)]
    return [(value, what)]


def _fields(value: Any, known: Sequence[str], what: str, *, example: str) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if not isinstance(value, Mapping):
        raise UsageError(f"{what}={shown(value)} is no limit; write {example}", field=what)
    given = dict(cast("Mapping[str, Any]", value))
    for name in given:
        if name not in known:
            raise UsageError(
                f"{what}: a limit has no {shown(name)}; it has {', '.join(known)}", field=what
            )
    return given


def _count(value: Any, what: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise UsageError(
            f"{what}={shown(value)} must be a whole number from 1 to {most:,}", field=what
        )
    return value


def _name(value: Any, what: str) -> str | None:
    return None if value is None else check_name(value, what="limit")


def _key(value: Any, what: str) -> str | None:
    if value is not None:
        parse_key(value, f"{what}.key")
    return value


def _check_names(given: Iterable[tuple[str | None, str | None]], what: str) -> None:
    seen = set[tuple[str | None, str | None]]()
    for name, key in given:
        one = (name, None if name is not None else key)
        if one in seen:
            raise UsageError(
                f"{what}: two limits have the same {'name' if name else 'key'}"
                f" {shown(name or key)}",
                field=what,
            )
        seen.add(one)


# Keys.


def arguments_of(
    concurrency: Iterable[ConcurrencyOption], rates: Iterable[RateOption], others: Iterable[str]
) -> list[str]:
    """Return the arguments that the keys and costs of limits read, and other keys."""
    rates = list(rates)
    keys = [one.key for one in (*concurrency, *rates) if one.key is not None]
    keys += others
    keys += [one.cost for one in rates if isinstance(one.cost, str)]
    return [part[0] for key in keys for part in parsed_key(key) if not isinstance(part, str)]


def cost_of(cost: int | str, args: Mapping[str, Any]) -> int:
    """Return the cost of a start. An argument that is no number costs one."""
    if isinstance(cost, int):
        return cost
    value: Any = args
    for part in cost.split("."):
        value = cast("Mapping[str, Any]", value).get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        return 1
    return int(min(COST_MAX, value))


# Rules.

Window: TypeAlias = tuple[int, Seconds]


class LimitTerms(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of a limit; None: no limit of that sort."""

    limit: int | None = None
    rates: tuple[tuple[int, Seconds, int | None], ...] | None = None  # count, seconds, burst

    def override(self, other: LimitTerms) -> LimitTerms:
        """Return these terms with the numbers that others set."""
        return LimitTerms(
            self.limit if other.limit is None else other.limit,
            self.rates if other.rates is None else other.rates,
        )

    @property
    def windows(self) -> list[Window]:
        """The windows of time, each with the most that may start in it. A burst is a rate, too: in
        the time that it stands for, no more may start.
        """
        found: list[Window] = []
        for count, seconds, burst in self.rates or ():
            found.append((count, seconds))
            if burst is not None and burst < count:
                found.append((burst, seconds * burst / count))
        return found

    def to_json(self) -> str:
        """Return the terms as a store keeps them."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | None) -> LimitTerms:
        """Read kept terms."""
        return cls() if text is None else msgspec.json.decode(text, type=cls)


class LimitRule(msgspec.Struct, frozen=True):
    """One limit of a job."""

    name: str
    key: str | None
    terms: LimitTerms
    cost: int | str = 1


class Policy(msgspec.Struct, frozen=True):
    """The limits of one version of a job."""

    rules: tuple[LimitRule, ...]
    on_full: OnFull = "wait"
    share: ShareOption | None = None
    user_id: str | None = None

    def take(self, args: Mapping[str, Any]) -> dict[tuple[str, str], int]:
        """Return the buckets of an execution with these arguments, by name and item, each with its
        cost.
        """
        return {
            (rule.name, item_of(rule.key, args)): cost_of(rule.cost, args) for rule in self.rules
        }

    def path(self, text: str) -> SharePath:
        """Return the leaf at which an execution with these arguments takes its turn. The last level
        are the buckets, so that work whose limit is full stands in the way of no other.
        """
        assert self.share is not None, "the caller has asked"
        args: Mapping[str, Any] = msgspec.json.decode(text)
        buckets = [f"{name}\n{item}" for name, item in sorted(self.take(args))]
        return self.share.path(args, digest("\n".join(buckets)), user_id=self.user_id)


class _Definition(msgspec.Struct):
    """The part of a stored definition that has its limits."""

    name: str
    concurrency: tuple[ConcurrencyOption, ...] = ()
    rate: tuple[RateOption, ...] = ()
    on_full: OnFull = "wait"
    share: ShareOption | None = None
    user_id: str | None = None


def policy_of(definition: str) -> Policy:
    """Return the limits of a stored definition."""
    known = msgspec.json.decode(definition, type=_Definition)
    rules = rules_of(known.name, known.concurrency, known.rate)
    return Policy(rules, known.on_full, known.share, known.user_id)


def rules_of(
    job: str, concurrency: Iterable[ConcurrencyOption], rates: Iterable[RateOption]
) -> tuple[LimitRule, ...]:
    """Return the rules of a job. Limits of one name are one rule. One without a name is named
    after the job, and after its key.
    """
    rules: dict[str, LimitRule] = {}
    for one in concurrency:
        name = _name_of(job, one)
        rules[name] = LimitRule(name, one.key, LimitTerms(limit=one.limit))
    for rate in rates:
        name = _name_of(job, rate)
        rule = rules.get(name, LimitRule(name, rate.key, LimitTerms()))
        count, seconds = parse_rate(rate.rate)
        terms = LimitTerms(
            rule.terms.limit, (*(rule.terms.rates or ()), (count, seconds, rate.burst))
        )
        rules[name] = LimitRule(name, rule.key, terms, rate.cost)
    return tuple(rules.values())


def _name_of(job: str, one: ConcurrencyOption | RateOption) -> str:
    if one.name is not None:
        return one.name
    return job if one.key is None else f"{job}:{one.key}"


# Admission.

LOG_PARTS: Final = 500  # a window is remembered in so many parts at most

Log: TypeAlias = list[tuple[Instant, int]]


class Bucket(msgspec.Struct):
    """A limit for one value of its key, as it is now and as the decisions leave it."""

    key: int
    name: str
    item: str
    terms: LimitTerms
    held: int = 0  # executions that have it
    unstarted: int = 0  # the cost of those that may not have started yet
    log: Log = []
    paused_until: Instant = 0.0

    def room_at(self, cost: int, now: Instant) -> Instant:
        """Return the time from which it has room; infinite: not before an execution ends."""
        if self.paused_until > now:
            return self.paused_until
        if self.terms.limit is not None and self.held >= self.terms.limit:
            return inf
        at = now
        for count, seconds in self.terms.windows:
            at = max(at, self._window_at(min(cost, count), count, seconds, now))
        return at

    def _window_at(self, cost: int, count: int, seconds: Seconds, now: Instant) -> Instant:
        free = count - cost - self.unstarted
        used = [(at, each) for at, each in self.log if at + seconds + GUARD_SECONDS > now]
        over = sum(each for _, each in used) - free
        if over <= 0:
            return now
        for at, each in used:
            over -= each
            if over <= 0:
                return at + seconds + GUARD_SECONDS
        return inf  # those that have not started yet are in the way

    def take(self, cost: int) -> None:
        """Give it to one more execution."""
        self.held += 1
        if self.terms.rates:
            self.unstarted += cost

    def start(self, at: Instant, cost: int) -> None:
        """Note the time at which an execution has started. The caller counts it no longer among
        those that have not.
        """
        self.log.append((at, cost))

    def compact(self, now: Instant) -> Log:
        """Return the log without starts that no window sees, and with the others joined to few:
        each counts from the last start that is joined to it.
        """
        windows = self.terms.windows
        if not windows:
            return []
        longest = max(seconds for _, seconds in windows)
        part = min(seconds for _, seconds in windows) / LOG_PARTS
        kept: Log = []
        first = -inf
        for at, cost in sorted(self.log):
            if at + longest + GUARD_SECONDS <= now:
                continue
            if at - first < part and len(self.log) > LOG_PARTS:
                kept[-1] = at, kept[-1][1] + cost
            else:
                first = at
                kept.append((at, cost))
        return kept


class Applicant(msgspec.Struct, frozen=True):
    """An execution that is due and asks for its buckets."""

    id: UUID
    attempt: int
    priority: int
    run_at: Instant
    takes: tuple[tuple[int, int], ...]  # keys of buckets in their order, each with its cost
    on_full: OnFull = "wait"
    waits_at: int | None = None  # the bucket at which it waits; None: it asks for the first time
    share: int | None = None  # its leaf, if it takes turns

    @property
    def order(self) -> tuple[int, Instant, UUID]:
        """The order of admission."""
        return self.priority, self.run_at, self.id


class Admission(msgspec.Struct):
    """The decisions about applicants."""

    admitted: list[Applicant] = []
    waiting: list[tuple[Applicant, int]] = []  # each with the bucket at which it waits from now on
    skipped: list[Applicant] = []
    replacing: list[tuple[Applicant, int]] = []  # for each, the bucket's oldest holder is cancelled
    wake_at: dict[int, Instant] = {}  # of buckets that have room again at a known time


def admit(
    applicants: Iterable[Applicant], buckets: Mapping[int, Bucket], *, now: Instant
) -> Admission:
    """Decide which applicants start. Each takes all of its buckets or none; one that finds no room
    waits at the first bucket without room.
    """
    result = Admission()
    for one in sorted(applicants, key=_order):
        blocked = next(
            ((key, at) for key, cost in one.takes if (at := buckets[key].room_at(cost, now)) > now),
            None,
        )
        if blocked is None:
            for key, cost in one.takes:
                buckets[key].take(cost)
            result.admitted.append(one)
            continue
        key, at = blocked
        if at < inf:
            result.wake_at[key] = min(at, result.wake_at.get(key, inf))
        if one.on_full == "skip":
            result.skipped.append(one)
            continue
        if one.on_full == "cancel_oldest" and one.waits_at is None:
            result.replacing.append((one, key))
        if one.waits_at != key:
            result.waiting.append((one, key))
    if any(one.on_full == "keep_newest" for one, _ in result.waiting):
        result = _keep_newest(result)
    return result


def _keep_newest(result: Admission) -> Admission:
    """Of new applicants of which only the newest waits, skip the others."""
    newest: dict[int, Applicant] = {}
    for one, key in result.waiting:
        if one.on_full == "keep_newest" and (key not in newest or one.id > newest[key].id):
            newest[key] = one
    older = [
        one for one, key in result.waiting
        if one.on_full == "keep_newest" and newest[key] is not one
    ]  # fmt: skip
    gone = {one.id for one in older}
    result.skipped += older
    result.waiting = [(one, key) for one, key in result.waiting if one.id not in gone]
    return result


_order: Final[Callable[[Applicant], tuple[int, Instant, UUID]]] = lambda one: one.order  # noqa: E731


# Views and changes.

SHOWN_BUCKETS: Final = 100
SHOWN_HOLDERS: Final = 10


class BucketState(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a limit's key, as it is now."""

    item: str
    held: int
    waiting: int
    room_at: Instant | None  # the time from which another execution may start; None: after an end
    starts: tuple[int, ...]  # those that each window still sees
    paused_until: Instant | None
    holders: tuple[UUID, ...]  # the first of them


class LimitState(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, as it is now."""

    name: str
    terms: LimitTerms  # in effect
    declared: LimitTerms  # by the first job that uses it
    held: int
    waiting: int
    items: int  # values of its key
    paused_until: Instant | None  # infinite: until it is resumed
    next_at: Instant | None  # the next known time at which it admits
    at_least: tuple[str, ...] = ()  # numbers that may be larger
    buckets: tuple[BucketState, ...] = ()  # those with the most waiting executions; of one limit


class LimitPause(msgspec.Struct, frozen=True, array_like=True):
    """A pause of a limit that a running task asks for."""

    name: str
    seconds: Seconds


class LimitChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a limit at run time. Parts that are unset stay."""

    limit: int | msgspec.UnsetType | None = msgspec.UNSET  # None: as it is declared
    rates: tuple[tuple[int, Seconds, int | None], ...] | msgspec.UnsetType | None = msgspec.UNSET
    pause: Seconds | msgspec.UnsetType | None = msgspec.UNSET  # for so long; None: resume
    item: str | None = None  # pause only this value of its key
    of: UUID | None = None  # pause only the value of its key that this execution has

    def apply(self, known: LimitTerms) -> LimitTerms:
        """Return the numbers that are set, after this change."""
        return LimitTerms(
            known.limit if self.limit is msgspec.UNSET else self.limit,
            known.rates if self.rates is msgspec.UNSET else self.rates,
        )


class LimitWait(msgspec.Struct, frozen=True, kw_only=True):
    """The bucket at which an execution waits."""

    name: str
    item: str
    terms: LimitTerms
    ahead: int  # executions that wait before it; at most COUNTED
    held: int
    holders: tuple[UUID, ...]  # the first of them
    room_at: Instant | None  # None: after an end
    paused_until: Instant | None


COUNTED: Final = 10_000


def bucket_state(
    bucket: Bucket, *, waiting: int, holders: Iterable[UUID], now: Instant
) -> BucketState:
    """Return a bucket as people see it."""
    at = bucket.room_at(1, now)
    return BucketState(
        item=bucket.item,
        held=bucket.held,
        waiting=waiting,
        room_at=None if at == inf and bucket.paused_until != inf else at,
        starts=tuple(
            sum(cost for started, cost in bucket.log if started + seconds > now)
            for _, seconds in bucket.terms.windows
        ),
        paused_until=bucket.paused_until if bucket.paused_until > now else None,
        holders=tuple(holders),
    )


def limit_state(
    name: str, declared: LimitTerms, changed: LimitTerms, *, paused_until: Instant,
    counts: Sequence[int], next_at: Instant | None, now: Instant,
    buckets: Iterable[BucketState] = (),
) -> LimitState:  # fmt: skip
    """Return a limit as people see it. `counts` are its holders, waiters and items."""
    held, waiting, items = (min(count, COUNTED) for count in counts)
    names = ("held", "waiting", "items")
    return LimitState(
        name=name,
        terms=declared.override(changed),
        declared=declared,
        held=held,
        waiting=waiting,
        items=items,
        paused_until=paused_until if paused_until > now else None,
        next_at=next_at,
        at_least=tuple(one for one, n in zip(names, counts, strict=True) if n > COUNTED),
        buckets=tuple(buckets),
    )


def describe_terms(terms: LimitTerms) -> str:
    """Return the numbers of a limit in words."""
    numbers = [] if terms.limit is None else [f"{terms.limit:,} at a time"]
    rates = [format_rate(count, seconds) for count, seconds, _ in terms.rates or ()]
    return " and ".join([*numbers, *rates]) or "which has no numbers"


def estimate_start(
    wait: LimitWait, *, now: Instant, starts_per_second: float | None
) -> Instant | None:
    """Return about when an execution starts that waits at a bucket: by the rate of the limit, or
    by the starts of its queue. None: it is not known.
    """
    if wait.paused_until == inf:
        return None
    at = max(now, wait.paused_until or now)
    rates = [count / seconds for count, seconds in wait.terms.windows]
    if rates:
        return max(at, wait.room_at or now) + wait.ahead / min(rates)
    return at + (wait.ahead + 1) / starts_per_second if starts_per_second else None
