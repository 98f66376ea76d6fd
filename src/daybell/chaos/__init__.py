"""`daybell chaos`: real processes, real faults, and a checker that compares the promises with the
effects.

`run.py` is the sequence of a run. `load.py` sends requests and notes the acknowledged ones.
`fleet.py` kills, freezes and drains workers, schedulers and servers. `faults.py` draws the plan
from a seed and has the proxy that breaks connections to the database. `tasks.py` is the app under
test; its tasks write each effect to a file. `workflows.py` draws graphs. `checker.py`,
`workflow_checker.py` and `recovery.py` judge the history.
"""
