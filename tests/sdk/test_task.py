"""Tasks: what is enqueued is what was meant, and what cannot work is refused at once."""

from datetime import UTC, datetime

import pytest

from daybell import App, Context, Retry, UsageError
from daybell.core.execution import Priority, State
from daybell.errors import InvalidArguments, InvalidDuration, PayloadError
from tests.refusals import refuses
from tests.sdk.waiting import WAIT


async def stored(app: App, handle):
    return (await app.client().store.catalog.get_execution("default", handle.id)).execution


def a_mail_task(app: App, **options):
    @app.task(**options)
    async def send(to: str, subject: str = "Hi", *, copies: int = 1) -> str:
        """Send a mail.

        In full.
        """
        return f"{to}: {subject}"

    return send


async def test_arguments_are_stored_by_name(app: App):
    send = a_mail_task(app)

    handle = await send.enqueue("ada@example.org", copies=2)

    execution = await stored(app, handle)
    assert execution.args == '{"to":"ada@example.org","copies":2}'
    assert execution.state is State.QUEUED
    assert execution.job == "send"
    assert execution.parent is None
    assert handle.created


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"send\(\) is missing 'to'"),
        (("a", "b", 3), {}, r"send\(\) was given 3 positional arguments and takes 2 \(to, subject"),
        (("a",), {"to": "b"}, r"send\(\) was given 'to' twice"),
        (("a",), {"subjet": "b"}, r"has no argument 'subjet'; did you mean 'subject'\?"),
        ((5,), {}, r"send\(\), argument 'to': Expected `str`, got `int`"),
        (("a",), {"copies": "many"}, r"argument 'copies': Expected `int`, got `str`"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_where_they_are_given(
    app: App, args, kwargs, message
):
    send = a_mail_task(app)
    await app.open()

    with pytest.raises(InvalidArguments, match=message):
        await send.enqueue(*args, **kwargs)
    assert (await app.client().count()).executions == {}


async def test_what_json_cannot_hold_is_refused_by_its_path(app: App):
    @app.task
    def keep(things):
        return things

    with refuses(PayloadError, field="args"):
        await keep.enqueue([1, object()])


async def test_options_reach_the_execution(app: App):
    send = a_mail_task(app)
    moment = datetime(2040, 1, 2, 3, 4, tzinfo=UTC)

    delayed = await stored(app, await send.options(delay="1h").enqueue("a"))
    later = await stored(app, await send.options(at=moment, expires="5m").enqueue("a"))
    other = await stored(
        app,
        await send.options(
            priority="high", queue="mail", unique_key="a", retries=7, timeout="30s"
        ).enqueue("a"),
    )

    assert delayed.state is State.SCHEDULED
    assert delayed.run_at - delayed.created_at == pytest.approx(3600, abs=1)
    assert later.run_at == moment.timestamp()
    assert later.expires_at == moment.timestamp() + 300
    assert (other.priority, other.queue, other.unique_key) == (Priority.HIGH, "mail", "a")
    assert (other.retries, other.timeout) == (7, 30.0)


async def test_options_add_up_and_leave_the_task_as_it_is(app: App):
    send = a_mail_task(app)

    both = send.options(priority="high").options(queue="mail").options(priority="low")
    changed = await stored(app, await both.enqueue("a"))
    plain = await stored(app, await send.enqueue("a"))

    assert (changed.priority, changed.queue) == (Priority.LOW, "mail")
    assert (plain.priority, plain.queue) == (Priority.NORMAL, "default")


async def test_the_policies_of_a_task_are_its_definition(app: App):
    send = a_mail_task(
        app, retries=5, timeout="30s", queue="mail", priority="high", store_result=False
    )

    execution = await stored(app, await send.enqueue("a"))
    definition = (await app.client().job("send")).definition

    assert (execution.queue, execution.priority) == ("mail", Priority.HIGH)
    assert (definition.retry, definition.timeout) == (Retry(retries=5), 30.0)
    assert not definition.store_result
    assert definition.description == "Send a mail."


async def test_an_option_that_makes_no_sense_is_refused(app: App):
    send = a_mail_task(app)

    with pytest.raises(UsageError, match=r"options\(\) has no 'dealy'; did you mean 'delay'\?"):
        send.options(dealy="1h")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"task\(\) has no 'retires'; did you mean 'retries'\?"):
        a_mail_task(app, retires=5)
    with pytest.raises(InvalidDuration):
        await send.options(delay="soon").enqueue("a")
    with refuses(UsageError, field="at"):
        await send.options(delay=1, at=datetime.now(UTC)).enqueue("a")


