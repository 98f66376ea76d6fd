"""Ways to break schedules: name, store, and in which file which text becomes which other."""

from __future__ import annotations

from typing import Final

MEMORY_FIRING: Final = "store/memory/schedules.py"
SQLITE_FIRING: Final = "store/sqlite/schedules.py"
CURSOR: Final = "ifnull(since, next_at)"
NO_SWEEP: Final = (
    "engine/scheduler.py",
    "is_full = await self._store.rearm_schedules(limit=BATCH_MAX) >= BATCH_MAX",
    "is_full = False",
)
GATE: Final = ("core/schedule.py", "if rule is Overlap.ALLOW or inside + waiting == 0:", "if True:")
OWN_GATE: Final = "new.schedule if new.own_gate else None"
JOINED: Final = ("core/schedule.py", OWN_GATE, "None")
NO_OWN_GATE: Final = ("core/schedule.py", OWN_GATE, "new.id if new.own_gate else None")
RANGE: Final = ("core/when/misfire.py", "ticks = [] if missed is None else [missed]", "ticks = []")

OF_SCHEDULES: Final[tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...]] = (
    (
        "a schedule fires wherever its cursor is",
        "memory",
        ((MEMORY_FIRING, " or schedule.cursor != firing.expect:", ":"),),
    ),
    (
        "a schedule fires wherever its cursor is",
        "sqlite",
        ((SQLITE_FIRING, f"AND {CURSOR} = ? AND is_paused = 0", "AND ? > 0 AND is_paused = 0"),),
    ),
    (
        "a tick has no name of its own",
        "memory",
        ((MEMORY_FIRING, "if (*key, tick.at) not in tables.ticks:", "if True:"),),
    ),
    (
        "a tick has no name of its own",
        "sqlite",
        (
            (SQLITE_FIRING, "INSERT INTO tick", "INSERT OR REPLACE INTO tick"),
            (SQLITE_FIRING, " ON CONFLICT DO NOTHING", ""),
        ),
    ),
    ("nobody looks at the gate of a job", "memory", (GATE,)),
    ("nobody looks at the gate of a job", "sqlite", (GATE,)),
    ("run-time schedules of a job share its gate", "memory", (JOINED,)),
    ("run-time schedules of a job share its gate", "sqlite", (JOINED,)),
    ("run-time schedules have no gate", "memory", (NO_OWN_GATE,)),
    ("run-time schedules have no gate", "sqlite", (NO_OWN_GATE,)),
    (
        "an end keeps its slot",
        "memory",
        (
            (
                "store/memory/progress.py",
                "tables.put(replace(row, has_slot=False))",
                "tables.put(row)",
            ),
        ),
    ),
    (
        "an end keeps its slot",
        "sqlite",
        (("store/sqlite/gates.py", "    tx.execute(_FREE, (gate,))\n", ""),),
    ),
    (
        "a fixed delay ends with an execution that is cancelled, and nobody sweeps",
        "memory",
        (
            (
                "store/memory/progress.py",
                "schedule.next_at is None and is_newest:",
                "schedule.next_at is None and is_newest and ended.state is not State.CANCELLED:",
            ),
            NO_SWEEP,
        ),
    ),
    (
        "a fixed delay ends with an execution that dies, and nobody sweeps",
        "sqlite",
        (
            (
                "store/sqlite/gates.py",
                "next_at = iif(delay IS NOT NULL AND next_at IS NULL AND",
                "next_at = iif(?1 <> 7 AND delay IS NOT NULL AND next_at IS NULL AND",
            ),
            NO_SWEEP,
        ),
    ),
    ("what was missed is not on record", "memory", (RANGE,)),
    ("what was missed is not on record", "sqlite", (RANGE,)),
    (
        "a missed range is lost to a tick that is on record",
        "memory",
        (
            (
                "store/memory/schedules.py",
                "if any((*key, tick.at) in tables.ticks for tick in firing.missed):",
                "if False:",
            ),
        ),
    ),
    (
        "a paused job fires",
        "sqlite",
        ((SQLITE_FIRING, f"AND {CURSOR} = ? AND is_paused = 0", f"AND {CURSOR} = ?"),),
    ),
    (
        "every new leader is a reboot",
        "memory",
        (("core/worker.py", "    if presence.since <= seen_at:", "    if leads and not begins:"),),
    ),
    (
        "only who leads was there before",
        "memory",
        (("core/worker.py", "any(one.since <= seen_at for one in there.values())", "False"),),
    ),
    (
        "a schedule stays ahead of a clock that was set back",
        "memory",
        (("core/when/cursor.py", "schedule.next_at <= next_at):", "True):"),),
    ),
    (
        "a tick that was fired early comes off the record",
        "memory",
        (
            (
                "store/memory/schedules.py",
                "if tuple(owner) != key or tick.decision is not Decision.MISSED:",
                "if tuple(owner) != key:",
            ),
        ),
    ),
    (
        "a tick that was fired early comes off the record",
        "sqlite",
        (("store/sqlite/schedules.py", "AND at > ? AND decision = {_MISSED}", "AND at > ?"),),
    ),
    (
        "failures pause nothing",
        "sqlite",
        (("store/sqlite/gates.py", "if state == DEAD and is_enough:", "if False:"),),
    ),
)
