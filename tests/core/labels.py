"""Names for parametrized cases, the same in every process that collects them."""

import re

from daybell.errors import shown


def label(value: object) -> str:
    """How a case shows a value: without the address that an object's repr may have."""
    return re.sub(r" at 0x[0-9a-f]+(?=>|…|$)", "", shown(value))
