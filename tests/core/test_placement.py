"""Labels and resources that executions demand, and that workers have."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from daybell.core.placement import (
    NO_DEMANDS,
    PASSED_OVER_SECONDS,
    DemandingLane,
    Demands,
    Site,
    assign_devices,
    capability_of,
    device_variables,
    format_amounts,
    parse_amounts,
    plan_claims,
    read_amounts,
    read_choices,
    seated_needs,
    split_needs,
    sum_used,
    words_of_needs,
)
from daybell.errors import UsageError

NOW = 1000.0


def lane(demands, *, queue="default", kind="task", oldest=NOW, overdue=0):
    needs = kind + demands.text
    return DemandingLane(queue=queue, needs=needs, oldest=oldest, overdue=overdue, now=NOW)


def plans(site, *lanes, used=()):
    """The needs of the first claim of a worker, and the others as needs and numbers."""
    first, *rest = plan_claims(site, ["task"], ["default"], lanes, used=dict(used))
    return list(first.needs), {one.needs[0]: one.most for one in rest}


def test_needs_are_a_capability_and_demands():
    demands = Demands(requires={"gpu": ("a100",)}, resources={"gpu": 1.0})

    assert split_needs("task" + demands.text) == ("task", demands)
    assert split_needs("sql:main") == ("sql:main", NO_DEMANDS)
    assert capability_of("http+private" + demands.text) == "http+private"


def test_needs_have_words_for_people():
    demands = Demands(requires={"gpu": ("a100", "h100")}, resources={"memory": 4e9})

    assert words_of_needs("task") == "task"
    assert words_of_needs("task" + demands.text) == "task with gpu=a100 or h100, memory=4GB"


def test_a_worker_takes_what_its_labels_meet():
    eu = lane(Demands(requires={"zone": ("eu", "us")}))
    both = lane(Demands(requires={"zone": ("eu",), "gpu": ("a100",)}))

    assert plans(Site(labels={"zone": "us"}), eu, both)[0] == ["task", eu.needs]
    assert plans(Site(), eu, both) == (["task"], {})


def test_limited_work_is_asked_for_with_the_rest_of_its_needs():
    demands = Demands(resources={"gpu": 1.0})
    plain = lane(demands)
    entry = lane(demands, kind="limited:task", oldest=NOW - PASSED_OVER_SECONDS)
    site = Site(resources={"gpu": 2.0})

    assert plans(site, plain, entry) == (["task"], {plain.needs: 2})


def test_a_lane_of_another_queue_or_kind_is_not_asked_for():
    site = Site(labels={"zone": "eu"})
    demands = Demands(requires={"zone": ("eu",)})

    assert plans(site, lane(demands, queue="mail"), lane(demands, kind="command")) == (["task"], {})


def test_of_a_resource_a_worker_asks_for_as_much_as_fits():
    gpu = lane(Demands(resources={"gpu": 1.0, "memory": 4e9}))
    site = Site(resources={"gpu": 4.0, "memory": 10e9})

    assert plans(site, gpu) == (["task"], {gpu.needs: 2})
    assert plans(site, gpu, used={"gpu": 3.0}) == (["task"], {gpu.needs: 1})
    assert plans(site, gpu, used={"gpu": 4.0}) == (["task"], {})
    assert plans(Site(resources={"gpu": 4.0}), gpu) == (["task"], {})


def test_work_that_was_passed_over_gets_room():
    site = Site(resources={"gpu": 4.0, "disk": 1.0})
    big = Demands(resources={"gpu": 4.0})
    small, other = lane(Demands(resources={"gpu": 1.0})), lane(Demands(resources={"disk": 1.0}))

    late = lane(big, oldest=NOW - PASSED_OVER_SECONDS)
    young = lane(big, oldest=NOW - PASSED_OVER_SECONDS + 1)

    assert plans(site, young, small, other, used={"gpu": 1.0})[1] == {
        small.needs: 3,
        other.needs: 1,
    }
    assert plans(site, late, small, other, used={"gpu": 1.0})[1] == {other.needs: 1}
    assert plans(site, late, small)[1] == {late.needs: 1, small.needs: 4}


def test_what_prefers_another_worker_is_taken_when_it_is_overdue():
    demands = Demands(prefer={"zone": ("eu",)})
    young, overdue = lane(demands), lane(demands, overdue=3)

    assert plans(Site(labels={"zone": "eu"}), young)[0] == ["task", young.needs]
    assert plans(Site(labels={"zone": "us"}), young) == (["task"], {})
    assert plans(Site(labels={"zone": "us"}), overdue) == (["task"], {overdue.needs: 3})


def test_the_worker_with_its_seat_takes_it_and_any_when_it_is_overdue():
    seated = lane(Demands(seat=5))
    overdue = lane(Demands(seat=5), overdue=3)

    assert plans(Site(seat=5), seated)[0] == ["task", seated.needs]
    assert plans(Site(seat=6), seated) == (["task"], {})
    assert plans(Site(seat=6), overdue) == (["task"], {overdue.needs: 3})


@pytest.mark.parametrize("kind", ["task", "limited:task", "admitted:sql:main"])
def test_a_seat_is_added_to_other_demands(kind):
    demands = Demands(requires={"zone": ("eu",)}, resources={"gpu": 1.0})

    assert seated_needs(kind + demands.text, 3) == kind + replace(demands, seat=3).text
    assert seated_needs(kind, 3) == kind + Demands(seat=3).text


def test_devices_have_the_lowest_free_numbers():
    site = Site(resources={"gpu": 4.0, "memory": 64e9})
    two = Demands(resources={"gpu": 2.0, "memory": 4e9})

    first = assign_devices(site, two, [])
    second = assign_devices(site, two, [first])

    assert (first, second) == ({"gpu": [0, 1]}, {"gpu": [2, 3]})
    assert assign_devices(site, two, [second]) == {"gpu": [0, 1]}
    assert assign_devices(site, Demands(resources={"gpu": 0.5}), []) == {}
    assert device_variables(second) == {"CUDA_VISIBLE_DEVICES": "2,3", "DAYBELL_DEVICES_GPU": "2,3"}


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)
CHOICES = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(st.sampled_from("xyz"), min_size=1, max_size=2).map(tuple),
    max_size=2,
)
AMOUNTS = st.dictionaries(st.sampled_from(["gpu", "memory"]), st.integers(1, 5).map(float))
DEMANDS = st.builds(Demands, requires=CHOICES, prefer=CHOICES, resources=AMOUNTS)


@given(
    site=st.builds(Site, labels=LABELS, resources=AMOUNTS),
    demands=st.lists(DEMANDS, max_size=5),
    ages=st.lists(st.floats(0, 60), min_size=5, max_size=5),
    takes=st.lists(st.integers(0, 4), min_size=30, max_size=30),
    ends=st.lists(st.integers(0, 9), min_size=30, max_size=30),
)
@settings(max_examples=150, deadline=None)
def test_nothing_runs_where_its_demands_are_not_met(site, demands, ages, takes, ends):
    """A worker that makes its claims one after the other, as the dispatcher does: what it holds is
    counted before each round. Queues answer with as much as they like, within the limit.
    """
    lanes = [
        lane(one, oldest=NOW - age, overdue=int(age > 5))
        for one, age in zip(demands, ages, strict=False)
    ]
    held: list[str] = []
    for take, end in zip(takes, ends, strict=True):
        del held[end : end + 1]
        used = sum_used(held)
        for plan in plan_claims(site, ["task"], ["default"], lanes, used=used)[1:]:
            now_used = sum_used(held)
            fresh = plan_claims(site, ["task"], ["default"], lanes, used=now_used)[1:]
            most = next((one.most for one in fresh if one.needs == plan.needs), 0)
            held += [plan.needs[0]] * int(min(take, most))
        for needs in held:
            assert not site.lacks(split_needs(needs)[1])
        for name, amount in sum_used(held).items():
            assert amount <= site.resources[name]


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("", {}),
        ("gpu=2, memory=64GB", {"gpu": 2.0, "memory": 64e9}),
        ("memory=512MiB", {"memory": 512 * 2**20}),
        ("gpu=0.5", {"gpu": 0.5}),
    ],
)
def test_amounts_are_numbers_or_sizes(text, amounts):
    assert parse_amounts(text) == amounts


@pytest.mark.parametrize(
    "text", ["gpu", "gpu=", "gpu=-1", "gpu=0", "gpu=1,gpu=2", "g u=1", "memory=4XB"]
)
def test_a_wrong_amount_is_refused(text):
    with pytest.raises(UsageError):
        parse_amounts(text)


@pytest.mark.parametrize(
    ("read", "value", "field"),
    [
        (read_choices, ["gpu"], "requires"),
        (read_choices, {"gpu": 1}, "requires.gpu"),
        (read_choices, {"gpu": []}, "requires.gpu"),
        (read_choices, {"gpu": ""}, "requires.gpu"),
        (read_choices, {"g?u": "a"}, "requires"),
        (read_amounts, "gpu", "requires"),
        (read_amounts, {"gpu": True}, "requires.gpu"),
        (read_amounts, {"gpu": "x"}, "requires.gpu"),
    ],
)
def test_wrong_demands_are_refused_by_their_field(read, value, field):
    with pytest.raises(UsageError) as refused:
        read(value, "requires")

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (2.0, "2"),
        (0.5, "0.5"),
        (4e9, "4GB"),
        (2.0**30, "1GiB"),
        (1.5e9, "1500MB"),
        (1e18, "1000000TB"),
    ],
)
def test_an_amount_is_read_as_it_is_written(amount, text):
    assert format_amounts({"memory": amount}) == [f"memory={text}"]
    assert parse_amounts(f"memory={text}") == {"memory": amount}
