"""Workflows as pure decisions: graph, rules, expressions, progress and restart of a run."""
