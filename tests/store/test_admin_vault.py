"""Secrets and templates: kept by name, one version after the other, each tenant's its own."""

import asyncio

import pytest
from msgspec.structs import replace

from daybell.core.job import TEMPLATES, Template
from daybell.core.limits import SECRET_BYTES_MAX
from daybell.errors import (
    DuplicateKey,
    InvalidName,
    PayloadTooLarge,
    SecretNotFound,
    TemplateNotFound,
    TenantNotFound,
    UsageError,
    VersionConflict,
)
from tests.builders import TENANT, a_secret, a_template, add_tenants, an_entry
from tests.refusals import refuses

OTHER = "acme"


async def sealed_of(store, *names, tenant=TENANT):
    found = await store.admin.fetch_secrets(tenant, names)
    return {name: secret.sealed for name, secret in found.items()}


async def entries(store):
    return [entry.action for entry in (await store.admin.list_audit(TENANT)).items]


# Secrets.


async def test_a_secret_is_kept_and_shown_without_its_value(store, clock):
    made = await store.admin.set_secret(TENANT, a_secret("TOKEN", sealed=b"\0\1\xff", author="ana"))

    assert (made.name, made.tenant, made.key_id, made.author) == ("TOKEN", TENANT, "k1", "ana")
    assert (made.version, made.created_at, made.updated_at) == (1, clock.now(), clock.now())
    assert await store.admin.list_secrets(TENANT) == [made]
    (kept,) = (await store.admin.fetch_secrets(TENANT, ["TOKEN"])).values()
    assert (kept.name, kept.key_id, kept.version) == ("TOKEN", "k1", 1)
    assert kept.sealed == b"\0\1\xff"


async def test_a_secret_that_is_set_again_is_replaced_and_its_version_rises(store, clock):
    first = await store.admin.set_secret(TENANT, a_secret(author="ana"))
    await clock.advance(5)

    second = await store.admin.set_secret(TENANT, a_secret(sealed=b"new", key_id="k2", author="bo"))

    assert (second.version, second.key_id, second.author) == (2, "k2", "bo")
    assert (second.created_at, second.updated_at) == (first.created_at, clock.now())
    assert await store.admin.list_secrets(TENANT) == [second]
    (kept,) = (await store.admin.fetch_secrets(TENANT, ["TOKEN"])).values()
    assert (kept.key_id, kept.version, kept.sealed) == ("k2", 2, b"new")


async def test_secrets_are_listed_by_name(store):
    for name in ("b", "A", "_c", "a"):
        await store.admin.set_secret(TENANT, a_secret(name))

    assert [one.name for one in await store.admin.list_secrets(TENANT)] == ["A", "_c", "a", "b"]


async def test_of_the_secrets_asked_for_those_that_there_are_come(store):
    await store.admin.set_secret(TENANT, a_secret("A", sealed=b"1"))
    await store.admin.set_secret(TENANT, a_secret("B", sealed=b"2"))

    asked = ("A", "NONE", "a", "A", "", "\0", "\ud800", "B'")
    assert await sealed_of(store, *asked) == {"A": b"1"}
    assert await sealed_of(store) == {}


async def test_a_secret_that_was_deleted_is_gone(store):
    await store.admin.set_secret(TENANT, a_secret("A"))
    await store.admin.set_secret(TENANT, a_secret("B"))

    await store.admin.delete_secret(TENANT, "A")

    assert [one.name for one in await store.admin.list_secrets(TENANT)] == ["B"]
    assert await sealed_of(store, "A") == {}
    with refuses(SecretNotFound):
        await store.admin.delete_secret(TENANT, "A")


async def test_versions_of_a_secret_never_repeat(store, clock):
    await store.admin.set_secret(TENANT, a_secret(version=1))
    await store.admin.delete_secret(TENANT, "TOKEN")
    await clock.advance(5)

    for wrong in (1, 2, 4):
        with refuses(VersionConflict) as refused:
            await store.admin.set_secret(TENANT, a_secret(version=wrong))
        assert refused.value.version == 2
    assert await store.admin.list_secrets(TENANT) == []
    made = await store.admin.set_secret(TENANT, a_secret(version=3))
    assert (made.version, made.created_at) == (3, clock.now())


async def test_of_two_that_set_the_same_version_one_is_refused(store):
    await store.admin.set_secret(TENANT, a_secret())

    asked = [a_secret(sealed=value, version=2) for value in (b"1", b"2")]
    answers = await asyncio.gather(
        *(store.admin.set_secret(TENANT, one) for one in asked), return_exceptions=True
    )

    assert sorted(isinstance(one, VersionConflict) for one in answers) == [False, True]
    (kept,) = (await store.admin.fetch_secrets(TENANT, ["TOKEN"])).values()
    assert kept.version == 2


async def test_a_secret_that_was_refused_is_not_on_record(store):
    audited = store.audited(TENANT, an_entry("secret.set"))
    with pytest.raises(VersionConflict):
        await audited.admin.set_secret(TENANT, a_secret(version=7))

    assert await entries(store) == []


