"""Jobs, their versions and tenants, and a job that is defined and run at once."""

import pytest

from daybell.core.execution import Priority, State
from daybell.core.ids import mint
from daybell.core.job import JobDefinition
from daybell.core.retry import Retry
from daybell.core.schedule import Overlap
from daybell.core.views import ExecutionFilter, JobFilter
from daybell.errors import (
    ExecutionInTheWay,
    JobNotFound,
    QuotaExceeded,
    UsageError,
    VersionConflict,
)
from tests.builders import (
    TENANT,
    a_job,
    a_schedule,
    add_tenants,
    an_execution,
    claim,
    defined,
    enqueued,
    look,
    tenant_names,
)
from tests.refusals import refuses


async def test_the_default_tenant_always_exists(store):
    assert await tenant_names(store) == ("default",)


async def test_tenants_are_listed_by_name_and_adding_one_again_changes_nothing(store):
    await add_tenants(store, ["zoo", "acme", "default"])
    await defined(store, "resize", tenant="acme")

    await add_tenants(store, ["acme", "bee"])

    assert await tenant_names(store) == ("acme", "bee", "default", "zoo")
    assert (await store.catalog.get_job("acme", "resize")).version == 1


@pytest.mark.parametrize("name", ["", "a/b", "-x", "x" * 201, "\ud800"])
async def test_a_tenant_needs_a_proper_name(store, name):
    with pytest.raises(UsageError):
        await add_tenants(store, [name])


async def test_a_new_name_becomes_version_1(store, clock):
    new = a_job("resize", author="ada", description="make it smaller", queue="images")

    (job,) = await store.catalog.define_jobs(TENANT, [new])

    assert job.id == new.id
    assert (job.tenant, job.name, job.version, job.author) == (TENANT, "resize", 1, "ada")
    assert job.definition == new.definition
    assert job.created_at == clock.now()
    assert job.is_current
    assert await store.catalog.get_job(TENANT, "resize") == job


async def test_a_definition_is_read_back_as_it_was_stored(store):
    definition = JobDefinition(
        name="größe ändern",
        kind="http",
        queue="images",
        priority=Priority.HIGH,
        retry=Retry.delays("1s", "10s", jitter=0.0, never_on=[ValueError]),
        timeout=30.0,
        expires=3600.0,
        max_crashes=7,
        on_lost="dead",
        store_result=False,
        description="größer 🔔",
        user_id="u-1",
        settings='{"url": "https://example.org/\\u0000"}',
    )

    await store.catalog.define_jobs(TENANT, [a_job(**{f: getattr(definition, f) for f in FIELDS})])

    assert (await store.catalog.get_job(TENANT, "größe ändern")).definition == definition


FIELDS = JobDefinition.__struct_fields__


async def test_jobs_are_answered_in_the_order_given(store):
    names = ["c", "a", "b"]

    jobs = await store.catalog.define_jobs(TENANT, [a_job(name) for name in names])

    assert [job.name for job in jobs] == names


async def test_defining_nothing_is_answered_with_nothing(store):
    assert await store.catalog.define_jobs(TENANT, []) == []


async def test_an_equal_definition_changes_nothing(store, clock):
    (first,) = await store.catalog.define_jobs(TENANT, [a_job(timeout=5.0, author="ada")])
    await clock.advance(10)

    (again,) = await store.catalog.define_jobs(TENANT, [a_job(timeout=5.0, author="bob")])

    assert again == first
    assert (await store.catalog.list_versions(TENANT, "resize")).items == (first,)


async def test_a_policy_with_a_function_of_its_own_equals_itself(store):
    policy = Retry.function(lambda failures: failures * 2.0)

    (first,) = await defined(store, retry=policy)
    (again,) = await defined(store, retry=policy)

    assert first.version == again.version == 1
    assert again.definition.retry.wait_function is None


async def test_a_different_definition_becomes_the_next_version(store, clock):
    (first,) = await defined(store, timeout=5.0)
    await clock.advance(10)

    (second,) = await defined(store, timeout=6.0)

    assert (second.id, second.version, second.is_current) == (first.id, 2, True)
    assert second.created_at == first.created_at + 10
    newest, oldest = (await store.catalog.list_versions(TENANT, "resize")).items
    assert newest == second
    assert (oldest.version, oldest.is_current, oldest.definition.timeout) == (1, False, 5.0)


