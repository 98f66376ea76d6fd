"""Statistics over time, and metrics."""
