"""The types of the API that the dashboard is written against."""

from tests.browser.chromium import node
from tools.web_types import TYPES, render


def test_the_types_of_the_dashboard_are_those_of_the_api():
    assert TYPES.read_text() == render(node()), "they are stale; run: make web-types"
