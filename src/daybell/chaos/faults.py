"""The faults of a run: a plan drawn from a seed, and a proxy that breaks connections."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from random import Random
from typing import Final, Protocol, Self
from urllib.parse import parse_qsl, urlsplit

import msgspec

from daybell.chaos.fleet import SCHEDULER, SERVER, WORKER
from daybell.core.units import Seconds
from daybell.engine.loop import Clock


class Kind(StrEnum):
    KILL = "kill"  # SIGKILL, and a new process
    FREEZE = "freeze"  # SIGSTOP for longer than the lease, then SIGCONT
    DRAIN = "drain"  # SIGTERM, as in a rolling deploy
    EXIT = "exit"  # a task ends its process with os._exit(0), under a supervisor
    CUT = "cut"  # all connections break at once
    LOSE = "lose"  # connections break when they have committed and before that is answered
    DELAY = "delay"  # nothing passes for a while
    LATE = "late"  # clients lose connections, and their enqueues arrive seconds later
    RESTART = "restart"  # the database server crashes and comes back
    OUTAGE = "outage"  # the database is unreachable for longer than the lease
    DEAF = "deaf"  # all connections accept bytes and never answer again; new ones work
    HOLD = "hold"  # a COMMIT takes longer than the lease and holds its locks
    SLOW = "slow"  # every answer takes a part of the lease longer; a worker has to register again


OF_PROCESSES: Final = {Kind.KILL: 5, Kind.FREEZE: 3, Kind.DRAIN: 2, Kind.EXIT: 1}
OF_CONNECTIONS: Final = {Kind.CUT: 2, Kind.LOSE: 4, Kind.DELAY: 1, Kind.LATE: 3, Kind.OUTAGE: 1}
# Faults that are judged while connections have no other fault.
ALONE: Final = {Kind.DEAF: 1, Kind.HOLD: 1, Kind.SLOW: 1}
CALM_SECONDS: Final = 2.0  # at the beginning, so that there is work to disturb
GAP_SECONDS: Final = 1.2  # between two faults of processes, on average
SHARED_GAP_SECONDS: Final = 1.8  # the same where connections have faults, too
PAUSE_SECONDS: Final = 0.6  # after a fault of connections, at least
RESTART_SECONDS: Final = 2.0  # approximate time of a restart
SERVES_SECONDS: Final = 5.0  # beyond the lease: by then deaf connections are replaced
HOLD_SECONDS: Final = 7.0  # longer than a tick may be late with the default misfire
SLOW_LEASES: Final = 3.5
FROZEN_LEASES: Final = 1.2  # at the beginning of a slow time: after that it registers again


Weights = Mapping[Kind, int]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault."""

    at: Seconds  # since the start of the load
    kind: Kind
    pick: float  # from 0 up to 1: selects one of the possible targets
    length: Seconds = 0.0  # its duration
    role: str = WORKER  # of the target process


def draw_faults(
    seed: int,
    *,
    seconds: Seconds,
    lease: Seconds,
    has_proxy: bool,
    has_restart: bool,
    only: Collection[Kind] = tuple(Kind),
) -> list[Fault]:
    """Draw all faults of a run, in order; `only` those of some kinds."""
    usual = (OF_CONNECTIONS if has_proxy else {}) | ({Kind.RESTART: 1} if has_restart else {})
    usual, alone, of_processes = (
        {kind: count for kind, count in weights.items() if kind in only}
        for weights in (usual, ALONE if has_proxy else {}, OF_PROCESSES)
    )
    connections = list(_of_connections(Random(f"connections {seed}"), usual, alone, seconds, lease))
    processes = _of_processes(
        Random(f"processes {seed}"), of_processes, connections, seconds, lease
    )
    return sorted([*connections, *processes], key=lambda fault: fault.at)


def _of_connections(
    dice: Random, usual: Weights, alone: Weights, seconds: Seconds, lease: Seconds
) -> Iterator[Fault]:
    at = CALM_SECONDS
    for kind in _dealt(dice, usual, alone):  # faults that need quiet come last
        if at >= seconds:
            return
        length = _length(kind, lease, dice.random())
        yield Fault(at=at, kind=kind, pick=dice.random(), length=length, role=_role(dice))
        at += length + PAUSE_SECONDS * dice.uniform(0.5, 1.5)


