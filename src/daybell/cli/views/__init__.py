"""Terminal views: executions, jobs, logs as they arrive, and the screen of `daybell top`."""
