"""Ways to break schedules: name, and in which file which text becomes which other."""

from __future__ import annotations

from typing import Final

SQLITE_FIRING: Final = "store/sqlite/schedules.py"
CURSOR: Final = "ifnull(since, next_at)"
NO_SWEEP: Final = (
    "engine/scheduler.py",
    "        swept = await self._store.upkeep(BATCH_MAX, sweeps=(SweepKind.REARM,))\n"
    "        await self._rewind()\n"
    "        return AGAIN if swept.is_full(BATCH_MAX) else None\n",
    "        await self._rewind()\n        return None\n",
)
GATE: Final = ("core/schedule.py", "if rule is Overlap.ALLOW or inside + waiting == 0:", "if True:")
OWN_GATE: Final = "new.schedule if new.own_gate else None"
JOINED: Final = ("core/schedule.py", OWN_GATE, "None")
NO_OWN_GATE: Final = ("core/schedule.py", OWN_GATE, "new.id if new.own_gate else None")
RANGE: Final = ("core/when/misfire.py", "ticks = [] if missed is None else [missed]", "ticks = []")

OF_SCHEDULES: Final[tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]] = (
    (
        "a schedule fires wherever its cursor is",
        ((SQLITE_FIRING, f"AND {CURSOR} = ? AND is_paused = 0", "AND ? > 0 AND is_paused = 0"),),
    ),
    (
        "a tick has no name of its own",
        (
            (SQLITE_FIRING, "INSERT INTO tick", "INSERT OR REPLACE INTO tick"),
            (SQLITE_FIRING, " ON CONFLICT DO NOTHING", ""),
        ),
    ),
    ("nobody looks at the gate of a job", (GATE,)),
    ("run-time schedules of a job share its gate", (JOINED,)),
    ("run-time schedules have no gate", (NO_OWN_GATE,)),
    (
        "an end keeps its slot",
        (("store/sqlite/gates.py", "    tx.execute(_FREE, (gate,))\n", ""),),
    ),
    (
        "a fixed delay ends with an execution that is cancelled, and nobody sweeps",
        (
            (
                "store/sqlite/gates.py",
                "next_at = iif(delay IS NOT NULL AND next_at IS NULL AND",
                "next_at = iif(?1 <> 8 AND delay IS NOT NULL AND next_at IS NULL AND",
            ),
            NO_SWEEP,
        ),
    ),
    (
        "a fixed delay ends with an execution that dies, and nobody sweeps",
        (
            (
                "store/sqlite/gates.py",
                "next_at = iif(delay IS NOT NULL AND next_at IS NULL AND",
                "next_at = iif(?1 <> 7 AND delay IS NOT NULL AND next_at IS NULL AND",
            ),
            NO_SWEEP,
        ),
    ),
    ("what was missed is not on record", (RANGE,)),
    (
        "a missed range is lost to a tick that is on record",
        (
            (
                SQLITE_FIRING,
                "    return not any(tx.execute(_ON_RECORD, key).fetchone() for key in missed)\n",
                "    return True\n",
            ),
        ),
    ),
    (
        "a paused job fires",
        ((SQLITE_FIRING, f"AND {CURSOR} = ? AND is_paused = 0", f"AND {CURSOR} = ?"),),
    ),
    (
        "every new leader is a reboot",
        (("core/worker.py", "    if presence.since <= seen_at:", "    if leads and not begins:"),),
    ),
    (
        "only who leads was there before",
        (("core/worker.py", "any(one.since <= seen_at for one in there.values())", "False"),),
    ),
    (
        "a schedule stays ahead of a clock that was set back",
        (("core/when/cursor.py", "schedule.next_at <= next_at):", "True):"),),
    ),
    (
        "a tick that was fired early comes off the record",
        (("store/sqlite/schedules.py", "AND at > ? AND decision = {_MISSED}", "AND at > ?"),),
    ),
    (
        "failures pause nothing",
        (("store/sqlite/gates.py", "if state == DEAD and is_enough:", "if False:"),),
    ),
)
