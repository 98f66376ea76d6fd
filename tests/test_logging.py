"""Which execution a log record is of, and records as JSON."""

import asyncio
import importlib
import json
import logging
import logging.config
import os
import sys
import threading
from contextvars import copy_context

import pytest

import daybell
from daybell import App, current_execution
from daybell.logging import ExecutionFilter, JsonFormatter
from tests.sdk.waiting import WAIT


@pytest.fixture
def records():
    """What was logged, through a handler with the filter."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[method-assign]
    handler.addFilter(ExecutionFilter())
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)


def test_outside_of_a_task_there_is_no_execution(records):
    logging.getLogger("shop").info("hello")

    assert daybell.current_execution() is None
    (record,) = records
    assert (record.job, record.execution_id, record.attempt) == (None, None, None)


async def test_records_of_tasks_carry_job_execution_and_attempt(records):
    app = App("memory://", tenant="default")

    @app.task(queue="slow")
    async def on_loop() -> None:
        logging.getLogger("shop").info("one")
        await asyncio.to_thread(logging.getLogger("shop").info, "two")

    @app.task
    def in_thread() -> dict[str, str]:
        logging.getLogger("shop").info("three")
        own = threading.Thread(
            target=copy_context().run, args=(logging.getLogger("shop").info, "4")
        )
        own.start()
        own.join()
        found = current_execution()
        assert found is not None
        return {name: str(value) for name, value in vars(found).items()} | {"id": str(found.id)}

    async with app, app.worker():
        first = await on_loop.enqueue()
        await first.result(timeout=WAIT)
        second = await in_thread.enqueue()
        found = await second.result(timeout=WAIT)

    said = [(one.getMessage(), one.job, one.execution_id, one.attempt) for one in records]
    assert said == [
        ("one", "on_loop", str(first.id), 1),
        ("two", "on_loop", str(first.id), 1),
        ("three", "in_thread", str(second.id), 1),
        ("4", "in_thread", str(second.id), 1),
    ]
    assert found == {
        "id": str(second.id),
        "execution_id": str(second.id),
        "job": "in_thread",
        "attempt": "1",
        "tenant": "default",
        "queue": "default",
        "run_id": "None",
        "node": "None",
    }


async def test_records_of_a_task_in_a_process_carry_them_too(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGGING_APP_URL", f"sqlite:///{tmp_path}/daybell.db")
    monkeypatch.delitem(sys.modules, "tests.sdk.logging_app", raising=False)
    logging_app = importlib.import_module("tests.sdk.logging_app")
    async with logging_app.app, logging_app.app.worker():
        handle = await logging_app.speak.enqueue()
        said = await handle.result(timeout=WAIT)

    assert said == [f"speak {handle.id} 1 hello", str(handle.id)]


def test_what_is_in_extra_is_kept_and_the_default_can_be_chosen():
    record = logging.makeLogRecord({"job": "mine"})

    assert ExecutionFilter("-").filter(record)

    assert (vars(record)["job"], vars(record)["execution_id"]) == ("mine", "-")


def test_the_filter_can_be_named_in_a_configuration(capsys):
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "filters": {"execution": {"()": "daybell.logging.ExecutionFilter", "default": "-"}},
            "formatters": {"json": {"()": "daybell.logging.JsonFormatter"}},
            "handlers": {
                "out": {
                    "class": "logging.StreamHandler",
                    "stream": "ext://sys.stdout",
                    "filters": ["execution"],
                    "formatter": "json",
                }
            },
            "loggers": {"configured": {"handlers": ["out"], "level": "INFO"}},
        }
    )
    logging.getLogger("configured").info("hello")

    assert json.loads(capsys.readouterr().out)["job"] == "-"


def test_a_record_as_json():
    try:
        raise ValueError("no \u2028 good")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.makeLogRecord(
        {"name": "shop", "levelno": 30, "levelname": "WARNING", "msg": "sold %s\n%d",
         "args": ("ä", 2), "created": 1_700_000_000.25, "exc_info": info, "order": 7, "who": object}
    )  # fmt: skip

    line = JsonFormatter(process="app-1").format(record)

    assert "\n" not in line
    said = json.loads(line)
    assert said.pop("exception").endswith("ValueError: no \u2028 good")
    assert said == {
        "time": "2023-11-14T22:13:20.250Z", "level": "warning", "logger": "shop",
        "message": "sold ä\n2", "job": None, "execution_id": None, "attempt": None,
        "process": "app-1", "order": 7, "who": "<class 'object'>",
    }  # fmt: skip


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_any_text_and_number_is_a_line_that_can_be_read():
    name = os.fsdecode(b"caf\xe9")
    record = logging.makeLogRecord(
        {"msg": name, "file": name, "rate": float("nan"), "most": float("inf"), "share": 0.5,
         "job": float("nan"), "stack_info": "Stack (most recent call last):\n  here"}
    )  # fmt: skip

    line = JsonFormatter().format(record).encode()

    said = json.loads(line, parse_constant=refuse_constant)
    assert (said["message"], said["file"]) == (name, name)
    assert (said["rate"], said["most"], said["share"], said["job"]) == ("nan", "inf", 0.5, "nan")
    assert said["stack"].endswith("here")


def test_a_record_that_cannot_be_formatted_is_a_line_all_the_same():
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError

    record = logging.makeLogRecord({"msg": "%d", "args": ("x",), "bad": Bad()})

    said = json.loads(JsonFormatter().format(record))

    assert "cannot be formatted: TypeError" in said["message"]
    assert "cannot be shown" in said["bad"]
