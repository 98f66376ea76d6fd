"""The dashboard in a real browser, at a real server."""

import asyncio
import json
import os
import re
import shlex
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote
from zoneinfo import ZoneInfo

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.app import EVIL
from tests.browser.chromium import PACKAGES, ROOT, node
from tests.browser.conftest import Site
from tests.cli.terminal import SECONDS, daybell, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=SECONDS * 1000)

# A theme changes colours alone.
RULES = {"light": ["wcag2a", "wcag2aa", "wcag21aa"], "dark": ["color-contrast"]}
TABS = 200
ASSETS = ROOT / "src" / "daybell" / "dashboard" / "assets"
ALL_TEXT = """document.querySelector("main").innerText
    + [...document.querySelectorAll("main input, main textarea")].map((one) => one.value)"""
PAGES = [
    "/", "/jobs", "/jobs/new", "/jobs/greet", "/jobs/greet?do=trigger", "/executions", "/workflows",
    "/workflows/chain", "/calendar", "/dead-letters", "/queues", "/workers", "/events", "/settings",
    "/settings/keys", "/settings/audit", "/settings/alerts", "/settings/tenants", "/alerts",
    "/alerts/rules", "/alerts/subscriptions",
    "/logs", "/jobs/greet/why", "/jobs/greet/webhooks", "/queues/limits",
]  # fmt: skip


async def test_a_first_visit_shows_what_goes_on_and_that_it_is_live(page: Page):
    await page.goto("/")

    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await expect(page.get_by_role("button", name="Live")).to_be_visible()
    await expect(page.get_by_role("link", name=re.compile("Workers 1"))).to_be_visible()


@pytest.mark.parametrize("broken", ["language", "chunk"])
async def test_a_page_is_not_loaded_again_and_again(page: Page, broken: str):
    """A browser without a locale has a language that is none; a part may be missing for good."""
    if broken == "language":
        await page.add_init_script(
            "Object.defineProperty(navigator, 'language',"
            " {value: 'en-US@posix', configurable: true})"
        )
    else:
        await page.route("**/assets/calendar-*.js", lambda route: route.abort())
    loads = list[str]()
    page.on("load", lambda one: loads.append(one.url))

    await page.goto("/" if broken == "language" else "/calendar")
    if broken == "language":
        await expect(page.get_by_role("img", name=re.compile("Ended executions"))).to_be_visible()
        assert len(loads) == 1
    else:
        await expect(page.get_by_role("heading", name="This page failed")).to_be_visible()
        assert len(loads) == 2


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


async def test_a_job_is_triggered_with_the_arguments_of_its_code(page: Page):
    await page.goto("/jobs/greet")
    await page.get_by_role("button", name="Trigger").click()
    form = page.get_by_role("dialog")
    await form.get_by_label("name", exact=True).fill("Ada")
    await form.get_by_label("times", exact=True).fill("two")
    await expect(form.get_by_text("This is not a whole number.")).to_be_visible()
    await form.get_by_label("times", exact=True).fill("2")
    await form.get_by_role("button", name="Run it now").click()

    await expect(page.get_by_text('"Hello, Ada Hello, Ada"')).to_be_visible()


async def test_a_list_is_sorted_and_its_rows_change_without_being_asked_for(page: Page, site: Site):
    for seconds in (0.3, 0, 0.1):
        site.call("POST", "/jobs/nap/trigger", {"args": {"seconds": seconds}})
    asked = list[str]()
    page.on("request", lambda one: asked.append(one.url))

    await page.goto("/executions?q=job:nap")
    table = page.get_by_role("table", name="Executions")
    # The pointer is on the list: it holds rows on top back only if the newest come first.
    for column, order, first in (
        ("Ran", "descending", "0.3"),
        ("Ran", "ascending", "0}"),
        ("Created", "descending", "0.1"),
        ("Created", "ascending", "0.3"),
    ):
        await table.get_by_role("button", name=column).click()
        head = table.get_by_role("columnheader", name=column)
        await expect(head).to_have_attribute("aria-sort", order)
        await expect(table.get_by_role("row").nth(1)).to_contain_text(f'"seconds":{first}')
    before = sum("/api/v1/executions?" in one for one in asked)
    site.call("POST", "/jobs/nap/trigger", {"args": {"seconds": 0.2}})

    await expect(table.get_by_role("row").last).to_contain_text('"seconds":0.2')
    assert any("/api/v1/stream?" in one for one in asked)
    assert sum("/api/v1/executions?" in one for one in asked) == before


