"""Lookups of hosts: few at a time, each once, and none that nobody waits for."""

import asyncio
import threading

import pytest

from daybell.runners.http_connection import Lookups, system_resolve
from tests.engine.virtual import until


class Service:
    """A name service that answers when it is told to."""

    def __init__(self):
        self.asked: list[str] = []
        self.may_answer = threading.Event()

    def __call__(self, host):
        self.asked.append(host)
        if host.startswith("slow"):
            assert self.may_answer.wait(30)
        if host.endswith("nowhere"):
            raise OSError(-2, "Name or service not known")
        return [f"address of {host}"]


@pytest.fixture
def service():
    service = Service()
    yield service
    service.may_answer.set()


async def test_hosts_that_hang_do_not_stop_others(service):
    lookups = Lookups(service, threads_max=4)
    hanging = [asyncio.ensure_future(lookups.find(f"slow{n}")) for n in range(3)]

    async with asyncio.timeout(10):
        for name in ("a", "b"):
            assert await lookups.find(name) == [f"address of {name}"]
        # What the loop has for others is free.
        assert await asyncio.to_thread(int) == 0

    service.may_answer.set()
    assert await asyncio.gather(*hanging) == [[f"address of slow{n}"] for n in range(3)]


async def test_one_host_is_asked_for_once_at_a_time(service):
    lookups = Lookups(service, threads_max=2)
    several = [asyncio.ensure_future(lookups.find("slow")) for _ in range(5)]
    await until(lambda: service.asked)
    several.pop().cancel()

    assert await lookups.find("quick") == ["address of quick"]
    service.may_answer.set()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*several) == [["address of slow"]] * 4
    await lookups.find("slow")

    assert sorted(service.asked) == ["quick", "slow", "slow"]


async def test_more_than_can_be_asked_for_wait_and_those_who_leave_are_not_asked_for(service):
    lookups = Lookups(service, threads_max=1)
    first = asyncio.ensure_future(lookups.find("slow"))
    await until(lambda: service.asked)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(lookups.find("impatient"), 0.01)
    patient = asyncio.ensure_future(lookups.find("patient"))
    await asyncio.sleep(0)
    service.may_answer.set()

    assert await patient == ["address of patient"]
    await first
    assert service.asked == ["slow", "patient"]


async def test_all_who_wait_hear_why_there_is_no_answer(service):
    lookups = Lookups(service)
    several = [lookups.find("slow.nowhere") for _ in range(2)]
    service.may_answer.set()

    errors = await asyncio.gather(*several, return_exceptions=True)

    assert [str(error) for error in errors] == ["[Errno -2] Name or service not known"] * 2


def test_a_loop_that_is_gone_is_not_told(service):
    lookups = Lookups(service, threads_max=1)

    async def leave():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lookups.find("slow"), 0.01)

    asyncio.run(leave())
    service.may_answer.set()

    assert asyncio.run(lookups.find("next")) == ["address of next"]


async def test_for_an_address_nobody_is_asked(monkeypatch):
    monkeypatch.setattr("daybell.runners.http_connection._lookups", None)

    assert await system_resolve("127.0.0.1", 80) == ["127.0.0.1"]
    assert await system_resolve("0:0:0:0:0:0:0:1", 80) == ["::1"]
