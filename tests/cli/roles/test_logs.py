"""`--log-level` and `--log-format` of all roles."""

import json

import pytest

from tests.cli.terminal import Running, daybell, until

APP = """\
import logging
from daybell import App, Context

app = App()
logger = logging.getLogger("shop")

@app.task(retries=0)
def sell(ctx: Context, number: int) -> None:
    logger.info("selling %d", number)
    logger.warning("few are left", extra={"left": 3})
    ctx.log.debug("details")
    ctx.log.info("sold")
    if number < 0:
        raise ValueError("negative")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    daybell("migrate", folder=tmp_path)
    return tmp_path


def lines(running):
    return [json.loads(line) for line in running.lines]


@pytest.mark.parametrize(
    ("words", "up"),
    [
        (["dev", "app:app", "--port", "0"], "is up after"),
        (["worker", "app:app"], r" runs sell of "),
        (["worker", "app:app", "--processes", "2"], r" runs sell of "),
        (["scheduler"], "looking after"),
        (["server", "--port", "0"], "listening"),
    ],
)
@pytest.mark.parametrize("way", ["flag", "environment", "file"])
def test_every_role_writes_json(folder, words, up, way):
    variable = ""
    if way == "flag":
        words = [*words, "--log-format", "json"]
    elif way == "environment":
        variable = "json"
    else:
        (folder / "daybell.toml").write_text('log_format = "json"\n')

    with Running(*words, folder=folder, DAYBELL_LOG_FORMAT=variable) as running:
        running.wait_for(up)

        for line in lines(running):
            assert {"time", "level", "logger", "message", "job", "execution_id", "attempt",
                    "exception"} <= set(line)  # fmt: skip


def test_records_of_a_task_name_its_execution(folder):
    with Running("worker", "app:app", "--log-format", "json", folder=folder) as running:
        running.wait_for(" runs sell of ")
        ended = daybell(
            "jobs", "trigger", "sell", "--args", '{"number": -1}', "--json", folder=folder
        )
        id = json.loads(ended.out)["execution_id"]
        running.wait_for('"dead sell')

        said = [line for line in lines(running) if line["job"] == "sell"]

    assert {(line["execution_id"], line["attempt"]) for line in said} == {(id, 1)}
    left, sold, dead = said
    assert (left["logger"], left["level"], left["message"], left["left"]) == (
        "shop", "warning", "few are left", 3,
    )  # fmt: skip
    assert (sold["logger"], sold["level"], sold["message"]) == ("daybell.task.sell", "info", "sold")
    assert (dead["level"], "ValueError: negative" in dead["message"]) == ("error", True)


def test_a_line_of_text_names_the_execution_of_a_task(folder):
    with Running("worker", "app:app", folder=folder) as running:
        running.wait_for(" runs sell of ")
        ended = daybell(
            "jobs", "trigger", "sell", "--args", '{"number": 1}', "--json", folder=folder
        )
        id = json.loads(ended.out)["execution_id"]

        running.wait_for(rf"WARNING shop \[sell {id} attempt 1\]: few are left")
        running.wait_for(rf"INFO    daybell.task.sell \[{id} attempt 1\]: sold")


@pytest.mark.parametrize(
    ("level", "written", "kept"),
    [
        ("debug", ["selling 1", "few are left", "details", "sold"], 4),
        ("info", ["selling 1", "few are left", "sold"], 3),
        ("error", [], 3),
    ],
)
def test_the_level_says_which_lines_are_written(folder, level, written, kept):
    with Running("worker", "app:app", "--log-level", level, folder=folder) as running:
        until(lambda: json.loads(daybell("workers", "list", "--json", folder=folder).out)["items"])
        ended = daybell(
            "jobs", "trigger", "sell", "--args", '{"number": 1}', "--json", folder=folder
        )
        id = json.loads(ended.out)["execution_id"]
        daybell("executions", "wait", id, folder=folder)

        said = [line for line in running.lines if id in line]

    assert [line.rpartition(": ")[2] for line in said] == written
    # What is kept with the execution does not depend on what is written, from info on.
    logs = daybell("executions", "logs", id, folder=folder).out.splitlines()
    assert len([line for line in logs if "shop" in line or "daybell.task" in line]) == kept


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--log-level", "loud"], "--log-level: 'loud' is not a level; there are debug, info"),
        (["--log-format", "xml"], "--log-format: 'xml' is not a format; there are text, json"),
    ],
)
@pytest.mark.parametrize("role", ["dev", "worker", "scheduler", "server"])
def test_a_wrong_word_is_refused(folder, role, words, said):
    ended = daybell(role, *words, folder=folder)

    assert ended.code == 2
    assert said in ended.err


def test_the_level_holds_for_what_is_told_of_executions(folder):
    words = ["dev", "app:app", "--port", "0", "--log-level", "error"]
    with Running(*words, folder=folder) as running:
        running.wait_for("is up after")
        for number in (1, -1):
            daybell("jobs", "trigger", "sell", "--args", f'{{"number": {number}}}', folder=folder)
        running.wait_for("dead .* sell")

        assert not [line for line in running.lines if "started" in line or "succeeded" in line]


def test_an_import_that_fails_is_json_too(folder):
    (folder / "broken.py").write_text("1 / 0\n")

    ended = daybell("worker", "broken", "--log-format", "json", folder=folder)

    where, why = map(json.loads, ended.err.splitlines())
    assert (ended.code, where["level"], why["level"]) == (2, "error", "error")
    assert "broken.py" in where["message"]
    assert "ZeroDivisionError" in why["message"]


def test_an_error_is_json_too(folder):
    ended = daybell("worker", "nothing:app", "--log-format", "json", folder=folder)

    assert ended.code == 2
    said = json.loads(ended.err)
    assert (said["level"], "no module 'nothing'" in said["message"]) == ("error", True)