async def test_two_runs_of_a_workflow_are_compared_node_by_node(page: Page, site: Site):
    for _ in range(2):
        site.call("POST", "/jobs/chain/trigger", {})

    await page.goto("/workflows/chain")
    await expect(
        page.get_by_role("region", name="Nodes and runs").get_by_role("link")
    ).not_to_have_count(0)
    await page.get_by_role("link", name="Compare runs").click()

    await expect(page.get_by_role("table", name="Nodes of both runs")).to_contain_text("second")


async def test_a_webhook_is_made_and_its_address_fires_the_job(page: Page, site: Site):
    await page.goto("/jobs/receive/webhooks")
    await page.get_by_role("button", name="New webhook").click()
    await page.get_by_role("dialog").get_by_label("Name", exact=True).fill("shop")
    await page.get_by_role("dialog").get_by_role("button", name="Make it").click()
    address = await page.get_by_role("dialog").locator("code").inner_text()
    async with httpx.AsyncClient(timeout=SECONDS) as client:
        answer = await client.post(address, json={"order": 7})
    assert answer.status_code < 300, answer.text
    await page.get_by_role("dialog").get_by_role("button", name="Close").click()

    await expect(page.get_by_role("table", name="Webhooks")).to_contain_text("shop")
    await page.goto("/executions?q=job:receive")
    await expect(page.get_by_role("table", name="Executions")).to_contain_text("receive")


# From the first page: a page of the navigation, links on it, and a text that answers.
QUESTIONS = {
    "which job failed last, and why?": ([], "the disk is full"),
    "what waits for an approval?": ([], "waits for approval"),
    "when does nightly run next?": (["Jobs", "nightly"], r"Next run\s+in \d+ (d|h|min)"),
    "when does it run, in words?": (["Jobs", "nightly"], "At 02:30"),
    "who is its owner?": (["Jobs", "nightly"], r"Owner\s+billing"),
    "why does it not run?": (["Jobs", "nightly", "Why"], "until the audit is over"),
    "what was changed in it, and by whom?": (
        ["Jobs", "nightly", "Versions"],
        r"dev[^\n]*\n+description",
    ),
    "which worker ran greet?": (["Jobs", "greet", "greet"], r"Worker\s+dev@"),
    "with which arguments, and with which result?": (["Jobs", "greet", "greet"], "Hello, Grace"),
    "what did order log?": (["Jobs", "order", "order", "Log"], "order 9"),
    "how long did each node of chain take?": (
        ["Executions", "chain", "Chart"],
        r"second\s+.*\d m?s",
    ),
    "who serves a queue?": (["Workers"], r"dev@[^$]*default"),
}


async def test_a_newcomer_answers_questions_from_the_first_page(page: Page, site: Site):
    job = {"name": "nightly", "command": "true", "schedule": "30 2 * * *", "user_id": "billing"}
    site.call("POST", "/jobs", job)
    site.call("PATCH", "/jobs/nightly", {"description": "Books of the day"})
    site.call("POST", "/jobs/order/trigger", {"args": {"number": 9}})
    site.call("POST", "/jobs/chain/trigger", {})
    site.call("POST", "/jobs/greet/trigger", {"args": {"name": "Grace"}})
    site.call("POST", "/jobs/fail/trigger", {"args": {"text": "the disk is full"}})

    for question, (links, answer) in QUESTIONS.items():
        await page.goto("/")
        if question == "why does it not run?":
            site.call("POST", "/jobs/nightly/pause", {"note": "until the audit is over"})
        for at, name in enumerate(links):
            place = (
                page.get_by_role("navigation", name="Pages") if at == 0 else page.locator("main")
            )
            await place.get_by_role("link", name=re.compile(f"^{name}")).first.click()
        async with asyncio.timeout(SECONDS):
            while not re.search(answer, text := await page.evaluate(ALL_TEXT)):
                await page.wait_for_timeout(50)
        assert text, question


