"""Leadership: who gets it, and whether nobody at all was there before.

Everybody who asks says since when he has been up, so it is known for how long without a break
somebody was. One who came up after that has found nobody there, unless another whose time is not
over, and who has been there long enough, asks again and closes the gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.instant import Instant, Seconds
from daybell.core.worker import Leadership

NEVER: Final = float("-inf")


class Presence(msgspec.Struct, frozen=True):
    """One who asked, whether he leads or not."""

    since: Instant  # when he came up
    until: Instant  # he may be there until then, if nothing more is heard of him


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """A leadership as it is kept, whether it lasts or not."""

    leadership: Leadership
    seen_at: Instant  # somebody was there until then, without a break


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What comes of asking."""

    seat: Seat
    leads: bool
    presence: Presence | None = None  # of the one who asked, if he said since when
    is_reboot: bool = False  # nobody was there when he came up, for certain


def ask(
    seat: Seat | None,
    asking: Leadership,
    *,
    since: Instant | None,
    present: Mapping[UUID, Presence],
    now: Instant,
) -> Asked:
    """Decide about one who asks for what `asking` says; see `asks_for`.

    `present` are all those who said since when they have been up.
    """
    if seat is None:
        seat = Seat(leadership=replace(asking, until=NEVER), seen_at=NEVER)
    last, seen_at = seat.leadership, seat.seen_at
    begins = last.until <= now
    leads = begins or last.holder == asking.holder
    # Higher even for the same holder: he may have been away.
    taken = replace(asking, epoch=last.epoch + begins) if leads else last
    if since is None:
        return Asked(seat=Seat(leadership=taken, seen_at=now if leads else seen_at), leads=leads)
    there = {holder: one for holder, one in present.items() if one.until > now}
    own = there.pop(asking.holder, None)
    presence = Presence(since if own is None else min(own.since, since), asking.until)
    is_reboot = False
    if presence.since <= seen_at:
        seen_at = now
    elif leads and not any(one.since <= seen_at for one in there.values()):
        seen_at, is_reboot = now, True
    return Asked(
        seat=Seat(leadership=taken, seen_at=seen_at),
        leads=leads,
        presence=presence,
        is_reboot=is_reboot,
    )


def leave(seat: Seat, holder: UUID, presence: Presence | None, *, now: Instant) -> Seat:
    """What is left of a leadership when one goes, who may have led or not."""
    leads = seat.leadership.holder == holder
    # Whoever was not sure that somebody was there before him takes the question along, unanswered.
    was_there = leads if presence is None else presence.since <= seat.seen_at
    return Seat(
        leadership=replace(seat.leadership, until=now) if leads else seat.leadership,
        seen_at=now if was_there else seat.seen_at,
    )


def presence_name(name: str, holder: UUID | str = "") -> str:
    """What a store that keeps both in one table calls one who asked; without a holder, how the
    names of all of them begin.
    """
    return f"{name}/{holder}"


def asks_for(name: str, holder: UUID, lease: Seconds, *, now: Instant) -> Leadership:
    """What one who asks would like to have."""
    return Leadership(name=name, holder=holder, epoch=0, until=now + lease)
