"""What all tests of decisions share."""

import pytest

from daybell.core.workflow import progress


@pytest.fixture(autouse=True, scope="module")
def few_are_many():
    """Two children that are alike are started as thousands would be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "ALIKE_MIN", 2)
        yield
