"""The query language of executions: text to terms and back, and errors with their places."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.client.requests import expand_query, pin_query, read_query
from daybell.core.execution import State
from daybell.core.limits import QUERY_CHARS_MAX
from daybell.core.views import Candidate, Content, Term, parse_query, print_query
from daybell.errors import QueryError, UsageError
from tests.refusals import refuses

NAMES = st.from_regex(r"[a-z]+(\.[a-z_0-9]+)?", fullmatch=True)
TERMS = st.builds(Term, NAMES, st.text(max_size=30))
EXAMPLE = (
    'status:dead job:etl* since:2h finished:<1d duration:>5m error:"timed out" arg.order_id:42'
)


@given(st.lists(TERMS, max_size=8))
def test_what_is_printed_is_parsed_to_the_same(terms):
    parsed = parse_query(print_query(terms))

    assert [(one.name, one.value) for one in parsed] == [(one.name, one.value) for one in terms]


@given(st.text(max_size=60))
def test_any_text_is_a_query_or_an_error_at_a_place_in_it(text):
    try:
        terms = parse_query(text)
    except QueryError as error:
        assert 0 <= error.position <= len(text)
        assert str(error).startswith(f"character {error.position + 1}: ")
    else:
        assert [text[one.position :].startswith(f"{one.name}:") for one in terms] == [True] * len(
            terms
        )


def test_a_query_is_read_as_filters():
    assert read_query(EXAMPLE + " status:running,retrying user:ana workflow:x key:k") == {
        "status": {State.DEAD, State.RUNNING, State.RETRYING},
        "job_prefix": "etl",
        "since": "2h",
        "ended_since": "1d",
        "longer_than": 300.0,
        "error": "timed out",
        "args": {"order_id": "42"},
        "user": "ana",
        "parent": "x",
        "unique_key": "k",
    }


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("finished:1d", {"ended_since": "1d"}),
        ("finished:>1d", {"ended_until": "1d"}),
        ("finished:>2026-11-01", {"ended_since": "2026-11-01"}),
        ("finished:<2026-11-01", {"ended_until": "2026-11-01"}),
        ("finished:<2d finished:>1d", {"ended_since": "2d", "ended_until": "1d"}),
        ("duration:<90", {"shorter_than": 90.0}),
        ('error:"say \\"no\\" \\\\"', {"error": 'say "no" \\'}),
        ("error:a:b", {"error": "a:b"}),
        ("", {}),
    ],
)
def test_each_condition_has_its_forms(text, filters):
    assert read_query(text) == filters


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("etl", 0),
        ("status:dead etl", 12),
        ("status:dead  job:", 17),
        ('error:"open', 6),
        ('error:"a"b', 6),
        ("status:ded", 0),
        ("job:a stauts:dead", 6),
        ("job:a job:b", 6),
        ("arg.a:1 arg.a:2", 8),
        ("duration:5m", 0),
        ("job:a duration:>soon", 6),
        ("since:yesterday", 0),
        ("finished:<later", 0),
        (":x", 0),
        ("x" * (QUERY_CHARS_MAX + 1), QUERY_CHARS_MAX),
    ],
)
def test_an_error_names_its_place(text, position):
    with pytest.raises(QueryError) as caught:
        read_query(text)

    assert caught.value.position == position
    problem = caught.value.problem()
    assert (problem["code"], problem["position"]) == ("invalid-query", position)


def test_a_misspelt_name_is_corrected():
    with pytest.raises(QueryError, match="did you mean 'status'"):
        read_query("stauts:dead")


def test_filters_beside_a_query_hold_as_well():
    both = expand_query({"q": "status:dead,running job:a", "status": ["dead"], "queue": "mail"})

    assert both == {"status": {State.DEAD}, "job": "a", "queue": "mail"}
    with refuses(UsageError, field="job"):
        expand_query({"q": "job:a", "job": "b"})


@given(st.sampled_from(["since:2h", "until:1d", "finished:<2h", "finished:>1d", "finished:3m"]))
def test_a_pinned_query_means_the_same_moments_later(text):
    now = 1_800_000_000.0
    pinned = pin_query(f"job:a {text}", now)

    assert pinned != f"job:a {text}"
    assert pin_query(pinned, now + 500) == pinned
    assert read_query(pinned).keys() == read_query(f"job:a {text}").keys()


def test_a_duration_is_that_of_an_ended_attempt():
    content = Content(longer_than=60.0, shorter_than=120.0)

    def took(started, finished):
        return content.matches(Candidate(UUID(int=1), started_at=started, finished_at=finished))

    assert content.is_of_ended
    assert [took(0.0, end) for end in (60.0, 61.0, 119.0, 120.0)] == [False, True, True, False]
    assert not took(None, 100.0) and not took(0.0, None)
