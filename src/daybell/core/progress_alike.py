"""How one node starts many that wait alike: decided about once, and started as one.

Thousands of nodes after one mostly run the same, under the same rule. Whatever is different about
one of them, it is told and started by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from daybell.core.limits import ARGS_BYTES_MAX
from daybell.core.outputs import may_refer
from daybell.core.progress_hand import Asking, read_spec
from daybell.core.progress_start import Starter
from daybell.core.rules import Counts, Decision, Fate, decide
from daybell.core.run import Alike, Many, Waiting

ALIKE_MIN: Final = 20  # children that are worth a look


class Herder(Starter):
    """Starts nodes by the hundred."""

    def start_alike(self, most: int) -> Asking:
        """Of the children of the one node that has something to tell, start those that are like
        others. They are `taken` from then on: their rows are not in hand, and nobody else has
        anything to say about them.
        """
        ((name, first),) = self.telling.items()
        parent = self.nodes[name]
        edges = parent.edges[first : first + most]
        if len(edges) < ALIKE_MIN or self.run.max_running is not None or self.stopping is not None:
            return
        if any(condition is not None for _, condition in edges):
            return
        known = self.nodes.keys() | self.taken
        labels = tuple(label for label, _ in edges if label not in known)
        if len(labels) < ALIKE_MIN:
            return
        yield from self.ask_room()
        if self.is_limited:
            return
        found: Sequence[Waiting] = yield Alike(labels)
        for waiting in found:
            spec = read_spec(waiting.spec)
            parents = _with_one_more(waiting.parents, parent.fate())
            if decide(waiting.rule, parents) is not Decision.RUN:
                continue
            is_short = len(spec.args) <= ARGS_BYTES_MAX // 4  # else it is looked at by itself
            if spec.job is None and spec.map is None and is_short and not may_refer(spec.args):
                self.many.append(Many(waiting, parents, spec))
                self.taken.update(waiting.labels)
                self.running += len(waiting.labels)
                self.budget -= len(waiting.labels)


def _with_one_more(counts: Counts, fate: Fate) -> Counts:
    match fate:
        case Fate.SUCCEEDED:
            return replace(counts, succeeded=counts.succeeded + 1)
        case Fate.FAILED:
            return replace(counts, failed=counts.failed + 1)
        case Fate.SKIPPED:
            return replace(counts, skipped=counts.skipped + 1)
