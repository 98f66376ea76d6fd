"""What must be true of the tables at any instant, asked of them directly.

    assert await violations(connection) == []

Each statement lists what breaks one rule. They run as one, so they see one instant, and may be
asked at any time, whatever others are doing.
"""

from __future__ import annotations

from typing import Final

import asyncpg

# Where an execution is: an unfinished one in exactly one of these five places, and in `live`.
PLACES: Final = """
    WITH held AS (
      SELECT l.tenant, x.id, x.attempt, l.id AS lease
        FROM daybell.lease l CROSS JOIN unnest(l.ids, l.attempts) x(id, attempt)
        JOIN daybell.live v ON v.tenant = l.tenant AND v.id = x.id AND v.attempt = x.attempt
         AND v.state <> 5),
    place AS (
      SELECT id, 'agenda' AS place FROM daybell.agenda
      UNION ALL SELECT id, 'lease ' || lease FROM held
      UNION ALL SELECT id, 'parked' FROM daybell.parked
      UNION ALL SELECT v.id, 'expanded' FROM daybell.live v JOIN daybell.run r ON r.id = v.id
                 WHERE v.state = 5
      UNION ALL SELECT v.id, 'waiting' FROM daybell.live v
                 WHERE v.state = 4 AND coalesce(v.reason NOT IN ('gate', 'overlap'), true)),
    kept AS (
      SELECT tenant, id, attempt, 'live' AS kept FROM daybell.live
      UNION ALL SELECT tenant, id, attempt, 'dead' FROM daybell.dead
      UNION ALL SELECT tenant, id, attempt, 'history' FROM daybell.history)
"""

