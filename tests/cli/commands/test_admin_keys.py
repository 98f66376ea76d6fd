"""Keys and tenants on the command line."""

import json
import re

import pytest

from daybell.core.access import Action, Scope
from tests.cli.terminal import as_json


async def test_a_key_is_created_and_its_token_shown_once(command, client):
    ended = command("keys", "create", "deploy", "--role", "operator", "--expires", "30d")

    token = ended.out.strip()
    key, now = await client.authenticate(token)
    assert (ended.code, key.name, key.role) == (0, "deploy", "operator")
    assert key.expires_at == pytest.approx(now + 30 * 86400, abs=60)
    assert key.created_by.startswith("cli ")
    assert "cannot be shown again" in ended.err and token not in ended.err
    listed = command("keys", "list")
    assert token[:8] in listed.out and token not in listed.out
    (entry,) = (await client.audit()).items
    assert (entry.action, entry.target) == ("key.create", "deploy")
    assert token not in repr(entry)


async def test_a_key_can_be_made_for_another_tenant_and_in_json(command, client):
    await client.add_tenant("acme")

    made = as_json(
        command("keys", "create", "ci", "--role", "viewer", "--tenant", "acme", "--json")
    )

    key, _ = await client.authenticate(made["token"])
    assert (key.tenant, key.role, str(key.id)) == ("acme", "viewer", made["key_id"])
    (listed,) = as_json(command("keys", "list", "--tenant", "acme", "--json"))["items"]
    assert listed == {name: value for name, value in made.items() if name != "token"}
    assert command("keys", "list").out.startswith("no keys; daybell keys create")


async def test_a_key_is_limited_to_jobs_queues_and_actions(command, client):
    limits = ("--job", "billing-*", "--job", "report", "--queue", "mail", "--action", "trigger")

    made = command("keys", "create", "billing", "--role", "operator", *limits)

    key, _ = await client.authenticate(made.out.strip())
    told = "limited to jobs billing-*, report; queues mail; actions trigger"
    assert made.code == 0 and told in made.err
    assert "note: without the action read" in made.err
    assert key.scope == Scope(
        jobs=("billing-*", "report"), queues=("mail",), actions=(Action.TRIGGER,)
    )
    assert "billing-*" in command("keys", "list").out
    (listed,) = as_json(command("keys", "list", "--json"))["items"]
    assert (listed["jobs"], listed["queues"]) == (["billing-*", "report"], ["mail"])
    assert listed["actions"] == ["trigger"]
    (entry,) = (await client.audit()).items
    assert "billing-*" in entry.after["jobs"]


REFUSED = [
    (("keys", "create", "x", "--role", "viewer", "--action", "trigger"), "viewer may not trigger"),
    (("keys", "create", "x", "--role", "viewer", "--action", "fly"), "'fly' is not an action"),
    (("keys", "create", "x", "--role", "viewer", "--job", "a*b"), "'a*b' is no pattern"),
    (("keys", "create", "x", "--role", "worker", "--job", "a"), "and not to jobs"),
    (("keys", "create", "x", "--role", "boss"), "'boss' is not a role; there are viewer,"),
    (("keys", "create", "x"), "--role"),
    (("keys", "create", "", "--role", "viewer"), "key name is empty"),
    (("keys", "create", "x", "--role", "viewer", "--expires", "soon"), "soon"),
    (("keys", "create", "x", "--role", "viewer", "--tenant", "nobody"), "no tenant named"),
    (("keys", "revoke", "nothing"), "no key 'nothing'; see daybell keys list"),
    (("keys", "revoke", ""), "no key ''"),
    (("tenants", "create", "a/b"), "tenant name 'a/b' contains '/'"),
    (("tenants", "create", "default"), "'default' already"),
    (("tenants", "create", "x", "--queued", "-1"), "--queued '-1' is not a limit; it is not below"),
    (("tenants", "create", "x", "--jobs", "many"), "--jobs 'many' is neither a number nor 'none'"),
    (("tenants", "create", "x", "--per-minute", "-1"), "--per-minute '-1'"),
    (("tenants", "create", "x", "--queued", "1000000001"), "queued"),
    (("tenants", "update", "nobody", "--jobs", "1"), "no tenant named 'nobody'"),
    (("tenants", "update", "default"), "nothing to change"),
]


def test_what_makes_no_sense_is_told_in_a_line(command):
    for words, message in REFUSED:
        ended = command(*words)

        assert ended.code in (1, 2), words
        assert message in ended.err, words
        assert len(ended.err.splitlines()) == 1, words
    assert as_json(command("keys", "list", "--json")) == {"items": [], "next_cursor": None}
    tenants = as_json(command("tenants", "list", "--json"))["items"]
    assert [one["name"] for one in tenants] == ["default"]