def _of_processes(
    dice: Random, weights: Weights, connections: list[Fault], seconds: Seconds, lease: Seconds
) -> Iterator[Fault]:
    """Return the kinds of process faults at a time: none while connections are deaf; only those of
    workers while connections are held or slow.
    """
    gap = SHARED_GAP_SECONDS if connections else GAP_SECONDS
    quiet = [one for one in connections if one.kind in ALONE]
    at = CALM_SECONDS
    for kind in _dealt(dice, weights):
        over = next((one for one in quiet if one.at <= at <= one.at + one.length), None)
        if over is not None and over.kind is Kind.DEAF:
            at, over = over.at + over.length + PAUSE_SECONDS / 4, None
        if at >= seconds:
            return
        length, role = _length(kind, lease, dice.random()), _role(dice)
        yield Fault(
            at=at,
            kind=kind,
            pick=dice.random(),
            length=length,
            role=role if over is None else WORKER,
        )
        at += dice.uniform(0.2, 2 * gap - 0.2)


def _dealt(dice: Random, *hands: Weights) -> Iterator[Kind]:
    """Deal kinds like cards, so that a short run has some of everything: first one of each, then by
    weight.
    """
    for hand in hands:
        yield from dice.sample(list(hand), len(hand))
    while deck := [kind for hand in hands for kind, count in hand.items() for _ in range(count)]:
        dice.shuffle(deck)
        yield from deck


def _length(kind: Kind, lease: Seconds, share: float) -> Seconds:
    match kind:
        case Kind.FREEZE:
            return lease * (1.2 + 0.8 * share)
        case Kind.OUTAGE:
            return lease * (1.3 + 0.7 * share)
        case Kind.DELAY:
            return lease * (0.1 + 0.5 * share)
        case Kind.RESTART:
            return RESTART_SECONDS
        case Kind.DEAF:
            return lease + SERVES_SECONDS
        case Kind.HOLD:
            return max(HOLD_SECONDS, 1.5 * lease)
        case Kind.SLOW:
            return SLOW_LEASES * lease
        case _:
            return 0.0


def _role(dice: Random) -> str:
    share = dice.random()
    return SCHEDULER if share < 0.2 else SERVER if share < 0.3 else WORKER


# A proxy before a PostgreSQL server that cuts, delays and deafens connections, breaks them after
# COMMIT, and holds single statements back. It parses just enough of the protocol to see which
# statement is sent and where an answer ends: each message is a letter, a length, and that many
# bytes; `Z` with `I` means that no transaction is open.

HOST: Final = "127.0.0.1"
PORT: Final = 5432
CHUNK_BYTES: Final = 65536
HEAD_BYTES: Final = 5
# Requests that a client may send before its first message; both are refused.
_REQUESTS: Final = {80877103, 80877104}  # for TLS, for GSSAPI
_PLAIN: Final = {"", "disable", "allow", "prefer"}