async def test_old_code_does_not_bring_a_superseded_definition_back(store):
    await defined(store, timeout=5.0)
    await defined(store, timeout=6.0)

    (answer,) = await defined(store, timeout=5.0)

    assert (answer.version, answer.definition.timeout) == (2, 6.0)
    assert (await store.catalog.get_job(TENANT, "resize")).version == 2


async def test_a_superseded_definition_that_is_promoted_becomes_the_next_version(store):
    await defined(store, timeout=5.0)
    await defined(store, timeout=6.0)

    (answer,) = await defined(store, timeout=5.0, promote=True)

    assert (answer.version, answer.definition.timeout) == (3, 5.0)
    assert [job.version for job in (await store.catalog.list_versions(TENANT, "resize")).items] == [
        3,
        2,
        1,
    ]


async def test_promoting_what_is_current_changes_nothing(store):
    await defined(store, timeout=5.0)

    (answer,) = await defined(store, timeout=5.0, promote=True)

    assert answer.version == 1


async def test_expecting_no_job_holds_only_for_a_new_name(store):
    await defined(store, "resize", expect=0)

    with refuses(VersionConflict):
        await defined(store, "resize", expect=0, timeout=9.0)

    assert (await store.catalog.get_job(TENANT, "resize")).version == 1


async def test_expecting_a_version_holds_only_while_it_is_current(store):
    await defined(store, timeout=1.0)
    await defined(store, timeout=2.0, expect=1)

    with refuses(VersionConflict):
        await defined(store, timeout=3.0, expect=1)

    assert (await store.catalog.get_job(TENANT, "resize")).definition.timeout == 2.0


async def test_definitions_are_stored_all_or_not_at_all(store):
    await defined(store, "resize")

    with pytest.raises(VersionConflict):
        await store.catalog.define_jobs(
            TENANT, [a_job("new"), a_job("resize", expect=7, timeout=1.0)]
        )

    with pytest.raises(JobNotFound):
        await store.catalog.get_job(TENANT, "new")


@pytest.mark.parametrize(
    "bad",
    [
        a_job("a/b"),
        a_job("ok", queue="a,b"),
        a_job("ok", description="\ud800"),
        a_job("ok", timeout=0.0),
        a_job("ok", timeout=float("nan")),
        a_job("ok", expires=0.0),
    ],
    ids=["name", "queue", "text", "timeout", "no number", "expires"],
)
async def test_a_definition_that_cannot_be_kept_is_refused(store, bad):
    with pytest.raises(UsageError):
        await store.catalog.define_jobs(TENANT, [a_job("new"), bad])

    assert (await store.catalog.list_jobs(TENANT)).items == ()


async def test_each_version_can_be_read(store):
    (first,) = await defined(store, timeout=1.0)
    (second,) = await defined(store, timeout=2.0)

    old = await store.catalog.get_job(TENANT, "resize", version=1)

    assert (old.definition, old.is_current) == (first.definition, False)
    assert await store.catalog.get_job(TENANT, "resize", version=2) == second


async def test_an_unknown_job_or_version_is_not_found(store):
    await defined(store, "resize")

    with pytest.raises(JobNotFound, match="nothing"):
        await store.catalog.get_job(TENANT, "nothing")
    with pytest.raises(JobNotFound, match="resize"):
        await store.catalog.get_job(TENANT, "resize", version=2)
    with pytest.raises(JobNotFound, match="nothing"):
        await store.catalog.list_versions(TENANT, "nothing")
    with pytest.raises(JobNotFound, match="nothing"):
        await store.catalog.delete_job(TENANT, "nothing")


async def test_jobs_are_listed_by_name_in_pages(store):
    names = ["b", "a", "Z", "ä", "a b", "a.b", "c"]
    await defined(store, *names)

    first = await store.catalog.list_jobs(TENANT, limit=4)
    second = await store.catalog.list_jobs(TENANT, limit=4, cursor=first.next_cursor)

    assert [job.name for job in (*first.items, *second.items)] == sorted(names)
    assert len(first.items) == 4
    assert second.next_cursor is None


async def test_a_page_that_ends_with_the_last_job_has_no_cursor(store):
    await defined(store, "a", "b")

    page = await store.catalog.list_jobs(TENANT, limit=2)

    assert page.next_cursor is None


