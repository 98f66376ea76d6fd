"""Breaks the statements for PostgreSQL on purpose, and demands that chaos or the store's own tests
notice.

    python -m tests.chaos.mutants [--seconds 14] [name …]

Each mutant is made in a copy of the source; none of them is ever in the checkout. What chaos does
not notice is shown to the tests: some faults need a pause in the very middle of a statement, which
only those can make.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutating import ROOT, copy_of

SEED: Final = 2  # a short run that has some of everything
CHAOS: Final = (
    *(sys.executable, "-m", "tests.chaos", "--store", "postgres", "--seed", str(SEED)),
    *("--peace", "30"),
)
PATIENCE_SECONDS: Final = (
    400  # for one run of chaos, which takes its time whatever the machine does
)
TESTS_PATIENCE_SECONDS: Final = 3600  # for the tests, which a busy machine delays
TESTS: Final = (
    *(sys.executable, "-m", "pytest", "-x", "-n", "2", "--no-header", "-p", "no:cacheprovider"),
    *("-k", "postgres and not sqlite"),
)

FENCED: Final = """((u.id, coalesce(u.attempt, 1), coalesce(u.place, 1))
              IN (SELECT id, attempt, place FROM h)) IS TRUE"""
IS_HELD: Final = "((v.id, v.attempt) IN (SELECT id, attempt FROM m)) IS TRUE AND"
BY_ID: Final = "(v.id IN (SELECT id FROM m)) IS TRUE AND"
MOVES: Final = "store/postgres/queue.py"
WORKERS: Final = "store/postgres/workers.py"
SCHEDULES: Final = "store/postgres/schedules.py"
AT_CURSOR: Final = "coalesce(s.since, s.next_at) = u.expect"
ENQUEUE: Final = "store/postgres/enqueue.py"
OF_ENDS: Final = ("tests/store/test_queue_fence.py", "tests/store/test_queue_apply.py")
OF_RUNS: Final = ("tests/store/postgres/test_progress_races.py", "tests/store/test_runs_ends.py")
OF_EVENTS: Final = ("tests/store/test_steps_events.py",)
OF_FIRING: Final = ("tests/store/test_schedules_events.py",)
OF_REPEATS: Final = (
    "tests/store/postgres/test_enqueue_late_requests.py",
    "tests/store/test_enqueue_repeats.py",
)
TIMEOUTS: Final = "store/timeouts.py"
OF_SILENCE: Final = (
    "tests/store/postgres/test_connection_deaf_links.py",
    "tests/store/postgres/test_connection_timeouts.py",
)
OF_FROZEN: Final = ("tests/store/postgres/test_connection_timeouts_frozen.py",)
OF_SCHEDULES: Final = (
    "tests/store/test_schedules_firing.py",
    "tests/store/test_schedules.py",
    "tests/store/postgres/test_schedules_races.py",
)
OF_QUEUE: Final = (
    *(
        "tests/store/postgres/test_queue_races.py",
        "tests/store/postgres/test_queue_lost_answers.py",
    ),
    *("tests/store/test_queue_claim.py", "tests/store/test_queue_concurrency.py"),
    *("tests/store/test_queue_cancel.py", "tests/store/test_workers.py"),
    *(*OF_ENDS, *OF_REPEATS, "tests/store/test_workers_losses.py"),
)


@dataclass(frozen=True)
class Mutant:
    """A change that breaks the code: in these files, these texts are replaced everywhere."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...] = OF_QUEUE  # tests for mutants that chaos does not notice
    only: str | None = None  # the faults that show it, for a run with no others; None: all
    seconds: float = 0.0  # seconds of chaos, if more are needed


