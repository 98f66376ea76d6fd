"""Breaks the code on purpose, one promise at a time, and demands that the simulation notices.

python -m tests.simulation.mutants [--seeds 500] [name …]

A simulation that stays green whatever the code does proves nothing. Each mutant is made in a copy
of the source; none of them is ever in the checkout.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutating import ROOT, copy_of
from tests.simulation.control_mutants import OF_CONTROLS
from tests.simulation.dependent_mutants import OF_DEPENDENTS
from tests.simulation.flow_mutants import OF_FLOWS
from tests.simulation.schedule_mutants import OF_SCHEDULES

COMMAND: Final = (sys.executable, "-m", "tests.simulation", "--until-broken")
FLAGS: Final = {
    "plain": (),
    "flows": ("--flows",),
    "dependents": ("--dependents",),
    "controls": ("--controls",),
}


@dataclass(frozen=True)
class Mutant:
    """A way to break the code: in these files, these texts become others."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    cluster: str = "plain"  # or another of FLAGS


FENCE: Final = '"tenant = ? AND id = ? AND attempt = ? AND lease = ? AND worker = ? AND state = 5"'
SUCCEED: Final = "id = column6 AND attempt = column7 AND +lease = column8 AND +worker = ?"
JUDGED: Final = "(state, attempt, lease, holder) != (5, move.attempt, move.lease.bytes, worker)"
GIVEN: Final = "? IS NOT NULL"
ALONE: Final = "sole = run.claimed.id"
SILENT: Final = "if watch.silence(renewed_at, tx.now, since=since) > lease_until - renewed_at:"

