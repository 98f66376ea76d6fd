"""The types of the API that the dashboard is written against."""

from tests.browser.chromium import node
from tools.web_types import JOB_OPTIONS, TYPES, render, render_options


def test_the_types_of_the_dashboard_are_those_of_the_api():
    assert TYPES.read_text() == render(node()), "they are stale; run: make web-types"


def test_the_options_of_the_dashboard_are_those_of_the_table():
    assert JOB_OPTIONS.read_text() == render_options(), "they are stale; run: make web-types"
