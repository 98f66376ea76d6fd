"""An order and its mail: both, or neither. Needs PostgreSQL.

DAYBELL_DATABASE_URL names a database that `daybell migrate` has prepared.
"""

import asyncio

from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from daybell import App

app = App()
if not app.url.startswith("postgres"):
    raise SystemExit(f"needs DAYBELL_DATABASE_URL=postgresql://…, not {app.url}")
engine = create_async_engine(app.url.replace("postgresql://", "postgresql+asyncpg://"))


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@app.task
async def confirm(order_id: int) -> str:
    async with AsyncSession(engine) as session:
        order = await session.get_one(Order, order_id)  # it is there, or we would not run
        return f"order {order_id}: {order.item} is on its way"


async def buy(item: str, *, paid: bool):
    async with AsyncSession(engine) as session, session.begin():  # commits in the end
        order = Order(item=item)
        session.add(order)
        await session.flush()  # now it has an id
        handle = await confirm.options(connection=session).enqueue(order.id)
        if not paid:
            raise ValueError("the card was declined")  # rolls back the order and the mail
    return handle


async def main() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with app, app.worker():
        try:
            await buy("a boat", paid=False)
        except ValueError as error:
            print(error)
        handle = await buy("a kite", paid=True)
        print(await handle.result(timeout=30))
        print((await app.client().count()).total, "execution in all")
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())

# Expected output:
# the card was declined
# order 2: a kite is on its way
# 1 execution in all
