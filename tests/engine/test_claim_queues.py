"""Which queue is asked first."""

from collections import Counter

import pytest

from daybell.engine.claim import Queues
from daybell.errors import UsageError


def test_without_any_it_is_the_default_queue():
    assert Queues.parse("").order() == ["default"]


def test_names_and_weights_are_read():
    queues = Queues.parse(" mail = 3, default ,,reports=2")

    assert queues.names == ("mail", "default", "reports")


def test_every_order_has_every_queue():
    queues = Queues.parse("a=5,b,c=2")

    assert all(sorted(queues.order()) == ["a", "b", "c"] for _ in range(100))


def test_a_queue_is_first_as_often_as_its_weight_says():
    queues = Queues.parse("mail=3,default=1,bulk=6")

    first = Counter(queues.order()[0] for _ in range(1000))

    assert first == {"mail": 300, "default": 100, "bulk": 600}


def test_turns_are_spread_and_not_taken_in_a_row():
    queues = Queues.parse("a=5,b=1,c=1")

    first = "".join(queues.order()[0] for _ in range(7))

    assert first == "aabacaa"


@pytest.mark.parametrize(
    "text",
    [
        "mail=",
        "mail=x",
        "mail=-1",
        "mail=0",
        "mail=1001",
        "mail=1.5",
        "mail=3=4",
        "=3",
        "mail=" + "9" * 5000,
        "a/b",
        "-mail",
        "mail,mail=2",
    ],
)
def test_what_is_no_list_of_queues_is_refused(text):
    with pytest.raises(UsageError):
        Queues.parse(text)
