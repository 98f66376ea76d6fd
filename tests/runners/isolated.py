"""Functions to be run in child processes, which import this file to find them."""

# ruff: noqa: T201  # printing is what some of them are for

import asyncio
import ctypes
import io
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from daybell import Context
from daybell.runners.python import Interrupted

left_behind: list[bytes] = []


def whoami() -> int:
    return os.getpid()


async def whoami_async() -> int:
    return os.getpid()


def devices(ctx: Context) -> list[object]:
    return [os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES"), ctx.devices]


def echo(text: str) -> str:
    return text


def where() -> list[bool]:
    """Whether this is the main thread, without an event loop."""
    try:
        asyncio.get_running_loop()
        has_loop = True
    except RuntimeError:
        has_loop = False
    return [threading.current_thread() is threading.main_thread(), has_loop]


def meet(fifo: str, mode: str) -> int:
    """Wait for one who opens the same for the opposite."""
    with open(fifo, mode):
        return os.getpid()


def wait(ctx: Context, log: str) -> None:
    """Until it is interrupted, with a step in Python now and then."""
    try:
        ctx.progress(50, str(os.getpid()))  # it may be interrupted as soon as this is heard
        while True:
            signal.sigtimedwait([], 0.01)
    except Interrupted:
        Path(log).write_text(f"interrupted, cancelled: {ctx.is_cancelled}")
        raise
    finally:
        with open(log, "a") as file:
            file.write(", finally")


def watch(ctx: Context, ends: bool) -> str:
    """Look whether it is to stop, and perhaps do so."""
    is_told = ctx.is_cancelled
    ctx.progress(50, str(os.getpid()))
    while not (is_told and ends):
        signal.sigtimedwait([], 0.01)
        is_told = ctx.is_cancelled
    return "ended"


async def wait_async(ctx: Context, log: str) -> None:
    ctx.progress(50, str(os.getpid()))
    try:
        await asyncio.Event().wait()
    finally:
        with open(log, "w") as file:  # noqa: ASYNC230
            file.write(f"cancelled: {ctx.is_cancelled}")


def hang(ctx: Context) -> None:
    """Be deaf: in C, with the signal blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    ctx.progress(50, str(os.getpid()))
    ctypes.CDLL(None).pause()


def hang_with_program(ctx: Context) -> None:
    program = subprocess.Popen(["sleep", "1000"])
    ctx.progress(50, f"{os.getpid()} {program.pid}")
    program.wait()


def leave(code: int) -> None:
    os._exit(code)


def kill(number: int) -> None:
    os.kill(os.getpid(), number)


def close_everything() -> None:
    os.closerange(3, 1000)
    signal.pause()


def babble(first: int) -> None:
    """Write on whatever sockets there are."""
    for number in range(3, 100):
        try:
            with socket.socket(fileno=os.dup(number)) as line:
                line.send(first.to_bytes(1, "big") * 100)
        except OSError:
            continue
    signal.pause()


def print_all_ways() -> None:
    print("from Python")
    os.write(1, b"from a descriptor\n")
    ctypes.CDLL(None).puts(b"from C")
    subprocess.run(["echo", "from a program"], check=True)
    print("to stderr", file=sys.stderr)


def print_twice(fifo: str) -> None:
    print("first", flush=True)
    Path(fifo).read_text()
    print("second", flush=True)


def log_from_everywhere(ctx: Context) -> None:
    ctx.log.warning("from the %s", "context")
    thread = threading.Thread(target=logging.getLogger("mine").error, args=["from a thread"])
    thread.start()
    thread.join()
    try:
        raise LookupError("gone")
    except LookupError:
        logging.getLogger("mine").exception("half \ud800")


def fork_and_return(ctx: Context) -> str:
    """Both return; only one may be heard."""
    pid = os.fork()
    ctx.progress(10 if pid else 20, str(pid))
    if pid:
        os.waitpid(pid, 0)
    return "parent" if pid else "child"


def fork_and_leave(ctx: Context) -> None:
    """The other one goes on."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    ctx.progress(50, str(pid))


def grow(megabytes: int) -> int:
    left_behind.append(bytes(megabytes * 1_000_000))
    return os.getpid()


def set_alarm() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 60)


def heed_alarm() -> str:
    def ring(*_: object) -> None:
        raise TimeoutError("rang")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        signal.pause()
    except TimeoutError as error:
        return str(error)
    return "slept on"


def take_term_over() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def environment() -> list[str]:
    return sys.path


def show_state() -> list[float]:
    """What tasks may leave behind in a process: an alarm, and a limit of memory."""
    return [signal.getitimer(signal.ITIMER_REAL)[0], resource.getrlimit(resource.RLIMIT_AS)[0]]


def print_one(text: str) -> None:
    print(text, end="")


def print_and_log(text: str) -> int:
    print(text)
    logging.getLogger("mine").warning(text)
    return os.getpid()


def log_much(chars: int) -> None:
    logging.getLogger("mine").warning("x" * chars)


def leave_a_timer() -> int:
    """As one that is to end the process later."""
    threading.Timer(3600, os._exit, [7]).start()
    return os.getpid()


pool = ThreadPoolExecutor(1)


def use_a_pool() -> int:
    return pool.submit(os.getpid).result()


async def use_a_thread() -> int:
    return await asyncio.to_thread(os.getpid)


def leave_work_in_a_pool() -> int:
    pool.submit(threading.Event().wait)
    return os.getpid()


def replace_streams() -> int:
    sys.stdout, sys.stderr = io.StringIO(), None
    return os.getpid()


def upset_logging() -> int:
    logging.basicConfig(force=True, handlers=[logging.NullHandler()], level=logging.CRITICAL)
    logging.disable(logging.CRITICAL)
    return os.getpid()


def close_stdout() -> int:
    sys.stdout.close()
    return os.getpid()


def detach_stdout() -> int:
    sys.stdout.detach()  # pyright: ignore[reportAttributeAccessIssue]
    return os.getpid()


def redirect_stdout() -> int:
    os.dup2(2, 1)
    return os.getpid()


ticks: list[str] = []
left: set[asyncio.Task[None]] = set()


async def leave_a_coroutine(log: str) -> int:
    async def tick() -> None:
        try:
            while True:
                ticks.append("tick")
                await asyncio.sleep(0)
        finally:
            Path(log).write_text("cancelled")  # noqa: ASYNC240

    left.add(asyncio.create_task(tick()))
    await asyncio.sleep(0.01)
    return os.getpid()


async def leave_a_stubborn_coroutine() -> int:
    async def stay() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    left.add(asyncio.create_task(stay()))
    await asyncio.sleep(0)
    return os.getpid()


async def leave_a_coroutine_that_fails() -> int:
    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("on the way out")

    left.add(asyncio.create_task(fail()))
    await asyncio.sleep(0)
    return os.getpid()


async def count_ticks() -> list[int]:
    ticks.clear()
    await asyncio.sleep(0.05)
    return [os.getpid(), len(ticks)]
