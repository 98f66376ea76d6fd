"""Processor time of processes."""

from __future__ import annotations

from pathlib import Path


def tree_cpu(pid: int) -> float:
    """The processor seconds of a process, its threads and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return thread_cpu(pid) + sum(tree_cpu(int(child)) for child in children)


def thread_cpu(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task")
    return sum(process_cpu(f"{pid}/task/{one.name}") for one in tasks.iterdir())


def process_cpu(pid: str) -> float:
    """Return the processor seconds of one single-threaded process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0
