"""Connections of HTTP jobs: public addresses, and lookups of hosts."""

import asyncio
import threading

import pytest

from daybell.core.kinds.settings import why_not_public
from daybell.runners.http_connection import AddressRefused, Lookups, resolve_checked, system_resolve
from tests.engine.virtual import until

PRIVATE = {
    "0.0.0.0": "this machine",
    "0.1.2.3": "this machine",
    "10.0.0.1": "a private network",
    "100.64.0.1": "a provider's own network",
    "100.100.100.200": "a provider's own network",  # a cloud's metadata
    "100.127.255.255": "a provider's own network",
    "127.0.0.1": "this machine",
    "127.255.255.254": "this machine",
    "168.63.129.16": "a cloud's metadata",
    "169.254.169.254": "metadata",
    "172.16.0.1": "a private network",
    "172.31.255.255": "a private network",
    "192.0.0.192": "a cloud's metadata",
    "192.0.2.1": "documentation",
    "192.88.99.1": "relays",
    "192.168.1.1": "a private network",
    "198.18.0.1": "measurements",
    "198.19.255.255": "measurements",
    "198.51.100.7": "documentation",
    "203.0.113.7": "documentation",
    "224.0.0.1": "groups",
    "239.255.255.255": "groups",
    "240.0.0.1": "later use",
    "255.255.255.255": "broadcast",
    "::": "this machine",
    "::1": "this machine",
    "::127.0.0.1": "not allocated",  # IPv4-compatible
    "::ffff:127.0.0.1": "this machine",
    "::ffff:a9fe:a9fe": "metadata",
    "::ffff:0:127.0.0.1": "not allocated",  # IPv4-translated
    "64:ff9b::10.0.0.1": "a private network",  # NAT64
    "64:ff9b::169.254.169.254": "metadata",
    "64:ff9b:1::8.8.8.8": "a private network",
    "100::1": "not allocated",  # discarded
    "2001::1": "tunnels",  # Teredo
    "2001:0:a00:1::f5ff:fffe": "tunnels",
    "2001:db8::1": "documentation",
    "2002:7f00:1::": "this machine",  # 6to4
    "2002:a9fe:a9fe::1": "metadata",
    "3fff::1": "documentation",
    "4000::1": "not allocated",
    "fc00::1": "a private network",
    "fd00:ec2::254": "a private network",  # a cloud's metadata
    "fe80::1": "the local link",
    "fe80::1%lo": "the local link",
    "2606:4700::1%lo": "the local link",
    "fec0::1": "not allocated",  # site-local
    "ff02::1": "groups",
    "not an address": "no address",
}
PUBLIC = [
    "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.0", "168.63.129.15", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255",
    "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888",
    "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_known_as_what_it_is(address):
    assert PRIVATE[address] in (why_not_public(address) or "")


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_public(address):
    assert why_not_public(address) is None


# As the system reads them, without a network.
SPELLINGS = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0177.0.0.1", "017700000001", "0x7f.1",
    "0x7f000001", "0x7F.0x0.0x0.0x1", "0", "0.0.0.0", "0x0", "::1", "::", "::ffff:127.0.0.1",
    "::ffff:7f00:1", "0:0:0:0:0:0:0:1", "localhost", "LOCALHOST", "１２７.0.0.1", "127。0。0。1",
    "0xa9fea9fe", "2852039166", "169.254.169.254", "fd00:ec2::254", "012.0.0.1", "0300.0250.1.1",
]  # fmt: skip


@pytest.mark.parametrize("host", SPELLINGS)
async def test_every_spelling_is_refused_once_the_system_has_read_it(host):
    with pytest.raises(AddressRefused, match="--allow-private-http"):
        await resolve_checked(host, 80, allow_private=False)


async def test_whoever_allows_it_may_have_private_addresses():
    assert "127.0.0.1" in await resolve_checked("127.1", 80, allow_private=True)


async def test_one_private_address_spoils_the_others():
    async def resolve(host, port):
        return ["1.1.1.1", "10.1.2.3"]

    with pytest.raises(AddressRefused, match=r"rebind\.example is 10\.1\.2\.3, .*10\.0\.0\.0/8"):
        await resolve_checked("rebind.example", 80, allow_private=False, resolve=resolve)


async def test_public_addresses_are_answered_in_their_order():
    async def resolve(host, port):
        return ["2606:4700:4700::1111", "1.1.1.1"]

    found = await resolve_checked("one.example", 443, allow_private=False, resolve=resolve)

    assert found == ["2606:4700:4700::1111", "1.1.1.1"]


async def test_a_host_without_addresses_is_not_found():
    async def resolve(host, port):
        return []

    with pytest.raises(OSError, match=r"it has no address"):
        await resolve_checked("nowhere.example", 80, allow_private=False, resolve=resolve)


@pytest.mark.parametrize("port", [22, 25, 6667])
async def test_ports_of_other_protocols_are_refused(port):
    with pytest.raises(AddressRefused, match=f"port {port} belongs to another protocol"):
        await resolve_checked("1.1.1.1", port, allow_private=False)


async def test_the_system_answers_each_address_once():
    assert await system_resolve("127.0.0.1", 80) == ["127.0.0.1"]


# Lookups of hosts: few at a time, each once, and none that nobody waits for.


class Service:
    """A name service that answers when it is told to."""

    def __init__(self):
        self.asked: list[str] = []
        self.may_answer = threading.Event()

    def __call__(self, host):
        self.asked.append(host)
        if host.startswith("slow"):
            assert self.may_answer.wait(60)
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

    async with asyncio.timeout(300):
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
    async with asyncio.timeout(300):
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