async def test_a_key_is_revoked_by_what_one_knows_of_it(command, client):
    made = [await client.create_key(name, role="viewer") for name in ("web", "worker one", "ci")]
    by_token, by_name, by_id = made

    assert "key web (" in command("keys", "revoke", by_token.token).out
    assert command("keys", "revoke", "worker").out.endswith(") is revoked\n")
    assert command("keys", "revoke", str(by_id.key_id)).out.endswith(") is revoked\n")
    assert command("keys", "revoke", str(by_id.key_id)).out.endswith("was revoked already\n")

    assert all(key.revoked_at is not None for key in await client.keys())
    assert [entry.action for entry in (await client.audit()).items] == ["key.revoke"] * 3
    assert str(by_name.key_id) in [entry.target for entry in (await client.audit()).items]
    assert command("keys", "list").out.count("revoked") == 3


async def test_a_key_that_could_be_several_is_not_revoked(command, client):
    for name in ("deploy a", "deploy b", "deploy"):
        await client.create_key(name, role="viewer")

    ended = command("keys", "revoke", "deploy ")

    assert (ended.code, ended.out) == (2, "")
    assert "'deploy ' may be any of deploy b dbk_" in ended.err
    assert "key deploy (" in command("keys", "revoke", "deploy").out


async def test_a_broken_audit_log_is_found(command, client):
    for name in ("a", "b", "c"):
        command("tenants", "create", name)

    good = command("audit", "verify")
    head = good.out.split()[-1]
    again = command("audit", "verify", "--after", head)
    wrong = command("audit", "verify", "--after", "2:" + "0" * 64)
    report = json.loads(command("audit", "verify", "--json", "--after", "2:" + "0" * 64).out)
    nonsense = command("audit", "verify", "--after", "x")

    assert (good.code, good.out) == (0, f"3 entries checked; head {head}\n")
    assert (again.code, again.out) == (0, f"0 entries checked; head {head}\n")
    (entry, *_) = (await client.audit()).items
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err.startswith(f"the audit log is broken: entry 3 ({entry.entry_id}) was altered")
    assert report["broken"]["entry_id"] == str(entry.entry_id)
    assert (nonsense.code, "NUMBER:HASH" in nonsense.err) == (2, True)


async def test_tenants_are_created_listed_and_changed(command, client):
    created = command("tenants", "create", "acme", "--queued", "1000", "--running", "5")
    changed = command("tenants", "update", "acme", "--queued", "none", "--jobs", "3")

    assert created.out == "tenant acme is created: at most queued 1,000, running 5\n"
    assert changed.out == "tenant acme: at most jobs 3, running 5\n"
    weighted = command("tenants", "update", "acme", "--weight", "2.5")
    assert weighted.out == "tenant acme: at most jobs 3, running 5; weight 2.5\n"
    acme, default = as_json(command("tenants", "list", "--json"))["items"]
    assert (acme["weight"], default["weight"]) == (2.5, 1.0)
    entries = as_json(command("audit", "list", "--action", "tenant", "--since", "1h", "--json"))
    assert {(one["action"], one["target"]) for one in entries["items"]} >= {
        ("tenant.create", "acme")
    }
    nothing = command("audit", "list", "--until", "1h ago")
    assert (nothing.code, nothing.out) == (0, "no entries\n")
    page = command("audit", "list", "--limit", "1")
    assert "tenant.update" in page.out and "tenant.create" not in page.out
    assert (acme["name"], default["name"]) == ("acme", "default")
    assert "acme" in command("tenants", "list").out
    actions = [entry.action for entry in (await client.audit()).items]
    assert actions == ["tenant.update", "tenant.update", "tenant.create"]
    assert (await client.tenant_record("acme")).quotas.jobs == 3


def test_a_login_link_is_printed_alone_on_stdout(command):
    ended = command("login", "--role", "viewer", "--url", "https://jobs.example.org/")

    assert re.fullmatch(r"https://jobs\.example\.org/#login=dbk_[\w-]{43}\n", ended.out)
    assert ended.err.startswith("this opens tenant default as viewer, once, until ")
    (made,) = as_json(command("keys", "list", "--json"))["items"]
    assert (made["kind"], made["role"], made["parent_id"]) == ("login", "viewer", None)
    (entry,) = as_json(command("audit", "list", "--action", "login", "--json"))["items"]
    assert entry["action"] == "login.create"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--role", "worker"), "a worker's key opens no session"),
        (("--role", "boss"), "'boss' is not a role"),
        (("--expires", "0"), "expires"),
        (("--url", "localhost"), "--url 'localhost' is not one of a server"),
        (("--tenant", "nobody"), "no tenant named"),
    ],
)
def test_a_login_link_that_makes_no_sense_is_refused(command, words, said):
    ended = command("login", *words)

    assert ended.code in (1, 2) and said in ended.err and ended.out == ""
