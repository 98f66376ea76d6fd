"""Ways to break jobs that depend on jobs: name, and in which file which text becomes which
other.
"""

from __future__ import annotations

from typing import Final

Changes = tuple[tuple[str, str, str], ...]

DECIDING: Final = "core/schedule.py"
ONE_IS_ENOUGH: Final = (
    DECIDING,
    "        if at is None:\n            return None\n",
    "        if at is None:\n            continue\n",
)
UNFINISHED: Final = (
    DECIDING,
    "else one.state in TERMINAL):\n        return Begin.WAIT\n",
    "else one.state in TERMINAL):\n        return Begin.NOW\n",
)
FAILED: Final = (
    DECIDING,
    "        case OnFailure.SKIP:\n            return Begin.SKIP\n",
    "        case OnFailure.SKIP:\n            return Begin.NOW\n",
)
NOBODY_LOOKS: Final = ("engine/scheduler.py", "            self.dependents.loop,\n", "")

OF_DEPENDENTS: Final[tuple[tuple[str, Changes], ...]] = (
    ("one dependency is enough for a round", (ONE_IS_ENOUGH,)),
    ("a dependency that has not ended lets others begin", (UNFINISHED,)),
    ("what is to be skipped begins", (FAILED,)),
    ("nobody looks after what waits", (NOBODY_LOOKS,)),
    (
        "a round is fired wherever the cursor is",
        (
            (
                "store/sqlite/schedules.py",
                "AND ifnull(since, next_at) = ? AND is_paused = 0",
                "AND (since IS NOT NULL OR next_at = ?) AND is_paused = 0",
            ),
        ),
    ),
    (
        "who gets a slot does not wait any more",
        (
            (
                "store/sqlite/gates.py",
                "state = iif(reason IS '{DEPENDENCIES}', 4, 1)",
                "state = 1",
            ),
        ),
    ),
    (
        "what was skipped is let go",
        (
            (
                "store/sqlite/schedules.py",
                'AND state = 4 AND reason = \'{DEPENDENCIES}\'\n"""\n\n\ndef release',
                'AND state <> 5\n"""\n\n\ndef release',
            ),
        ),
    ),
)
