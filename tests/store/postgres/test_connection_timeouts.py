"""Timeouts follow the lease, and a session has the ones of its pace."""

import pytest

from daybell.core.when.misfire import GRACE_SECONDS
from daybell.settings import LEASE_SECONDS_LEAST, LEASE_SECONDS_MOST
from daybell.store.postgres import PostgresStore
from daybell.store.timeouts import LARGE_BATCH_ROWS, Pace, pace_of, timeouts_for

LEASES = [
    LEASE_SECONDS_LEAST,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    15.0,
    20.0,
    60.0,
    600.0,
    LEASE_SECONDS_MOST,
]
API_SECONDS = 10.0  # a server answers 503 within that

a_lease = pytest.mark.parametrize("lease", LEASES)


@a_lease
@pytest.mark.parametrize("pace", [Pace.SHORT, Pace.FIRE])
def test_every_timeout_of_a_short_statement_is_shorter_than_a_third_of_the_lease(lease, pace):
    limits = timeouts_for(lease, pace)

    assert 0 < limits.lock < limits.statement < limits.command < lease / 3


@a_lease
def test_a_worker_can_connect_and_renew_again_before_its_lease_ends(lease):
    """A renewal that was sent after a third of the lease has no answer; the next one has."""
    limits = timeouts_for(lease)

    assert lease / 3 + limits.command < 0.8 * lease
    assert limits.connect < lease
    assert limits.client_end["TCP_USER_TIMEOUT"] / 1000 < max(0.8 * lease, 5)


@a_lease
@pytest.mark.parametrize("pace", Pace)
def test_the_server_gives_up_before_the_client_does(lease, pace):
    limits = timeouts_for(lease, pace)

    assert 0 < limits.lock < limits.command
    assert limits.statement < limits.command


@a_lease
def test_a_frozen_session_is_ended_within_the_lease_and_before_its_ticks_are_missed(lease):
    short, fire = timeouts_for(lease), timeouts_for(lease, Pace.FIRE)

    assert short.idle <= max(1.0, lease / 3)
    assert short.idle < GRACE_SECONDS
    assert fire.idle <= 2.0
    assert short.patience > short.idle, "then a wait for its locks ends well"


@a_lease
def test_a_request_is_answered_within_ten_seconds_whatever_waits(lease):
    """A full pool, a statement without an answer, and a connection that cannot be made again."""
    short, view = timeouts_for(lease), timeouts_for(lease, Pace.VIEW)

    assert short.connect + short.command + short.connect < API_SECONDS
    assert view.connect + view.command < API_SECONDS


def test_large_batches_have_the_time_of_a_bulk_load():
    assert pace_of(LARGE_BATCH_ROWS) is Pace.SHORT
    assert pace_of(LARGE_BATCH_ROWS + 1) is Pace.LONG
    assert timeouts_for(1.0, Pace.LONG).statement > 30
    assert timeouts_for(1.0, Pace.MIGRATION).statement > 600


@pytest.mark.postgres
@pytest.mark.parametrize("pace", [Pace.SHORT, Pace.FIRE, Pace.VIEW, Pace.LONG])
async def test_a_session_has_the_timeouts_of_its_pace(place, pace):
    expected = timeouts_for(3.0, pace)
    store = PostgresStore(place.url, lease=3.0)
    await store.open()
    try:
        async with store.db.link(pace) as link:
            found = {
                name: await link.fetchval(
                    "SELECT setting::float8 / 1000 FROM pg_settings WHERE name = $1", name
                )
                for name in (
                    "statement_timeout",
                    "lock_timeout",
                    "idle_in_transaction_session_timeout",
                )
            }
    finally:
        await store.close()

    assert list(found.values()) == pytest.approx(
        [expected.statement, expected.lock, expected.idle], abs=0.001
    )
