"""Events: what fits, under which keys that is found, and what is refused."""

import json
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.event import (
    ANY,
    MANY,
    Event,
    Facts,
    check_match,
    matches,
    places,
    result_of,
    wait_key,
)
from daybell.core.limits import MATCH_CHARS_MAX, MATCH_KEYS_MAX
from daybell.errors import UsageError

EXECUTION = UUID(int=7)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from([0.0, -0.0, 1.0, 1.5, 1e20, 10**20, 1e300, 2.0**53, 2**53 + 1]),
    st.floats(allow_nan=False, allow_infinity=False),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5), st.just("x" * 200))
KEYS = st.one_of(st.sampled_from(["a", "b", '"', "1"]), st.text(max_size=4), st.just("k" * 150))
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(KEYS, SCALARS))
DATA = st.one_of(SCALARS, st.lists(SCALARS), st.dictionaries(KEYS, VALUES, max_size=130))


@st.composite
def matches_and_data(draw):
    """A match, and data that is likely to meet it, or nearly so."""
    match = draw(st.dictionaries(KEYS, SCALARS, max_size=4))
    data = draw(DATA)
    if isinstance(data, dict) and draw(st.booleans()):
        kept = draw(st.sets(st.sampled_from(sorted(match)))) if match else ()
        data = {**data, **{key: match[key] for key in kept}}
    return json.dumps(match), json.dumps(data)


def same(one, other):
    """Whether two JSON values are the same, said in another way."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and one == other


@given(matches_and_data())
def test_an_event_fits_if_its_data_has_every_pair_of_the_match(pair):
    match, data = (json.loads(text) for text in pair)

    expected = match == {} or (
        isinstance(data, dict)
        and all(key in data and same(value, data[key]) for key, value in match.items())
    )

    assert matches(*pair) == expected


@given(matches_and_data())
def test_what_fits_is_always_found_by_its_keys(pair):
    match, data = pair
    facts = Facts(data)

    if facts.meet(match):
        assert wait_key(match) in facts.keys
        assert set(places(match, EXECUTION)) & set(facts.filed(None))
    assert set(places(match, EXECUTION)) & set(facts.filed(EXECUTION))
    assert not set(places(match, UUID(int=8))) & set(facts.filed(EXECUTION))


@given(matches_and_data())
def test_keys_are_short_and_few_enough_to_be_kept(pair):
    match, data = pair

    assert len(wait_key(match)) <= 100
    assert all(len(key) <= 100 for key in Facts(data).keys)
    assert len(Facts(data).filed(None)) <= 100


def test_a_wait_without_a_match_gets_every_event():
    assert wait_key("{}") == ANY
    assert all(matches("{}", data) for data in ("null", "[1]", "3", '{"a": 1}'))


def test_values_of_other_types_are_others():
    assert matches('{"n": 1}', '{"n": 1.0}')
    assert matches('{"n": 100000000000000000000}', '{"n": 1e20}')
    assert not matches('{"n": 1}', '{"n": true}')
    assert not matches('{"n": 1}', '{"n": "1"}')
    assert not matches('{"n": null}', "{}")
    assert not matches('{"n": 1}', '{"n": [1]}')


def test_an_event_with_very_many_pairs_is_filed_as_that():
    data = json.dumps({f"k{n}": n for n in range(500)})

    assert Facts(data).filed(None) == [ANY, MANY]
    assert MANY in places('{"k3": 3}', EXECUTION)


def test_the_result_of_a_wait_tells_all_of_the_event():
    event = Event(id="1", source="shop", name="paid", data='{"a": [1]}', time=0.0, received_at=60.0)

    assert msgspec.json.decode(result_of(event)) == {
        "id": "1",
        "source": "shop",
        "name": "paid",
        "data": {"a": [1]},
        "time": "1970-01-01T00:00:00Z",
        "received_at": "1970-01-01T00:01:00Z",
    }


@pytest.mark.parametrize(
    "match",
    [
        "",
        "[]",
        "1",
        '{"a": [1]}',
        '{"a": {"b": 1}}',
        json.dumps({str(n): n for n in range(MATCH_KEYS_MAX + 1)}),
        json.dumps({"a": "x" * MATCH_CHARS_MAX}),
    ],
)
def test_a_match_is_a_flat_object_of_a_few_plain_values(match):
    with pytest.raises(UsageError) as caught:
        check_match(match)

    assert caught.value.field == "match"


@given(st.dictionaries(KEYS, SCALARS, max_size=MATCH_KEYS_MAX))
def test_a_flat_object_is_a_match(match):
    text = json.dumps(match)

    assert check_match(text) == text
