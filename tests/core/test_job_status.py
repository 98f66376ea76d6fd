"""One word for what a job is doing."""

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.job import next_run_at, status_of
from daybell.core.schedule import Schedule

EVERYTHING = {
    "is_deleted": True,
    "is_paused": True,
    "unfinished": [State.SCHEDULED, State.WAITING, State.QUEUED, State.RETRYING, State.RUNNING],
    "next_run_at": 60.0,
    "last": State.DEAD,
}
ORDER = [
    ("deleted", {"is_deleted": False}),
    ("paused", {"is_paused": False}),
    ("running", {"unfinished": EVERYTHING["unfinished"][:4]}),
    ("retrying", {"unfinished": EVERYTHING["unfinished"][:3]}),
    ("queued", {"unfinished": EVERYTHING["unfinished"][:2]}),
    ("waiting", {"unfinished": []}),
    ("scheduled", {"next_run_at": None}),
    ("dead", {"last": None}),
    ("manual", {}),
]


def test_what_matters_most_is_told_first():
    known, told = dict(EVERYTHING), []
    for _, without in ORDER:
        told.append(status_of(**known))
        known |= without

    assert told == [word for word, _ in ORDER]


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SKIPPED])
def test_an_idle_job_says_how_it_ended(state):
    assert status_of(last=state) == state


def a_schedule(next_at, *, is_paused=False):
    return Schedule(
        id=mint(), tenant="default", job="report", rule="", next_at=next_at, is_paused=is_paused
    )


def test_a_job_runs_next_when_the_first_of_its_schedules_does():
    assert next_run_at([a_schedule(90.0), a_schedule(None), a_schedule(60.0)]) == 60.0


def test_a_paused_job_has_no_next_run():
    assert next_run_at([a_schedule(60.0, is_paused=True)]) is None