MUTANTS: Final = (
    Mutant(
        "the guard of an end forgets the attempt",
        (
            (MOVES, FENCED, "((u.id, coalesce(u.place, 1)) IN (SELECT id, place FROM h)) IS TRUE"),
            (MOVES, IS_HELD, BY_ID),
            (MOVES, "USING (id, attempt)", "USING (id)"),
            (MOVES, "AND v.attempt = u.attempt", ""),
            (MOVES, "SELECT {KEPT}, ", "SELECT {KEPT.replace('attempt', 'd.attempt')}, "),
        ),
    ),
    Mutant(
        "whatever there is, is ended by its id",
        (
            (MOVES, FENCED, "$3::uuid[] IS NOT NULL"),
            (MOVES, IS_HELD, BY_ID),
            (MOVES, "USING (id, attempt)", "USING (id)"),
            (MOVES, "AND v.attempt = u.attempt", ""),
            (MOVES, "SELECT {KEPT}, ", "SELECT {KEPT.replace('attempt', 'd.attempt')}, "),
        ),
    ),
    Mutant(
        "whoever names the attempt may end it, with or without a lease",
        ((MOVES, FENCED, "$3::uuid[] IS NOT NULL"),),
        OF_ENDS,
    ),
    Mutant(
        "a way back does not raise the attempt",
        ((MOVES, "SET attempt = v.attempt + 1,", "SET attempt = v.attempt,"),),
    ),
    Mutant(
        "a claim waits for what another is taking",
        (("store/postgres/queue.py", "LIMIT $4 FOR UPDATE SKIP LOCKED) x", "LIMIT $4) x"),),
    ),
    Mutant(
        "a claim looks and does not take",
        (
            (
                "store/postgres/queue.py",
                "DELETE FROM daybell.agenda WHERE ctid = ANY(ARRAY({{found}}",
                "SELECT id FROM daybell.agenda WHERE ctid = ANY(ARRAY({{found}}",
            ),
            ("store/postgres/queue.py", "LIMIT $4)) RETURNING id),", "LIMIT $4))),"),
        ),
    ),
    Mutant(
        "answered before the commit",
        (
            (
                TIMEOUTS,
                '    "jit": "off",\n',
                '    "jit": "off",\n    "synchronous_commit": "off",\n',
            ),
        ),
    ),
    Mutant(
        "an enqueue is repeated under another id",
        (
            (
                "client/context.py",
                "self._tenant, [new for new, _, _ in group], repeat=repeat, entries=entries\n",
                "self._tenant, [replace(new, id=mint()) if repeat else new for new, _, _ in group],"
                " entries=entries\n",
            ),
            (
                "client/context.py",
                "from daybell.core.units import Seconds\n",
                "from msgspec.structs import replace\n"
                "from daybell.core.ids import mint\n"
                "from daybell.core.units import Seconds\n",
            ),
        ),
        OF_REPEATS,
        only="late",
        seconds=20.0,
    ),
    Mutant(
        "each try of a request has ids of its own",
        (
            (
                "api/idempotency.py",
                "return derive_id(self.id, *what, rank=rank, rank_bits=rank_bits)",
                "return mint()",
            ),
        ),
        ("tests/api",),
        only="",
    ),
    Mutant(
        "the reaper ignores the lease",
        (
            (WORKERS, "state <> {DEAD} AND lease_until < $1", "$1::float8 IS NOT NULL"),
            (WORKERS, "state <> {DEAD} AND lease_until < (SELECT daybell.now())", "true"),
            (WORKERS, 'if watch.silence(row["renewed_at"], now, since=since)', "if now"),
        ),
    ),
    Mutant(
        "the reaper waits for who is frozen",
        (
            (
                "store/postgres/queue.py",
                "ORDER BY id FOR UPDATE SKIP LOCKED",
                "ORDER BY id FOR UPDATE",
            ),
            (WORKERS, "FOR UPDATE OF w SKIP LOCKED", "FOR UPDATE OF w"),
        ),
    ),
    Mutant(
        "a dead worker may renew",
        ((WORKERS, "w.tenant = $1 AND w.state <> {DEAD}\n", "w.tenant = $1\n"),),
    ),
    Mutant(
        "a success overwrites a cancel",
        ((MOVES, "AND v.cancel_requested_at IS NULL AND {IS_UNLINKED}", "AND {IS_UNLINKED}"),),
    ),
    Mutant(
        "a schedule fires wherever its cursor is",
        ((SCHEDULES, f"AND {AT_CURSOR}\n", "AND u.expect > 0\n"),),
        OF_SCHEDULES,
    ),
    Mutant(
        "a plain tick fires wherever its cursor is",
        (
            (
                SCHEDULES,
                "AND coalesce(s.since, s.next_at) = ($6::float8[])[u.form]\n",
                "\n",
            ),
        ),
        ("tests/store/test_schedules_firing.py",),
    ),
    Mutant(
        "a plain tick starts beside another of its gate",
        ((SCHEDULES, " AND g.holders = 0\n", "\n"),),
        ("tests/store/test_schedules_firing.py",),
    ),
    Mutant(
        "a plain tick starts before what waits at its gate",
        ((SCHEDULES, "AND p.run_at <= (SELECT now FROM t) LIMIT 1) IS NULL", "LIMIT 0) IS NULL"),),
        ("tests/store/test_schedules_firing.py",),
    ),
    Mutant(
        "a plain tick takes no slot of its gate",
        ((SCHEDULES, "SET holders = g.holders + 1 FROM f", "SET holders = g.holders FROM f"),),
        ("tests/store/test_schedules_firing.py",),
    ),
    Mutant(
        "a tick has no name of its own",
        (
            (
                SCHEDULES,
                "$7::uuid[], $8::int[]) u\n",
                "$7::uuid[], $8::int[]) u ON CONFLICT (tenant, schedule, at)"
                " DO UPDATE SET execution = excluded.execution\n",
            ),
            (
                SCHEDULES,
                "AND t.schedule = u.schedule AND t.at = u.at LIMIT 1) t",
                "AND t.schedule = u.schedule AND t.at = -1 LIMIT 1) t",
            ),
        ),
        OF_SCHEDULES,
    ),
    Mutant(
        "a run goes on without its lock",
        (("store/postgres/progress.py", "r.id FOR UPDATE", "r.id FOR KEY SHARE"),),
        OF_RUNS,
    ),
    Mutant(
        "the end of a node and what follows from it are several transactions",
        (
            (
                "store/postgres/queue.py",
                "_Statements(end_linked)",
                "_Statements(end_linked, is_single=True)",
            ),
        ),
        OF_RUNS,
    ),
    Mutant(
        "a later attempt does not look at its steps",
        (("sdk/durable.py", "{} if running.claimed.attempt == 1 else None", "{}"),),
        ("tests/sdk/test_durable_stores.py",),
    ),
    Mutant(
        "a step is recorded whoever has the execution",
        (
            (
                "store/postgres/steps.py",
                "AND v.attempt = u.attempt AND {IS_HELD}\n                       LIMIT 1 FOR",
                "LIMIT 1 FOR",
            ),
        ),
        ("tests/store/test_steps.py",),
    ),
    Mutant(
        "a wait does not see the event that came before it",
        (
            (
                "store/postgres/steps.py",
                "find_earlier(tx, owner, left,",
                "find_earlier(tx, owner, [],",
            ),
        ),
        OF_EVENTS,
    ),
    Mutant(
        "the event that has ended a wait ends the next one, too",
        (("store/postgres/steps.py", "(search.wait.id, it[1]) not in taken", "it"),),
        OF_EVENTS,
    ),
    Mutant(
        "an event between the record of a wait and the move to it is overlooked",
        (("store/postgres/gates.py", "and move.id not in waiting", "and False"),),
        OF_EVENTS,
    ),
    Mutant(
        "an event that comes again is stored again, and fires",
        (("store/postgres/steps.py", "fields = (new.id,", "fields = (f'{id(new)}',"),),
        OF_FIRING,
    ),
    Mutant(
        "an event that comes again names nothing that it fired",
        (("store/postgres/steps.py", 'tuple(row["execution"] for row in rows)', "()"),),
        OF_FIRING,
    ),
    Mutant(
        "a repeat leaves no mark of what it creates",
        ((ENQUEUE, "if repeat and (marked := specs.made | skipped):", "if False:"),),
        OF_REPEATS,
    ),
    Mutant(
        "a bulk of first requests ignores the marks of repeats",
        (
            (ENQUEUE, "THEN daybell.refuse_repeated($1, $6, cardinality($6))", "THEN true"),
            (ENQUEUE, "OR daybell.refuse_repeated($1, $6, 1)", "OR true"),
        ),
        OF_REPEATS,
        only="late",
        seconds=20.0,
    ),
    Mutant(
        "a first request of any kind ignores the marks of repeats",
        ((ENQUEUE, "daybell.refuse_repeated($1, $2, count(*))", "count(*) >= 0"),),
        OF_REPEATS,
    ),
    Mutant(
        "marks are looked for before the rows are inserted",
        (
            (
                ENQUEUE,
                "CASE WHEN id = ($6::uuid[])[cardinality($6)] AND",
                "CASE WHEN true THEN (SELECT CASE WHEN",
            ),
            (ENQUEUE, "cardinality($6)) ELSE true END", "0) ELSE true END) END"),
        ),
        OF_REPEATS,
    ),
    Mutant(
        "marks are looked for in the snapshot of the statement",
        (
            (
                "store/postgres/migrations/0001_initial.sql",
                "inserted bigint) RETURNS boolean\n  LANGUAGE plpgsql VOLATILE",
                "inserted bigint) RETURNS boolean\n  LANGUAGE plpgsql STABLE",
            ),
        ),
        OF_REPEATS,
    ),
    Mutant(
        "what is left of a repeat is inserted without a search",
        (
            (
                ENQUEUE,
                "passing.answer({id: Enqueued(id) for id in finished})",
                "passing.answer({id: Enqueued(id) for id in finished})\n"
                "        return await _insert(tx, specs, passing, INSERT)",
            ),
        ),
        OF_REPEATS,
    ),
    Mutant(
        "a late request is refused for another execution, or cancels it",
        (("store/postgres/enqueue.py", "        raise Repeated\n", "        return\n"),),
        OF_REPEATS,
    ),
    Mutant(
        "marks are removed too early",
        (
            (
                "store/postgres/upkeep.py",
                '"repeated", "at < $1", now - REPEAT_SECONDS_KEPT',
                '"repeated", "at < $1", now - REPEAT_SECONDS_KEPT / 2',
            ),
        ),
        OF_REPEATS,
    ),
    Mutant(
        "marks are not announced",
        ((ENQUEUE, "SELECT nextval('daybell.repeats') FROM", "SELECT 1 FROM"),),
        OF_REPEATS,
    ),
    Mutant(
        "the search for marks ends while a repeat is under way",
        (
            (
                "store/postgres/migrations/0001_initial.sql",
                "LOCK TABLE daybell.repeated IN SHARE ROW EXCLUSIVE MODE NOWAIT;",
                "",
            ),
        ),
        OF_REPEATS,
    ),
    Mutant(
        "a load does not search the history",
        (
            (
                "store/postgres/enqueue.py",
                "if await read_finished(tx, specs, heads):",
                "if False:",
            ),
        ),
        OF_REPEATS,
    ),
    Mutant(
        "a refused first try is not tried as a repeat",
        (("api/idempotency.py", "if this.is_repeated:\n", "if this:\n"),),
        ("tests/api/test_idempotency_two_servers.py",),
    ),
    Mutant(
        "a silent connection is waited for longer than a lease",
        (
            (TIMEOUTS, "COMMAND_SHARE: Final = 0.3", "COMMAND_SHARE: Final = 30.0"),
            (TIMEOUTS, "COMMAND_SECONDS_MAX: Final[Seconds] = 3.5", "COMMAND_SECONDS_MAX = 70.0"),
        ),
        OF_SILENCE,
        only="deaf",
        seconds=20.0,
    ),
    Mutant(
        "idle connections are used again after one has gone silent",
        (("store/postgres/connection.py", "await pool.expire()", "pass"),),
        OF_SILENCE,
        only="deaf",
        seconds=20.0,
    ),
    Mutant(
        "a session that is idle in a transaction keeps its locks",
        (
            (TIMEOUTS, "idle = min(max(lease / 3, ", "idle = max(60.0, min(lease / 3, "),
            (TIMEOUTS, "idle = min(idle, FIRE_IDLE_SECONDS_MAX)", "pass"),
        ),
        OF_FROZEN,
        only="hold",
        seconds=20.0,
    ),
    Mutant(
        "a scheduler waits behind the locks of another",
        (
            (
                SCHEDULES,
                "if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):",
                "if error:",
            ),
        ),
        OF_FROZEN,
        only="hold",
        seconds=20.0,
    ),
    Mutant(
        "the task sessions of a dead worker live on",
        ((WORKERS, "await tx.execute(END_SESSIONS)", "pass"),),
        OF_FROZEN,
        only="freeze",
    ),
    Mutant(
        "a supervisor believes every exit code 0",
        (
            (
                "engine/supervisor.py",
                "return self.code == 0 and self.has_drained",
                "return self.code == 0",
            ),
        ),
        only="exit",
        seconds=20.0,
    ),
    Mutant(
        "the pacemaker opens its store after the registration",
        (
            (
                "engine/worker.py",
                "await self._pacemaker.open()  # before there is a lease to renew",
                "pass",
            ),
            (
                "engine/lease.py",
                'assert self._store is not None, "open() comes first"',
                "await self._open(); assert self._store is not None",
            ),
        ),
        only="slow",
        seconds=20.0,
    ),
    Mutant(
        "an old primary is followed",
        (("store/postgres/connection.py", "if timeline < self.timeline:", "if False:"),),
        ("tests/store/postgres/test_connection_failover.py",),
        only="cut",
    ),
)


