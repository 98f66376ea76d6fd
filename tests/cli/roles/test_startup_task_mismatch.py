"""What a worker is told at its start of others that take its queues and have other tasks."""

import pytest

from daybell.cli.roles.startup import task_mismatch_warning, warn_task_mismatch
from daybell.core.worker import Offer
from daybell.engine.worker import WorkerOptions
from daybell.store.memory import MemoryStore
from tests.builders import a_worker

SHOP = {"sell": "default", "send": "mail"}


def an_offer(tasks, *queues, kinds=("task", "http")):
    return Offer(queues=queues or ("default", "mail"), kinds=kinds, tasks=tasks)


def options(tasks=SHOP, queues="default,mail", kinds=("task", "http")):
    return WorkerOptions(tasks=tasks, queues=queues, kinds=kinds)


def test_tasks_that_only_one_of_them_has_are_named():
    told = task_mismatch_warning(options(), [an_offer({"sell": "default", "report": "default"})])

    assert told is not None
    assert told.startswith("other live workers of queues 'default' and 'mail' have other tasks:")
    assert "this one has no report; others have no send" in told
    assert "queues of its own" in told


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (an_offer(SHOP | {"new": "default"}), "this one has no new."),
        (an_offer({"sell": "default"}), "others have no send."),
        (an_offer({f"t{n}": "mail" for n in range(9)} | SHOP), "and 4 more"),
    ],
)
def test_so_is_what_only_one_side_lacks(other, said):
    assert said in (task_mismatch_warning(options(), [an_offer(SHOP), other]) or "")


@pytest.mark.parametrize(
    "other",
    [
        an_offer(SHOP),
        an_offer({"sell": "default"}, "default"),  # and does not take the queue of the other task
        an_offer({"bill": "billing"}, "default", "billing", kinds=("http",)),
        an_offer(None),  # of an earlier version: it does not say
        an_offer({}, kinds=("http", "command")),  # without an app it takes no tasks
    ],
)
def test_nothing_is_said_where_nothing_can_go_back(other):
    assert task_mismatch_warning(options(), [other]) is None


def test_nothing_is_said_of_a_shared_queue_that_no_task_is_meant_for():
    billing = an_offer({"bill": "billing"}, "default", "billing")

    assert task_mismatch_warning(options({"sell": "shop"}, "default,shop"), [billing]) is None


@pytest.mark.parametrize(
    "how", [options(None), options({}, kinds=("http",))], ids=["does not say", "no app"]
)
def test_nothing_is_said_to_who_has_no_tasks_to_compare(how):
    assert task_mismatch_warning(how, [an_offer({"report": "default"})]) is None


async def test_it_is_said_once_and_not_in_the_way_of_what_commands_print(capsys):
    store = MemoryStore()
    await store.open()
    for _ in range(3):
        other = a_worker(queues=("default",), tasks={"report": "default"})
        await store.register("default", other, lease=60.0)

    await warn_task_mismatch(store, options())

    out, err = capsys.readouterr()
    assert (out, err.count("warning: other live workers of queue 'default'")) == ("", 1)
    await store.close()
