"""Persistence of executions: the store protocol and its implementations."""

from __future__ import annotations
