"""Ways to break limits, demands, collapsing requests and events: name, and in which file which text
becomes which other.
"""

from __future__ import annotations

from typing import Final

Changes = tuple[tuple[str, str, str], ...]

FLOW: Final = "core/flow/__init__.py"
LIMITS: Final = "store/sqlite/flow/limits.py"
COLLAPSE: Final = "core/collapse.py"
KEPT: Final = "store/sqlite/collapse.py"
PLACEMENT: Final = "core/placement.py"
EVENTS: Final = "store/sqlite/steps.py"
LISTENER: Final = "core/when/listener.py"
OLD_ARGS: Final = "tx.execute('SELECT args FROM execution WHERE n = ?'"
KNOWN: Final = (
    "tx.execute('SELECT number FROM event WHERE tenant = ? AND id = ?',"
    " (owner, event.id)).fetchone()[0]"
)
CANCEL: Final = "            cancel_execution(self._tx, self._owner, holder)\n"

OF_CONTROLS: Final[tuple[tuple[str, Changes], ...]] = (
    ("a limit has room for one more", ((FLOW, "self.held >= self.terms.limit", "self.held > 99"),)),
    (
        "an execution looks at its first limit alone",
        ((FLOW, "for key, cost in one.takes if (at", "for key, cost in one.takes[:1] if (at"),),
    ),
    (
        "slots of what runs are free",
        (
            (
                LIMITS,
                'AND (e.state <= 3 OR e.state = 5))\n"""\n# A start',
                'AND e.state <= 3)\n"""\n# A start',
            ),
        ),
    ),
    (
        "slots of a lost worker stay taken",
        (
            (
                LIMITS,
                " WHERE tenant = ?1 AND is_over = 0 AND NOT EXISTS (",
                " WHERE tenant = ?1 AND is_over = 2 AND NOT EXISTS (",
            ),
        ),
    ),
    (
        "an end keeps its slot of a limit",
        (
            (
                LIMITS,
                "UPDATE holder SET is_over = 1, started_at",
                "UPDATE holder SET is_over = 0, started_at",
            ),
            (
                LIMITS,
                " WHERE tenant = ?1 AND is_over = 0 AND NOT EXISTS (",
                " WHERE tenant = ?1 AND is_over = 2 AND NOT EXISTS (",
            ),
        ),
    ),
    (
        "one that keeps the newest skips those that wait for others",
        ((LIMITS, " AND w.on_full = 'keep_newest'", ""),),
    ),
    (
        "a window forgets its starts",
        (
            (
                LIMITS,
                "tx.execute(_SET_LOG, (_json([*_Log.decode(log), *found]), bucket))",
                "tx.execute(_SET_LOG, (log, bucket))",
            ),
        ),
    ),
    (
        "a start that is under way does not count in its window",
        ((FLOW, "free = count - cost - self.unstarted", "free = count - cost"),),
    ),
    (
        "a debounced execution keeps its first arguments",
        (
            (
                KEPT,
                "(new.args, job.n, due, expires_at,",
                f"({OLD_ARGS}, (held.n,)).fetchone()[0], job.n, due, expires_at,",
            ),
        ),
    ),
    (
        "a debounce has no end",
        ((COLLAPSE, "asked if rule.most is None else min(asked, first + rule.most)", "asked"),),
    ),
    (
        "a debounced execution that had begun is moved",
        ((KEPT, "is_startable=is_waiting and held.attempt == 1", "is_startable=is_waiting"),),
    ),
    (
        "each request waits on its own",
        ((COLLAPSE, "return Verb.MOVED if latest.is_startable else Verb.NEW", "return Verb.NEW"),),
    ),
    (
        "a throttle lets one more through",
        (
            (
                COLLAPSE,
                "len(recent(rule, starts, now)) >= rule.limit",
                "len(recent(rule, starts, now)) > rule.limit",
            ),
        ),
    ),
    (
        "a throttle counts each period from zero",
        ((KEPT, "times = [*recent(rule, times, tx.now), tx.now]", "times = [tx.now]"),),
    ),
    (
        "a singleton that runs is overlooked",
        (
            (
                KEPT,
                "held.state <= 5 and held.cancel_requested_at",
                "held.state <= 4 and held.cancel_requested_at",
            ),
        ),
    ),
    (
        "a singleton is replaced, and runs on",
        (
            (
                "store/sqlite/enqueue.py",
                f"{CANCEL}            self._rooms.clear()\n"
                "            return self._collapse(new, job, rule)\n",
                "            self._rooms.clear()\n            return adapt(new, rule)\n",
            ),
        ),
    ),
    (
        "a result is used for ever",
        ((KEPT, "and held.finished_at > tx.now - rule.keep,", "and held.finished_at > 0,"),),
    ),
    (
        "a failure is used as a result",
        ((KEPT, "and held.state == 6\n", "and held.state >= 6\n"),),
    ),
    (
        "a miss does not join the run of another",
        ((COLLAPSE, "latest is not None or is_cached", "is_cached"),),
    ),
    (
        "what a worker holds does not use its resources",
        ((PLACEMENT, "free = {name: amount - used.get(name, 0.0)", "free = {name: amount"),),
    ),
    (
        "labels are not looked at",
        ((PLACEMENT, "or site.lacks(demands)", "or False"),),
    ),
    (
        "an event that comes again fires again",
        (
            (
                EVENTS,
                "        if number is None:\n"
                "            answers.append(Published(created=False))\n            continue\n",
                f"        if number is None:\n            number = {KNOWN}\n",
            ),
        ),
    ),
    (
        "an event that comes again names nothing that it fired",
        (
            (
                EVENTS,
                "one if one.created else replace(one, executions=find_fired(tx, owner, event))",
                "one",
            ),
        ),
    ),
    (
        "an event is on record before it has fired",
        (
            (
                EVENTS,
                "    fired = fire_events(tx, tenant, list(new.values())) if new else []\n",
                '    tx.execute("COMMIT")\n    tx.execute("BEGIN IMMEDIATE")\n'
                "    fired = fire_events(tx, tenant, list(new.values())) if new else []\n",
            ),
        ),
    ),
    (
        "a filter lets every event through",
        ((LISTENER, "return rule.accepts(self._data[number])", "return True"),),
    ),
    (
        "a paused job is fired by events",
        ((LISTENER, "if schedule.is_paused:", "if False:"),),
    ),
    (
        "events are fired without the overlap rule of their job",
        (
            (
                "store/sqlite/enqueue.py",
                "        rule = job.rule(new)\n        if rule is not Overlap.ALLOW:",
                "        rule = Overlap.ALLOW if new.by_event else job.rule(new)\n"
                "        if rule is not Overlap.ALLOW:",
            ),
        ),
    ),
)
