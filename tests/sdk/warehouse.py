"""The tasks of a small warehouse, and what workflows of them look like."""

import json
from typing import Any

from daybell import App
from daybell.sdk.workflow import Workflow


def a_warehouse() -> App:
    """An app with the tasks of a small warehouse."""
    app = App("memory://")

    @app.task
    def extract():
        return {"rows": [1, 2, 3]}

    @app.task(queue="heavy", retries=7, timeout="30s")
    def clean(extract):
        return extract["rows"]

    @app.task
    def count(extract, factor: int = 1):
        return len(extract["rows"]) * factor

    @app.task
    def load(rows, table: str = "t"):
        return [rows, table]

    @app.task
    def nap():
        return None

    return app


class Tasks:
    """An app's tasks as attributes."""

    def __init__(self, app):
        self.__dict__ |= app.tasks


def graph(workflow: Workflow) -> dict[str, Any]:
    return json.loads(workflow.definition.settings)


def nodes(workflow: Workflow) -> dict[str, Any]:
    return {node["name"]: node for node in graph(workflow)["nodes"]}


def edges(workflow: Workflow) -> list[list[str]]:
    return [
        edge if isinstance(edge, list) else list(edge.values())
        for edge in graph(workflow).get("edges", [])
    ]