async def test_jobs_that_come_and_go_between_pages_shift_nothing(store):
    await defined(store, "b", "d", "f", "h")
    first = await store.catalog.list_jobs(TENANT, limit=2)
    await store.catalog.delete_job(TENANT, "d")
    await defined(store, "a", "e")

    second = await store.catalog.list_jobs(TENANT, limit=10, cursor=first.next_cursor)

    assert [job.name for job in first.items] == ["b", "d"]
    assert [job.name for job in second.items] == ["e", "f", "h"]


async def test_a_prefix_is_taken_literally(store):
    await defined(store, "mail.send", "mail.sort", "mail_send", "mailxsend", "Mail.send")

    dotted = await store.catalog.list_jobs(TENANT, JobFilter(prefix="mail."))
    underscored = await store.catalog.list_jobs(TENANT, JobFilter(prefix="mail_"))
    wild = await store.catalog.list_jobs(TENANT, JobFilter(prefix="%"))

    assert [job.name for job in dotted.items] == ["mail.send", "mail.sort"]
    assert [job.name for job in underscored.items] == ["mail_send"]
    assert wild.items == ()


async def test_jobs_are_found_by_words_in_their_names_and_descriptions(store):
    await defined(store, "mail.send", description="Grüße an 100% der Kunden")
    await defined(store, "Mailing", description="monthly")
    await defined(store, "resize", description="E-MAIL attachments\0 too")
    await defined(store, "sweep", description="mail")
    await defined(store, "sweep", description="clean up")

    async def named(text):
        page = await store.catalog.list_jobs(TENANT, JobFilter(text=text))
        return [job.name for job in page.items]

    assert await named("mail") == ["Mailing", "mail.send", "resize"]
    assert await named("MAIL.") == ["mail.send"]
    assert await named("GRÜSSE") == ["mail.send"]
    assert await named("0%") == ["mail.send"]
    assert await named("m%l") == await named("mail_send") == await named("\\") == []
    assert await named("attachments  too") == ["resize"]


async def test_jobs_are_listed_by_whose_they_are_and_by_queue(store):
    await defined(store, "a", "c", user_id="ada", queue="mail")
    await defined(store, "b", user_id="ada")
    await defined(store, "d", user_id="bob", queue="mail")
    await defined(store, "e", user_id="ada")
    await defined(store, "e", user_id=None)

    async def named(**where):
        page = await store.catalog.list_jobs(TENANT, JobFilter(**where))
        return [job.name for job in page.items]

    assert await named(user_id="ada") == ["a", "b", "c"]
    assert await named(user_id="Ada") == []
    assert await named(queue="mail") == ["a", "c", "d"]
    assert await named(queue="mail", user_id="ada", prefix="c", text="C") == ["c"]


async def test_jobs_are_listed_by_a_name_that_their_definition_mentions(store):
    await defined(store, "größe", "other")
    await defined(store, "after", dependencies=("größe",))
    await defined(store, "runs", settings='{"nodes":[{"job":"größe"}]}')
    await defined(store, "no longer", dependencies=("größe",))
    await defined(store, "no longer", dependencies=("other",))

    async def named(name):
        page = await store.catalog.list_jobs(TENANT, JobFilter(mentions=name))
        return [job.name for job in page.items]

    assert await named("größe") == ["after", "größe", "runs"]
    assert await named("gr_ße") == []


async def test_pages_of_a_filtered_list_go_on_where_they_ended(store):
    await defined(store, "a", "c", "e", user_id="ada")
    await defined(store, "b", "d", user_id="bob")
    where = JobFilter(user_id="ada")

    first = await store.catalog.list_jobs(TENANT, where, limit=2)
    second = await store.catalog.list_jobs(TENANT, where, limit=2, cursor=first.next_cursor)

    assert [job.name for job in first.items] == ["a", "c"]
    assert [job.name for job in second.items] == ["e"]
    assert second.next_cursor is None


@pytest.mark.parametrize("text", ["\0", "\ud800"])
@pytest.mark.parametrize("field", ["prefix", "text", "user_id", "queue", "mentions", "cursor"])
async def test_jobs_are_not_asked_for_by_what_no_database_takes(store, field, text):
    with pytest.raises(UsageError) as caught:
        if field == "cursor":
            await store.catalog.list_jobs(TENANT, cursor=text)
        else:
            await store.catalog.list_jobs(TENANT, JobFilter(**{field: text}))

    assert caught.value.field == field


