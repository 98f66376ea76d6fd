"""Ids that tell their owner."""

from daybell.core.ids import is_owned, mint, mint_owned


def test_only_the_secret_of_its_owner_fits_an_id():
    made = {mint_owned("one") for _ in range(100)}

    assert len(made) == 100
    assert all(is_owned(id, "one") for id in made)
    assert not any(is_owned(id, secret) for id in made for secret in ("two", ""))
    assert not any(is_owned(mint(), "one") for _ in range(100))
    assert {id.version for id in made} == {8}
