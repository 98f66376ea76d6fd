"""The store that fleets run on. `migrations/0001_initial.sql` tells how executions are kept."""

from daybell.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
