"""Public holidays, from the package `holidays`, which is loaded when somebody asks for them."""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from typing import Any

from daybell.errors import InvalidSchedule, shown


@lru_cache(maxsize=1024)
def public_holidays(country: str, subdivision: str | None, year: int) -> frozenset[date]:
    """The public holidays of one year."""
    found = _package().country_holidays(country, subdiv=subdivision, years=year, expand=False)
    return frozenset(found)


@lru_cache(maxsize=256)
def check_country(country: str, subdivision: str | None) -> None:
    """Refuse a country or a part of it whose holidays are not known."""
    known = _countries()
    if country not in known:
        raise InvalidSchedule(
            f"no holidays are known for country {shown(country)}; it takes ISO 3166 codes, such as"
            " DE, US or GB",
            field="country",
        )
    if subdivision is not None and subdivision not in known[country]:
        some = ", ".join(sorted(known[country])[:5]) or "none"
        raise InvalidSchedule(
            f"no holidays are known for subdivision {shown(subdivision)} of {country}; known are"
            f" {some}, …",
            field="subdivision",
        )


@lru_cache(maxsize=1)
def _countries() -> dict[str, list[str]]:
    return _package().list_supported_countries()


def _package() -> Any:
    try:
        import holidays
    except ImportError:
        raise InvalidSchedule(
            "public holidays need the package holidays; install it with:"
            " pip install 'daybell[calendars]'",
            field="country",
        ) from None
    return holidays
