"""Roles, and when a key opens anything."""

import pytest

from daybell.core.access import Key, Quotas, Role
from daybell.core.ids import mint

LADDER = [Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.SUPERADMIN]


@pytest.mark.parametrize("role", LADDER)
def test_a_role_may_do_what_those_below_it_may_and_no_more(role):
    below = LADDER[: LADDER.index(role) + 1]

    assert [one for one in LADDER if role.may(one)] == below


def test_a_worker_may_work_and_nothing_else_and_nobody_else_may():
    assert [role for role in Role if Role.WORKER.may(role)] == [Role.WORKER]
    assert [role for role in Role if role.may(Role.WORKER)] == [Role.WORKER]


@pytest.mark.parametrize(
    ("fields", "is_valid"),
    [
        ({}, True),
        ({"expires_at": 101.0}, True),
        ({"expires_at": 100.0}, False),
        ({"revoked_at": 50.0}, False),
        ({"revoked_at": 50.0, "expires_at": 200.0}, False),
    ],
)
def test_a_key_is_valid_until_it_expires_or_is_revoked(fields, is_valid):
    key = Key(
        id=mint(), tenant="t", name="k", role=Role.VIEWER, hint="dbk_", created_at=0.0, **fields
    )

    assert key.is_valid(100.0) is is_valid


def test_only_two_quotas_are_asked_for_when_something_is_enqueued():
    assert not Quotas(jobs=1, running=1).limits_enqueues
    assert Quotas(queued=0).limits_enqueues and Quotas(per_minute=0).limits_enqueues
