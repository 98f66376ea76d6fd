"""How often an address may be wrong."""

from daybell.api.auth import Throttle, client_network


def test_a_bucket_empties_and_fills_again():
    throttle = Throttle(size=3, refill=0.5)

    waits = [throttle.take("10.0.0.1", 100.0) for _ in range(5)]

    assert waits == [0, 0, 0, 2.0, 2.0]
    assert throttle.is_empty("10.0.0.1", 101.0)
    assert not throttle.is_empty("10.0.0.1", 102.0)
    assert throttle.take("10.0.0.1", 102.0) == 0
    assert throttle.take("10.0.0.1", 102.0) == 2.0


def test_it_does_not_fill_over_its_size():
    throttle = Throttle(size=2, refill=1)
    throttle.take("10.0.0.1", 0.0)

    waits = [throttle.take("10.0.0.1", 1000.0) for _ in range(3)]

    assert waits == [0, 0, 1.0]


def test_each_address_has_its_own():
    throttle = Throttle(size=1)
    throttle.take("10.0.0.1", 0.0)

    assert throttle.take("10.0.0.1", 0.0) > 0
    assert throttle.take("10.0.0.2", 0.0) == 0


def test_a_network_of_ipv6_is_one_address():
    throttle = Throttle(size=1)
    throttle.take("2001:db8::1", 0.0)

    assert throttle.take("2001:db8::ffff", 0.0) > 0
    assert throttle.take("2001:db8:0:1::1", 0.0) == 0
    assert client_network("a socket's path") == "a socket's path"


def test_no_number_of_addresses_takes_more_memory():
    throttle = Throttle(addresses_max=10)

    for number in range(1000):
        throttle.take(f"10.0.{number // 256}.{number % 256}", 0.0)

    assert len(throttle) == 10
