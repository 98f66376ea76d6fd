"""`--metrics-port` of a worker and a scheduler."""

import httpx
import pytest

from daybell.cli.roles.metrics import serve_metrics
from daybell.engine.loop import SystemClock
from daybell.engine.metrics import Meter
from daybell.errors import Conflict
from tests.engine.tasks import a_store


async def test_a_process_serves_its_metrics_and_its_health_without_a_key():
    store = await a_store()
    meter = Meter(SystemClock())
    meter.count("stale_reports_total", number=2)

    async with (
        serve_metrics(meter, store, host="127.0.0.1", port=0) as url,
        httpx.AsyncClient(base_url=url) as http,
    ):
        answers = [await http.get(path) for path in ("/metrics", "/healthz", "/readyz")]
        nothing = await http.get("/api/v1/jobs")

    assert [one.status_code for one in answers] == [200] * 3
    assert "daybell_stale_reports_total 2.0\n" in answers[0].text
    assert "daybell_queue_depth" not in answers[0].text
    assert nothing.status_code == 404


async def test_a_process_whose_store_is_gone_is_not_ready():
    store = await a_store()

    async with serve_metrics(Meter(SystemClock()), store, host="127.0.0.1", port=0) as url:
        await store.close()
        async with httpx.AsyncClient(base_url=url) as http:
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/readyz")).status_code == 503


async def test_a_port_that_is_taken_is_refused():
    store = await a_store()
    meter = Meter(SystemClock())

    async with serve_metrics(meter, store, host="127.0.0.1", port=0) as url:
        with pytest.raises(Conflict, match="is in use"):
            async with serve_metrics(meter, store, host="127.0.0.1", port=int(url.split(":")[-1])):
                pass
