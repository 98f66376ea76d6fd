"""Ways to break runs of workflows: name, and in which file which text becomes another."""

from __future__ import annotations

from typing import Final

Changes = tuple[tuple[str, str, str], ...]

TWICE: Final = ("core/workflow/progress.py", "tally.succeeded += 1", "tally.succeeded += 2")
ROOM: Final = (
    "core/workflow/progress.py",
    "        return max(0, self.run.max_running - self.running)\n",
    "        return max(0, self.run.max_running + 1 - self.running)\n",
)
NO_QUOTA: Final = (
    "core/workflow/progress.py",
    "            self._quota = yield RunQuery(RunRead.QUOTA)\n",
    "            yield RunQuery(RunRead.QUOTA)\n",
)
ONE_MORE: Final = ("core/workflow/progress.py", "0 if self.running else 1)", "1)")
NOT_ONE: Final = ("core/workflow/progress.py", "0 if self.running else 1)", "0)")
NO_STOP: Final = (
    "core/workflow/progress.py",
    "        if self.run.fail_fast:\n",
    "        if False:\n",
)
FORGOTTEN: Final = ("core/workflow/progress.py", "is_todo=is_todo,", "is_todo=False,")
UNSKIPPED: Final = (
    "core/workflow/progress.py",
    "        elif fate is ParentOutcome.SKIPPED:\n",
    "        elif fate is ParentOutcome.SKIPPED and condition:\n",
)
NO_SWEEP: Final = (
    "engine/upkeep.py",
    "            if not swept.advanced:\n",
    "            if True:\n",
)

OF_FLOWS: Final[tuple[tuple[str, Changes], ...]] = (
    ("a parent is counted twice", (TWICE,)),
    ("one more may run than is allowed", (ROOM,)),
    ("nodes pass the quota of their tenant", (NO_QUOTA,)),
    ("a run starts one node after the other whatever the quota says", (ONE_MORE,)),
    ("runs that use up the quota have no room for their nodes", (NOT_ONE,)),
    ("a failure stops nothing in a run that fails fast", (NO_STOP,)),
    ("what is left to do in a run is forgotten", (FORGOTTEN,)),
    ("nobody sweeps up what is left to do in runs", (NO_SWEEP,)),
    ("what was skipped looks as if it had run", (UNSKIPPED,)),
    (
        "a run is begun by who does not hold it",
        (
            (
                "store/sqlite/steps.py",
                'cancel_requested_at FROM execution WHERE {FENCE}"',
                "cancel_requested_at FROM execution"
                ' WHERE tenant = ? AND id = ? AND coalesce(?, ?, ?) IS NOT NULL"',
            ),
        ),
    ),
    (
        "a workflow in a workflow ends, and nobody is told",
        (
            (
                "store/sqlite/progress.py",
                "    follow_up(tx, n, links, state)\n\n\n_STOP",
                "    follow_up(tx, n, links._replace(node=None), state)\n\n\n_STOP",
            ),
        ),
    ),
    (
        "cancelling a run leaves its nodes alone",
        (
            (
                "store/sqlite/progress.py",
                "    requested = tx.execute(_REQUEST, (tx.now, *key)).fetchall()\n",
                "    return []\n    requested = tx.execute(_REQUEST, (tx.now, *key)).fetchall()\n",
            ),
        ),
    ),
)
