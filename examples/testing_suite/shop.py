"""A small shop whose tests are beside it. Nothing in here knows of them."""

from daybell import App, Context, Retry

app = App()  # DAYBELL_DATABASE_URL; the tests never ask for it
outbox: list[str] = []


@app.task(retries=Retry.delays("10s", "1m"), queue="mail")
async def send_email(ctx: Context, to: str, subject: str) -> None:
    if to.endswith("@down.example") and ctx.attempt == 1:
        raise ConnectionError("the mail server does not answer")
    outbox.append(f"{subject} -> {to}")


@app.task
def ship(order: int, to: str) -> str:
    send_email.sync.enqueue(to, subject=f"Order {order} is on its way")
    return f"parcel-{order}"


async def place_order(order: int, to: str) -> None:
    await ship.options(unique_key=f"ship-{order}").enqueue(order, to)
    await send_email.options(delay="14d").enqueue(to, subject=f"How was order {order}?")