async def test_a_key_that_is_held_answers_with_its_holder(app: App):
    send = a_mail_task(app).options(unique_key="hi-a")

    first = await send.enqueue("a")
    again = await send.enqueue("b")

    assert first.created and not again.created
    assert again.id == first.id
    assert (await stored(app, again)).args == '{"to":"a"}'


async def test_many_are_enqueued_in_order_with_their_options(app: App):
    send = a_mail_task(app)

    handles = await send.options(queue="mail").enqueue_many(
        {"to": name, "copies": count} for count, name in enumerate("abc")
    )

    found = [await stored(app, handle) for handle in handles]
    assert [execution.args for execution in found] == [
        '{"to":"a","copies":0}',
        '{"to":"b","copies":1}',
        '{"to":"c","copies":2}',
    ]
    assert {execution.queue for execution in found} == {"mail"}
    assert all(handle.created for handle in handles)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"too": "b"}, r"items\[1\]: send\(\) has no argument 'too'; did you mean 'to'\?"),
        ({"to": 3}, r"items\[1\]: send\(\), argument 'to': Expected `str`"),
        (("b",), r"items\[1\]: arguments are given by name, as a dict, not as tuple"),
    ],
)
async def test_many_are_enqueued_all_or_not_at_all(app: App, bad, message):
    send = a_mail_task(app)
    await app.open()

    with pytest.raises(UsageError, match=message):
        await send.enqueue_many([{"to": "a"}, bad, {"to": "c"}])
    assert (await app.client().count()).executions == {}


async def test_a_unique_key_is_not_for_many(app: App):
    send = a_mail_task(app)

    with pytest.raises(UsageError, match="unique_key is for one execution"):
        await send.options(unique_key="a").enqueue_many([{"to": "a"}])


async def test_no_items_are_no_executions(app: App):
    assert await a_mail_task(app).enqueue_many([]) == []


async def test_calling_a_task_just_runs_it():
    app = App("sqlite:////no/such/folder/daybell.db")

    @app.task
    def add(left: int, right: int = 1) -> int:
        return left + right

    assert await a_mail_task(app)("ada", "Hello") == "ada: Hello"
    assert add(2) == 3
    assert add(2, right=5) == 7
    assert add.__name__ == "add"


async def test_children_know_their_parent(app: App):
    ids = {}

    @app.task
    def leaf(number: int) -> None:
        pass

    @app.task
    async def root(ctx: Context) -> None:
        @app.task
        async def declared_late() -> None:
            pass

        ids["root"] = ctx.id
        ids["plain"] = (await leaf.enqueue(1)).id
        ids["through"] = (await ctx.enqueue(leaf, number=2)).id
        (many,) = await leaf.enqueue_many([{"number": 3}])
        ids["many"] = many.id
        ids["late"] = (await declared_late.enqueue()).id

    async with app, app.worker():
        await (await root.enqueue()).result(timeout=WAIT)
        parents = {name: (await app.client().execution(id)).parent_id for name, id in ids.items()}

    assert parents.pop("root") is None
    assert set(parents.values()) == {ids["root"]}


async def test_a_task_for_another_tenant_is_known_there(app: App):
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    client = await app.open()
    await client.add_tenant("acme")

    handle = await double.options(tenant="acme").enqueue(4)
    (many,) = await double.options(tenant="acme").enqueue_many([{"number": 5}])

    assert await handle.status() is State.QUEUED
    assert await many.status() is State.QUEUED
    assert (await client.count()).executions == {}
    assert (await client.for_tenant("acme").count()).executions == {State.QUEUED: 2}


async def test_arguments_of_every_form_arrive(app: App):
    @app.task
    def collect(first, /, *rest: int, ctx, key: str = "k", **others: float):
        return [first, list(rest), key, others, ctx.attempt]

    async with app, app.worker():
        handle = await collect.enqueue(1, 2, 3, key="x", other=1.5)
        least = await collect.enqueue("only")

        assert await handle.result(timeout=WAIT) == [1, [2, 3], "x", {"other": 1.5}, 1]
        assert await least.result(timeout=WAIT) == ["only", [], "k", {}, 1]


async def test_a_task_of_one_app_can_be_a_task_of_another_too(app: App):
    other = App("memory://")
    send = a_mail_task(app)

    again = other.task(send)

    assert again.app is other and send.app is app
    assert again.function is send.function
    await other.close()


async def test_a_key_names_an_argument_of_the_function(app: App):
    with pytest.raises(UsageError, match="account"):

        @app.task(debounce={"wait": "5s", "key": "acount"})
        async def wrong(account: str) -> None: ...

    @app.task(debounce={"wait": "5s", "key": "account"})
    async def render(account: str) -> None: ...

    first, second = await render.enqueue("a"), await render.enqueue("a")

    assert second.id == first.id
    assert (first.created, second.created) == (True, False)
    assert (await render.enqueue("b")).created
