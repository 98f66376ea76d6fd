"""The PostgreSQL store. `migrations/0001_initial.sql` describes the layout of the tables."""

from __future__ import annotations

from daybell.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
