"""A folder with a user's app or store in it."""

import pytest

from daybell.store.open import store_for
from tests.cli.terminal import TYPING

APP = """\
import asyncio, os, signal, time
from daybell.sdk.app import App

app = App()

@app.task
async def greet(name: str = "you") -> str:
    return f"Hello, {name}"

@app.task(retries=0)
async def fail() -> None:
    raise ValueError("no \\x1b[31mgood")

@app.task(queue="slow")
async def nap(seconds: float) -> str:
    print("napping", flush=True)
    await asyncio.sleep(seconds)
    return "rested"

@app.task(queue="slow")
async def block(seconds: float) -> None:
    hear = signal.getsignal(signal.SIGINT)

    def tell(number, frame):
        hear(number, frame)
        print("heard", flush=True)

    signal.signal(signal.SIGINT, tell)
    print("blocking", flush=True)
    time.sleep(seconds)

@app.task
async def whoami() -> int:
    return os.getpid()
"""


@pytest.fixture
def folder(tmp_path):
    """Where the user is; it holds app.py."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
async def store(tmp_path):
    """The store of the folder, open."""
    store = store_for(f"sqlite:///{tmp_path}/daybell.db")
    await store.migrate()
    await store.open()
    yield store
    await store.close()


@pytest.fixture(autouse=True)
def hang_up():
    """Nobody goes on reading from a terminal when a test is over, however it went."""
    yield
    while TYPING:
        TYPING.pop().close()
