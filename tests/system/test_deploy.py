"""Dashboards and alerts for deployments: they name metrics and labels that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml

from daybell.core.monitoring.metrics import METRICS, PREFIX

DEPLOY = Path(__file__).parents[2] / "deploy"
BOARDS = sorted(DEPLOY.glob("grafana/*.json"))
RULES = sorted(DEPLOY.glob("prometheus/*.yml"))
NAME = re.compile(rf"\b{PREFIX}(\w+)(\{{[^}}]*\}})?")
OWN = {"instance", "job_name", "le"}  # labels that Prometheus adds


def metric_of(name):
    """The metric of a series; of a histogram, by the name of one of its series."""
    for suffix in ("_bucket", "_sum", "_count"):
        base = name.removesuffix(suffix)
        if base != name and METRICS.get(base, METRICS["workers"]).kind == "histogram":
            return METRICS[base]
    metric = METRICS.get(name)
    return None if metric is None or metric.kind == "histogram" else metric


def problems(expression):
    """What an expression names that does not exist."""
    used = []
    for name, selector in NAME.findall(expression):
        metric = metric_of(name)
        if metric is None:
            yield f"no metric {PREFIX}{name}"
            continue
        used.append(metric)
        for label in re.findall(r"(\w+)=~?\"", selector):
            if label not in metric.labels:
                yield f"{name} has no label {label}"
    labels = {label for metric in used for label in metric.labels} | OWN
    for group in re.findall(r"\b(?:by|without|on) \(([^)]*)\)", expression):
        for label in filter(None, (one.strip() for one in group.split(","))):
            if label not in labels:
                yield f"no label {label}"


def expressions(board):
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if isinstance(variable["query"], dict):
            yield variable["name"], variable["query"]["query"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.name)
def test_a_dashboard_names_metrics_that_exist(path):
    found = list(expressions(json.loads(path.read_text())))

    assert len(found) > 10
    assert {where: list(problems(text)) for where, text in found if list(problems(text))} == {}


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_an_alert_names_metrics_that_exist_and_says_what_to_do(path):
    rules = [
        rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]
    ]

    assert len(rules) > 5
    for rule in rules:
        assert list(problems(rule["expr"])) == [], rule["alert"]
        assert {"summary", "action"} <= rule["annotations"].keys()
        known = {
            label
            for name, _ in NAME.findall(rule["expr"])
            if (metric := metric_of(name)) is not None
            for label in metric.labels
        }
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert used <= known, rule["alert"]


@pytest.mark.parametrize(
    "expression",
    [
        "daybell_queue_length",
        "daybell_run_seconds",
        "daybell_queue_depth_bucket",
        'daybell_queue_depth{kind="task"}',
        "sum by (kind) (daybell_queue_depth)",
    ],
)
def test_what_does_not_exist_is_found(expression):
    assert list(problems(expression))


def test_every_metric_is_in_the_guide():
    page = (DEPLOY.parent / "docs/guide/monitoring.md").read_text()

    assert {name for name in METRICS if f"`{PREFIX}{name}" not in page} == set()
