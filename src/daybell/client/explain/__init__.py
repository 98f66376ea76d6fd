"""Explanations: the reason why an execution, a job or a queue does not go on, and its remedies."""
