"""Record `daybell dev --demo` and two commands beside it as the picture of the README.

python tools/demo_picture.py [docs/images/demo.svg]

The script runs the commands on a terminal of their own, in an empty folder, and prints their real
output into an SVG. Run it again when the output of these commands changes.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "demo.svg"
COLUMNS: Final = 124
ROUND: Final = 2  # the commands run when the demo starts its second report
DEADLINE: Final = 60.0
DEV_LINES: Final = 16
DATABASE: Final = {"DAYBELL_DATABASE_URL": "sqlite:///demo.db"}
COMMANDS: Final = ("daybell executions list --limit 9", "daybell top --once")


class Terminal:
    """A command on a terminal of its own; `output` is all that it has printed."""

    def __init__(self, command: str, folder: str, settings: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        plain = {name: text for name, text in os.environ.items() if "DAYBELL" not in name}
        path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            command.split(),
            cwd=folder,
            env=plain | {"PATH": path, "TERM": "xterm-256color", "TZ": "UTC"} | settings,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._file = ours
        self._parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while part := os.read(self._file, 65536):
                self._parts.append(part)
        except OSError:  # the terminal has ended with the command
            pass

    def wait(self) -> None:
        self.process.wait(60)
        self._reader.join(10)

    @property
    def output(self) -> list[str]:
        text = b"".join(self._parts).decode().replace("\r\n", "\n")
        # The name of the machine stays out of the picture; the same width keeps the columns.
        host = socket.gethostname()
        return text.replace(host, "pc".ljust(len(host))).rstrip("\n").split("\n")


def record(console: Console) -> None:
    """Print the prompts and the output of the commands to a recording console."""
    with tempfile.TemporaryDirectory() as folder:
        demo = Terminal("daybell dev --demo --port 0", folder, {})
        try:
            deadline = time.monotonic() + DEADLINE
            while sum(is_report(line) for line in demo.output) < ROUND:
                if time.monotonic() > deadline or demo.process.poll() is not None:
                    raise SystemExit("the demo did not start:\n" + "\n".join(demo.output))
                time.sleep(0.1)
            beside = [Terminal(command, folder, DATABASE) for command in COMMANDS]
            for terminal in beside:
                terminal.wait()
        finally:
            demo.process.send_signal(signal.SIGINT)
            demo.wait()
    show(console, "daybell dev --demo", [*demo.output[:DEV_LINES], "…"])
    for command, terminal in zip(COMMANDS, beside, strict=True):
        show(console, command, terminal.output)


def is_report(line: str) -> bool:
    words = Text.from_ansi(line).plain.split()
    return "started" in words and words[-1] == "report"


def show(console: Console, command: str, lines: list[str]) -> None:
    console.print(Text(f"$ {command}", style="bold"))
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, overflow="ellipsis", crop=True)
    console.print()


def picture(console: Console) -> str:
    """Return the SVG, without the fonts that it would load from another server."""
    svg = console.export_svg(title="daybell dev --demo")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.S)


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        record(console)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(picture(console))
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
