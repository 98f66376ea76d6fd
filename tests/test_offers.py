"""What is said where no worker offers what a job needs."""

import pytest

from daybell.client.offers import lack_of, start_for


@pytest.mark.parametrize("queue", ["a b", "$(id)"])
def test_a_command_that_is_advised_can_be_copied(queue):
    for advice in (lack_of("command", queue=queue).advice, start_for("http", queue=queue)):
        assert f"--queues '{queue}'`" in advice


def test_a_plain_name_is_not_quoted():
    assert "--queues mail`" in lack_of("command", queue="mail").advice
