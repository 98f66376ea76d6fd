"""The sources of the dashboard: the types of the API, and the format."""

from tests.browser.chromium import node
from tools.web_types import JOB_OPTIONS, TYPES, render, render_options, run_prettier


def test_the_types_of_the_dashboard_are_those_of_the_api():
    assert TYPES.read_text() == render(node()), "they are stale; run: make web-types"


def test_the_options_of_the_dashboard_are_those_of_the_table():
    assert JOB_OPTIONS.read_text() == render_options(), "they are stale; run: make web-types"


def test_the_sources_of_the_dashboard_are_formatted():
    assert run_prettier(node(), "--list-different") == [], "run: make web-types"
