"""What a confined process is refused. A process cannot be let go again, so another one tries."""

import subprocess
import sys

import msgspec
import pytest

TRIES = {
    "connect private": "socket.create_connection(('10.0.0.1', 9), timeout=0.01)",
    "connect loopback": "socket.create_connection(('127.0.0.1', port))",
    "connect by name": "socket.create_connection(('localhost', port))",
    "connect decimal": "socket.create_connection(('2130706433', port))",
    "connect metadata": "socket.create_connection(('169.254.169.254', 80), timeout=0.01)",
    "connect mapped": "socket.socket(socket.AF_INET6).connect(('::ffff:127.0.0.1', port))",
    "connect v6": "socket.socket(socket.AF_INET6).connect(('::1', port))",
    "connect_ex": "socket.socket().connect_ex(('127.0.0.1', port))",
    "datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "message": "socket.socket(type=socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('127.0.0.1', 9))",
    "socket file": "socket.socket(socket.AF_UNIX).connect('/run/x.sock')",
    "program": "subprocess.run(['true'])",
    "shell": "os.system('true')",
    "fork": "os.fork()",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "exec": "os.execv('/bin/true', ['true'])",
    "write": "open('/tmp/daybell-confined', 'w')",
    "append": "os.open('/tmp/daybell-confined', os.O_WRONLY | os.O_CREAT)",
    "remove": "os.remove('/tmp/daybell-confined')",
    "folder": "os.mkdir('/tmp/daybell-confined')",
    "read": "open('/etc/passwd').read()",
    "read around": "open('/etc/ssl/../passwd').read()",
    "read home": "open(os.path.expanduser('~/.netrc'))",
    "read itself": "open('/proc/self/environ').read()",
    "read code": "open(subprocess.__file__).read()",
    "read code by number": "os.read(os.open(subprocess.__file__, os.O_RDONLY), 9)",
    "read our code": "open(sys.modules[Refused.__module__].__file__).read()",
    "read by a loader": "subprocess.__loader__.get_data('/etc/passwd')",
    "read hosts": "open('/etc/hosts').read()",
}
ALLOWED = {
    "code": "import wave, mailbox, _elementtree",
    "certificates": "ssl.create_default_context()",
    "zone": "zoneinfo.ZoneInfo('Europe/Rome')",
    "thread": "t = threading.Thread(target=print, args=('',)); t.start(); t.join()",
    "loop": "asyncio.run(asyncio.sleep(0))",
}
SCRIPT = """
import asyncio, json, os, socket, ssl, subprocess, sys, threading, zoneinfo
from daybell.runners.notify_helper import Confinement, Refused
tries, allow_private = json.loads(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
confinement = Confinement(allow_private=allow_private)
confinement.begin()
said = {}
for name, line in tries.items():
    try:
        exec(line)
        said[name] = "done"
    except Refused as error:
        said[name] = f"refused: {error}"
    except Exception as error:
        said[name] = repr(error)
sys.stderr.write(json.dumps(said))
"""


def tried(tries: dict[str, str], *, allow_private: bool = False) -> dict[str, str]:
    order = msgspec.json.encode([tries, allow_private]).decode()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, order], capture_output=True, timeout=300
    )
    return msgspec.json.decode(done.stderr)


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    return tried({**TRIES, **ALLOWED})


@pytest.mark.parametrize("what", TRIES)
def test_what_leads_elsewhere_is_refused(said, what):
    assert said[what].startswith("refused: ")


@pytest.mark.parametrize("what", ALLOWED)
def test_what_is_needed_is_let_through(said, what):
    assert said[what] == "done"


def test_private_addresses_are_open_to_those_who_may():
    local = {name: line for name, line in TRIES.items() if name.startswith("connect lo")}

    said = tried({**local, "read": TRIES["read"], "fork": TRIES["fork"]}, allow_private=True)

    assert said["connect loopback"] == "done"
    assert said["read"].startswith("refused: ")
    assert said["fork"].startswith("refused: ")
