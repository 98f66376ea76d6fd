"""A child's end of the line to its worker."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable

from daybell.core.log import MASKED_CHARS_MAX
from daybell.runners.wire import (
    Begun,
    Done,
    Frames,
    Halt,
    News,
    Order,
    Said,
    Setup,
    framed,
    read_order,
)


class Line:
    """Sends whole messages or none, whatever signals and threads do meanwhile.

    After a fork it belongs to the parent alone: what the other process sends goes nowhere.
    """

    def __init__(self, number: int) -> None:
        self._socket: socket.socket | None = socket.socket(fileno=number)
        self._socket.set_inheritable(False)
        self._frames = Frames()
        self._orders: deque[Setup | Order | Halt] = deque()
        self._lock = threading.RLock()
        self._is_sending = False
        self._afterwards: Callable[[], None] | None = None
        os.register_at_fork(after_in_child=self._cut)

    def receive(self) -> Setup | Order | Halt | None:
        """The next order; None when the worker has hung up."""
        assert self._socket is not None
        while not self._orders:
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._orders.extend(map(read_order, self._frames.feed(data)))
        return self._orders.popleft()

    @property
    def is_ringing(self) -> bool:
        """Whether the worker has said something that was not heard yet, or has hung up."""
        if self._socket is None:
            return True  # after a fork: whatever comes is for this process
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def send(self, message: Begun | News | Said | Done) -> None:
        """Send it, from any thread. If the worker is gone, this process ends."""
        if self._socket is None:
            return
        data = _encoded(message)
        if threading.current_thread() is not threading.main_thread():
            with self._lock:
                self._write(data)
            return
        # An exception out of a signal handler, ours or the task's, would leave half a message.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._is_sending = True
        try:
            with self._lock:
                self._write(data)
        finally:
            self._is_sending = False
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        act, self._afterwards = self._afterwards, None
        if act is not None:
            act()

    def when_sent(self, act: Callable[[], None]) -> None:
        """Do something in the main thread, but not in the middle of a message.

        Signals are blocked there; but another thread may have caught one.
        """
        if self._is_sending:
            self._afterwards = act
        else:
            act()

    def _write(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(data)
        except OSError:
            os._exit(1)

    def _cut(self) -> None:
        if self._socket is not None:
            self._lock = threading.RLock()  # another thread may have held it
            self._socket.close()
            self._socket = None


def _encoded(message: Begun | News | Said | Done) -> bytes:
    if not isinstance(message, Said):
        return framed(message)
    text, length = message.message, message.length
    if len(text) > MASKED_CHARS_MAX:  # which the masks are given; they are in the worker
        text, length = text[:MASKED_CHARS_MAX], length or len(text)
    return framed(Said(message.level, _storable(message.source), _storable(text), length))


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


_SIGNALS = signal.valid_signals()