def noticed(mutant: Mutant, seconds: float) -> str:
    """Return the checks that failed; empty: none."""
    with tempfile.TemporaryDirectory(prefix="daybell-mutant-") as folder:
        source = copy_of(mutant, Path(folder), is_once=False)
        words = [*CHAOS, "--seconds", str(max(seconds, mutant.seconds))]
        if mutant.only is not None:
            words += ["--only", mutant.only]
        said = run(words, source, Path(folder))
        if found := re.search(r"^violations +(?!none| )(.*)", said, re.MULTILINE):
            return f"chaos: {found[1]}"
        if not re.search(r"^violations +none", said, re.MULTILINE):
            # That proves nothing about the checker: the copy may not even be importable.
            say(f"chaos broke off: {(said.strip().splitlines() or ['in silence'])[-1]}")
        if not mutant.changes:
            return ""
        said = run([*TESTS, *mutant.tests], source, Path(folder), TESTS_PATIENCE_SECONDS)
        found = re.search(r"^FAILED (\S+)", said, re.MULTILINE)
        return f"tests: {found[1].partition('::')[2]}" if found else ""


def run(words: list[str], source: Path, folder: Path, patience: int = PATIENCE_SECONDS) -> str:
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder),
    }
    folder.chmod(0o755)  # the user of PostgreSQL must be able to read it
    with (folder / "said").open("w+") as said:
        try:
            subprocess.run(
                words,
                cwd=ROOT,
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=patience,
            )
        except subprocess.TimeoutExpired:
            say(f"{' '.join(words[1:4])} took longer than {patience} s and was ended")
        said.seek(0)
        return said.read()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mutants")
    parser.add_argument("names", nargs="*", help="only those whose name has one of these in it")
    parser.add_argument("--seconds", type=float, default=14.0, help="of chaos on each")
    # `make mutants ARGS=…` passes the same to the mutants of the simulation, which have more
    # options.
    asked, _ = parser.parse_known_args()
    chosen = [
        mutant
        for mutant in MUTANTS
        if not asked.names or any(part in mutant.name for part in asked.names)
    ]
    if not chosen:
        return 0
    count = 0
    for mutant in chosen:
        by = noticed(mutant, asked.seconds)
        count += bool(by)
        say(f"{'red' if by else 'NOT NOTICED'}  {mutant.name}  ({by[:140] or 'by nobody'})")
    say(f"{count} of {len(chosen)} mutants were noticed")
    if by := noticed(Mutant("nothing", ()), asked.seconds):
        say(f"but the code as it is turns red too: {by}")
        return 1
    return int(count < len(chosen))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
