"""What is said where no worker offers what a job needs."""

import pytest

from daybell.client.explain import describe_lack, describe_start


@pytest.mark.parametrize("queue", ["a b", "$(id)"])
def test_a_command_that_is_advised_can_be_copied(queue):
    for advice in (
        describe_lack("command", queue=queue).advice,
        describe_start("http", queue=queue),
    ):
        assert f"--queues '{queue}'`" in advice


def test_a_plain_name_is_not_quoted():
    assert "--queues mail`" in describe_lack("command", queue="mail").advice
