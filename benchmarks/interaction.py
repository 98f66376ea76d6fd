"""How long the dashboard takes for what a person does: typing, a large graph, a large grid, pages.

`python -m benchmarks.interaction URL` looks at a server that `benchmarks.dashboard` has seeded. A
time is processor time of the page's main thread, so that a busy machine does not count; the bar
is 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from playwright.async_api import CDPSession, Page, async_playwright, expect

from benchmarks.progress import say
from hatch_build import find_node
from tests.browser.chromium import find_chromium

ROOT: Final = Path(__file__).parent.parent
ROUNDS: Final = 5
PATIENCE_MS: Final = 60_000
CHANGES: Final = 300  # of pages, while the memory is measured
PAGES: Final = ("/", "/jobs", "/executions", "/workflows", "/dead-letters", "/queues", "/workers")


class Tab:
    """A page, and the processor time of its main thread."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self.page = page
        self._session = session

    async def metric(self, name: str) -> float:
        found = await self._session.send("Performance.getMetrics")
        return next(one["value"] for one in found["metrics"] if one["name"] == name)

    async def time(self, act: Callable[[], Awaitable[Any]]) -> float:
        """Return the milliseconds that the thread works for an action, until it is idle."""
        before = await self.metric("TaskDuration")
        await act()
        await self.page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestIdleCallback(done)))"
        )
        return 1e3 * (await self.metric("TaskDuration") - before)

    async def heap(self) -> float:
        """Return the used memory in megabytes, without what could be freed."""
        await self._session.send("HeapProfiler.collectGarbage")
        return await self.metric("JSHeapUsedSize") / 1e6


async def go(page: Page, path: str) -> None:
    """Change the page as a link does."""
    await page.evaluate(
        "(path) => { history.pushState(null, '', path); dispatchEvent(new Event('popstate')) }",
        path,
    )


async def type_a_query(tab: Tab) -> float:
    """Type into the query bar with 100 rows below; the longest time of a key."""
    await tab.page.goto("/executions")
    await expect(tab.page.get_by_role("row").nth(15)).to_be_visible()
    await tab.page.get_by_role("combobox", name="Query").focus()
    keys = "status:dead job:job"
    return max([await tab.time(lambda key=key: tab.page.keyboard.type(key)) for key in keys])


async def open_a_graph(tab: Tab, run: str) -> float:
    """Open the graph of a run of 500 nodes, whose parts are loaded."""
    await tab.page.goto(f"/executions/{run}/graph")
    await expect(tab.page.locator(".graph-node").first).to_be_visible()
    await tab.page.get_by_role("link", name="Details").click()
    await expect(tab.page.get_by_role("heading", name="Arguments")).to_be_visible()

    async def open_it() -> None:
        await tab.page.get_by_role("link", name="Graph").click()
        await expect(tab.page.locator(".graph-node").first).to_be_visible()

    return await tab.time(open_it)


async def scroll_a_grid(tab: Tab) -> float:
    """Scroll the grid of 500 nodes by a screen."""
    await tab.page.goto("/workflows/fan")
    await expect(tab.page.locator("a.run-cell").nth(30)).to_be_visible()
    scroll = "document.querySelector('.run-grid').scrollBy(0, 400)"
    return await tab.time(lambda: tab.page.evaluate(scroll))


async def measure(url: str) -> None:
    os.environ["PLAYWRIGHT_NODEJS_PATH"] = find_node(ROOT)[0]
    program, variables = find_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            env={**os.environ, **variables},
        )
        context = await browser.new_context(base_url=url, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        answer = await context.request.get("/api/v1/executions?job=fan&limit=1")
        run = (await answer.json())["items"][0]["execution_id"]
        page = await context.new_page()
        session = await context.new_cdp_session(page)
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab = Tab(page, session)
        for name, act in (
            ("a key in the query bar, 100 rows", lambda: type_a_query(tab)),
            ("open a graph of 500 nodes", lambda: open_a_graph(tab, run)),
            ("scroll a grid of 500 nodes", lambda: scroll_a_grid(tab)),
        ):
            times = sorted([await act() for _ in range(ROUNDS)])
            say(f"{name:34} median {times[ROUNDS // 2]:6.1f} ms, worst {times[-1]:6.1f} ms")
        for number in range(CHANGES + 1):
            if number % (CHANGES // 5) == 0:
                say(f"after {number:4} changes of the page: {await tab.heap():.1f} MB")
            await go(page, PAGES[number % len(PAGES)])
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interaction", description=__doc__)
    parser.add_argument("url", help="http://127.0.0.1:PORT of `daybell dev` on the seeded store")
    asyncio.run(measure(parser.parse_args().url.rstrip("/")))


if __name__ == "__main__":
    main()
