"""`SELECT daybell.enqueue(…)` of what cannot be: refused, with its name and the way out."""

import json

import asyncpg
import pytest

from daybell.core.limits import ARGS_BYTES_MAX
from daybell.errors import UsageError
from daybell.store.postgres.transactions import SqlCall, send
from tests.builders import TENANT, defined, look
from tests.store.postgres.sql_calls import ONE, enqueue

WRONG = {
    "an option that is not there": ({"dealy": 5}, "22023", "no option 'dealy'", "delay"),
    "no object": ([1], "22023", "options must be a JSON object", "delay"),
    "a delay that is no length": ({"delay": "soon"}, "22023", 'delay "soon"', "90s"),
    "a negative delay": ({"delay": -1}, "22023", "delay -1", "seconds"),
    "a delay of eleven years": ({"delay": "4015d"}, "22023", "ten years", "2d"),
    "a delay that is a list": ({"delay": [1]}, "22023", r"delay \[1\]", "90s"),
    "a time without an offset": ({"at": "2030-01-01T00:00:00"}, "22023", "not a time", "offset"),
    "a day that is not": ({"at": "2030-02-30T00:00:00Z"}, "22023", "not a time", "offset"),
    "a time before 1970": ({"at": -1}, "22023", "not a time", "ISO 8601"),
    "a time without end": ({"at": 10**400}, "22023", "^at 1000.{0,60} is not a time", "ISO 8601"),
    "an offset of 99 hours": ({"at": "2030-01-01T00:00:00+99"}, "22023", "not a time", "offset"),
    "two times": ({"at": 1, "delay": 1}, "22023", "two ways", "one of them"),
    "a priority that is not": ({"priority": "urgent"}, "22023", "not a priority", "critical"),
    "a priority out of range": ({"priority": 4}, "22023", "not a priority", "critical"),
    "half a retry": ({"retries": 1.5}, "22023", "retries 1.5", "job"),
    "retries as text": ({"retries": "3"}, "22023", 'retries "3"', "job"),
    "too many retries": ({"retries": 1001}, "22023", "1,000", "job"),
    "a timeout of nothing": ({"timeout": 0}, "22023", "timeout 0 is no time at all", "job"),
    "a timeout of next to nothing": ({"timeout": 1e-9}, "22023", "no time at all", "job"),
    "to expire at once": ({"expires": "0s"}, "22023", "expires 0 is no time at all", "job"),
    "a timeout that is true": ({"timeout": True}, "22023", "timeout true", "90s"),
    "a queue that is a number": ({"queue": 5}, "22023", "queue 5", "none"),
    "a queue with a comma": ({"queue": "a,b"}, "22023", "no queue named 'a,b'", "letters"),
    "a queue that ends in a line feed": ({"queue": "a\n"}, "22023", "no queue named", "letters"),
    "a queue that is too long": ({"queue": "a" * 101}, "22023", "no queue named", "100"),
    "an empty key": ({"unique_key": ""}, "22023", "unique_key", "none"),
    "a key that is too long": ({"unique_key": "ä" * 251}, "54000", "502 bytes", "digest"),
    "an unknown tenant": ({"tenant": "acme"}, "42704", "no tenant named 'acme'", "."),
}


@pytest.mark.parametrize(("options", "code", "message", "hint"), WRONG.values(), ids=WRONG)
async def test_wrong_options_are_refused_and_named(store, sql, options, code, message, hint):
    await defined(store)

    with pytest.raises(asyncpg.PostgresError, match=message) as caught:
        await sql.fetchval(ONE, "resize", "{}", json.dumps(options))

    said = caught.value.as_dict()
    assert (said["sqlstate"], hint in said["hint"]) == (code, True)


DEEP = '{"a":' + "[" * 63 + "]" * 63 + "}"
ARGS = {
    "a list": ("[1]", "22023", "by name"),
    "text": ('"x"', "22023", "by name"),
    "too much": (json.dumps({"a": "x" * ARGS_BYTES_MAX}), "54000", "1,048,576"),
    "too deep": (DEEP.replace("[]", "[[]]"), "22023", "64 levels"),
    "a number without end": ('{"a":' + "9" * 4301 + "}", "22023", "4,300 digits"),
}


@pytest.mark.parametrize(("args", "code", "message"), ARGS.values(), ids=ARGS)
async def test_wrong_arguments_are_refused_and_named(store, sql, args, code, message):
    await defined(store)

    with pytest.raises(asyncpg.PostgresError, match=message) as caught:
        await enqueue(sql, args=args)

    assert caught.value.as_dict()["sqlstate"] == code


@pytest.mark.parametrize(
    "args",
    [DEEP, '{"a":' + "9" * 4300 + "}", json.dumps({"a": "[" * 99 + '"\\' + "9" * 5000})],
    ids=["as deep as may be", "as long a number", "the same in text"],
)
async def test_arguments_at_the_limit_are_taken(store, sql, args):
    await defined(store)

    kept = (await look(store, await enqueue(sql, args=args))).args

    assert json.loads(kept) == json.loads(args)


UNREADABLE = {
    "a NUL in an option": (SqlCall("resize", ["{}"], '{"queue": "\\u0000"}', None), "22P05"),
    "arguments without bottom": (SqlCall("resize", ["[" * 10**5], "{}", None), "54001"),
}


@pytest.mark.parametrize(("call", "code"), UNREADABLE.values(), ids=UNREADABLE)
async def test_what_the_server_itself_cannot_read_is_an_error_of_usage(store, sql, call, code):
    await defined(store)

    with pytest.raises(UsageError) as caught:
        await send(sql, call)

    assert getattr(caught.value.__cause__, "sqlstate", None) == code


async def test_a_job_that_is_not_there_is_named_and_what_to_do(store, sql):
    with pytest.raises(asyncpg.UndefinedObjectError, match="no job named 'resize'") as caught:
        await enqueue(sql)
    assert "app.open()" in caught.value.as_dict()["hint"]

    await defined(store)
    await store.delete_job(TENANT, "resize")
    with pytest.raises(asyncpg.UndefinedObjectError):
        await enqueue(sql)
