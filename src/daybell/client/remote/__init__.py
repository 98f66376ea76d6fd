"""The client over HTTP, for programs and terminals that cannot reach the database."""

from __future__ import annotations
