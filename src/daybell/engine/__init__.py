"""What runs: claiming, executing, finishing, watching over each other.

Every part is a public `tick()` that looks at the store, decides with `core`, and writes; `loop.py`
repeats ticks. Handlers of jobs are given to the engine, which knows no SDK. Reading order: node,
dispatcher, executor, completer, heartbeat, reaper, leader, janitor.
"""
