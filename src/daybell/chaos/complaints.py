"""What the processes said that nobody expected: errors with a traceback are mistakes of ours.

A store that is away is said in a line; whatever comes with a traceback was not thought of.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

BEGINS: Final = "Traceback (most recent call last):"


def complaints(folder: Path) -> Iterator[str]:
    """One line for each traceback in the logs: whose, and the error that it ends with."""
    for file in sorted(folder.glob("*.log")):
        lines = iter(file.read_text(errors="replace").splitlines())
        for line in lines:
            if line.startswith(BEGINS):
                # Indented lines tell where; the first that is not is the error itself.
                error = next((one for one in lines if one and not one[0].isspace()), "")
                yield f"{file.stem}: {error}"