@pytest.mark.parametrize("user_id", ["", "a\0b", "\ud800", "x" * 501])
async def test_whose_a_job_is_can_be_searched_for(store, user_id):
    with pytest.raises(UsageError, match="user_id"):
        await defined(store, user_id=user_id)


async def test_a_job_is_found_by_its_id_while_it_is_there(store):
    (first,) = await defined(store, timeout=1.0)
    (second,) = await defined(store, timeout=2.0)

    found = await store.catalog.find_job(TENANT, first.id)
    await store.catalog.delete_job(TENANT, "resize")
    deleted = await store.catalog.find_job(TENANT, first.id, or_deleted=True)

    assert found == second
    assert deleted == second
    with pytest.raises(JobNotFound, match=str(first.id)):
        await store.catalog.find_job(TENANT, first.id)
    with refuses(JobNotFound):
        await store.catalog.find_job(TENANT, mint(), or_deleted=True)


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_of_jobs_has_a_reasonable_size(store, limit):
    with pytest.raises(UsageError):
        await store.catalog.list_jobs(TENANT, limit=limit)


async def test_a_deleted_job_is_not_shown_but_its_versions_are(store):
    await defined(store, timeout=1.0)
    await defined(store, timeout=2.0)

    await store.catalog.delete_job(TENANT, "resize")

    assert (await store.catalog.list_jobs(TENANT)).items == ()
    with pytest.raises(JobNotFound):
        await store.catalog.get_job(TENANT, "resize")
    assert (await store.catalog.get_job(TENANT, "resize", version=1)).definition.timeout == 1.0
    assert [job.version for job in (await store.catalog.list_versions(TENANT, "resize")).items] == [
        2,
        1,
    ]
    with pytest.raises(JobNotFound):
        await store.catalog.delete_job(TENANT, "resize")


async def test_a_job_at_another_version_is_not_deleted(store):
    await defined(store, timeout=1.0)
    await defined(store, timeout=2.0)

    with refuses(VersionConflict):
        await store.catalog.delete_job(TENANT, "resize", expect=1)
    assert (await store.catalog.get_job(TENANT, "resize")).version == 2
    await store.catalog.delete_job(TENANT, "resize", expect=2)

    with pytest.raises(JobNotFound):
        await store.catalog.delete_job(TENANT, "resize", expect=2)
    with pytest.raises(JobNotFound):
        await store.catalog.get_job(TENANT, "resize")


async def test_a_deleted_job_cannot_be_enqueued_or_scheduled(store):
    await defined(store, "resize")
    await store.catalog.delete_job(TENANT, "resize")

    with pytest.raises(JobNotFound, match="resize"):
        await store.queue.enqueue(TENANT, [an_execution("resize")])
    with pytest.raises(JobNotFound, match="resize"):
        await store.queue.load(TENANT, [an_execution("resize")])
    with pytest.raises(JobNotFound, match="resize"):
        await store.schedules.put_schedules(TENANT, [a_schedule("resize")])


async def test_deleting_a_job_takes_its_schedules_and_no_others(store):
    await defined(store, "resize", "mail")
    kept = a_schedule("mail")
    await store.schedules.put_schedules(TENANT, [a_schedule("resize"), kept])

    await store.catalog.delete_job(TENANT, "resize")

    assert [schedule.id for schedule in await store.schedules.list_schedules(TENANT)] == [kept.id]


async def test_executions_of_a_deleted_job_stay_and_run(store):
    (id,) = await enqueued(store)

    await store.catalog.delete_job(TENANT, "resize")

    assert (await look(store, id)).job == "resize"
    assert (await claim(store)).one.id == id


async def test_a_deleted_job_that_is_defined_again_lives_on_under_its_old_id(store):
    (first,) = await defined(store, timeout=1.0)
    await store.catalog.delete_job(TENANT, "resize")

    (again,) = await defined(store, timeout=1.0, id=mint())

    assert (again.id, again.version) == (first.id, 1)
    assert await store.catalog.get_job(TENANT, "resize") == again


