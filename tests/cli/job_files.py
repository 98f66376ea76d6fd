"""A folder of job files, a store, and somebody who types."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from daybell import Client
from tests.cli.in_process import Typed, typing

REPORT = 'name: report\nschedule: "0 0 * * *"\ncommand: python report.py\nretries: 3\n'
PING = "name: ping\nhttp: {url: http://example.org, expect: 204}\n"


class World:
    """A folder of files, a store, and somebody who types."""

    def __init__(self, folder, typed: Typed, url: str) -> None:
        self.folder = folder
        self.typed = typed
        self.url = url

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / "jobs" / f"{name}.yaml").write_text(text)

    def remove(self, name: str) -> None:
        (self.folder / "jobs" / f"{name}.yaml").unlink()

    def apply(self, *words: str):
        return self.typed("apply", "-f", "jobs", *words)

    def applied(self, *words: str) -> str:
        said = self.apply(*words)
        assert said.code == 0, said.err
        return said.out

    def ask(self, question: Callable[[Client], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            async with Client(self.url) as client:
                return await question(client)

        return asyncio.run(ask())

    def versions(self) -> dict[str, int]:
        """The jobs that there are, and at which versions."""
        return {job.name: job.version for job in self.ask(lambda client: client.jobs()).items}

    def source(self, name: str) -> str:
        return self.ask(lambda client: client.job(name)).definition.source


def a_world(monkeypatch, capsys, folder) -> World:
    """One with an empty store, in an empty folder."""
    url = f"sqlite:///{folder}/daybell.db"

    async def make() -> None:
        async with Client(url, migrate=True):
            pass

    asyncio.run(make())
    (folder / "jobs").mkdir()
    monkeypatch.chdir(folder)
    return World(folder, typing(monkeypatch, capsys, DAYBELL_DATABASE_URL=url), url)