async def test_secrets_of_tenants_are_apart(store):
    await add_tenants(store, [OTHER])
    await store.admin.set_secret(TENANT, a_secret(sealed=b"ours"))
    theirs = await store.admin.set_secret(OTHER, a_secret(sealed=b"theirs"))

    assert theirs.version == 1
    assert await sealed_of(store, "TOKEN") == {"TOKEN": b"ours"}
    await store.admin.delete_secret(TENANT, "TOKEN")
    assert await sealed_of(store, "TOKEN", tenant=OTHER) == {"TOKEN": b"theirs"}
    with pytest.raises(TenantNotFound):
        await store.admin.set_secret("nobody", a_secret())


@pytest.mark.parametrize("name", ["", "1st", "a-b", "é", "a b", "x" * 101, "a\0"])
async def test_what_cannot_name_a_secret_is_refused(store, name):
    with pytest.raises(InvalidName):
        await store.admin.set_secret(TENANT, a_secret(name))
    with pytest.raises(InvalidName):
        await store.admin.delete_secret(TENANT, name)


async def test_a_secret_that_cannot_be_kept_is_refused(store):
    for wrong in (b"", b"x" * (SECRET_BYTES_MAX + 2000)):
        with pytest.raises(PayloadTooLarge):
            await store.admin.set_secret(TENANT, a_secret(sealed=wrong))
    with refuses(UsageError, field="author"):
        await store.admin.set_secret(TENANT, a_secret(author="a\0"))

    await store.admin.set_secret(TENANT, a_secret(sealed=b"x" * (SECRET_BYTES_MAX + 100)))


async def test_what_changes_secrets_is_on_record_with_the_change(store):
    audited = store.audited(TENANT, an_entry("secret.set"))
    await audited.admin.set_secret(TENANT, a_secret())
    audited = store.audited(TENANT, an_entry("secret.look"))
    await audited.admin.list_secrets(TENANT)
    await audited.admin.fetch_secrets(TENANT, ["TOKEN"])
    audited = store.audited(TENANT, an_entry("secret.delete"))
    await audited.admin.delete_secret(TENANT, "TOKEN")
    audited = store.audited(TENANT, an_entry("secret.again"))
    with pytest.raises(SecretNotFound):
        await audited.admin.delete_secret(TENANT, "TOKEN")

    assert sorted(await entries(store)) == ["secret.delete", "secret.set"]


# Templates.


async def test_a_template_is_kept_as_it_was_given(store, clock):
    new = a_template("export", timeout=5)
    new = replace(new, description="Who: “all” \0 of it")

    made = await store.admin.put_record(TENANT, TEMPLATES, new, author="ana")

    assert made.template == new
    assert (made.name, made.tenant, made.author, made.version) == ("export", TENANT, "ana", 1)
    assert (made.created_at, made.updated_at) == (clock.now(), clock.now())
    assert await store.admin.get_record(TENANT, TEMPLATES, "export") == made
    assert (await store.admin.list_records(TENANT, TEMPLATES)).items == (made,)


async def test_a_template_that_is_set_again_is_replaced_and_its_version_rises(store, clock):
    first = await store.admin.put_record(TENANT, TEMPLATES, a_template(timeout=5), author="ana")
    await clock.advance(5)

    second = await store.admin.put_record(TENANT, TEMPLATES, a_template(timeout=6), author="bo")

    assert (second.version, second.author, second.template.job["timeout"]) == (2, "bo", 6)
    assert (second.created_at, second.updated_at) == (first.created_at, clock.now())
    assert await store.admin.get_record(TENANT, TEMPLATES, "export") == second
    assert (await store.admin.put_record(TENANT, TEMPLATES, a_template(timeout=5))).version == 3


async def test_an_equal_template_changes_nothing(store, clock):
    first = await store.admin.put_record(
        TENANT, TEMPLATES, a_template(timeout=1, queue="q"), author="ana"
    )
    await clock.advance(5)

    again = await store.admin.put_record(
        TENANT, TEMPLATES, a_template(queue="q", timeout=1), author="bo"
    )

    assert again == first == await store.admin.get_record(TENANT, TEMPLATES, "export")
    # What Python takes for equal is another thing in JSON.
    assert (
        await store.admin.put_record(TENANT, TEMPLATES, a_template(timeout=True, queue="q"))
    ).version == 2


async def test_a_template_that_must_be_new_is_refused_if_it_is_not(store):
    first = await store.admin.put_record(TENANT, TEMPLATES, a_template(), expect=0)

    for other in (a_template(timeout=5), a_template()):
        with refuses(DuplicateKey):
            await store.admin.put_record(TENANT, TEMPLATES, other, expect=0)

    assert await store.admin.get_record(TENANT, TEMPLATES, "export") == first


