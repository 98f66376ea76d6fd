"""Connections of the drivers that people use, each with a transaction begun."""

import json
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

ROWS: Any = dict_row  # another shape than ours


def dialect(url, driver):
    return url.replace("postgresql://", f"postgresql+{driver}://")


class Given:
    """A connection, and how its transaction ends."""

    def __init__(self, connection, commit, rollback):
        self.connection = connection
        self.commit = commit
        self.rollback = rollback


@asynccontextmanager
async def of_asyncpg(url):
    connection = await asyncpg.connect(url)
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
    )
    transaction = connection.transaction()
    await transaction.start()
    yield Given(connection, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def of_asyncpg_pool(url):
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Given(connection, transaction.commit, transaction.rollback)


@asynccontextmanager
async def of_psycopg(url):
    # As hard as a connection can make it: rows of another shape, other placeholders.
    connection = await psycopg.AsyncConnection.connect(
        url, row_factory=ROWS, cursor_factory=psycopg.AsyncRawCursor
    )
    yield Given(connection, connection.commit, connection.rollback)
    await connection.close()


def of_async_engine(driver, make):
    @asynccontextmanager
    async def opened(url):
        engine = create_async_engine(dialect(url, driver), poolclass=NullPool)
        async with make(engine) as it:
            yield Given(it, it.commit, it.rollback)
        await engine.dispose()

    return opened


ASYNC = {
    "asyncpg": of_asyncpg,
    "asyncpg pool": of_asyncpg_pool,
    "psycopg": of_psycopg,
    "sqlalchemy connection, asyncpg": of_async_engine("asyncpg", lambda engine: engine.connect()),
    "sqlalchemy connection, psycopg": of_async_engine("psycopg", lambda engine: engine.connect()),
    "sqlalchemy session, asyncpg": of_async_engine("asyncpg", AsyncSession),
}


@contextmanager
def of_psycopg_sync(url):
    with psycopg.connect(url, row_factory=ROWS) as connection:
        yield Given(connection, connection.commit, connection.rollback)


def of_engine(driver, make):
    @contextmanager
    def opened(url):
        engine = sqlalchemy.create_engine(dialect(url, driver), poolclass=NullPool)
        it = make(engine)
        yield Given(it, it.commit, it.rollback)
        it.close()
        engine.dispose()

    return opened


SYNC = {
    "psycopg": of_psycopg_sync,
    "sqlalchemy connection, psycopg": of_engine("psycopg", lambda engine: engine.connect()),
    "sqlalchemy connection, psycopg2": of_engine("psycopg2", lambda engine: engine.connect()),
    "sqlalchemy session, psycopg2": of_engine("psycopg2", Session),
    "sqlalchemy scoped session": of_engine(
        "psycopg", lambda engine: scoped_session(sessionmaker(engine))
    ),
}
