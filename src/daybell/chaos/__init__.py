"""`daybell chaos`: real processes, real faults, and a checker that compares what was promised with
what happened.

`run.py` tells the story: a load that notes what was acknowledged (`load.py`, `submissions.py`),
workers, schedulers and servers that are killed, frozen and drained (`fleet.py`) by a seeded plan
(`plan.py`), on a way to the database that loses, delays and swallows what is sent (`proxy.py`). The
tasks (`app.py`) write down what they do (`effects.py`), also those that schedules fire beside the
load (`ticks.py`), and those that are nodes of workflows (`nodes.py`, `flows.py`). `checker.py`,
`flow_checker.py`, `recovery.py` and `service.py` judge it.
"""
