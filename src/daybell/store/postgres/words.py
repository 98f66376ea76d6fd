"""What jobs are found by, for those that an earlier program has made.

While programs are replaced one after the other, an old one may define jobs on the new schema. It
does not know the columns that a search looks in, so they are filled from time to time.
"""

from __future__ import annotations

from typing import Final

from daybell.core.job import JobDefinition
from daybell.store.postgres.gates import Connected

FILLED_MAX: Final = 1000  # jobs in one transaction


class Wording(Connected):
    """Upkeep of what a search looks in."""

    # What somebody defines at this moment he fills himself.
    WORDLESS = """
    SELECT j.key, v.definition
      FROM daybell.job j JOIN daybell.job_version v ON v.job = j.key AND v.version = j.version
     WHERE j.words = '' LIMIT $1 FOR NO KEY UPDATE OF j SKIP LOCKED
    """
    FILL = """
    UPDATE daybell.job j SET user_id = u.user_id, words = u.words
      FROM unnest($1::int[], $2::text[], $3::text[]) u(key, user_id, words) WHERE j.key = u.key
    """

    async def fill_words(self) -> int:
        """Fill what is empty, of a bounded number of jobs; answers how many."""
        async with self.db.transaction() as link:
            rows = await link.fetch(self.WORDLESS, FILLED_MAX)
            if rows:
                found = [JobDefinition.from_json(row["definition"]) for row in rows]
                users, words = [one.user_id for one in found], [one.words for one in found]
                await link.execute(self.FILL, [row["key"] for row in rows], users, words)
        return len(rows)
