"""An app whose task logs in a process of its own, with the logging that its module sets up."""

import io
import logging
import os

from daybell import App, current_execution
from daybell.logging import ExecutionFilter

app = App(os.environ.get("LOGGING_APP_URL"))
said = io.StringIO()
handler = logging.StreamHandler(said)
handler.addFilter(ExecutionFilter())
handler.setFormatter(logging.Formatter("%(job)s %(execution_id)s %(attempt)s %(message)s"))
logger = logging.getLogger("tests.logging_app")


@app.task(isolation="process")
def speak() -> list[str]:
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.info("hello")
    found = current_execution()
    return [said.getvalue().strip(), str(found and found.id)]
