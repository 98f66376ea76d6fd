"""How a kind of job runs. python.py: functions, on the event loop or in threads; processes.py: the
same in child processes.
"""
