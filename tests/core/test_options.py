"""The table of job options, and all that has to agree with it."""

import re

import jsonschema_rs
import msgspec
import pytest

from daybell.core.job_request import BODIES, read_request, write_options
from daybell.core.kinds import SETTINGS
from daybell.core.kinds.settings import fields_of
from daybell.core.options import (
    INHERITED,
    MERGES,
    OPTIONS,
    JobDefinition,
    JobFields,
    JobOptions,
    TaskOptions,
)
from daybell.core.retry import Retry

# The fields of a definition whose options have other names, and those without an option.
FIELDS_OF = {
    "retry": {"retries", "backoff"},
    "schedules": {
        *("schedule", "tz", "calendar", "dst", "start_at", "end_at", "max_executions", "jitter"),
    },
    "misfire": {"misfire", "misfire_limit", "misfire_within", "misfire_grace"},
    "template": {"made_from"},
    "kind": {"task", "http", "sql", "notify", "workflow", "template", "parameters"},
    "settings": {"command", "shell", "env"},
}
WITHOUT_OPTION = {"name", "once", "signature"}


def test_every_field_of_a_definition_follows_from_options():
    own = set(JobDefinition.__struct_fields__) - WITHOUT_OPTION
    named = {name for field in own for name in FIELDS_OF.get(field, {field})}

    assert named == OPTIONS.keys()


def test_the_typed_dictionaries_have_the_options_of_the_table():
    in_code = {name for name, one in OPTIONS.items() if one.in_code}

    assert set(TaskOptions.__optional_keys__) == in_code
    assert set(JobOptions.__optional_keys__) == in_code | {"kind", "settings"}
    assert set(JobFields.__optional_keys__) == OPTIONS.keys()


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_an_option_has_a_meaning_a_rule_and_a_schema(option):
    assert re.fullmatch(r"[A-Z].*\.", option.meaning, re.DOTALL)
    assert option.merge in MERGES
    jsonschema_rs.validator_for(
        {**option.schema, "components": {"schemas": dict(BODIES)}}, validate_formats=True
    )


def test_a_definition_without_options_has_the_defaults_of_the_table():
    written = write_options(JobDefinition(name="a"))
    empty = read_request("a", {"command": "true"}).definition()

    for name, value in written.items():
        default = OPTIONS[name].default
        if name == "backoff":
            assert Retry.parse({**value, "retries": 3}) == Retry.parse({"backoff": default})
        else:
            assert value == default or (not value and not default), name
    assert msgspec.structs.replace(empty, kind="task", settings="{}") == JobDefinition(name="a")


def test_a_task_passes_on_the_options_that_are_about_its_code():
    assert set(INHERITED) == {
        *("queue", "priority", "retries", "timeout", "expires", "max_crashes", "on_lost"),
        *("store_result", "requires", "prefer", "near", "resources"),
    }


@pytest.mark.parametrize("body", ["NewJob", "DeclaredJob", "JobChange"])
def test_the_bodies_of_requests_have_every_option(body):
    properties = BODIES[body]["properties"]

    assert properties.keys() >= OPTIONS.keys()
    assert properties.keys() - OPTIONS.keys() <= {"name", "unique_key", "tenant"}
    for name, one in OPTIONS.items():
        assert properties[name]["description"] == one.meaning


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_settings_of_a_kind_are_all_described(kind):
    assert list(fields_of(SETTINGS[kind])) == list(SETTINGS[kind].__struct_fields__)


def test_the_words_of_the_types_are_those_of_the_schemas():
    for name in ("overlap", "on_lost", "on_dependency_failure"):
        words = re.findall(r"['\"](\w+)['\"]", str(TaskOptions.__annotations__[name]))
        assert sorted(words) == sorted(OPTIONS[name].schema["enum"]), name
