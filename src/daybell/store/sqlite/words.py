"""What jobs are found by, for those that an earlier program has made.

While programs are replaced one after the other, an old one may define jobs on the new schema. It
does not know the columns that a search looks in, so they are filled from time to time.
"""

from __future__ import annotations

from typing import Final

from daybell.core.job import JobDefinition
from daybell.store.sqlite.names import Transaction

FILLED_MAX: Final = 1000  # jobs in one transaction

_WORDLESS: Final = """
SELECT j.n, v.definition FROM job j JOIN job_version v ON v.n = j.version
 WHERE j.words = '' LIMIT ?
"""
_FILL: Final = "UPDATE job SET user_id = ?, words = ? WHERE n = ?"


def fill_words(tx: Transaction) -> int:
    """Fill what is empty, of a bounded number of jobs; answers how many."""
    rows = tx.execute(_WORDLESS, (FILLED_MAX,)).fetchall()
    found = [(n, JobDefinition.from_json(text)) for n, text in rows]
    tx.executemany(_FILL, [(one.user_id, one.words, n) for n, one in found])
    return len(rows)
