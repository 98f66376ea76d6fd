"""The files of the dashboard, and the page until they are there."""

import gzip
import json
import os
import re
from pathlib import Path

import httpx
import pytest

from daybell.api.dashboard import Dashboard, is_page
from daybell.api.guard import Guard

STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a build leaves."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>a page")
    (tmp_path / "digest").write_text("0" * 64)
    (assets / "index-1a2b.js").write_text("run()")
    (assets / "index-1a2b.js.gz").write_bytes(gzip.compress(b"run()"))
    return tmp_path


async def api(scope, receive, send):
    """Answer as the API does behind the dashboard."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"api"})


async def ask(folder: Path, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    app = Guard(Dashboard(api, folder=folder), is_open=is_page)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.request(method, path, headers=headers)


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/a%2Fb/edit", "/executions?status=dead"])
async def test_every_page_gets_the_same_document_which_is_not_cached(folder, path):
    answer = await ask(folder, path)

    assert answer.text == "<!doctype html>a page"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"].startswith("text/html")
    assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    ["/api/v1/jobs", "/api/nope", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics"],
)
async def test_paths_of_the_api_stay_with_the_api(folder, path):
    assert (await ask(folder, path)).status_code == 299


async def test_assets_are_sent_compressed_and_cached_for_a_year(folder):
    answer = await ask(folder, "/assets/index-1a2b.js", **{"accept-encoding": "br;q=0, gzip"})

    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text == "run()"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"].startswith("text/javascript")


async def test_a_client_without_compression_gets_the_plain_file(folder):
    answer = await ask(folder, "/assets/index-1a2b.js", **{"accept-encoding": "gzip;q=0"})

    assert "content-encoding" not in answer.headers
    assert answer.content == b"run()"


@pytest.mark.parametrize("path", ["/assets/old.js", "/assets/../digest", "/assets/%2e%2e/digest"])
async def test_a_missing_asset_is_an_error_and_no_page(folder, path):
    answer = await ask(folder, path)

    assert answer.status_code == 404 or answer.text == "<!doctype html>a page"
    assert "0" * 64 not in answer.text


async def test_files_of_the_build_are_not_sent(folder):
    assert (await ask(folder, "/digest")).text == "<!doctype html>a page"


async def test_pages_can_only_be_read(folder):
    assert (await ask(folder, "/jobs", "POST")).status_code == 405
    head = await ask(folder, "/", "HEAD")
    assert (head.status_code, head.content) == (200, b"")


async def test_the_page_shows_the_progress_of_a_build_and_loads_itself_again(tmp_path):
    status = {"state": "building", "pid": os.getpid(), "of": 4, "step": "compiling", "number": 3}
    (tmp_path / "status.json").write_text(json.dumps(status))

    answer = await ask(tmp_path, "/jobs")

    assert "Step 3 of 4: compiling" in answer.text
    assert '<meta http-equiv=refresh content="1">' in answer.text
    assert answer.headers["cache-control"] == "no-store"


async def test_a_build_that_failed_says_why_and_what_to_do(tmp_path):
    status = {"state": "failed", "detail": "npm: <no network>"}
    (tmp_path / "status.json").write_text(json.dumps(status))

    answer = await ask(tmp_path, "/")

    assert "make web" in answer.text
    assert "npm: &lt;no network&gt;" in answer.text


async def test_a_build_whose_process_has_ended_is_not_under_way(tmp_path):
    (tmp_path / "status.json").write_text(json.dumps({"state": "building", "pid": 2**22 + 1}))

    assert "interrupted" in (await ask(tmp_path, "/")).text


async def test_without_a_build_the_page_names_the_command(tmp_path):
    answer = await ask(tmp_path / "nowhere", "/")

    assert answer.status_code == 200
    assert "make web" in answer.text
    # Its style is the only one that its policy allows.
    assert STYLE.search(answer.text)
    assert "'sha256-" in answer.headers["content-security-policy"]


async def test_a_dashboard_that_was_built_meanwhile_is_served(tmp_path):
    app = Guard(Dashboard(api, folder=tmp_path), is_open=is_page)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        before = await client.get("/")
        (tmp_path / "index.html").write_text("a new page")
        after = await client.get("/")

    assert "make web" in before.text
    assert after.text == "a new page"