async def test_a_deleted_job_that_is_defined_anew_gets_the_next_version(store):
    (first,) = await defined(store, timeout=1.0)
    await store.catalog.delete_job(TENANT, "resize")

    (again,) = await defined(store, timeout=2.0)

    assert (again.id, again.version) == (first.id, 2)


# A job that is defined and run: both or neither.


async def executions(store):
    return (await store.catalog.list_executions(TENANT, ExecutionFilter())).items


async def test_a_job_is_there_and_runs(store):
    new = an_execution("import", args='{"a":1}')

    job, made = await store.catalog.launch(TENANT, a_job("import", queue="files", expect=0), new)

    assert (job.name, job.version, made.id, made.created) == ("import", 1, new.id, True)
    assert await store.catalog.get_job(TENANT, "import") == job
    found = await look(store, new.id)
    assert (found.state, found.queue, found.args) == (State.QUEUED, "files", '{"a":1}')
    hands = await claim(store, queues=("files",))
    assert [one.id for one in hands.executions] == [new.id]


async def test_a_queue_of_its_own_is_found_by_who_claims(store):
    new = an_execution("import", queue="apart")

    await store.catalog.launch(TENANT, a_job("import", queue="files"), new)

    assert (await look(store, new.id)).queue == "apart"
    assert len((await claim(store, queues=("apart",))).executions) == 1


@pytest.mark.parametrize("quota", ["jobs", "queued", "per_minute"])
async def test_over_a_quota_there_is_neither(store, quota):
    await store.admin.set_quotas(TENANT, **{quota: 0})

    with pytest.raises(QuotaExceeded):
        await store.catalog.launch(TENANT, a_job("import"), an_execution("import"))

    with pytest.raises(JobNotFound):
        await store.catalog.list_versions(TENANT, "import")
    assert await executions(store) == ()
    await store.admin.set_quotas(TENANT, **{quota: 1})
    await store.catalog.launch(TENANT, a_job("import"), an_execution("import"))
    assert len(await executions(store)) == 1


async def test_what_is_refused_leaves_neither(store):
    await defined(store, "there")

    with pytest.raises(VersionConflict):
        await store.catalog.launch(
            TENANT, a_job("there", expect=0, timeout=9.0), an_execution("there")
        )
    with pytest.raises(UsageError):
        await store.catalog.launch(TENANT, a_job("import"), an_execution("import", args="\0"))
    with pytest.raises(UsageError):
        await store.catalog.launch(TENANT, a_job("import"), an_execution("import", gate="nowhere"))

    assert [job.name for job in (await store.catalog.list_jobs(TENANT)).items] == ["there"]
    assert await executions(store) == ()
    with pytest.raises(JobNotFound):
        await store.queue.enqueue(TENANT, [an_execution("import")])


async def test_one_in_the_way_keeps_a_deleted_job_from_coming_back(store):
    await store.catalog.define_jobs(TENANT, [a_job("import", overlap=Overlap.SKIP)])
    first = an_execution("import")
    await store.queue.enqueue(TENANT, [first])
    await store.catalog.delete_job(TENANT, "import")

    with pytest.raises(ExecutionInTheWay) as caught:
        await store.catalog.launch(
            TENANT, a_job("import", overlap=Overlap.SKIP), an_execution("import")
        )

    assert caught.value.execution == first.id
    with pytest.raises(JobNotFound):
        await store.catalog.get_job(TENANT, "import")


async def test_a_key_that_is_held_is_answered_with_its_holder(store):
    await defined(store, "import")
    first = an_execution("import", unique_key="k")
    await store.queue.enqueue(TENANT, [first])
    await store.catalog.delete_job(TENANT, "import")

    job, made = await store.catalog.launch(
        TENANT, a_job("import"), an_execution("import", unique_key="k")
    )

    assert (made.id, made.created) == (first.id, False)
    assert await store.catalog.get_job(TENANT, "import") == job


async def test_jobs_are_listed_by_their_labels(store):
    await defined(store, "a", labels={"team": "Billing", "tier": "1"}, description="tier=2")
    await defined(store, "b", labels={"team": "billing"})
    await defined(store, "c", description="team=billing")

    async def names(label):
        page = await store.catalog.list_jobs(TENANT, JobFilter(label=label))
        return [one.name for one in page.items]

    assert await names("team=billing") == ["a", "b"]
    assert await names("tier") == ["a"]
    assert await names("tier=2") == []
    assert await names("team=bill") == []
