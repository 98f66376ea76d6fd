"""The dashboard in a real browser, at a real server."""

import json
import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.app import EVIL
from tests.browser.chromium import PACKAGES, node
from tests.browser.conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=60_000)

# A theme changes colours alone.
RULES = {"light": ["wcag2a", "wcag2aa", "wcag21aa"], "dark": ["color-contrast"]}
PAGES = [
    "/", "/jobs", "/jobs/new", "/jobs/greet", "/jobs/greet?do=trigger", "/executions", "/workflows",
    "/workflows/chain", "/calendar", "/dead-letters", "/queues", "/workers", "/events", "/settings",
    "/settings/keys", "/settings/audit",
]  # fmt: skip


async def test_a_first_visit_shows_what_goes_on_and_that_it_is_live(page: Page):
    await page.goto("/")

    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await expect(page.get_by_role("button", name="Live")).to_be_visible()
    await expect(page.get_by_role("link", name=re.compile("workers 1"))).to_be_visible()


async def test_a_scheduled_job_is_created_explained_and_seen_to_fire(page: Page):
    await page.goto("/jobs/new")
    await page.get_by_label("Name", exact=True).fill("tick")
    await page.get_by_role("textbox", name="Command").fill("echo tock")
    await page.get_by_role("button", name="Interval").click()
    await page.get_by_role("textbox", name="Every").fill("1s")
    await expect(page.get_by_text("Every second")).to_be_visible()
    await expect(page.locator(".next-times li")).to_have_count(10)

    await page.get_by_role("button", name="Create the job").click()

    await expect(page).to_have_url(re.compile("/jobs/tick$"))
    fired = page.get_by_role("row").filter(has_text="succeeded")
    await fired.get_by_role("link", name="tick").first.click()
    await expect(page.get_by_text("tock")).to_be_visible()


async def test_a_job_is_triggered_with_arguments(page: Page, site: Site):
    site.call("POST", "/jobs/greet/trigger", {"args": {"name": "Zoe", "times": 1}})
    await page.goto("/jobs/greet")
    await page.get_by_role("button", name="Trigger").click()
    form = page.get_by_role("dialog")
    await form.get_by_label("name", exact=True).fill("Ada")
    await form.get_by_label("times", exact=True).fill("two")
    await expect(form.get_by_text("This is not a number.")).to_be_visible()
    await form.get_by_label("times", exact=True).fill("2")
    await form.get_by_role("button", name="Run it now").click()

    await expect(page.get_by_text('"Hello, Ada Hello, Ada"')).to_be_visible()


async def test_a_refused_job_says_what_is_wrong_at_its_field(page: Page):
    await page.goto("/jobs/new")
    await page.get_by_label("Name", exact=True).fill("wrong")
    await page.get_by_role("textbox", name="Command").fill("true")
    await page.get_by_label("Timeout of a try").fill("soon")
    await page.get_by_role("button", name="Create the job").click()

    wrong = page.locator(".field", has=page.get_by_label("Timeout of a try")).get_by_role("alert")
    await expect(wrong).to_be_visible()


async def test_texts_of_users_are_never_html(page: Page, site: Site):
    job = {"name": "evil", "command": "true", "schedule": "manual", "description": EVIL}
    site.call("POST", "/jobs", job)
    failed = site.call("POST", "/jobs/fail/trigger", {"args": {"text": EVIL}})["execution_id"]
    site.call("POST", "/jobs/greet/trigger", {"args": {"name": EVIL}, "unique_key": EVIL})
    site.call("POST", "/events", {"type": "evil", "data": {"text": EVIL}})
    order = site.call("POST", "/jobs/order/trigger", {"args": {"number": 7}})["execution_id"]

    details = (f"/executions/{failed}", f"/executions/{order}/log")
    for path in ("/jobs/evil", "/dead-letters", "/executions", "/events", *details):
        await page.goto(path)
        await expect(page.get_by_text("onerror=").first).to_be_visible()
        assert await page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
        assert "owned" not in await page.title()


async def test_a_waiting_execution_is_approved(page: Page, site: Site):
    order = site.call("POST", "/jobs/order/trigger", {"args": {"number": 8}})["execution_id"]
    await page.goto(f"/executions/{order}")
    await page.get_by_role("button", name="Approve").click()
    await page.get_by_role("dialog").get_by_role("button", name="Send").click()

    await expect(page.get_by_text('"shipped"')).to_be_visible()


async def test_the_graph_of_a_run_turns_green(page: Page, site: Site):
    run = site.call("POST", "/jobs/chain/trigger")["execution_id"]
    await page.goto(f"/executions/{run}/graph")

    await expect(page.locator(".graph-node.edge-ok")).to_have_count(2)


