"""`daybell chaos`: real processes, real faults, and a checker that compares what was promised with
what happened.

`run.py` tells the story: a load that notes what was acknowledged (`load.py`), workers and
schedulers that are killed, frozen and drained (`fleet.py`) by a seeded plan (`plan.py`), on a way
to the database that loses answers (`proxy.py`). The tasks (`app.py`) write down what they do
(`effects.py`), also those that schedules fire beside the load (`ticks.py`), and those that are
nodes of workflows (`nodes.py`, `flows.py`); `checker.py`, `flow_checker.py` and `recovery.py` judge
it.
"""
