"""Runners: one module per kind of job, and the processes and connections they use."""

from __future__ import annotations
