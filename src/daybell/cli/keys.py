"""Keys as they are pressed, without waiting for a line."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Callable
from typing import Any, Self

LOCAL_FLAGS, CHARACTERS = 3, 6  # places in what termios answers


class Keys:
    """While entered, calls back with what is typed. The terminal is as before afterwards.

    Ctrl-C still is a signal. Ctrl-Z is not: it would leave the terminal to a shell as it is now.
    """

    def __init__(self, on_key: Callable[[str], None], *, on_end: Callable[[], None]) -> None:
        self._on_key = on_key
        self._on_end = on_end
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            changed = termios.tcgetattr(self._fd)
            changed[LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
            changed[CHARACTERS][termios.VSUSP] = b"\0"
            termios.tcsetattr(self._fd, termios.TCSADRAIN, changed)
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            self.restore()

    def restore(self) -> None:
        """Give the terminal back as it was; what was typed and not read is dropped."""
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)

    def _read(self) -> None:
        try:
            typed = os.read(self._fd, 1024)
        except OSError:  # the terminal is gone
            typed = b""
        if not typed:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._on_end()
        for key in typed.decode(errors="replace"):
            self._on_key(key)
