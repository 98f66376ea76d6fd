"""Messages through the real apprise, to receivers on this machine."""

import asyncio
import keyword
import os
import signal
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from daybell.core.limits import NOTIFY_CHARS_MAX
from daybell.runners.helper_pool import HELPERS_MAX
from daybell.runners.notify import COMMAND, Notifier, NotifyHandler
from tests.cli.terminal import is_alive
from tests.engine.virtual import until
from tests.runners.kind_jobs import Job
from tests.runners.receivers import a_receiver

pytestmark = pytest.mark.asyncio(loop_scope="module")

WITHOUT_APPRISE = (
    "import sys; sys.modules['apprise'] = None; from"
    " daybell.runners.notify_helper import main; main()"
)
SILENT = "import sys; sys.stdin.read()"
OBEDIENT = "import sys\nfor line in sys.stdin: print('{\"is_done\":true}', flush=True)"
PRINTS_AND_ENDS = "print('hello'); raise SystemExit(3)"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def notifier():
    """One for most tests: importing apprise takes a second or two."""
    notifier = Notifier(allow_private=True)
    yield notifier
    await notifier.close()


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def job(notifier: Notifier, to, **options) -> Job:
    said = {"to": to, "title": "Backup", "body": "It went well"}
    said |= {name: options.pop(name) for name in ("title", "body", "format") if name in options}

    def make(definition, reveal):
        return NotifyHandler(definition, reveal, notifier)

    return Job(make, "notify", said, **options)


async def test_a_webhook_is_told(notifier):
    async with a_receiver() as receiver:
        told = job(notifier, f"json://127.0.0.1:{receiver.port}/path")
        assert await told.result() == {"sent": 1}

    [body] = receiver.bodies
    assert (body["title"], body["message"]) == ("Backup", "It went well")
    assert told.log() == ["info Sent JSON POST notification."]


async def test_a_mail_is_sent(notifier):
    async with a_receiver("mail") as receiver:
        to = f"mailto://127.0.0.1:{receiver.port}/?from=me@example.com&to=you@example.com&mode=insecure"
        assert await job(notifier, [to], format="markdown", body="**It** went well").result() == {
            "sent": 1
        }

    [mail] = receiver.mails
    assert "Subject: Backup" in mail
    assert "To: you@example.com" in mail
    assert "<strong>It</strong>" in mail


async def test_arguments_and_secrets_are_put_in(notifier):
    async with a_receiver() as receiver:
        to = {"join": ["json://me:", {"secret": "TOKEN"}, f"@127.0.0.1:{receiver.port}/"]}
        told = job(
            notifier,
            [to],
            args={"body": {"join": ["key ", {"secret": "KEY"}]}, "title": ""},
            secrets={"TOKEN": "t0ken-t0ken", "KEY": "k3y-k3y"},
        )
        assert await told.result() == {"sent": 1}

    [body] = receiver.bodies
    assert (body["title"], body["message"]) == ("", "key k3y-k3y")
    assert "t0ken" not in str(told.log())


async def test_a_retry_tells_only_those_that_were_not_told(notifier):
    async with a_receiver() as good, a_receiver() as bad:
        bad.status = 500
        to = [f"json://127.0.0.1:{one.port}/s3cr3t" for one in (good, bad, good)]

        first = job(notifier, to)
        failed = await first.passing()
        bad.status = 200
        second = job(notifier, to, checkpoint=first.run.checkpoint)

        assert failed.startswith("1 of 3 could not be told: place 2: json did not take it: ")
        assert failed.endswith("error=500")
        assert await second.result() == {"sent": 3}
    assert (len(good.bodies), len(bad.bodies)) == (2, 1)
    assert any(line.startswith("warning ") for line in first.log())
    assert "s3cr3t" not in f"{failed} {first.log()}"


async def test_a_place_that_cannot_be_reached_says_why(notifier):
    async with a_receiver() as receiver:
        port = receiver.port
    body = "Exception: [Errno 7] what is sent"

    failed = await job(notifier, f"json://127.0.0.1:{port}/s3cr3t", body=body).passing()

    assert "place 1: json did not take it: A Connection error occurred" in failed
    assert failed.endswith("(Connection refused)")
    assert "s3cr3t" not in failed


async def test_as_long_as_one_may_still_be_told_it_is_tried_again(notifier):
    async with a_receiver() as receiver:
        receiver.status = 503
        to = ["nosuch://token-token/", f"json://127.0.0.1:{receiver.port}/"]

        assert "2 of 2 could not be told" in await job(notifier, to).passing()


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("nosuch://token-token/", "an address of nosuch that apprise cannot read"),
        ("slack://token-token", "slack refuses the address (AppriseImproperlyConfigured)"),
        ("me@example.com", "an address without a scheme"),
        ("syslog://token-token", "syslog stays on the worker's own machine"),
        ("dbus://", "dbus stays on the worker's own machine"),
        ("windows://", "windows stays on the worker's own machine"),
        ("file:///etc/passwd", "an address of file that apprise cannot read"),
    ],
)
async def test_an_unusable_address_is_given_up_without_showing_it(notifier, to, message):
    # From a secret: nobody can look at it before.
    failed = job(notifier, [{"secret": "PLACE"}], secrets={"PLACE": to})

    assert message in await failed.lasting()
    assert "token-token" not in f"{failed.task.exception()} {failed.log()}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"args": {"subject": "x"}},
            "the arguments have 'subject'; a message takes title and body",
        ),
        ({"args": {"body": 1}}, "the body of a message is text"),
        ({"args": {"body": "x" * (NOTIFY_CHARS_MAX + 1)}}, "the limit is 100,000"),
        ({"args": {"body": "", "title": ""}}, "says nothing"),
    ],
)
async def test_a_message_that_cannot_be_is_given_up(notifier, options, message):
    assert message in await job(notifier, "json://127.0.0.1:1/", **options).lasting()