def can_stand_before(url: str) -> bool:
    """True if there is one server that is reachable over TCP, without required TLS."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    is_one = bool(parts.hostname) and "," not in parts.netloc and "host" not in options
    return is_one and options.get("sslmode", "") in _PLAIN


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """The order to delay a statement: the next one that matches."""

    seconds: Seconds
    statement: bytes  # its text contains these bytes
    role: str = ""  # its connection came through the port of this role
    after: bytes = b""  # its transaction has sent a statement with these bytes
    is_single: bool = False  # it is outside of any transaction, and commits by itself
    breaks: bool = False  # the client loses its connection at once, and never receives the answer


class Link:
    """One connection: both ends, and the faults on it."""

    def __init__(
        self, role: str, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self.role = role
        self.client = client
        self.server = server
        self.asked = Questions()
        self.answered: Answers = Messages()
        self.is_deaf = False  # bytes are read from both ends and never passed on
        self.is_held = False  # a statement is held, even if its sender has gone
        self.is_waiting = False  # for the answer to its statement

    def cut(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """Listens on its own ports inside the context; `url` leads through it. Each role has a port, so
    that its connections can be recognised.
    """

    def __init__(self, url: str, *, clock: Clock) -> None:
        self._target = urlsplit(url)
        self._clock = clock
        self._entrances: dict[str, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: set[Link] = set()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._is_shut = False
        self._lag = 0.0
        self._holds: list[tuple[Hold, asyncio.Future[None]]] = []
        self._answers_to_lose = 0
        self._holding = b""
        self._kept_back = b""
        self._is_kept = asyncio.Event()
        self._is_let_go = asyncio.Event()
        self.lost = 0  # committed answers that were not delivered
        self.cut = 0

    @property
    def url(self) -> str:
        return self.url_of("")

    def url_of(self, role: str) -> str:
        """Return the URL for the processes of a role with an open port."""
        port = self._entrances[role].sockets[0].getsockname()[1]
        login, at, _ = self._target.netloc.rpartition("@")
        return self._target._replace(netloc=f"{login}{at}{HOST}:{port}").geturl()

    async def __aenter__(self) -> Self:
        await self.open("")
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._entrances.values():
            server.close()
        self._is_open.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def open(self, *roles: str) -> None:
        """Open ports for roles."""
        for role in roles:

            def accept(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, role: str = role
            ) -> None:
                self._accept(role, reader, writer)

            self._entrances[role] = await asyncio.start_server(accept, HOST, 0)

    def cut_all(self) -> None:
        """Break every connection, except those with a held statement."""
        for link in [link for link in self._links if not link.is_held]:
            self.cut += 1
            link.cut()

    def lose_answers(self, count: int, *, holding: bytes = b"") -> None:
        """Break the next connections after a commit and before its answer; only answers with these
        bytes, if given.
        """
        self._answers_to_lose += count
        self._holding = holding

    async def keep_back(self, holding: bytes) -> None:
        """Hold the next answer with these bytes; return when it is here."""
        self._is_kept.clear()
        self._is_let_go.clear()
        self._kept_back = holding
        await self._is_kept.wait()

    def let_go(self) -> None:
        """Send the held answer."""
        self._is_let_go.set()

    async def hold(self, hold: Hold) -> None:
        """Hold a statement; return when it is here. A cancellation stops the search."""
        wanted = hold, asyncio.get_running_loop().create_future()
        self._holds.append(wanted)
        try:
            await wanted[1]
        finally:
            with suppress(ValueError):  # it was found
                self._holds.remove(wanted)

    async def deafen(self, seconds: Seconds) -> None:
        """Let all present connections accept bytes and never answer; new ones work. The server is
        not informed, and keeps their sessions for so long.
        """
        deaf = [link for link in self._links if not link.is_held]
        for link in deaf:
            link.is_deaf = True
        try:
            await self._clock.sleep(seconds)
        finally:
            for link in deaf:
                link.server.transport.abort()

    async def slow_down(self, seconds: Seconds, *, lag: Seconds) -> None:
        """Delay every answer for a while."""
        self._lag = lag
        try:
            await self._clock.sleep(seconds)
        finally:
            self._lag = 0.0

    async def shut(self, seconds: Seconds) -> None:
        """Break all connections, and refuse new ones for a while, as without a server."""
        self._is_shut = True
        self.cut_all()
        try:
            await self._clock.sleep(seconds)
        finally:
            self._is_shut = False

    async def delay(self, seconds: Seconds) -> None:
        """Pass nothing for a while."""
        self._is_open.clear()
        try:
            await self._clock.sleep(seconds)
        finally:
            self._is_open.set()

    def _accept(
        self, role: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._is_shut:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._attend(role, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(
        self, role: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            first = await self._greet(reader, writer)
            server_reader, server_writer = await self._connect()
            link = Link(role, writer, server_writer)
            self._prepare(link)
            self._links.add(link)
            try:
                server_writer.write(first)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._ask(link, reader))
                    both.create_task(self._answer(link, server_reader))
            except* OSError:
                pass
            finally:
                self._links.discard(link)
                link.cut()
        writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Return the first bytes of a client."""
        return await _first(reader, writer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server."""
        return await asyncio.open_connection(
            self._target.hostname or HOST, self._target.port or PORT
        )

    def _prepare(self, link: Link) -> None:
        """Prepare a connection for the protocol that is spoken on it."""

    async def _ask(self, link: Link, reader: asyncio.StreamReader) -> None:
        while some := await _read(link, reader):
            await self._is_open.wait()
            if link.is_deaf:
                continue
            if self._lag and not link.is_waiting:
                await self._clock.sleep(self._lag)
            link.is_waiting = True
            hold = self._found(link, link.asked.statements(some))
            if hold is not None:
                await self._delay_statement(link, hold)
            link.server.write(some)
            await link.server.drain()
            if hold is not None and hold.breaks:
                return  # its answer ends the connection
        if not link.is_deaf:
            raise ConnectionError("the client has gone")

    def _found(self, link: Link, statements: list[bytes]) -> Hold | None:
        """Take the order to hold one of these statements, if there is one."""
        for wanted in self._holds:
            if _fits(wanted[0], link, statements):
                self._holds.remove(wanted)
                wanted[1].set_result(None)
                return wanted[0]
        return None

    async def _delay_statement(self, link: Link, hold: Hold) -> None:
        link.is_held = True
        if hold.breaks:
            link.client.transport.abort()
        try:
            await self._clock.sleep(hold.seconds)
        finally:
            link.is_held = False

    async def _answer(self, link: Link, reader: asyncio.StreamReader) -> None:
        while some := await _read(link, reader):
            await self._is_open.wait()
            if link.is_deaf:
                continue
            link.is_waiting = False
            is_end = link.answered.ends_work(some) and self._holding in some
            if not link.answered.is_in_transaction:
                link.asked.transaction.clear()
            if is_end and self._answers_to_lose:
                self._answers_to_lose -= 1
                self.lost += 1
                raise ConnectionError("broken after the commit")
            if self._kept_back and self._kept_back in some:
                self._kept_back = b""
                self._is_kept.set()
                await self._is_let_go.wait()
            link.client.write(some)
            await link.client.drain()
        if not link.is_deaf:
            raise ConnectionError("the server has gone")


async def _read(link: Link, reader: asyncio.StreamReader) -> bytes:
    """Read the next bytes; none at the end. One end of a deaf connection does not notice the end of
    the other.
    """
    try:
        return await reader.read(CHUNK_BYTES)
    except OSError:
        if link.is_deaf:
            return b""
        raise


def _fits(hold: Hold, link: Link, statements: list[bytes]) -> bool:
    if hold.role not in ("", link.role) or (hold.is_single and link.answered.is_in_transaction):
        return False
    before = link.asked.transaction
    return any(hold.statement in text for text in statements) and (
        not hold.after or any(hold.after in text for text in before)
    )


class Frames:
    """Divides the bytes of one direction into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def whole(self, some: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield letter and body of each message that ends in this piece."""
        data, at = self._rest + some, 0
        while len(data) - at >= HEAD_BYTES:
            (length,) = struct.unpack_from("!I", data, at + 1)
            after = at + 1 + length
            if len(data) < after:
                break
            yield data[at : at + 1], data[at + HEAD_BYTES : after]
            at = after
        self._rest = data[at:]


class Questions:
    """The statements of a client, by their texts."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._prepared: dict[bytes, bytes] = {}
        self.transaction: list[bytes] = []  # all since its begin

    def statements(self, some: bytes) -> list[bytes]:
        """Return the texts of the statements that this piece executes."""
        found: list[bytes] = []
        for kind, body in self._frames.whole(some):
            if kind == b"Q":
                found.append(body)
            elif kind == b"P":
                name, text, *_ = body.split(b"\0", 2)
                self._prepared[name] = text
            elif kind == b"B":
                _, name, *_ = body.split(b"\0", 2)
                found.append(self._prepared.get(name, b""))
        self.transaction += found
        return found


class Answers(Protocol):
    """Follows what a server sends."""

    is_in_transaction: bool

    def ends_work(self, some: bytes) -> bool: ...


class Messages:
    """Follows the messages of a server."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._has_worked = False
        self.is_in_transaction = False

    def ends_work(self, some: bytes) -> bool:
        """True if this piece ends a transaction with writes."""
        ends = False
        for kind, body in self._frames.whole(some):
            if kind == b"C":
                self._has_worked = not body.startswith((b"ROLLBACK", b"SET", b"LISTEN"))
            elif kind == b"Z":
                self.is_in_transaction = body != b"I"
                if not self.is_in_transaction:
                    ends, self._has_worked = ends or self._has_worked, False
        return ends


async def _first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read the first message of a client. TLS is refused, because its content is not readable."""
    while True:
        head = await reader.readexactly(8)
        length, code = struct.unpack("!II", head)
        if code not in _REQUESTS:
            return head + await reader.readexactly(length - 8)
        writer.write(b"N")


# The same before the servers of remote workers.

NOT_OF_SERVERS: Final = frozenset({Kind.LATE, Kind.HOLD})  # they hold statements of a database


class ServerProxy(Proxy):
    """The address of remote workers: each connection goes to one of the servers that are up."""

    def __init__(self, servers: Callable[[], list[tuple[int, str]]], *, clock: Clock) -> None:
        super().__init__(f"http://{HOST}", clock=clock)
        self._servers = servers
        self._turn = 0

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        return b""

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        servers = self._servers()
        if not servers:
            raise ConnectionError("no server is up")
        self._turn += 1
        address = urlsplit(servers[self._turn % len(servers)][1])
        return await asyncio.open_connection(address.hostname, address.port)

    def _prepare(self, link: Link) -> None:
        link.asked, link.answered = Requests(), Responses()


class Requests(Questions):
    """The requests of a client, which are no statements."""

    def statements(self, some: bytes) -> list[bytes]:
        return []


class Responses:
    """Follows the responses of a server."""

    is_in_transaction = False

    def ends_work(self, some: bytes) -> bool:
        """True if this piece begins a response to a request that was done."""
        return some.startswith(b"HTTP/1.1 2")
