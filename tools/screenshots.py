"""Take pictures of the dashboard's pages into docs/screenshots, from a demo that runs for a while.

`python -m tools.screenshots [PAGE …]`: light and dark, on a desktop and on a phone. It needs
a Chromium, the system's or the one of `tests/browser`.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright, expect

from hatch_build import find_node
from tests.browser.chromium import find_chromium

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "screenshots"
WARM_SECONDS = 240  # four minutes of a chart
PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/heartbeat",
    "versions": "/jobs/disk/versions",
    "why": "/jobs/disk/why",
    "new-job": "/jobs/new",
    "trigger": "/jobs/fetch?do=trigger",
    "executions": "/executions",
    "execution": "/executions/{fetch}",
    "log": "/executions/{report}/log",
    "graph": "/executions/{orders}/graph",
    "chart": "/executions/{orders}/chart",
    "compare": "/executions/{orders}/compare?with={before}",
    "workflow": "/workflows/orders",
    "calendar": "/calendar",
    "dead-letters": "/dead-letters",
    "logs": "/logs",
    "alerts": "/alerts",
    "queues": "/queues",
    "limits": "/queues/limits",
    "workers": "/workers",
    "events": "/events",
    "settings": "/settings",
    "keys": "/settings/keys",
    "audit": "/settings/audit",
}
SIZES = {"desktop": (1280, 800, "light", "dark"), "phone": (390, 844, "light", "dark")}
# Sent before the pictures are taken, so that each page has something to show.
ORDERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/jobs", {"name": "disk", "schedule": "0 6 * * mon-fri", "command": "df -h ."}),
    ("POST", "/jobs", {"name": "backup", "schedule": "0 2 * * *", "command": "true"}),
    ("POST", "/jobs", {"name": "sync", "schedule": "0 */3 * * *", "command": "true"}),
    ("POST", "/jobs", {"name": "invoices", "schedule": "30 8 * * mon-fri", "command": "true"}),
    ("POST", "/jobs", {"name": "statements", "schedule": "0 8 * * mon", "command": "true"}),
    ("PATCH", "/jobs/disk", {"retries": 5, "timeout": "1m", "description": "Free space."}),
    ("POST", "/jobs/disk/pause", {"note": "until the new disk is in place"}),
    ("POST", "/alerts", {"name": "cards", "on": "failures", "job": "charge", "count": 1}),
    ("POST", "/keys", {"name": "grafana", "role": "viewer"}),
    ("POST", "/keys", {"name": "deploy", "role": "operator", "expires": "90d"}),
    ("POST", "/events", {"type": "file.uploaded", "data": {"path": "in/orders.csv", "size": 2417}}),
)


def ask(url: str, path: str, method: str = "GET", body: object = None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Origin": url}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/api/v1{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def wait_until_up(url: str) -> None:
    for _ in range(600):
        with suppress(OSError):
            ask(url, "/status")
            return
        time.sleep(0.2)
    raise SystemExit("the demo did not start")


async def shoot(url: str, names: list[str]) -> None:
    """Take all pictures of some pages."""
    ended = {
        job: ask(url, f"/executions?job={job}&limit=2&status=succeeded")["items"]
        for job in ("fetch", "report", "orders")
    }
    last = {job: found[0]["execution_id"] for job, found in ended.items()}
    last["before"] = ended["orders"][-1]["execution_id"]
    program, variables = find_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            env={**os.environ, **variables},
        )
        for size, (width, height, *themes) in SIZES.items():
            for theme in themes:
                context = await browser.new_context(
                    locale="en-US",
                    timezone_id="Europe/Berlin",
                    viewport={"width": width, "height": height},
                    color_scheme=theme,
                    reduced_motion="reduce",
                )
                page = await context.new_page()
                for name in names:
                    await page.goto(url + PAGES[name].format(**last))
                    await expect(page.get_by_role("heading", level=1)).to_be_visible()
                    await expect(page.locator(".skeleton")).to_have_count(0)
                    await page.wait_for_timeout(700)  # for what is drawn after that
                    await page.screenshot(path=FOLDER / f"{name}-{size}-{theme}.png")
                await context.close()
        await browser.close()


def main() -> None:
    """Run a demo, and take the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", default=[])
    names = parser.parse_args().pages or list(PAGES)
    FOLDER.mkdir(exist_ok=True)
    os.environ["PLAYWRIGHT_NODEJS_PATH"] = find_node(ROOT)[0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "daybell", "dev", "--demo", "--port", str(port)]
        null = subprocess.DEVNULL
        demo = subprocess.Popen(words, cwd=folder, stdout=null, stderr=null)
        try:
            wait_until_up(f"http://127.0.0.1:{port}")
            for method, path, body in ORDERS:
                ask(f"http://127.0.0.1:{port}", path, method, body)
            time.sleep(WARM_SECONDS)
            asyncio.run(shoot(f"http://127.0.0.1:{port}", names))
        finally:
            demo.terminate()
            demo.wait()


if __name__ == "__main__":
    main()
