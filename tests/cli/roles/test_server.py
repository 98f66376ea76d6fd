"""`daybell server`: whom it lets in, where it listens, and what it does without its store."""

import asyncio
import json
import re
import resource
import signal
import socket
import ssl
import urllib.error
import urllib.request
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from daybell.cli.roles.server import FIRST_KEY, ServeRequest, wait_for_key
from daybell.cli.runtime import with_flag
from daybell.client import Client
from daybell.engine.loop import ManualClock
from daybell.errors import Unavailable, UsageError
from tests.cli.terminal import Running, Typing, daybell, until
from tests.postgres import Postgres, free_port
from tests.stores import POSTGRES

TLS = Path(__file__).parents[2] / "api" / "tls"


def probe(place, path, token=None, **options):
    request = urllib.request.Request(place + path)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=300, **options) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def address(running):
    return re.findall(r"https?://[\w.:]+", running.wait_for("listening")[0])[0]


def make_key(url: str, role: str = "admin") -> str:
    async def make() -> str:
        async with Client(url) as client:
            return (await client.create_key("first", role=role)).token

    return asyncio.run(make())


def test_it_is_ready_when_its_store_is(tmp_path):
    with Running("server", "--port", "0", folder=tmp_path) as running:
        place = address(running)
        before = [probe(place, path) for path in ("/readyz", "/api/v1/jobs", "/api/v1/nothing")]
        daybell("migrate", folder=tmp_path)

        until(lambda: probe(place, "/readyz") == (200, {"status": "ready"}))

        assert before[0] == (
            503, {"status": "unavailable", "error": "the store cannot be used; see the log"},
        )  # fmt: skip
        assert [status for status, _ in before] == [503, 503, 503]
        assert probe(place, "/healthz") == (200, {"status": "ok"})
        assert probe(place, "/api/v1/nothing")[0] == 401
        # Nobody is let in yet, and who runs it is told how to change that.
        running.wait_for(re.escape(f"there is no API key yet, so nobody is let in; {FIRST_KEY}"))
        assert probe(place, "/api/v1/jobs")[0] == 401
        token = make_key(f"sqlite:///{tmp_path}/daybell.db")
        assert probe(place, "/api/v1/jobs", token)[0] == 200
        assert probe(place, "/api/v1/nothing", token)[0] == 404
        running.signal(signal.SIGTERM)
        assert running.end() == 0
        assert "Traceback" not in running.said
        assert token not in running.said


def test_others_are_not_let_near_it_before_there_is_a_key(tmp_path):
    empty = daybell("server", "--host", "0.0.0.0", "--port", "0", folder=tmp_path)
    daybell("migrate", folder=tmp_path)

    refused = daybell("server", "--host", "0.0.0.0", "--port", "0", folder=tmp_path)
    make_key(f"sqlite:///{tmp_path}/daybell.db")
    with Running("server", "--host", "0.0.0.0", "--port", "0", folder=tmp_path) as running:
        port = address(running).rpartition(":")[2]
        well = probe(f"http://127.0.0.1:{port}", "/healthz")

    assert (empty.code, refused.code) == (2, 2)
    assert "lets other machines in" in empty.err
    assert refused.err == (
        "error: --host 0.0.0.0 lets other machines in, and there is no API key to know anybody by;"
        f" make one with {FIRST_KEY}, or listen on 127.0.0.1\n"
    )
    assert well[0] == 200


def test_others_are_not_let_near_it_while_nobody_knows_of_keys(tmp_path):
    port = free_port()
    words = ("server", "--host", "0.0.0.0", "--port", str(port))
    # Somebody who takes calls and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"postgresql://127.0.0.1:{mute.getsockname()[1]}/x"
        with Running(*words, folder=tmp_path, DAYBELL_DATABASE_URL=url) as running:
            running.wait_for("0.0.0.0 lets other machines in, so this listens once the store says")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=300)
            running.signal(signal.SIGTERM)

            assert running.end() == 0
            assert "listening: " not in running.said


