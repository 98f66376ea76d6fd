"""How often a worker waits for its database before its first claim."""

import asyncio
import signal

import pytest

from tests.cli.terminal import Running, until
from tests.round_trips import CountingProxy
from tests.stores import POSTGRES

BUDGET = 15
APP = """
from daybell import App

app = App()

def declare(number):
    async def task(): ...
    app.task(name=f"task_{number}")(task)

for number in range(COUNT):
    declare(number)
"""
REGISTERS, RENEWS = "INSERT INTO daybell.worker", "UPDATE daybell.worker w SET renewed_at"
CLAIMS = "DELETE FROM daybell.agenda"


def waits_to(trips, word):
    """On the connection that first says this: all that is waited for until it is answered."""
    link = next(trip.link for trip in trips if word in trip.text)
    own = [trip.text for trip in trips if trip.link == link]
    prepared = next(place for place, text in enumerate(own) if word in text)
    return own[: prepared + 2] if len(own) > prepared + 1 else None


def critical_path(trips):
    """What is waited for one after the other, from the start to the answer of the first claim.

    The worker's connection and the pacemaker's are opened side by side; the worker registers when
    both are ready.
    """
    claiming, beating = waits_to(trips, CLAIMS), waits_to(trips, RENEWS)
    registering = waits_to(trips, REGISTERS)
    assert claiming is not None and beating is not None and registering is not None
    assert claiming[: len(registering)] == registering, "it is one connection"
    before = len(registering) - 2
    return max(before, len(beating)) + len(claiming) - before


def start(url, folder):
    """Start a worker; answers its trips up to the first claim."""
    with (
        CountingProxy(url) as proxy,
        Running("worker", "app:app", folder=folder, DAYBELL_DATABASE_URL=proxy.url) as worker,
    ):
        until(lambda: proxy.has_seen(CLAIMS) and waits_to(list(proxy.trips), CLAIMS))
        trips = list(proxy.trips)
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0
    return trips


@pytest.mark.postgres
async def test_a_worker_starts_in_few_round_trips_however_many_tasks_it_has(servers, tmp_path):
    first, again = [], []
    for count in (1, 200):
        (tmp_path / "app.py").write_text(APP.replace("COUNT", str(count)))
        async with servers.live(POSTGRES["postgres"]) as url:
            first.append(critical_path(await asyncio.to_thread(start, url, tmp_path)))
            again.append(critical_path(await asyncio.to_thread(start, url, tmp_path)))

    assert first == [first[0]] * 2 and first[0] <= BUDGET
    assert again == [again[0]] * 2 and again[0] <= first[0]