async def test_a_subscription_is_made_and_its_test_event_is_delivered(page: Page, site: Site):
    await page.goto("/alerts/subscriptions")
    await page.get_by_role("button", name="New subscription").click()
    form = page.get_by_role("dialog")
    await form.get_by_label("Name", exact=True).fill("chat")
    await form.get_by_label("Address", exact=True).fill("nowhere")
    await form.get_by_role("button", name="Create it").click()
    address = page.get_by_label("Address", exact=True)
    await expect(page.locator(".field", has=address).get_by_role("alert")).to_be_visible()
    await address.fill(f"{site.url}/healthz")
    await form.get_by_label("Job", exact=True).fill("nosuch*")
    await form.get_by_role("button", name="Create it").click()

    row = page.get_by_role("row").filter(has_text="chat")
    await row.get_by_role("button", name="Test").click()
    await row.get_by_role("link", name="Executions").click()
    await expect(page.get_by_role("table", name="Executions")).to_contain_text("events:chat")
    await page.goto("/alerts/subscriptions")
    await row.get_by_role("button", name="Delete chat").click()
    await page.get_by_role("button", name="Delete it").click()
    await expect(page.get_by_text("There is no subscription yet")).to_be_visible()


async def test_a_refused_job_says_what_is_wrong_at_its_field(page: Page):
    await page.goto("/jobs/new")
    await page.get_by_label("Name", exact=True).fill("wrong")
    await page.get_by_role("textbox", name="Command").fill("true")
    await page.get_by_label("Timeout", exact=True).fill("soon")
    await page.get_by_role("button", name="Create the job").click()

    timeout = page.get_by_label("Timeout", exact=True)
    await expect(page.locator(".field", has=timeout).get_by_role("alert")).to_be_visible()


async def test_any_option_of_a_job_is_found_set_shown_and_kept(page: Page, site: Site):
    await page.goto("/jobs/new")
    await page.get_by_label("Name", exact=True).fill("flow")
    await page.get_by_role("textbox", name="Command").fill("true")
    await page.get_by_role("button", name="By hand").click()
    await page.get_by_label("Concurrency", exact=True).fill('{"limit": 2, "key": "account"}')
    await page.get_by_role("button", name=re.compile("All options")).click()
    await page.get_by_label("Find an option").fill("latest execution")
    await expect(page.get_by_label("Debounce", exact=True)).to_have_count(0)
    await page.get_by_label("Throttle", exact=True).fill("1/10m")
    await page.get_by_role("button", name="Create the job").click()
    await expect(page).to_have_url(re.compile("/jobs/flow$"))

    await page.goto("/jobs/flow/definition")
    await expect(page.get_by_text("limit 2, key account")).to_be_visible()
    await page.get_by_role("button", name="Edit").click()
    await expect(page.get_by_label("Throttle", exact=True)).not_to_have_value("")
    await page.get_by_label("Timeout", exact=True).fill("5m")
    await page.get_by_role("button", name="Save as a new version").click()
    await expect(page).to_have_url(re.compile("/jobs/flow$"))

    job = site.call("GET", "/jobs/flow")
    assert job["timeout"] == 300
    assert job["concurrency"] == [{"limit": 2, "key": "account"}]
    assert job["throttle"]["period"] == 600
    [*_, change] = sorted(
        site.call("GET", "/jobs/flow/versions")["items"], key=lambda v: v["version"]
    )
    assert [one["field"] for one in change["changes"]] == ["timeout"]


