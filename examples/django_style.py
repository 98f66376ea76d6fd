"""As in a Django project: a view and a task, without any async. Needs PostgreSQL.

DAYBELL_DATABASE_URL names a database that `daybell migrate` has prepared. In Django, the table
is that of a model, and the connection that is passed on is `connection.connection` of `django.db`.
"""

import asyncio
import threading

import psycopg

from daybell import App

app = App()  # DAYBELL_DATABASE_URL, the same database as the project's
if not app.url.startswith("postgres"):
    raise SystemExit(f"needs DAYBELL_DATABASE_URL=postgresql://…, not {app.url}")
done = threading.Event()


@app.task(retries=3, timeout="30s")
def send_receipt(order: int) -> str:  # tasks.py; runs in a thread of `daybell worker`
    with psycopg.connect(app.url) as connection:
        select = "SELECT item FROM example_order WHERE id = %s"
        item = connection.execute(select, [order]).fetchone()
    return f"receipt for {item and item[0]}"


def buy(item: str, *, is_paid: bool = True):  # views.py
    with psycopg.connect(app.url) as connection:  # with transaction.atomic():
        insert = "INSERT INTO example_order (item) VALUES (%s) RETURNING id"
        order = connection.execute(insert, [item]).fetchone()[0]
        handle = send_receipt.options(connection=connection).sync.enqueue(order)
        if not is_paid:
            raise ValueError(f"{item} is not paid")  # neither order nor receipt
    return handle


async def work() -> None:  # usually a process of its own: daybell worker shop.tasks:app
    async with app.worker():
        await asyncio.to_thread(done.wait)


with psycopg.connect(app.url) as setup:  # manage.py migrate
    setup.execute("CREATE TABLE IF NOT EXISTS example_order (id serial, item text)")

worker = threading.Thread(target=asyncio.run, args=[work()])
worker.start()
print(buy("a kite").result(timeout=30))
try:
    buy("a boat", is_paid=False)
except ValueError as error:
    print(error)
with psycopg.connect(app.url) as look:
    print(look.execute("SELECT count(*) FROM example_order").fetchone()[0], "order")
done.set()
worker.join()

# Expected output:
# receipt for a kite
# a boat is not paid
# 1 order
