"""The dashboard by keys alone, frozen, shared, read-only, and in windows of all widths."""

import asyncio
import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Site
from tests.browser.test_dashboard import PAGES
from tests.cli.terminal import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_operator_works_by_keys_alone(page: Page, site: Site):
    for _ in range(2):
        site.call("POST", "/jobs/greet/trigger", {"args": {"name": "Ada"}})
    keys = page.keyboard
    await page.goto("/")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    await keys.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await keys.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()

    await keys.press("g")
    await keys.press("e")
    await expect(page.get_by_role("heading", name="Executions")).to_be_visible()
    await keys.press("/")
    await expect(page.get_by_role("combobox", name="Query")).to_be_focused()
    await keys.type("job:greet")
    await keys.press("Enter")
    table = page.get_by_role("table", name="Executions")
    await expect(table.get_by_role("checkbox").nth(1)).to_be_visible()
    await keys.press("Escape")
    await page.evaluate("document.activeElement.blur()")  # as a press outside of the field does
    for key in "jxjx":
        await keys.press(key)
    bar = page.get_by_role("region", name="Selected rows")
    await expect(bar.get_by_text("2 executions selected")).to_be_visible()
    compare = bar.get_by_role("link", name="Compare")
    for _ in range(2):
        await keys.press("Shift+Tab")
    await expect(compare).to_be_focused()
    await keys.press("Enter")
    await expect(page).to_have_url(re.compile("/compare\\?with="))
    await expect(page.get_by_role("main")).to_be_focused()

    await keys.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    await keys.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)

    await keys.press("Control+k")
    await keys.type("pause queue default")
    await expect(page.get_by_role("option", name="Pause queue default")).to_be_visible()
    await keys.press("Enter")
    await expect(page.get_by_text("default is paused")).to_be_visible()
    await page.get_by_role("button", name="Undo").press("Enter")
    await asyncio.to_thread(until, lambda: not is_paused(site, "default"))


def is_paused(site: Site, name: str) -> bool:
    queues = site.call("GET", "/queues")["items"]
    return next(one["is_paused"] for one in queues if one["name"] == name)


async def shown(page: Page, triggered: dict[str, str]) -> str:
    """Return the id of an execution, once a page shows it."""
    id = triggered["execution_id"]
    await expect(page.locator(f'a[href$="{id}"]')).to_be_visible()
    return id


async def test_a_frozen_page_shows_nothing_new_until_it_goes_on(page: Page, site: Site):
    await page.goto("/executions?q=job:second")
    await expect(page.get_by_role("heading", name="Executions")).to_be_visible()
    rows = page.get_by_role("table", name="Executions").get_by_role("row")
    first = site.call("POST", "/jobs/second/trigger", {"args": {"first": 1}})["execution_id"]
    await expect(rows.filter(has=page.locator(f'a[href$="{first}"]'))).to_be_visible()

    await page.get_by_role("button", name="Live").click()
    await expect(page.get_by_role("button", name="Frozen")).to_be_visible()
    # Another page hears of two changes in turn: this one would have heard of the first.
    other = await page.context.new_page()
    await other.goto("/executions?q=job:second")
    await expect(other.locator(f'a[href$="{first}"]')).to_be_visible()
    await page.bring_to_front()
    later, *_ = [
        await shown(other, site.call("POST", "/jobs/second/trigger", {"args": {"first": number}}))
        for number in (2, 3)
    ]
    await expect(page.locator(f'a[href$="{later}"]')).to_have_count(0)

    await page.get_by_role("button", name="Frozen").click()
    await expect(page.locator(f'a[href$="{later}"]')).to_be_visible()


async def test_a_view_is_shared_with_its_columns_by_its_address(page: Page):
    await page.goto("/executions?q=job:greet&columns=Status,Worker")
    heads = page.get_by_role("columnheader")
    await expect(heads.filter(has_text="Worker")).to_be_visible()
    await expect(heads.filter(has_text="Created")).to_have_count(0)

    await page.get_by_text("Views").click()
    await page.get_by_label("Save filters and columns as").fill("Workers of greet")
    await page.get_by_role("button", name="Save", exact=True).click()
    await page.goto("/executions")
    await expect(heads.filter(has_text="Created")).to_be_visible()
    await page.get_by_text("Views").click()
    await page.get_by_role("link", name="Workers of greet").click()

    await expect(heads.filter(has_text="Worker")).to_be_visible()
    await expect(heads.filter(has_text="Created")).to_have_count(0)
    await expect(page.get_by_role("combobox", name="Query")).to_have_value("job:greet")


async def test_the_grid_of_many_runs_begins_at_the_newest(page: Page, site: Site):
    runs = [site.call("POST", "/jobs/chain/trigger")["execution_id"] for _ in range(40)]
    last = f"/executions/{runs[-1]}"
    until(lambda: site.call("GET", last)["status"] == "succeeded")
    await page.set_viewport_size({"width": 640, "height": 800})

    await page.goto("/workflows/chain")
    await expect(page.locator(f'a.run-cell[href="{last}/graph"]')).to_be_in_viewport()
    await expect(page.locator(f'a.run-cell[href="/executions/{runs[0]}/graph"]')).to_have_count(0)
    await expect(
        page.get_by_role("link", name=re.compile("^second: succeeded")).last
    ).to_be_in_viewport()


async def test_a_server_that_refuses_changes_says_so(page: Page, site: Site):
    key = site.call("POST", "/keys", {"name": "hand", "role": "operator"})
    looker = Site(site.folder, "server", "--read-only")
    looker.start()
    try:
        opened = await page.request.post(f"{looker.url}/api/v1/session", data={"key": key["token"]})
        assert opened.ok, await opened.text()
        await page.goto(f"{looker.url}/jobs/greet")
        await expect(page.get_by_text("Read only")).to_be_visible()
        await expect(page.get_by_role("heading", name="greet")).to_be_visible()
        await expect(page.get_by_role("button", name="Trigger")).to_have_count(0)
        await expect(page.get_by_role("button", name="Edit")).to_have_count(0)
    finally:
        looker.stop()


@pytest.mark.parametrize("width", [360, 2560])
async def test_no_page_is_wider_than_its_window(page: Page, width: int):
    await page.set_viewport_size({"width": width, "height": 900})
    wide: list[str] = []
    for path in PAGES:
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        if await page.evaluate("document.querySelector('main').scrollWidth > innerWidth"):
            wide.append(path)

    assert wide == []