async def test_a_limit_names_the_executions_that_have_it_and_counts_those_that_wait(
    page: Page, site: Site
):
    ids = [
        site.call("POST", "/jobs/in_turn/trigger", {"args": {"seconds": 600}})["execution_id"]
        for _ in range(3)
    ]
    await page.goto("/queues/limits")
    row = page.get_by_role("row").filter(has_text="in_turn")
    await expect(row.get_by_role("cell").nth(3)).to_have_text("2")
    await row.get_by_role("button", name="in_turn").click()

    form = page.get_by_role("dialog")
    await expect(form.locator(f"a[href='/executions/{ids[0]}']")).to_have_text("in_turn")
    await form.get_by_role("link", name="2 waiting").click()
    table = page.get_by_role("table", name="Executions")
    for one, count in zip(ids, (0, 1, 1), strict=True):
        await expect(table.locator(f"a[href='/executions/{one}']")).to_have_count(count)
    site.call("POST", "/executions/cancel", {"ids": ids})


async def test_texts_of_users_are_never_html(page: Page, site: Site):
    job = {
        "name": "evil", "command": ["echo", EVIL], "schedule": "0 0 1 1 *", "description": EVIL,
        "user_id": EVIL, "env": {"EVIL": EVIL},
    }  # fmt: skip
    site.call("POST", "/jobs", job)
    site.call("PATCH", "/jobs/evil", {"description": f"{EVIL}!"})
    site.call("POST", "/jobs/evil/pause", {"note": EVIL})
    failed = site.call("POST", "/jobs/fail/trigger", {"args": {"text": EVIL}})["execution_id"]
    key = {"args": {"name": EVIL}, "unique_key": EVIL}
    greeted = site.call("POST", "/jobs/greet/trigger", key)["execution_id"]
    echoed = site.call("POST", "/jobs/evil/trigger")["execution_id"]
    site.call("POST", "/events", {"type": "evil", "data": {"text": EVIL}})
    order = site.call("POST", "/jobs/order/trigger", {"args": {"number": 7}})["execution_id"]

    places = {
        "": ["/", f"/executions?q={quote(json.dumps(EVIL))}"],  # may say it, or not
        "onerror=": [
            "/jobs/evil", "/jobs/evil/definition", "/jobs/evil/versions", "/jobs/evil/edit",
            "/dead-letters", "/executions", "/events", "/settings/audit",
            f"/executions/{failed}", f"/executions/{greeted}", f"/executions/{order}/log",
            f"/executions/{order}/steps", f"/executions/{echoed}/log",
            f"/executions/{greeted}/compare?with={failed}",
        ],
    }  # fmt: skip
    for text, paths in places.items():
        for path in paths:
            await page.goto(path)
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            async with asyncio.timeout(SECONDS):
                while text not in await page.evaluate(ALL_TEXT):
                    await page.wait_for_timeout(20)
            assert await page.evaluate("document.querySelectorAll('img[src=x]').length") == 0, path
            assert "owned" not in await page.title(), path


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
    await page.get_by_role("button", name="Undo").click()
    await expect(row.get_by_text("paused")).to_have_count(0)
    await row.get_by_role("button", name="Pause", exact=True).click()
    await page.get_by_role("button", name="Pause it").click()
    await expect(row.get_by_text("paused")).to_be_visible()

    waiting = site.call("POST", "/jobs/greet/trigger", {"args": {"name": "Bob"}})["execution_id"]
    await page.goto(f"/executions/{waiting}")
    await expect(page.get_by_text("queue paused")).to_be_visible()

    site.call("POST", "/queues/default/resume")
    await expect(page.get_by_text('"Hello, Bob"')).to_be_visible()


