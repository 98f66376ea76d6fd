"""The PostgreSQL store. `migrations/0001_initial.sql` describes the layout of the tables."""

from __future__ import annotations

from daybell.store.postgres.connection import SESSIONS_BESIDE
from daybell.store.postgres.store import PostgresStore

__all__ = ["SESSIONS_BESIDE", "PostgresStore"]