MUTANTS: Final = (
    Mutant(
        "the guard of an end forgets attempt and lease",
        (
            (
                "store/sqlite/queue.py",
                FENCE,
                f'"tenant = ? AND id = ? AND {GIVEN} AND {GIVEN} AND worker = ? AND state = 5"',
            ),
            ("store/sqlite/queue.py", SUCCEED, "id = column6 AND +worker = ?"),
            ("store/sqlite/queue.py", JUDGED, "(state, holder) != (5, worker)"),
        ),
    ),
    Mutant(
        "a dead letter is revived before its end is counted",
        (("store/sqlite/queue.py", "while fold_ends(tx, FOLD_BATCH_MAX):", "while False:"),),
    ),
    Mutant(
        "events leave the outbox before their deliveries are enqueued",
        (
            (
                "engine/upkeep.py",
                "                await self._store.admin.dispatch(one)\n",
                "                await self._store.admin.dispatch(type(one)(tenant=one.tenant,"
                " numbers=one.numbers))\n"
                "                await self._store.catalog.define_jobs(one.tenant, one.jobs)\n"
                "                await self._store.queue.enqueue(one.tenant, one.executions)\n",
            ),
        ),
    ),
    Mutant(
        "an end leaves the record before it enters the outbox",
        (
            ("store/sqlite/stats.py", "    write_outbox(tx, rows[-1][0])\n", ""),
            (
                "store/sqlite/store.py",
                "        has_more = has_ends and",
                "        await self.db.write(lambda tx: stats.write_outbox(tx, 10**9))\n"
                "        has_more = has_ends and",
            ),
        ),
    ),
    Mutant(
        "events about one execution are delivered at once",
        (("core/subscription.py", "gate = None if event.is_alone else", "gate = None and"),),
    ),
    Mutant(
        "whatever runs is ended by its id",
        (
            (
                "store/sqlite/queue.py",
                FENCE,
                f'"tenant = ? AND id = ? AND {GIVEN} AND {GIVEN} AND {GIVEN} AND state = 5"',
            ),
            ("store/sqlite/queue.py", SUCCEED, f"id = column6 AND {GIVEN}"),
            ("store/sqlite/queue.py", JUDGED, "state != 5"),
        ),
    ),
    Mutant(
        "a success is written by id, whatever the state",
        (
            (
                "store/sqlite/queue.py",
                f"{SUCCEED}\n   AND state = 5 AND cancel_requested_at IS NULL AND gate IS NULL",
                f"id = column6 AND {GIVEN}",
            ),
        ),
    ),
    Mutant(
        "progress is written without a guard",
        (
            (
                "store/sqlite/queue.py",
                "       checkpoint = ifnull(?, checkpoint)\n WHERE {FENCE}",
                "       checkpoint = ifnull(?, checkpoint)\n"
                " WHERE tenant = ? AND id = ? AND coalesce(?, ?, ?) IS NOT NULL",
            ),
        ),
    ),
    Mutant(
        "answered before the commit",
        (
            (
                "store/sqlite/connection.py",
                '            retry_while_busy(lambda: session.connection.execute("COMMIT"))\n',
                "            try:\n"
                '                retry_while_busy(lambda: session.connection.execute("COMMIT"))\n'
                "            except sqlite3.Error:\n"
                "                session.roll_back()\n",
            ),
        ),
    ),
    Mutant(
        "the reaper ignores the lease",
        (
            (
                "store/sqlite/workers.py",
                "WHERE state <= 2 AND lease_until < ?",
                "WHERE state <= 2 AND ? IS NOT NULL",
            ),
            ("store/sqlite/workers.py", SILENT, "if True:"),
        ),
    ),
    Mutant(
        "a node vouches for the clock before its own start",
        (
            (
                "engine/upkeep.py",
                "since=max(self._since, self._clock.steady_since()),",
                "since=-inf,",
            ),
        ),
    ),
    Mutant(
        "a lease counts from its renewal, whatever the clock did",
        (("store/sqlite/workers.py", SILENT, "if True:"),),
    ),
    Mutant(
        "what nobody has watched is taken for watched",
        (
            (
                "core/worker.py",
                "*(start for start, end in known.spans if end >= since)",
                "*(start for start, _ in known.spans)",
            ),
            ("core/worker.py", "if span[1] < since", "if False"),
        ),
    ),
    Mutant(
        "time that two have watched counts twice",
        (("core/worker.py", "min(end, since) - max(start, renewed_at)", "end - renewed_at"),),
    ),
    Mutant(
        "a jump is not taken out of the record",
        (
            ("store/sqlite/workers.py", "if is_even else UNWATCHED", ""),
            ("store/sqlite/workers.py", "    if not is_even:\n        return\n", ""),
        ),
    ),
    Mutant(
        "a dead worker may renew",
        (("store/sqlite/workers.py", "if row is None or row[0] == DEAD:", "if row is None:"),),
    ),
    Mutant(
        "the completer forgets ends when the store is away",
        (
            (
                "engine/report.py",
                "        if isinstance(first, known) or not isinstance(first, Exception):\n"
                "            raise first\n",
                "        if isinstance(first, known) or not isinstance(first, Exception):\n"
                "            del self._waiting[:count]\n"
                "            raise first\n",
            ),
        ),
    ),
    Mutant(
        "work goes on when the lease is lost",
        (("engine/worker.py", "        self.executor.stop_all(Stop.ABANDON)\n", ""),),
    ),
    Mutant(
        "nobody watches how old the lease is",
        (
            (
                "engine/lease.py",
                "            return left\n",
                "            return left\n        return None\n",
            ),
        ),
    ),
    Mutant(
        "who thaws begins with what it was given",
        (
            (
                "engine/claim.py",
                "if now >= self._executor.held_until:",
                "if False:",
            ),
            ("engine/execute.py", "if self._clock.monotonic() >= self.held_until:", "if False:"),
        ),
    ),
    Mutant(
        "a suspect ends dead because of its neighbours",
        (("core/lifecycle.py", "is_blamed = is_sole or not is_suspect", "is_blamed = True"),),
    ),
    Mutant(
        "every suspect is on record as the only one",
        (("engine/report.py", "sole = run.claimed.id if is_alone() else None", ALONE),),
    ),
    Mutant(
        "the last suspects run side by side",
        (
            (
                "engine/execute.py",
                "if len(tested) >= min(map(group_size, (first, *tested))):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "a suspect begins before that is on record",
        (
            (
                "engine/execute.py",
                "if is_suspected and (back := await self._record_suspect(run)):",
                "if (back := None):",
            ),
        ),
    ),
    Mutant(
        "a claim without an answer is asked for under another id",
        (
            (
                "engine/claim.py",
                "if self._asked is None and limit > 0:",
                "if limit > 0:",
            ),
        ),
    ),
    Mutant(
        "a renewal names no claims",
        (
            (
                "engine/lease.py",
                "leases=leases\n                )",
                "leases=[]\n                )",
            ),
        ),
    ),
    Mutant(
        "a success overwrites a cancel",
        (
            (
                "store/sqlite/queue.py",
                "state = 5 AND cancel_requested_at IS NULL AND gate IS NULL\n",
                "state = 5 AND gate IS NULL\n",
            ),
        ),
    ),
    Mutant(
        "an enqueue is repeated under another id",
        (
            (
                "client/context.py",
                "self._tenant, [new for new, _, _ in group], repeat=repeat, entries=entries\n",
                "self._tenant, [replace(new, id=mint()) if repeat else new"
                " for new, _, _ in group]\n",
            ),
            (
                "client/context.py",
                "from daybell.core.units import Seconds\n",
                "from msgspec.structs import replace\n"
                "from daybell.core.ids import mint\n"
                "from daybell.core.units import Seconds\n",
            ),
        ),
    ),
    Mutant(
        "a lost worker is not counted",
        (("core/lifecycle.py", "replace(move, crashes=crashes)", "replace(move)"),),
    ),
    Mutant(
        "a worker that stopped because the store was late is charged for",
        (("engine/upkeep.py", "                is_excused=entry.is_excused,\n", ""),),
    ),
    Mutant(
        "a worker that stopped because the store was late is charged for",
        (("store/sqlite/workers.py", "is_excused=bool(is_excused)", "is_excused=False"),),
    ),
    Mutant(
        "what is given back is charged as a failure",
        (
            (
                "core/lifecycle.py",
                "    return _move(claimed, State.QUEUED, Outcome.RELEASED, delay=delay, ran=ran)\n",
                "    move = _move(claimed, State.QUEUED, Outcome.RELEASED, delay=delay, ran=ran)\n"
                "    return msgspec.structs.replace(move, failures=claimed.failures + 1)\n",
            ),
        ),
    ),
    *(Mutant(*one) for one in OF_SCHEDULES),
    *(Mutant(*one, cluster="flows") for one in OF_FLOWS),
    *(Mutant(*one, cluster="dependents") for one in OF_DEPENDENTS),
    *(Mutant(*one, cluster="controls") for one in OF_CONTROLS),
)


def runs_until_red(mutant: Mutant, seeds: int) -> tuple[int | None, str]:
    """After how many runs it was noticed, and by what; None: never."""
    with tempfile.TemporaryDirectory(prefix="daybell-mutant-") as folder:
        source = copy_of(mutant, Path(folder), is_once=True)
        limit = 60 + seeds
        with subprocess.Popen(
            [*COMMAND, "--seeds", str(seeds), *FLAGS[mutant.cluster]],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as runs:
            # Of CPU time: the machine may be busy. A simulation waits for nothing outside of it.
            resource.prlimit(runs.pid, resource.RLIMIT_CPU, (limit, limit))
            output, errors = runs.communicate()
    if found := re.search(r"^broken by run (\d+)", output, re.MULTILINE):
        return int(found[1]), output.partition("\n")[0].partition(": ")[2]
    if runs.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
        return None, f"not done with {seeds} runs after {limit} s of CPU time"
    return None, (errors.strip().splitlines() or [""])[-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("names", nargs="*", help="only those whose name has one of these in it")
    parser.add_argument("--seeds", type=int, default=500, help="how many to try on each")
    options = parser.parse_args()
    chosen = [
        mutant
        for mutant in MUTANTS
        if not options.names or any(part in mutant.name for part in options.names)
    ]
    noticed: list[int] = []
    for mutant in chosen:
        runs, said = runs_until_red(mutant, options.seeds)
        if runs is not None:
            noticed.append(runs)
        verdict = f"red after {runs:>3}" if runs is not None else "NOT NOTICED  "
        say(f"{verdict}  {mutant.name}: {said[:110]}")
    say(f"{len(noticed)} of {len(chosen)} mutants were noticed")
    return int(len(noticed) < len(chosen) or is_red_anyway(max(noticed, default=1)))


def is_red_anyway(seeds: int) -> bool:
    """Whether so many runs notice something where nothing was broken: then they prove nothing."""
    for cluster in FLAGS:
        runs, said = runs_until_red(Mutant("nothing", (), cluster), seeds)
        if runs is not None:
            say(f"but the code as it is turns red too, after {runs}: {said}")
            return True
    return False


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