async def test_a_log_is_followed_line_by_line_while_its_execution_runs(page: Page, site: Site):
    talk = site.call("POST", "/jobs/talk/trigger")["execution_id"]
    await page.goto(f"/executions/{talk}/log")
    log = page.get_by_role("log")

    for number in (1, 2, 3):
        await expect(log.get_by_text(f"line {number} of 3")).to_be_visible()
        await expect(log.get_by_text(f"line {number + 1} of 3")).to_have_count(0)
        if number < 3:
            await expect(page.get_by_role("status").get_by_text("live")).to_be_visible()
        (site.folder / f"heard-{number}").touch()
    await expect(page.get_by_text("3 lines, complete")).to_be_visible()

    await page.get_by_label("Level").select_option("warning")
    await expect(log.locator(".log-line")).to_have_count(1)
    await expect(log.get_by_text("line 2 of 3")).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download").click()
    saved = (await (await download.value).path()).read_text()
    assert [line.rpartition("line ")[2] for line in saved.splitlines()] == [
        "1 of 3", "2 of 3", "3 of 3",
    ]  # fmt: skip

    await page.goto("/logs")
    await page.get_by_label("Text", exact=True).fill("line 2 of")
    found = page.get_by_role("table", name="Log lines")
    await expect(found.get_by_text("line 2 of 3")).to_be_visible()
    await expect(found.get_by_text("line 1 of 3")).to_have_count(0)


async def test_five_thousand_dead_letters_are_retried_at_once(page: Page, site: Site):
    number = 5_000
    site.call("POST", "/executions", [{"job": "break_down"}] * number)
    until(lambda: site.call("GET", "/counts?q=queue:bulk")["executions"].get("dead") == number)
    site.call("POST", "/queues/bulk/pause")
    site.call("POST", "/jobs/fail/trigger", {"args": {"text": "another"}})
    # Texts of the dialog: the progress may be gone before a look at it.
    await page.add_init_script(
        """window.texts = new Set();
        new MutationObserver(() => 
            document.querySelectorAll("dialog, .toast").forEach((one) => texts.add(one.innerText)))
            .observe(document, {subtree: true, childList: true, characterData: true});"""
    )

    await page.goto("/dead-letters?q=queue:bulk")
    # The server counts 1,000 in a request: the page adds them up.
    await expect(page.locator(".dead-group .badge")).to_have_text("5,000")
    await page.locator(".page-head").get_by_role("button", name="Retry").click()
    form = page.get_by_role("dialog")
    await expect(form.get_by_text("5,000 executions")).to_be_visible()
    retry = form.get_by_role("button", name="Retry them")
    await expect(retry).to_be_disabled()
    await form.get_by_label("Type 5000 to confirm").fill("500")
    await expect(retry).to_be_disabled()
    await form.get_by_label("Type 5000 to confirm").fill("5000")
    await retry.click()

    await expect(page.get_by_text("No dead letter matches")).to_be_visible()
    async with asyncio.timeout(SECONDS):  # the list and the notice come in any order
        while "5,000 revived" not in (texts := "\n".join(await page.evaluate("[...window.texts]"))):
            await page.wait_for_timeout(50)
    told = [int(one.replace(",", "")) for one in re.findall(r"([\d,]+) done…", texts)]
    assert any(0 < one < number for one in told), told
    assert site.call("GET", "/counts?q=queue:bulk")["executions"] == {"queued": number}
    assert site.call("GET", "/counts?dead_letters=true")["executions"]["dead"] > 0
    site.call("POST", "/queues/bulk/purge")


async def test_an_alert_rule_is_made_silenced_and_its_incident_acknowledged(page: Page, site: Site):
    await page.goto("/alerts/rules")
    await page.get_by_role("button", name="New rule").click()
    form = page.get_by_role("dialog")
    await form.get_by_label("Name", exact=True).fill("broken")
    await form.get_by_label("Condition").select_option("failures")
    await form.get_by_label("Number of executions").fill("many")
    await form.get_by_role("button", name="Create it").click()
    await expect(form.get_by_role("alert").first).to_be_visible()
    await form.get_by_label("Number of executions").fill("1")
    await form.get_by_role("button", name="Create it").click()
    await expect(page.get_by_role("row").filter(has_text="broken")).to_be_visible()
    assert site.call("GET", "/alerts/broken")["count"] == 1

    site.call("POST", "/jobs/fail/trigger", {"args": {"text": "for the alert"}})
    await page.goto("/")
    attention = page.locator("section", has=page.get_by_role("heading", name="Needs attention"))
    await expect(attention.get_by_role("link", name="fail", exact=True)).to_be_visible()

    await page.goto("/alerts")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="fail", exact=True))
    await row.get_by_role("button", name="Silence").click()
    await page.get_by_role("dialog").get_by_label("Reason").fill(EVIL)
    await page.get_by_role("button", name="Silence it").click()
    await row.get_by_role("button", name="Acknowledge").click()
    await expect(row.get_by_text("acknowledged")).to_be_visible()
    assert site.call("GET", "/alerts/broken")["silenced_until"] is not None
    assert await page.evaluate("document.querySelectorAll('img[src=x]').length") == 0