def test_dev_is_not_open_to_others(folder):
    refused = daybell("dev", "app:app", "--host", "0.0.0.0", "--port", "0", folder=folder)
    token = make_key(f"sqlite:///{folder}/daybell.db")
    words = ("dev", "app:app", "--host", "0.0.0.0", "--port", "0")
    with Running(*words, folder=folder) as running:
        port = re.findall(r":(\d+)/", running.wait_for("healthz")[0])[0]
        without = probe(f"http://127.0.0.1:{port}", "/api/v1/jobs")
        with_key = probe(f"http://127.0.0.1:{port}", "/api/v1/jobs", token)

    assert refused.code == 2
    assert "lets other machines in" in refused.err
    assert "keys create first --role admin --database-url sqlite:///daybell.db" in refused.err
    assert (without[0], with_key[0]) == (401, 200)


def test_dev_is_open_to_this_machine_and_to_no_other_site(folder):
    with Running("dev", "app:app", "--port", "0", folder=folder) as running:
        line = running.wait_for("api  ")[0]
        place = re.findall(r"http://[\d.:]+", line)[0]

        assert "/api/v1" in line
        assert probe(place, "/api/v1/jobs")[0] == 200
        forged = urllib.request.Request(
            f"{place}/api/v1/jobs/greet/trigger", b"{}", {"Origin": "http://evil.example"}
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(forged, timeout=300)
        rebound = urllib.request.Request(f"{place}/api/v1/jobs", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="421"):
            urllib.request.urlopen(rebound, timeout=300)


class Coming:
    """A store that is away at first, and away again when it is asked for keys."""

    def __init__(self, *, has_keys: bool) -> None:
        self.is_open = self.is_empty = False
        self.tries = 0
        self._has_keys = has_keys

    async def tick(self) -> None:
        self.tries += 1
        self.is_open = self.tries > 1

    async def has_keys(self) -> bool:
        if self.tries < 3:
            raise Unavailable("gone again")
        return self._has_keys


@pytest.mark.parametrize("has_keys", [True, False])
async def test_a_key_is_demanded_when_the_store_has_come(has_keys, caplog):
    store: Any = Coming(has_keys=has_keys)
    refusal = nullcontext() if has_keys else pytest.raises(UsageError, match="no API key")

    with refusal:
        await wait_for_key(store, store, ServeRequest(host="0.0.0.0"), ManualClock())

    assert store.tries == 3
    assert caplog.text.count("this listens once the store says") == 1


def test_a_taken_port_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        ended = daybell("server", "--port", str(port), folder=tmp_path)

    assert ended.code == 1
    assert ended.err == f"error: port {port} of 127.0.0.1 is in use; choose another\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "192.0.2.1"], "error: cannot listen on 192.0.2.1"),
        (["--host", "no such host"], "error: cannot listen on 'no such host'"),
        (["--tls-cert", "gone.pem"], "error: --tls-cert 'gone.pem' cannot be read"),
        (["--tls-key", "gone.pem"], "error: --tls-key needs --tls-cert"),
        (["--allowed-host", "http://x"], "error: --allowed-host 'http://x' is not a host name"),
        (["--forwarded-allow-ips", "nonsense"], "error: --forwarded-allow-ips 'nonsense'"),
        (["--tls-cert", str(TLS / "cert.pem")], "error: --tls-key is missing: "),
        (["--database-url", "memory://"], "error: --database-url: memory:// is seen by one"),
        (["--database-url", "mysql://x"], "error: --database-url: there is no store for mysql://"),
    ],
)
def test_what_makes_no_sense_is_one_line(words, said, tmp_path):
    ended = daybell("server", "--port", "0", *words, folder=tmp_path)

    assert ended.code == 2, ended
    assert ended.err.startswith(said)
    assert ended.err.count("\n") == 1


def test_tls_and_names_are_as_they_were_given(tmp_path):
    words = ["--tls-cert", str(TLS / "cert.pem"), "--tls-key", str(TLS / "key.pem")]
    trust = ssl.create_default_context(cafile=TLS / "cert.pem")
    with Running(
        "server", "--port", "0", *words, "--allowed-host", "jobs.example", folder=tmp_path
    ) as running:
        place = address(running)
        named = urllib.request.Request(f"{place}/healthz", headers={"Host": "jobs.example"})

        assert place.startswith("https://")
        with urllib.request.urlopen(named, timeout=300, context=trust) as answer:
            assert answer.status == 200
            assert "strict-transport-security" in answer.headers


