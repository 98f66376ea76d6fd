"""Watched time: the spans in which processes have seen the store's clock run evenly.

A lease that ended by the store's clock has not ended if that clock has jumped, or if the store was
away, so that nobody could renew. Such a thing shows only to a process that compares the store's
clock with its own. Each process that looks for dead workers watches from its first answer on. The
store keeps the spans of all of them, because no single process may live for a whole lease. A worker
is dead when it was silent for its lease in watched time; what nobody watched does not count.

A process adds a span from its own first look on. At that look, no span on record can lie in the
future, or the clock was set back and the record is dropped. So a later span that reaches into the
time of the process was added since, and the two can be joined.
"""

from __future__ import annotations

from math import inf
from typing import Final, TypeAlias

import msgspec

from daybell.core.instant import Instant, Seconds

SPANS_MAX: Final = 100  # the latest ones; to forget a span only delays a death

Span: TypeAlias = tuple[Instant, Instant]


class Watch(msgspec.Struct, frozen=True):
    """Spans of the store's time, in order, without overlaps."""

    spans: tuple[Span, ...] = ()

    @classmethod
    def from_json(cls, text: str | None) -> Watch:
        return UNWATCHED if text is None else msgspec.json.decode(text, type=Watch)

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def seen(self, now: Instant, *, since: Instant, every: Seconds) -> Watch:
        """The record for somebody who has watched from `since` until now, to be kept if it is
        another one. A longer span is worth a write after `every` seconds.
        """
        known = UNWATCHED if self.spans and self.spans[-1][1] > now else self  # it was set back
        if since == -inf or since >= now:
            return known
        latest = known.spans[-1][1] if known.spans else -inf
        if since <= latest and now - latest < every:
            return known
        began = min([since, *(start for start, end in known.spans if end >= since)])
        kept = tuple(span for span in known.spans if span[1] < since)
        return Watch((*kept, (began, now))[-SPANS_MAX:])

    def silence(self, renewed_at: Instant, now: Instant, *, since: Instant) -> Seconds:
        """How long the caller, who has watched from `since` on, and others before it have watched
        a worker that was last heard of then.
        """
        own = max(0.0, now - max(renewed_at, since))
        return own + sum(
            max(0.0, min(end, since) - max(start, renewed_at)) for start, end in self.spans
        )


UNWATCHED: Final = Watch()