def next_change(zone: str, *, forward: bool) -> date:
    """The next day, not today, on which the clocks of a zone go forward, or back."""
    day = datetime.now(UTC).date() + timedelta(days=1)
    while True:
        at = [datetime.combine(one, time(), ZoneInfo(zone)) for one in (day, day + timedelta(1))]
        before, after = (one.utcoffset() or timedelta() for one in at)
        if before != after and (after > before) is forward:
            return day
        day += timedelta(days=1)


async def test_the_calendar_marks_the_hours_that_a_clock_skips_or_has_twice(page: Page, site: Site):
    job = {"name": "daily", "command": "true", "schedule": {"cron": "0 12 * * *"}}
    site.call("POST", "/jobs", job)
    marked = page.locator(".calendar-cell[data-clock]")
    for is_forward, mark in ((True, "none"), (False, "twice")):
        day = next_change("Europe/Berlin", forward=is_forward)
        week = (day - datetime.now(UTC).date()).days // 7

        await page.goto(f"/calendar?tz=Europe/Berlin&week={week}")

        await expect(marked).to_have_count(1)
        await expect(marked).to_have_attribute("data-clock", mark)
        await expect(marked).to_have_attribute("aria-label", re.compile(f"^{day} 2:00"))
        await page.goto(f"/calendar?tz=Asia/Tokyo&week={week}")
        await expect(
            page.get_by_role("button", name=re.compile(" 21:00, 1 time")).first
        ).to_be_visible()
        await expect(marked).to_have_count(0)


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

    await page.keyboard.press("Control+k")
    await page.keyboard.type("greet")
    await page.get_by_role("option", name="Delete greet…").click()
    await expect(page.get_by_role("dialog", name="Delete greet?")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page).to_have_url(re.compile("/jobs/greet$"))


class Work(NamedTuple):
    """The load of a process."""

    cpu: float  # seconds
    threads: int
    bytes: int

    @classmethod
    def of(cls, pid: int) -> Self:
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")
        return cls(cpu, int(numbers[17]), int(numbers[21]) * os.sysconf("SC_PAGE_SIZE"))


async def test_two_hundred_tabs_cost_one_server_little(page: Page, site: Site):
    """Followers as tabs are, and a real tab among them that stays live. The work is counted per
    event that a tab gets.
    """
    topics = "&".join(f"topics={one}" for one in ("stats", "executions?limit=50", "jobs?limit=50"))
    await page.goto("/executions")
    await expect(page.get_by_role("button", name="Live")).to_be_visible()
    before = Work.of(site.pid)
    heard = dict[int, str]()
    is_over = asyncio.Event()
    news = asyncio.Condition()

    async def follow(client: httpx.AsyncClient, number: int) -> None:
        async with client.stream("GET", f"/api/v1/stream?{topics.replace('?l', '%3Fl')}") as stream:
            assert stream.status_code == 200
            heard[number] = ""
            async for text in stream.aiter_text():
                heard[number] += text
                async with news:
                    news.notify_all()
                if is_over.is_set():
                    return

    async def all_hear(text: str) -> None:
        async with asyncio.timeout(SECONDS), news:
            await news.wait_for(lambda: sum(text in one for one in heard.values()) == TABS)

    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=site.url, timeout=SECONDS, limits=limits) as client,
        asyncio.TaskGroup() as group,
    ):
        for number in range(TABS):
            group.create_task(follow(client, number))
        await all_hear("event: rows")
        ids = list[str]()
        for number in range(3):
            body = {"args": {"name": f"tab {number}"}}
            answer = await client.post("/api/v1/jobs/greet/trigger", json=body)
            ids.append(answer.json()["execution_id"])
            await all_hear(f'"Hello, tab {number}"')
        after = Work.of(site.pid)
        is_over.set()
        await client.post("/api/v1/jobs/greet/trigger", json={"args": {"name": "last"}})

    first = page.get_by_role("row").filter(has=page.locator(f"a[href='/executions/{ids[0]}']"))
    await expect(first.get_by_text("succeeded")).to_be_visible()
    await expect(page.get_by_role("button", name="Live")).to_be_visible()
    events = sum(one.count("\nevent: ") for one in heard.values())
    assert (after.cpu - before.cpu) / events < 0.005, (before, after, events)
    assert after.threads - before.threads < 10
    assert after.bytes - before.bytes < TABS * 1024 * 1024