async def test_a_paused_queue_is_why_an_execution_waits(page: Page, site: Site):
    await page.goto("/queues")
    row = page.get_by_role("row").filter(has=page.get_by_text("default", exact=True))
    await row.get_by_role("button", name="Pause", exact=True).click()
    await page.get_by_role("button", name="Pause it").click()
    await expect(row.get_by_text("paused")).to_be_visible()

    waiting = site.call("POST", "/jobs/greet/trigger", {"args": {"name": "Bob"}})["execution_id"]
    await page.goto(f"/executions/{waiting}")
    await expect(page.get_by_text("queue paused")).to_be_visible()

    site.call("POST", "/queues/default/resume")
    await expect(page.get_by_text('"Hello, Bob"')).to_be_visible()


async def test_a_viewer_sees_no_actions_and_cannot_act(page: Page, site: Site, guarded: Site):
    token = site.call("POST", "/keys", {"name": "guest", "role": "viewer"})["token"]
    await page.goto(f"{guarded.url}/jobs/greet")
    await page.get_by_label("Key", exact=True).fill(str(token))
    await page.get_by_role("button", name="Log in").click()

    await expect(page.get_by_text("default · viewer")).to_be_visible()
    for name in ("Trigger", "Edit", "Delete greet"):
        await expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    status = await page.evaluate(
        """fetch("/api/v1/jobs/greet/trigger", {method: "POST", body: "{}",
            headers: {"Content-Type": "application/json"}}).then((answer) => answer.status)"""
    )
    assert status == 403


async def test_an_operator_acts_until_the_key_is_revoked(page: Page, site: Site, guarded: Site):
    key = site.call("POST", "/keys", {"name": "brief", "role": "operator"})
    opened = await page.request.post(f"{guarded.url}/api/v1/session", data={"key": key["token"]})
    assert opened.ok
    await page.goto(f"{guarded.url}/jobs/first")
    await expect(page.get_by_text("default · operator")).to_be_visible()
    await page.get_by_role("button", name="Trigger").click()
    await page.get_by_role("button", name="Run it now").click()
    await expect(page.get_by_role("heading", name="Result")).to_be_visible()

    site.call("POST", f"/keys/{key['key_id']}/revoke")

    await expect(page.get_by_role("heading", name="Log in with a key")).to_be_visible()
    await page.get_by_label("Key", exact=True).fill("dbk_" + "x" * 40)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_be_visible()


async def test_the_palette_finds_a_job_by_keys_alone(page: Page):
    await page.goto("/")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("gree")
    await expect(page.get_by_role("option", name="greet", exact=False).first).to_be_visible()
    await page.keyboard.press("Enter")

    await expect(page).to_have_url(re.compile("/jobs/greet$"))


async def test_a_page_survives_a_restart_of_its_server(page: Page, site: Site):
    await page.goto("/jobs")
    await expect(page.get_by_role("button", name="Live")).to_be_visible()

    site.stop()
    await expect(
        page.get_by_role("status").get_by_text(re.compile("Reconnecting|Stale"))
    ).to_be_visible()
    await expect(page.get_by_role("row").filter(has_text="greet")).to_be_visible()
    site.start()

    await expect(page.get_by_role("button", name="Live")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_nothing_serious_on_any_page(page: Page, site: Site, theme: str):
    node()
    axe = (PACKAGES / "axe-core" / "axe.min.js").read_text()
    site.call("POST", "/jobs/fail/trigger", {"args": {"text": "broken"}})
    run = site.call("POST", "/jobs/chain/trigger")["execution_id"]
    await page.emulate_media(color_scheme="light" if theme == "light" else "dark")
    found: dict[str, list[str]] = {}

    for path in [
        *PAGES,
        *(f"/executions/{run}{tab}" for tab in ("", "/graph", "/chart", "/history")),
    ]:
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        await page.evaluate(axe)
        results = await page.evaluate(f"axe.run(document, {{runOnly: {RULES[theme]}}})")
        for one in results["violations"]:
            if one["impact"] in ("serious", "critical"):
                places = [each["html"][:160] for each in one["nodes"][:3]]
                found.setdefault(path, []).append(f"{one['id']}: {places}")

    assert not found, json.dumps(found, indent=1)


async def test_the_first_page_and_all_of_it_stay_small(page: Page):
    sizes: dict[str, int] = {}

    async def note(response):
        if response.url.endswith(".js"):
            headers = await response.all_headers()
            sizes[response.url] = int(headers["content-length"])

    page.on("response", note)
    await page.goto("/")
    await expect(page.get_by_role("button", name="Live")).to_be_visible()

    assert 50_000 < sum(sizes.values()) <= 150_000, sizes