async def test_a_template_that_somebody_else_has_changed_is_not_replaced(store):
    await store.admin.put_record(TENANT, TEMPLATES, a_template(timeout=1))
    second = await store.admin.put_record(TENANT, TEMPLATES, a_template(timeout=2), expect=1)

    with pytest.raises(VersionConflict, match="template 'export' is at version 2, not 1"):
        await store.admin.put_record(TENANT, TEMPLATES, a_template(timeout=3), expect=1)
    with pytest.raises(VersionConflict, match="is at version 0, not 1"):
        await store.admin.put_record(TENANT, TEMPLATES, a_template("other"), expect=1)

    assert (await store.admin.list_records(TENANT, TEMPLATES)).items == (second,)


async def test_of_many_who_change_a_template_at_once_one_is_first(crowd):
    await crowd[0].admin.put_record(TENANT, TEMPLATES, a_template(timeout=1))

    answers = await asyncio.gather(
        *(
            store.admin.put_record(TENANT, TEMPLATES, a_template(timeout=10 + n), expect=1)
            for n, store in enumerate(crowd * 5)
        ),
        return_exceptions=True,
    )

    made = [one for one in answers if isinstance(one, Template)]
    assert [one.version for one in made] == [2]
    assert all(isinstance(one, VersionConflict) for one in answers if one not in made)
    assert await crowd[0].admin.get_record(TENANT, TEMPLATES, "export") == made[0]


async def test_of_many_who_make_a_template_at_once_one_is_first(crowd):
    answers = await asyncio.gather(
        *(store.admin.put_record(TENANT, TEMPLATES, a_template(), expect=0) for store in crowd * 5),
        return_exceptions=True,
    )

    refused = [one for one in answers if isinstance(one, DuplicateKey)]
    assert len(refused) == len(answers) - 1
    assert [
        one.version for one in (await crowd[1].admin.list_records(TENANT, TEMPLATES)).items
    ] == [1]


async def test_a_template_that_was_deleted_is_gone(store):
    await store.admin.put_record(TENANT, TEMPLATES, a_template("a"))
    await store.admin.put_record(TENANT, TEMPLATES, a_template("B"))

    with refuses(VersionConflict):
        await store.admin.delete_record(TENANT, TEMPLATES, "a", expect=2)
    assert [one.name for one in (await store.admin.list_records(TENANT, TEMPLATES)).items] == [
        "B",
        "a",
    ]
    await store.admin.delete_record(TENANT, TEMPLATES, "a", expect=1)
    await store.admin.delete_record(TENANT, TEMPLATES, "B")

    assert (await store.admin.list_records(TENANT, TEMPLATES)).items == ()
    for expect in (None, 1):
        with pytest.raises(TemplateNotFound, match="no template named 'a'"):
            await store.admin.delete_record(TENANT, TEMPLATES, "a", expect=expect)
    with pytest.raises(TemplateNotFound, match="no template named 'a'"):
        await store.admin.get_record(TENANT, TEMPLATES, "a")


async def test_templates_of_tenants_are_apart(store):
    await add_tenants(store, [OTHER])
    ours = await store.admin.put_record(TENANT, TEMPLATES, a_template(timeout=1))
    theirs = await store.admin.put_record(OTHER, TEMPLATES, a_template(timeout=2), expect=0)

    assert theirs.version == 1
    await store.admin.delete_record(OTHER, TEMPLATES, "export")
    assert (await store.admin.list_records(OTHER, TEMPLATES)).items == ()
    assert (await store.admin.list_records(TENANT, TEMPLATES)).items == (ours,)


async def test_what_cannot_name_a_template_is_refused(store):
    for name in ("", "a/b", "a\0"):
        with pytest.raises(InvalidName):
            await store.admin.put_record(TENANT, TEMPLATES, replace(a_template(), name=name))
        with pytest.raises(InvalidName):
            await store.admin.get_record(TENANT, TEMPLATES, name)
        with pytest.raises(InvalidName):
            await store.admin.delete_record(TENANT, TEMPLATES, name)


async def test_what_changes_templates_is_on_record_with_the_change(store):
    audited = store.audited(TENANT, an_entry("template.create"))
    await audited.admin.put_record(TENANT, TEMPLATES, a_template())
    audited = store.audited(TENANT, an_entry("template.update"))
    await audited.admin.put_record(TENANT, TEMPLATES, a_template())
    assert await entries(audited) == ["template.create"]
    await audited.admin.put_record(TENANT, TEMPLATES, a_template(timeout=2))
    audited = store.audited(TENANT, an_entry("template.wrong"))
    with pytest.raises(VersionConflict):
        await audited.admin.put_record(TENANT, TEMPLATES, a_template(timeout=3), expect=1)
    audited = store.audited(TENANT, an_entry("template.late"))
    with pytest.raises(VersionConflict):
        await audited.admin.delete_record(TENANT, TEMPLATES, "export", expect=1)
    audited = store.audited(TENANT, an_entry("template.delete"))
    await audited.admin.delete_record(TENANT, TEMPLATES, "export")

    expected = ["template.create", "template.delete", "template.update"]
    assert sorted(await entries(store)) == expected
