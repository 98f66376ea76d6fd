"""The names that users import are written down here, so that adding or losing one is a decision."""

import inspect
import subprocess
import sys

import pytest

import daybell

PUBLIC = [
    "App",
    "Approval",
    "Batch",
    "Calendar",
    "Client",
    "Conflict",
    "Context",
    "DaybellError",
    "ExecutionFailed",
    "ExecutionInTheWay",
    "Limit",
    "Misfire",
    "NotFound",
    "PermanentError",
    "ReceivedEvent",
    "RemoteClient",
    "Retry",
    "RetryLater",
    "Schedule",
    "SchemaError",
    "StepFailed",
    "StepsChanged",
    "Suspended",
    "Unavailable",
    "UsageError",
    "__version__",
    "after",
    "after_any",
    "any_of",
    "at",
    "cron",
    "current_execution",
    "every",
    "job",
    "on_event",
    "rrule",
]

# What only some roles need: a program that merely enqueues must not pay for the others' imports.
HEAVY = {
    "asyncpg",
    "fastapi",
    "httpx",
    "msgspec",
    "orjson",
    "pydantic",
    "rich",
    "typer",
    "uvicorn",
    "uvloop",
}


def test_the_public_names_are_the_documented_ones():
    assert daybell.__all__ == PUBLIC


def test_the_public_names_are_sorted():
    assert sorted(PUBLIC) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_can_be_imported_and_found(name):
    assert getattr(daybell, name) is not None
    assert name in dir(daybell)


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "__version__"])
def test_a_public_name_says_what_it_is_for(name):
    value = getattr(daybell, name)

    # An instance would answer with its class's docstring, a dataclass with its own signature.
    assert inspect.isclass(value) or inspect.isroutine(value)
    assert value.__doc__
    assert not value.__doc__.startswith(f"{name}(")


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = daybell.no_such_name  # type: ignore[attr-defined]


def test_importing_daybell_stays_light():
    code = "import daybell, sys; print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )

    loaded = {module.partition(".")[0] for module in done.stdout.split()}
    assert "daybell" in loaded
    assert not loaded & HEAVY
