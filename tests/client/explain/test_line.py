"""The worker that is nearest to the needs of an execution."""

from daybell.client.explain.line import find_nearest_worker
from daybell.core.ids import mint
from daybell.core.placement import Demands
from daybell.core.worker import Worker, WorkerState


def worker(name, **options):
    fields = {
        "host": "", "pid": 1, "version": "", "queues": ("default",), "kinds": ("task",),
        "labels": {}, "resources": {}, "capacity": 2, "state": WorkerState.LIVE,
        "started_at": 0.0, "renewed_at": 0.0, "lease_until": 100.0, "running": 0,
    }  # fmt: skip
    return Worker(id=mint(), tenant="default", name=name, **{**fields, **options})


def nearest(*workers, needs="task", task=None):
    found = find_nearest_worker(workers, queue="default", needs=needs, task=task, now=50.0)
    return None if found is None else (found.worker.name, found.lacks)


def test_labels_and_resources_that_a_worker_has_not_are_named():
    needs = "task" + Demands(requires={"gpu": ("a100", "h100")}, resources={"memory": 8.0}).text
    far = worker("far", kinds=("http",))
    near = worker("near", labels={"gpu": "a100"}, resources={"memory": 4.0})

    assert nearest(far, near, needs=needs) == ("near", ("it has no memory=8",))
    assert nearest(far, needs=needs) == (
        "far",
        (
            "it does not run jobs of the kind 'task'",
            "it has no gpu=a100 or h100",
            "it has no memory=8",
        ),
    )


def test_a_worker_whose_lease_has_ended_is_not_near():
    assert nearest(worker("gone", lease_until=10.0)) is None
    assert nearest(worker("full", running=2)) == ("full", ("it is full (2 of 2)",))
    others = worker("full", running=0, busy=2, is_shared=True)
    assert nearest(others) == ("full", ("it is full (2 of 2, with those of other tenants)",))