RULES: Final[dict[str, str]] = {
    "an unfinished execution is in one place": """
        SELECT v.id || ' is in ' || coalesce(string_agg(p.place, ' and '), 'no place')
          FROM daybell.live v LEFT JOIN place p ON p.id = v.id
         GROUP BY v.id HAVING count(p.place) <> 1""",
    "nothing but unfinished executions is anywhere": """
        SELECT p.id || ' is in ' || p.place || ' and not in live' FROM place p
         WHERE NOT EXISTS (SELECT FROM daybell.live v WHERE v.id = p.id)""",
    "who waits for an event has said for which": """
        SELECT v.id || ' waits for an event, and has no open wait' FROM daybell.live v
         WHERE v.state = 4 AND v.reason = 'event' AND NOT EXISTS (
               SELECT FROM daybell.wait w WHERE w.tenant = v.tenant AND w.execution = v.id)""",
    "an open wait is a step that is not done": """
        SELECT w.execution || ' waits in step ' || w.n || ', which is done or is none'
          FROM daybell.wait w JOIN daybell.live v ON v.tenant = w.tenant AND v.id = w.execution
         WHERE NOT EXISTS (
               SELECT FROM daybell.step s WHERE s.tenant = w.tenant AND s.execution = w.execution
                  AND s.n = w.n AND NOT s.is_done)""",
    "an execution is kept once": """
        SELECT id || ' is kept in ' || string_agg(kept, ' and ') FROM kept
         GROUP BY tenant, id HAVING count(*) > 1""",
    "an attempt has one holder": """
        SELECT id || ' attempt ' || attempt || ' is held ' || count(*) || ' times' FROM held
         GROUP BY id, attempt HAVING count(*) > 1""",
    "an ended attempt is logged once and is over": """
        SELECT a.id || ' attempt ' || a.attempt || ' is logged ' || count(*) || ' times, now at '
               || coalesce(max(k.attempt)::text, 'nothing')
          FROM daybell.attempt a LEFT JOIN kept k ON k.tenant = a.tenant AND k.id = a.id
         GROUP BY a.id, a.attempt
        HAVING count(*) > 1 OR coalesce(max(k.attempt), 0) <= a.attempt""",
    "every attempt but the last is logged": """
        SELECT k.id || ' is at attempt ' || k.attempt || ' with ' || count(a.id) || ' in the log'
          FROM kept k LEFT JOIN daybell.attempt a ON a.tenant = k.tenant AND a.id = k.id
         GROUP BY k.id, k.attempt HAVING count(a.id) <> k.attempt - 1""",
    "the agenda says what live says": """
        SELECT a.id || ' differs between agenda and live'
          FROM daybell.agenda a JOIN daybell.live v ON v.id = a.id
         WHERE (a.run_at, a.lane, a.priority) <> (v.run_at, v.lane, v.priority)""",
    "what is parked waits at its gate": """
        SELECT p.id || ' is parked and in state ' || v.state
          FROM daybell.parked p JOIN daybell.live v ON v.id = p.id
         WHERE v.state <> 4 OR v.gate <> p.gate
            OR coalesce(v.reason NOT IN ('gate', 'overlap'), true)""",
    "a gate's slots are counted": """
        SELECT 'gate ' || g.key || ' has ' || g.holders || ' holders and counts ' || count(v.id)
          FROM daybell.gate g
          LEFT JOIN daybell.live v ON v.tenant = g.tenant AND v.gate = g.key
                AND NOT EXISTS (SELECT FROM daybell.parked p WHERE p.id = v.id)
         GROUP BY g.tenant, g.key, g.holders HAVING count(v.id) <> g.holders""",
    "a gate lets in no more than fit": """
        SELECT 'gate ' || key || ' holds ' || holders || ' of ' || capacity
          FROM daybell.gate WHERE holders > capacity OR holders < 0""",
    "a unique key has one holder": """
        SELECT 'key ' || unique_key || ' is held ' || count(*) || ' times'
          FROM daybell.live WHERE unique_key IS NOT NULL
         GROUP BY job, unique_key HAVING count(*) > 1""",
    "a tick happens once": """
        SELECT 'tick ' || at || ' has ' || count(*) || ' rows' FROM daybell.tick
         GROUP BY tenant, schedule, at HAVING count(*) > 1""",
    "what a tick fired exists": """
        SELECT 'tick ' || at || ' fired ' || execution || ', which is nowhere' FROM daybell.tick t
         WHERE execution IS NOT NULL AND NOT EXISTS (
           SELECT FROM kept k WHERE k.tenant = t.tenant AND k.id = t.execution)""",
    "a succeeded execution has a worker and no error": """
        SELECT id || ' succeeded by ' || coalesce(worker::text, 'nobody') FROM daybell.history
         WHERE state = 6 AND (error IS NOT NULL OR outcome <> 1 OR (worker IS NULL
                 AND NOT EXISTS (SELECT FROM daybell.run r WHERE r.id = history.id)))""",
    "a run counts its nodes": """
        SELECT r.id || ' says ' || (r.unended, r.running, r.ready) || ' and has '
               || (count(*) FILTER (WHERE n.state <= 3 AND n.of IS NULL),
                   count(*) FILTER (WHERE n.state = 3 AND NOT n.is_map),
                   count(*) FILTER (WHERE n.state = 2))
          FROM daybell.run r JOIN daybell.node n ON n.run = r.id
         GROUP BY r.id, r.unended, r.running, r.ready
        HAVING (r.unended, r.running, r.ready) IS DISTINCT FROM
               (count(*) FILTER (WHERE n.state <= 3 AND n.of IS NULL),
                count(*) FILTER (WHERE n.state = 3 AND NOT n.is_map),
                count(*) FILTER (WHERE n.state = 2))""",
    "a started node has an execution": """
        SELECT n.label || ' of ' || n.run || ' is started, and its execution is not unfinished'
          FROM daybell.node n
         WHERE n.state = 3 AND NOT n.is_map
           AND NOT EXISTS (SELECT FROM daybell.live v WHERE v.id = n.execution)""",
    "an unfinished node belongs to a run that goes on": """
        SELECT v.id || ' is node ' || v.node || ' of ' || v.parent FROM daybell.live v
         WHERE v.node IS NOT NULL AND NOT EXISTS (
               SELECT FROM daybell.run r JOIN daybell.node n ON n.run = r.id
                WHERE r.id = v.parent AND r.finished_at IS NULL AND n.label = v.node
                  AND n.execution = v.id AND n.state = 3)""",
    "nothing of a run is a dead letter but itself": """
        SELECT d.id || ' is node ' || d.node FROM daybell.dead d WHERE d.node IS NOT NULL""",
}
# A gate may hold more than fit after its capacity was lowered; only then is this left out.
CAPACITY: Final = "a gate lets in no more than fit"

ASK: Final = PLACES + " UNION ALL ".join(
    f"SELECT {place} AS rule, x.found FROM ({statement}) x(found)"
    for place, statement in enumerate(RULES.values())
)


async def violations(connection: asyncpg.Connection, *, except_rule: str = "") -> list[str]:
    """What is wrong, in words; nothing if all is well."""
    rows = await connection.fetch(ASK)
    rules = list(RULES)
    found = [(rules[row["rule"]], row["found"]) for row in rows]
    return [f"{rule}: {what}" for rule, what in found if rule != except_rule]


ATTEMPTS: Final = """
    SELECT id, attempt FROM daybell.live UNION ALL SELECT id, attempt FROM daybell.dead
    UNION ALL SELECT id, attempt FROM daybell.history
"""


async def attempts(connection: asyncpg.Connection) -> dict[object, int]:
    """The current attempt of every execution there is."""
    return {row["id"]: row["attempt"] for row in await connection.fetch(ATTEMPTS)}


async def gone_wrong(connection: asyncpg.Connection, before: dict[object, int]) -> list[str]:
    """What is wrong by itself or compared with earlier `attempts`."""
    after = await attempts(connection)
    lost = [f"{id} is missing" for id in before if id not in after]
    lower = [
        f"{id} went from attempt {attempt} to {after[id]}"
        for id, attempt in before.items()
        if id in after and after[id] < attempt
    ]
    return [*await violations(connection), *lost, *lower]