async def test_private_places_are_refused_and_nothing_else_is_known_there(monkeypatch):
    monkeypatch.setenv("DAYBELL_SECRETS_KEY", "canary")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    notifier = Notifier()
    try:
        async with a_receiver() as receiver:
            to = [f"json://127.0.0.1:{receiver.port}/", f"json://localhost:{receiver.port}/",
                  f"mailto://127.0.0.1:{receiver.port}/?from=a@b.com&to=c@d.com&mode=insecure",
                  f"rsyslog://10.0.0.1:{receiver.port}/"]  # fmt: skip
            failed = await job(notifier, to).lasting()
        [pid] = notifier.helpers.pids
        known = environment_of(pid)

        assert "4 of 4 could not be told" in failed
        assert failed.count("--allow-private-http") == 4
        assert "127.0.0.1 is not on the public internet (127.0.0.0/8, this machine)" in failed
        assert (receiver.requests, receiver.mails) == (0, [])
        assert "DAYBELL" not in known
        assert "PROXY" not in known
    finally:
        await notifier.close()


async def test_no_address_reads_a_file_of_the_worker(monkeypatch, tmp_path):
    """A template is sent to whoever wrote the address, so `PYTHONPATH` would be open to them."""
    canary = tmp_path / "settings.json"
    canary.write_text('{"canary": 1}')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    notifier = Notifier(allow_private=True)
    place = "127.0.0.1:1/workflow/signature-of-forty-characters-and-more"
    to = [
        f"workflows://{place}?template={file}" for file in (canary, keyword.__file__, "/etc/hosts")
    ]
    try:
        failed = await job(notifier, to).lasting()
    finally:
        await notifier.close()

    assert failed.count("files of this machine are not read from here") == len(to)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (WITHOUT_APPRISE, "run: pip install 'daybell[notify]'"),
        (PRINTS_AND_ENDS, "has ended in the middle of it"),
        (SILENT, "no answer within 0.5 s"),
    ],
)
async def test_a_process_that_cannot_send_is_told_of(code, message):
    notifier = Notifier(command=(sys.executable, "-c", code), silence=0.5 if "read" in code else 30)

    assert message in await job(notifier, "json://127.0.0.1:1/").passing()
    assert notifier.helpers.pids == []
    await notifier.close()


async def test_a_cancelled_message_ends_its_process():
    notifier = Notifier(command=(sys.executable, "-c", SILENT))
    sending = job(notifier, "json://127.0.0.1:1/")
    await until(lambda: notifier.helpers.pids)
    [pid] = notifier.helpers.pids

    await sending.cancelled()

    assert not is_alive(pid)
    assert notifier.helpers.pids == []


async def test_a_process_that_has_died_is_another_next_time():
    notifier = Notifier(command=(sys.executable, "-c", OBEDIENT))
    await job(notifier, "json://127.0.0.1:1/").result()
    [pid] = notifier.helpers.pids

    [sender] = notifier.helpers.processes
    os.kill(pid, signal.SIGKILL)
    await sender.wait()  # the system knows of it a moment before the loop does

    await job(notifier, "json://127.0.0.1:1/").result()
    assert notifier.helpers.pids != [pid]
    await notifier.close()


async def test_a_process_that_nobody_needs_ends():
    notifier = Notifier(command=(sys.executable, "-c", OBEDIENT), idle=0.01)

    await job(notifier, "json://127.0.0.1:1/").result()
    pids = notifier.helpers.pids

    await until(lambda: notifier.helpers.pids == [] and not any(map(is_alive, pids)))


async def test_only_so_many_processes_are_started():
    notifier = Notifier(command=(sys.executable, "-c", OBEDIENT))
    jobs = [job(notifier, "json://127.0.0.1:1/") for _ in range(12)]

    await asyncio.gather(*(one.result() for one in jobs))

    assert 1 <= len(notifier.helpers.pids) <= HELPERS_MAX
    pids = notifier.helpers.pids
    await notifier.close()
    assert not any(map(is_alive, pids))
    assert COMMAND[0] == sys.executable


async def test_a_process_ends_with_its_worker_even_while_it_sends(notifier):
    async with a_receiver() as receiver:
        receiver.status = None
        sending = job(notifier, f"json://127.0.0.1:{receiver.port}/")
        await until(lambda: receiver.requests, within=60)
        [busy] = [
            one
            for one in notifier.helpers.processes
            if one not in [idle for idle, _ in notifier.helpers.idle]
        ]

        assert busy.stdin is not None
        busy.stdin.close()  # as when the worker is gone

        await sending.passing()
        assert not is_alive(busy.pid)
