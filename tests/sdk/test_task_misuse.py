"""What users of other libraries try first, and what they are told."""

from typing import Any

import pytest

from daybell import App, Context, UsageError
from daybell.errors import InvalidArguments, PayloadError
from daybell.testing import Bench
from tests.refusals import refuses

app = App("memory://")


@app.task
def count(ids, options=None) -> int:  # without annotations, on purpose
    return len(ids)


@app.task
def count_set(ids: set[int], more: frozenset[str] = frozenset(), rest: list[int] | None = None):
    return [type(ids).__name__, type(more).__name__, type(rest).__name__]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("delay", r"Celery's \.delay\(…\) is \.enqueue\(…\) here: await count\.enqueue"),
        ("apply_async", r'await count\.options\(delay="60s"\)\.enqueue'),
        ("s", r"count\.node\("),
        ("send", r"Dramatiq's \.send\(…\) is \.enqueue\(…\) here"),
        ("kiq", r"Taskiq"),
        ("defer", r"Procrastinate"),
    ],
)
def test_the_words_of_other_libraries_are_answered_with_the_words_here(name, words):
    with pytest.raises(AttributeError, match=words) as caught:
        getattr(count, name)

    assert "count.sync.enqueue(…)" in str(caught.value)
    with pytest.raises(AttributeError, match=words):
        getattr(count.options(queue="slow"), name)


def test_a_task_has_no_other_attributes():
    with pytest.raises(AttributeError, match="a task has no attribute 'colour'"):
        count.colour  # type: ignore[attr-defined]  # noqa: B018

    assert not hasattr(count, "delay")


class Mailer:
    def send(self, to: str) -> None: ...

    @classmethod
    def make(cls, to: str) -> None: ...

    @staticmethod
    def check(to: str) -> str:
        return to

    def __call__(self, to: str) -> str:
        return to


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Mailer, "Mailer is a class"),
        (Mailer.send, r"Mailer.send\(\) is a method"),
        (Mailer().send, r"Mailer.send\(\) is a method"),
        (Mailer.make, r"Mailer.make\(\) is a method"),
        (5, "a task is a function, not 5"),
        (lambda x: x, r'a lambda has no name; give it one: app\.task\(name="…"\)'),
        (Mailer(), "an object of Mailer has no name; give it one"),
    ],
)
def test_a_class_or_a_method_is_no_task(given, words):
    with pytest.raises(UsageError, match=words):
        App("memory://").task(given)


def test_a_method_is_refused_where_its_class_is_written():
    shop = App("memory://")

    with pytest.raises(UsageError, match=r"Sender.send\(\) is a method: .*no object"):

        class Sender:
            @shop.task
            def send(self, to: str) -> None: ...

    with pytest.raises(UsageError, match="is a method"):

        class Maker:
            @shop.task(name="make")  # pyright: ignore[reportArgumentType, reportCallIssue]
            @classmethod
            def make(cls, to: str) -> None: ...

    assert not shop.tasks


async def test_a_static_method_and_an_object_that_is_called_are_tasks():
    shop = App("memory://")
    check = shop.task(Mailer.check)
    call = shop.task(name="call")(Mailer())

    async with Bench(shop) as bench:
        assert await bench.run(check, "ada") == "ada"
        assert await bench.run(call, "ada") == "ada"


@pytest.mark.parametrize(
    ("args", "field", "where"),
    [
        ({"ids": {1, 2}}, "ids", "'ids': ids is a set"),
        ({"ids": frozenset()}, "ids", "'ids': ids is a set"),
        ({"ids": [1], "options": {"tags": [{"a"}]}}, "options", r"options\.tags\[0\] is a set"),
        ({"ids": ({1},)}, "ids", r"ids\[0\] is a set"),
    ],
)
async def test_a_set_without_an_annotation_is_refused_where_it_is_enqueued(args, field, where):
    async with Bench(app) as bench:
        with pytest.raises(InvalidArguments, match=where) as caught:
            await count.enqueue(**args)
        assert caught.value.field == field
        assert "Pass a list, or annotate" in str(caught.value)
        assert f"{field}: set[int]" in str(caught.value)

        with pytest.raises(InvalidArguments, match=rf"items\[1\]: .*{field}"):
            await count.enqueue_many([{"ids": [1]}, args])
        assert bench.executions() == []


async def test_a_set_with_an_annotation_arrives_as_what_that_says():
    async with Bench(app) as bench:
        found = await bench.run(count_set, {1, 2}, frozenset({"a"}), rest={3})  # type: ignore

        assert found == ["set", "frozenset", "list"]


@app.task
def look(options: dict[str, Any], rest: list[Any] | None = None) -> None: ...


@pytest.mark.parametrize("args", [({"tags": {1}},), ({}, [{"a"}])])
async def test_a_set_inside_of_what_may_be_anything_is_refused(args):
    async with Bench(app):
        with pytest.raises(InvalidArguments, match="is a set"):
            await look.enqueue(*args)


@pytest.mark.parametrize("result", [{1}, {"tags": {"a"}}, [[frozenset()]]])
async def test_a_set_in_a_result_without_an_annotation_is_refused(result):
    shop = App("memory://")

    @shop.task
    def answer():
        return result

    async with Bench(shop) as bench:
        with refuses(PayloadError, field="result"):
            await bench.run(answer)

        (handle,) = await answer.enqueue_many([{}])
        await bench.run_due()
        assert await handle.status() == "dead"  # another time would end here, too


async def test_a_set_in_a_result_with_an_annotation_comes_back_as_one():
    shop = App("memory://")

    @shop.task
    def answer() -> set[int]:
        return {1, 2}

    async with Bench(shop) as bench:
        assert await bench.run(answer) == {1, 2}


async def test_a_set_in_a_step_or_a_checkpoint_is_refused():
    shop = App("memory://")

    def find():
        return {1, 2}

    @shop.task
    async def steps(ctx: Context) -> None:
        await ctx.step("find", find)

    @shop.task
    async def marks(ctx: Context) -> None:
        ctx.checkpoint["seen"] = {1}

    async with Bench(shop) as bench:
        with refuses(PayloadError, field="the result of step 'find'"):
            await bench.run(steps)
        with pytest.raises(UsageError, match=r"checkpoint\.seen is a set.*Assign a list"):
            await bench.run(marks)
