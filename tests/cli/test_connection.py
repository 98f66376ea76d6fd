"""What is done at a terminal is in the audit log of the store."""

import asyncio
import re
from pathlib import Path

from daybell.cli import connection
from daybell.cli.connection import RecordingClient
from daybell.client import Client
from tests.cli.terminal import daybell

API = Path(__file__).parents[2] / "src" / "daybell" / "api"


def test_changes_by_command_are_on_record(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def prepare() -> str:
        async with Client(url, migrate=True) as client:
            await client.define("mail")
            return str((await client.enqueue("mail")).id)

    async def entries() -> list[tuple[str, str]]:
        async with Client(url) as client:
            found = (await client.audit()).items
            assert all(one.actor.startswith("cli ") and "@" in one.actor for one in found)
            return [(one.action, one.target) for one in reversed(found)]

    id = asyncio.run(prepare())
    commands = [
        ("jobs", "create", "letter", "--task", "mail", "--every", "1h"),
        ("jobs", "update", "letter", "--queue", "slow"),
        ("jobs", "pause", "letter", "--note", "for a while"),
        ("jobs", "resume", "letter"),
        ("jobs", "trigger", "mail"),
        ("jobs", "delete", "letter", "--yes"),
        ("queues", "pause", "default"),
        ("executions", "cancel", id),
        ("executions", "retry", id),
        ("executions", "cancel", "--job", "mail", "--yes"),
        ("executions", "list"),
    ]
    for words in commands:
        ended = daybell(*words, "--database-url", url, folder=tmp_path)
        assert ended.code == 0, ended.err

    assert asyncio.run(entries()) == [
        ("job.create", "letter"),
        ("job.update", "letter"),
        ("job.pause", "letter"),
        ("job.resume", "letter"),
        ("job.trigger", "mail"),
        ("job.delete", "letter"),
        ("queue.pause", "default"),
        ("execution.cancel", id),
        ("execution.retry", id),
        ("execution.cancel", "many"),
    ]


async def test_a_look_before_a_backfill_is_no_change(tmp_path):
    async with RecordingClient(f"sqlite:///{tmp_path}/jobs.db", migrate=True) as client:
        await client.define("mail", schedule="* * * * *")
        await client.backfill("mail", 1e9, 1e9 + 60, dry_run=True)
        assert not (await client.audit()).items

        await client.backfill("mail", 1e9, 1e9 + 60, only="all")
        assert [one.action for one in (await client.audit()).items] == ["job.backfill"]


def test_commands_and_servers_call_a_change_the_same():
    served = "".join(file.read_text() for file in API.rglob("*.py"))
    typed = Path(connection.__file__).read_text()

    of_records = {f"{noun}.create" for noun in re.findall(r'noun="([a-z_]+)"', served)}
    assert actions_in(typed) and actions_in(typed) <= actions_in(served) | of_records


def actions_in(source: str) -> set[str]:
    return set(re.findall(r'"([a-z_]+\.[a-z]+)"', source))