async def test_a_page_survives_that_its_server_is_killed_and_started_again(page: Page, site: Site):
    await page.goto("/jobs")
    await expect(page.get_by_role("button", name="Live")).to_be_visible()
    await expect(page.get_by_role("row").filter(has_text="greet")).to_be_visible()

    site.stop()
    await expect(
        page.get_by_role("status").get_by_text(re.compile("Reconnecting|Stale"))
    ).to_be_visible()
    await expect(page.get_by_role("row").filter(has_text="greet")).to_be_visible()
    site.start()

    await expect(page.get_by_role("button", name="Live")).to_be_visible()


async def test_axe_finds_nothing_serious_on_any_page(page: Page, site: Site):
    node()
    axe = (PACKAGES / "axe-core" / "axe.min.js").read_text()
    site.call("POST", "/jobs/fail/trigger", {"args": {"text": "broken"}})
    run = site.call("POST", "/jobs/chain/trigger")["execution_id"]
    found: dict[str, list[str]] = {}
    grounds: set[str] = set()

    for path in [
        *PAGES,
        *(f"/executions/{run}{tab}" for tab in ("", "/graph", "/chart", "/history")),
    ]:
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        await page.evaluate(axe)
        for theme, rules in RULES.items():
            await page.emulate_media(color_scheme="light" if theme == "light" else "dark")
            grounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
            options = f"{{runOnly: {rules}, resultTypes: ['violations']}}"
            results = await page.evaluate(f"axe.run(document, {options})")
            for one in results["violations"]:
                if one["impact"] in ("serious", "critical"):
                    places = [each["html"][:160] for each in one["nodes"][:3]]
                    found.setdefault(f"{path} {theme}", []).append(f"{one['id']}: {places}")

    assert not found, json.dumps(found, indent=1)
    assert len(grounds) == len(RULES), "the themes look alike"


async def test_the_command_of_each_view_is_one_of_the_command_line(page: Page, site: Site):
    commands: set[str] = set()
    paths = ["/executions?q=job:nap%20status:dead", "/jobs?q=it's&status=dead", "/logs?q=a%20b"]
    paths += [f"/jobs/nap/{tab}" for tab in ("schedules", "versions", "why", "edit")]
    for path in [*PAGES, *paths]:
        await page.goto(path)
        button = page.get_by_role("button", name=re.compile("^Copy the command: "))
        label = await button.get_attribute("aria-label") or ""
        commands.add(label.removeprefix("Copy the command: "))

    assert len(commands) > 20
    for one in commands:
        ended = await asyncio.to_thread(
            daybell, *shlex.split(one)[1:], "--help", folder=site.folder
        )
        assert ended.code == 0, (one, ended.err)


async def test_the_first_page_and_all_of_it_stay_small(page: Page):
    assets = {one.name.removesuffix(".gz"): one.stat().st_size for one in ASSETS.glob("*.js.gz")}
    loaded: set[str] = set()
    page.on("response", lambda one: loaded.add(one.url.rpartition("/")[2]))

    await page.goto("/")
    await expect(page.get_by_role("img", name=re.compile("Ended executions"))).to_be_visible()

    first = {name: size for name, size in assets.items() if name in loaded}
    assert 50_000 < sum(first.values()) <= 150_000, first
    assert sum(first.values()) < sum(assets.values()) <= 300_000, assets
