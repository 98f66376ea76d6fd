"""The local user at the other end of a TCP connection, as the kernel knows it (Linux only)."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Final

# See sock_diag(7). One request for one connection is answered from a hash table. To search
# /proc/net/tcp instead takes milliseconds, since the kernel walks through the whole table.
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = struct.Struct("=IHHIIBBBBI2s2s16s16sIII")
_ANSWER: Final = struct.Struct("=IHHIIBBBB48sIIIII")
_ANY: Final = 0xFFFFFFFF
_OVERFLOW_UID: Final = 65534  # stands for users that this user namespace does not have


def find_user(connection: socket.socket) -> int | None:
    """Return the uid of the process that opened a connection to this machine.

    None: it cannot be determined. A socket that its process has closed belongs to no user any more,
    and the kernel reports 0 for it, which would be root.
    """
    try:
        local, remote = connection.getsockname(), connection.getpeername()
        answer = _ask_kernel(connection.family, of=remote, to=local)
        # Only while the connection exists, no other one can have these addresses.
        connection.getpeername()
    except OSError:
        return None
    if len(answer) < _ANSWER.size:
        return None
    _, kind, *_, uid, inode = _ANSWER.unpack_from(answer)
    if kind != _BY_FAMILY or inode == 0:
        return None
    return None if uid == _OVERFLOW_UID and not _knows_all_users() else uid


def _ask_kernel(family: int, *, of: tuple[str, int], to: tuple[str, int]) -> bytes:
    """Ask about the socket with the address `of` that is connected to `to`."""
    request = _REQUEST.pack(
        _REQUEST.size, _BY_FAMILY, 1, 1, 0,
        family, socket.IPPROTO_TCP, 0, 0, _ANY,
        of[1].to_bytes(2), to[1].to_bytes(2),
        socket.inet_pton(family, of[0]), socket.inet_pton(family, to[0]),
        0, _ANY, _ANY,
    )  # fmt: skip
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(request)
        return kernel.recv(4096)


def _knows_all_users() -> bool:
    """Return whether this process sees every user by a uid of their own."""
    try:
        return Path("/proc/self/uid_map").read_text().split() == ["0", "0", str(_ANY)]
    except OSError:
        return False
