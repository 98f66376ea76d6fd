"""Series and the statistics of a job, as users ask for them."""

import pytest

from daybell.errors import InvalidName, JobNotFound, UsageError
from tests.builders import apply, claim, death, retry, success
from tests.refusals import refuses
from tests.sweeps import fold_stats


async def run(client, *moves):
    """Run as many executions of `resize`, each to the end that a move makes."""
    await client.enqueue_many("resize", [{}] * len(moves))
    hands = await claim(client.store)
    await apply(
        client.store, hands, *(m(one) for m, one in zip(moves, hands.executions, strict=True))
    )
    while await fold_stats(client.store):
        pass


async def test_a_series_has_the_metrics_that_are_asked_for(client):
    await run(client, success, success, death)

    series = await client.series(["succeeded", "dead", "run_p50"], since="1h", step="5m")

    assert set(series.series) == {"succeeded", "dead", "run_p50"}
    assert len(series.series["dead"]) == (series.until - series.since).total_seconds() / 300
    assert (sum(series.series["succeeded"]), sum(series.series["dead"])) == (2, 1)
    assert (series.totals["succeeded"], series.totals["dead"]) == (2, 1)
    assert series.totals["run_p50"] == pytest.approx(1.0, rel=0.2)
    assert (series.step, series.job, series.queue) == (300, None, None)


async def test_a_series_is_about_a_job_by_name_or_id_or_a_queue(client):
    await run(client, success)
    job = await client.job("resize")
    await client.define("other", queue="elsewhere")

    for subject, number in (
        ({"job": "resize"}, 1),
        ({"job": job.job_id}, 1),
        ({"job": "other"}, 0),
        ({"queue": "default"}, 1),
        ({"queue": "elsewhere"}, 0),
    ):
        series = await client.series(["succeeded"], since="7d", **subject)
        assert series.totals == {"succeeded": number}


async def test_what_is_not_finished_counts_as_enqueued(client):
    await run(client, success)
    await client.enqueue_many("resize", [{}] * 3)

    series = await client.series(["enqueued", "succeeded"])

    assert series.totals == {"enqueued": 4, "succeeded": 1}
    assert series.at_least == []


@pytest.mark.parametrize(
    ("metrics", "options", "kind", "field"),
    [
        (["latency"], {}, UsageError, "metric"),
        (["dead"], {"since": "tomorrow"}, UsageError, "since"),
        (["dead"], {"step": "90s"}, UsageError, "step"),
        (["dead"], {"job": "nobody"}, JobNotFound, None),
        (["dead"], {"queue": ""}, InvalidName, "queue"),
    ],
)
async def test_a_series_that_cannot_be_answered_is_refused(client, metrics, options, kind, field):
    with pytest.raises(kind) as caught:
        await client.series(metrics, **options)
    assert getattr(caught.value, "field", None) == field


async def test_the_statistics_of_a_job_compare_with_the_week_before(client, place):
    await run(client, success, death)
    await place.clock.advance(7 * 86400)
    await run(client, success, success, success, lambda one: death(one, ran=4.0))

    stats = await client.job_stats("resize")

    assert (stats.job, stats.current.success_rate, stats.previous.success_rate) == (
        "resize", 0.75, 0.5,
    )  # fmt: skip
    assert (stats.current.counts["dead"], stats.previous.counts["dead"]) == (1, 1)
    assert stats.current.run.p99 == pytest.approx(4.0, rel=0.2)
    assert stats.trend["success_rate"] == 0.5
    assert (stats.trend["succeeded"], stats.trend["dead"], stats.trend["lost"]) == (2, 0, None)


async def test_a_failed_attempt_is_in_the_statistics_before_the_job_ends(client):
    await run(client, retry)

    stats = await client.job_stats("resize", since="1d")

    counts = {name: number for name, number in stats.current.counts.items() if number}
    assert counts == {"enqueued": 1, "started": 1, "failed_attempts": 1, "retried": 1}
    assert (stats.current.success_rate, stats.current.delay.p50) == (
        None,
        pytest.approx(0.0, abs=1e-3),
    )


async def test_the_statistics_of_an_unknown_job_are_refused(client):
    with refuses(JobNotFound):
        await client.job_stats("nobody")
