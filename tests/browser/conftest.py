"""A server with the dashboard, and a browser that looks at it."""

import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from hatch_build import Build, find_node
from tests.browser.chromium import ROOT, find_chromium
from tests.cli.terminal import SECONDS, Running
from tests.postgres import free_port

APP = Path(__file__).parent / "app.py"
MODULE = "module"


class Site:
    """A server on a port of its own, which can be stopped and started again."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.folder = folder
        self._command = command
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._running: Running | None = None

    def start(self) -> None:
        url = f"sqlite:///{self.folder / 'site.db'}"
        words = (*self._command, "--port", str(self.port), "--database-url", url)
        self._running = Running(*words, folder=self.folder)
        self._running.wait_for(re.escape(f"{self.url}/api/v1"))

    def stop(self) -> None:
        """Kill it: it has no time for a farewell."""
        if self._running is not None:
            self._running.__exit__()
        self._running = None

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.process.pid

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Use the API as another client does."""
        sent = None if method == "GET" else {} if body is None else body
        answer = httpx.request(method, f"{self.url}/api/v1{path}", timeout=SECONDS, json=sent)
        assert answer.is_success, answer.text
        return answer.json()


@pytest.fixture(scope=MODULE)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All in one process, open to this machine's user."""
    Build(ROOT).run()
    site = Site(tmp_path_factory.mktemp("site"), "dev", str(APP))
    site.start()
    yield site
    site.stop()


@pytest.fixture(scope=MODULE)
def guarded(site: Site) -> Iterator[Site]:
    """A server of the same store that lets nobody in without a key."""
    guarded = Site(site.folder, "server")
    guarded.start()
    yield guarded
    guarded.stop()


@pytest_asyncio.fixture(scope=MODULE, loop_scope=MODULE)
async def browser() -> AsyncIterator[Browser]:
    program, variables = find_chromium()
    with pytest.MonkeyPatch.context() as patch:
        # The Node.js of Playwright needs a library that a bare Debian does not have.
        patch.setenv("PLAYWRIGHT_NODEJS_PATH", find_node(ROOT)[0])
        playwright = await async_playwright().start()
    try:
        browser = await playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            env={**os.environ, **variables},
        )
        yield browser
        await browser.close()
    finally:
        await playwright.stop()


@pytest_asyncio.fixture(loop_scope=MODULE)
async def page(browser: Browser, site: Site) -> AsyncIterator[Page]:
    """A new window. What its console reports as an error fails the test."""
    context = await browser.new_context(
        base_url=site.url, locale="en-US", viewport={"width": 1360, "height": 900},
        reduced_motion="reduce",
    )  # fmt: skip
    context.set_default_timeout(SECONDS * 1000)
    page = await context.new_page()
    errors: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        # A breach of the policy of the server is reported here.
        if "Content Security" in message.text:
            errors.append(message.text)

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", hear)
    yield page
    await context.close()
    assert not errors, errors
