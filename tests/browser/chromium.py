"""A Chromium for the tests: the system's, or one from npm that brings its libraries.

Users of Daybell never download it. `DAYBELL_TEST_BROWSER` names another program.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from hatch_build import find_node, npm_ci

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path(__file__).parent
PACKAGES = FOLDER / "node_modules"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# The package unpacks its shared libraries only where it believes to be on AWS Lambda.
ON_LAMBDA = {"AWS_LAMBDA_JS_RUNTIME": "nodejs24.x"}
UNPACK = (
    "import('@sparticuz/chromium').then(async m => console.log(await m.default.executablePath()))"
)
# Without a font no text is drawn, and the content of pages would still be right.
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{folder}/cache</cachedir></fontconfig>
"""


def node() -> str:
    """Node.js, with the packages of this folder installed beside it."""
    program, environment = find_node(ROOT)
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "browser.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = PACKAGES / ".daybell"
        wanted = (FOLDER / "package-lock.json").read_text()
        if not stamp.is_file() or stamp.read_text() != wanted:
            npm_ci(FOLDER, program, environment)
            stamp.write_text(wanted)
    return program


def find_chromium() -> tuple[str, dict[str, str]]:
    """Return the program, and the variables that it needs."""
    named = os.environ.get("DAYBELL_TEST_BROWSER")
    for name in (named,) if named else NAMES:
        if name and (found := shutil.which(name)):
            return found, {}
    folder = ROOT / ".cache" / "chromium"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = node()
        said = subprocess.run(
            [program, "-e", UNPACK], cwd=FOLDER, check=True, capture_output=True, text=True,
            env={**os.environ, **ON_LAMBDA, "TMPDIR": str(folder)},
        )  # fmt: skip
        fonts = folder / "fonts.conf"
        fonts.write_text(FONTS.format(folder=folder))
    return said.stdout.split()[-1], {
        "LD_LIBRARY_PATH": str(folder / "al2023" / "lib"),
        "FONTCONFIG_FILE": str(fonts),
        "HOME": str(folder),
    }