def limit_files(running, size):
    """Let a process write no file beyond a size, as a disk without room does."""
    _, hard = resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (size, hard))


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits other processes")
def test_it_is_not_ready_while_sqlite_cannot_write(tmp_path):
    daybell("migrate", folder=tmp_path)
    token = make_key(f"sqlite:///{tmp_path}/daybell.db")
    with Running("server", "--port", "0", folder=tmp_path) as running:
        place = address(running)
        until(lambda: probe(place, "/readyz")[0] == 200)

        limit_files(running, 0)
        until(lambda: probe(place, "/readyz")[0] == 503)
        assert probe(place, "/readyz")[1]["error"] == "the store cannot be written; see the log"
        assert probe(place, "/healthz")[0] == 200
        assert probe(place, "/api/v1/jobs", token)[0] == 200  # it can be read
        limit_files(running, resource.RLIM_INFINITY)

        until(lambda: probe(place, "/readyz")[0] == 200)


@pytest.mark.postgres
@pytest.mark.slow
def test_a_database_that_goes_and_comes_is_never_a_mistake_of_ours(tmp_path):
    with Postgres(version=POSTGRES["postgres"]) as server:
        url = server.create_database()
        daybell("migrate", folder=tmp_path, DAYBELL_DATABASE_URL=url)
        token = make_key(url)
        with Running("server", "--port", "0", folder=tmp_path, DAYBELL_DATABASE_URL=url) as running:
            place = address(running)
            assert probe(place, "/api/v1/jobs", token)[0] == 200

            server.stop()
            until(lambda: probe(place, "/readyz")[0] == 503)
            for path in ("/jobs", "/stats", f"/executions/{UUID(int=7)}", "/queues", "/workers"):
                status, problem = probe(place, f"/api/v1{path}", token)
                assert (status, problem["status"]) == (503, 503), path
                assert "127.0.0.1" not in json.dumps(problem)
            assert probe(place, "/healthz")[0] == 200
            server.start()
            until(lambda: probe(place, "/readyz")[0] == 200)
            assert probe(place, "/api/v1/jobs", token)[0] == 200
            running.signal(signal.SIGTERM)

            assert running.end() == 0
            assert "Traceback" not in running.said


def test_advice_about_the_first_key_is_for_the_store_that_was_named():
    assert with_flag(FIRST_KEY, None) == FIRST_KEY
    assert with_flag(FIRST_KEY, "sqlite:///x.db") == (
        "`daybell keys create first --role admin --database-url sqlite:///x.db`"
    )
    secret = with_flag(FIRST_KEY, "postgresql://me:hunter22@db/x")
    assert secret == f"{FIRST_KEY} with the same --database-url"


def test_a_person_at_its_terminal_gets_a_link_that_logs_a_browser_in(tmp_path):
    daybell("migrate", folder=tmp_path)
    make_key(f"sqlite:///{tmp_path}/daybell.db")
    with closing(Typing("server", "--port", "0", folder=tmp_path, columns=200)) as server:
        while (found := LINK.search(server.shown)) is None:
            assert server.read(), server.shown
        place, token = found.groups()
        server.type("", after="listening")

        code, said = log_in(place, token)
        again, _ = log_in(place, token)

    assert (code, said["role"], said["read_only"]) == (200, "admin", False)
    assert again == 401


def test_a_log_that_is_kept_names_the_command_in_place_of_a_link(tmp_path):
    daybell("migrate", folder=tmp_path)
    token = make_key(f"sqlite:///{tmp_path}/daybell.db")
    with Running("server", "--port", "0", "--read-only", folder=tmp_path) as running:
        place = address(running)
        running.wait_for(re.escape("`daybell login` prints a link that logs a browser in"))
        code, said = log_in(place, token)

        assert "#login" not in running.said
        assert (code, said["read_only"], said["actions"]) == (200, True, ["read"])


LINK = re.compile(r"(http://[\w.:]+)/#login=(dbk_[\w-]{43})")


def log_in(place: str, token: str) -> tuple[int, Any]:
    body = json.dumps({"key": token}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{place}/api/v1/session", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
